package yamldoc

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Setter can be decoded from a scalar's text: its own notation, or the short form of a mapping or
// a list.
type Setter interface{ Set(text string) error }

// A ListSetter can also be decoded from a list of strings.
type ListSetter interface{ SetList(texts []string) error }

// A Notation is a Setter that is always written as a scalar, whatever its Go type.
type Notation interface {
	Setter
	// Notation describes the form: a name ("a duration"), a pattern, and examples.
	Notation() (name, pattern, example string)
}

// A NodeSetter stores the node itself, to be decoded later.
type NodeSetter interface{ SetNode(n *Node) }

// Raw is a value to be decoded later.
type Raw struct{ *Node }

func (r *Raw) SetNode(n *Node) { r.Node = n }

// Scalars says how strictly the kind of a scalar is checked.
type Scalars uint8

const (
	Typed   Scalars = iota // a number is accepted as text: the version 1.10 and the name 007 need no quotes
	Exact                  // kinds must match, as in JSON
	Untyped                // only the field's type counts; quotes make no difference
)

// A Decoder decodes nodes into Go values and reports values that do not fit. It continues after
// errors.
type Decoder struct {
	Report  func(*Error)
	Root    string // path of the decoded value
	Scalars Scalars
	Single  bool // a single string or whole number is accepted as a list

	// Rewrite changes nodes to match their type: a single value to a list, a number to text.
	Rewrite bool
	// Names returns the values allowed by the tag names:"KIND" of a field; nil allows any.
	Names func(kind string) []string
	// CheckText checks each text and returns what is wrong and what to do, or "". May be nil.
	CheckText func(text string) (msg, hint string)
	// Hint returns what to do about a value of the wrong type, or "". May be nil.
	Hint func(path string, n *Node) string

	failed int
}

// A Field holds the tags of a struct's field.
type Field struct {
	Name, Doc string
	Enum      []string
	Min, Max  *float64
	Names     string // argument of Decoder.Names
	Required  bool
	Type      reflect.Type
	index     []int
}

// Fields returns the fields of a struct that have a json or yaml name, including those of embedded
// structs.
func Fields(t reflect.Type) []Field {
	var out []Field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name, _, _ = strings.Cut(f.Tag.Get("yaml"), ",")
		}
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			for _, x := range Fields(f.Type) {
				x.index = append([]int{i}, x.index...)
				out = append(out, x)
			}
			continue
		case !f.IsExported() || name == "" || name == "-":
			continue
		}
		x := Field{Name: name, Doc: f.Tag.Get("doc"), Names: f.Tag.Get("names"), Type: f.Type, index: []int{i}}
		x.Required = f.Tag.Get("required") != ""
		if e := f.Tag.Get("enum"); e != "" {
			x.Enum = strings.Split(e, ",")
		}
		x.Min, x.Max = bound(f.Tag.Get("min")), bound(f.Tag.Get("max"))
		out = append(out, x)
	}
	return out
}

func bound(s string) *float64 {
	if s == "" {
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic("yamldoc: bad bound in a tag: " + s)
	}
	return &f
}

// Supported returns an error if a Decoder cannot decode the options struct t: a field of another type
// than those it knows, or a tag that cannot be used. Otherwise the first configuration that sets the
// field would be the first to fail.
func Supported(t reflect.Type) error { return supported(t, map[reflect.Type]bool{}) }

func supported(t reflect.Type, seen map[reflect.Type]bool) error {
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("%s is not a struct", t)
	}
	if seen[t] {
		return nil
	}
	seen[t] = true
	for i := range t.NumField() {
		for _, tag := range []string{"min", "max"} {
			s := t.Field(i).Tag.Get(tag)
			if _, err := strconv.ParseFloat(s, 64); s != "" && err != nil {
				return fmt.Errorf("%s.%s: the tag %s:%q is not a number", t, t.Field(i).Name, tag, s)
			}
		}
	}
	for _, f := range Fields(t) {
		if err := supportedValue(f.Type, seen); err != nil {
			return fmt.Errorf("%s: option %q: %w", t, f.Name, err)
		}
		if f.Min != nil && f.Max != nil && *f.Min > *f.Max {
			return fmt.Errorf("%s: option %q: min is above max", t, f.Name)
		}
	}
	return nil
}

func supportedValue(t reflect.Type, seen map[reflect.Type]bool) error {
	p := reflect.PointerTo(t)
	for _, own := range []reflect.Type{reflect.TypeFor[NodeSetter](), reflect.TypeFor[Setter](),
		reflect.TypeFor[json.Unmarshaler]()} {
		if p.Implements(own) {
			return nil
		}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return supportedValue(t.Elem(), seen)
	case reflect.Struct:
		return supported(t, seen)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 { // base64
			return nil
		}
		return supportedValue(t.Elem(), seen)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("%s: the keys of a mapping must be strings", t)
		}
		return supportedValue(t.Elem(), seen)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("the type %s is not supported", t)
		}
		return nil
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32,
		reflect.Uint64, reflect.Float64:
		if t == reflect.TypeFor[time.Duration]() {
			return errors.New("a time.Duration would be a number of nanoseconds: use a string and parse it")
		}
		return nil
	}
	return fmt.Errorf("the type %s is not supported", t)
}

// Single reports whether a single value is accepted as a list of this element type.
func Single(elem reflect.Type) bool {
	return slices.Contains([]reflect.Kind{reflect.String, reflect.Int, reflect.Int64}, elem.Kind())
}

// Decode decodes n into the value that v points to.
func (d *Decoder) Decode(n *Node, v any) { d.decode(n, reflect.ValueOf(v).Elem(), d.Root) }

// Decode decodes n into the value that v points to, with the rules of a zero Decoder.
func Decode(n *Node, v any) error {
	var errs Errors
	(&Decoder{Report: errs.Add}).Decode(n, v)
	return errs.Err()
}

func (d *Decoder) fail(at Pos, path, msg, hint string) {
	d.failed++
	d.Report(&Error{Pos: at, Key: path, Msg: msg, Hint: hint})
}

// check reports err if it is not nil.
func (d *Decoder) check(n *Node, path string, err error) {
	if err != nil {
		d.fail(n.Pos, path, strings.TrimPrefix(err.Error(), "json: "), "")
	}
}

var rawType = reflect.TypeFor[json.RawMessage]()

// decode decodes n into v. A null counts as a missing key.
func (d *Decoder) decode(n *Node, v reflect.Value, path string) {
	t := v.Type()
	switch {
	case n.Kind == Null:
		return
	case t == rawType:
		b, err := n.JSON()
		v.SetBytes(b)
		d.check(n, path, err)
		return
	}
	if t.Kind() != reflect.Pointer && d.own(n, v, path) {
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		p := reflect.New(t.Elem())
		d.decode(n, p.Elem(), path)
		v.Set(p)
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Map:
		if n.Kind != Map {
			d.wrong(n, path, orText(v, "a mapping"))
			return
		}
		m := reflect.MakeMapWithSize(t, len(n.Entries))
		for _, e := range n.Entries {
			if e.Value.Kind == Null && d.Scalars != Untyped {
				continue
			}
			x := reflect.New(t.Elem()).Elem()
			d.decode(e.Value, x, Join(path, e.Key))
			m.SetMapIndex(reflect.ValueOf(e.Key), x)
		}
		v.Set(m)
	case reflect.Interface:
		b, err := n.JSON()
		if err == nil {
			err = json.Unmarshal(b, v.Addr().Interface())
		}
		d.check(n, path, err)
	default:
		d.scalar(n, v, path)
	}
}

// own handles types that decode themselves. It reports whether v is of such a type and n in its
// notation.
func (d *Decoder) own(n *Node, v reflect.Value, path string) bool {
	switch s := v.Addr().Interface().(type) {
	case NodeSetter:
		s.SetNode(n)
		return true
	case Setter:
		l, list := s.(ListSetter)
		if list && n.Kind == List {
			texts := make([]string, len(n.Items))
			before := d.failed
			for i, x := range n.Items {
				if x.Kind != String && (d.Scalars == Exact || !x.Scalar()) {
					d.wrong(x, fmt.Sprintf("%s[%d]", path, i), "text")
				}
				texts[i] = x.Text
			}
			if d.failed == before {
				d.check(n, path, l.SetList(texts))
			}
			return true
		}
		name, example := "", ""
		if x, ok := s.(Notation); ok {
			name, _, example = x.Notation()
		}
		switch {
		case !n.Scalar() || n.Kind == Bool && d.Scalars != Untyped:
			if name == "" {
				return false
			}
			d.wrong(n, path, name)
		case name == "" && n.Kind != String && d.Scalars != Untyped:
			return false
		default:
			if err := s.Set(n.Text); err != nil {
				hint := ""
				if example != "" {
					hint = "write it as " + example
				}
				d.fail(n.Pos, path, err.Error(), hint)
			}
		}
		return true
	case json.Unmarshaler: // a type of another package with its own notation
		b, err := n.JSON()
		if err == nil {
			err = s.UnmarshalJSON(b)
		}
		d.check(n, path, err)
		return true
	}
	return false
}

func (d *Decoder) list(n *Node, v reflect.Value, path string) {
	t := v.Type()
	if t.Elem().Kind() == reflect.Uint8 && n.Scalar() {
		b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Text), ""))
		v.SetBytes(b)
		d.check(n, path, err)
		return
	}
	if n.Kind != List {
		if !d.Single || !Single(t.Elem()) || n.Kind == Map {
			d.wrong(n, path, orText(v, "a list"))
			return
		}
		one := *n
		list := Node{Kind: List, Items: []*Node{&one}, Pos: n.Pos, up: n.up}
		if d.Rewrite {
			*n = list
		}
		n = &list
	}
	s := reflect.MakeSlice(t, len(n.Items), len(n.Items))
	for i, x := range n.Items {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case x.Kind != Null:
			d.decode(x, s.Index(i), at)
		case d.Scalars != Untyped:
			d.wrong(x, at, "a value")
		case t.Elem().Kind() == reflect.String:
			s.Index(i).SetString(x.Text)
		}
	}
	v.Set(s)
}

// orText adds a type's short form to the description of its long form.
func orText(v reflect.Value, want string) string {
	if _, ok := v.Addr().Interface().(Setter); ok {
		return "text or " + want
	}
	return want
}

func (d *Decoder) scalar(n *Node, v reflect.Value, path string) {
	text := d.Scalars == Untyped || n.Pos.Line == 0 // values of flags are text, so their content decides
	numeric := n.Kind == Int || n.Kind == Float || n.Kind == String && text
	var err error
	want := ""
	switch v.Kind() {
	case reflect.String:
		if n.Kind != String && (!n.Scalar() || d.Scalars == Exact || n.Kind == Bool && d.Scalars != Untyped) {
			d.wrong(n, path, "text")
			return
		}
		if d.CheckText != nil {
			if msg, hint := d.CheckText(n.Text); msg != "" {
				d.fail(n.Pos, path, msg, hint)
				return
			}
		}
		if d.Rewrite {
			n.Kind = String
		}
		v.SetString(n.Text)
		return
	case reflect.Bool:
		want = "true or false"
		if numeric = n.Kind == Bool || n.Kind == String && d.Scalars == Untyped; numeric {
			var b bool
			b, err = strconv.ParseBool(strings.ToLower(n.Text))
			numeric = len(n.Text) > 1 // 1 and t are not accepted as true here
			v.SetBool(b)
		}
	case reflect.Int, reflect.Int64, reflect.Int32:
		want = "a whole number"
		var i int64
		i, err = strconv.ParseInt(n.digits(), 10, v.Type().Bits())
		numeric = numeric && n.Kind != Float
		v.SetInt(i)
	case reflect.Uint64, reflect.Uint32, reflect.Uint:
		want = "a whole number from 0 on"
		var i uint64
		i, err = strconv.ParseUint(n.digits(), 10, v.Type().Bits())
		numeric = numeric && n.Kind != Float
		v.SetUint(i)
	case reflect.Float64:
		want = "a number"
		var f float64
		f, err = strconv.ParseFloat(n.digits(), 64)
		numeric = numeric && f-f == 0 // neither infinity nor NaN
		if digits, _, _ := strings.Cut(strings.ToLower(n.Text), "e"); f == 0 && strings.ContainsAny(digits, "123456789") {
			numeric = false // too small, and 0 often means no limit
		}
		v.SetFloat(f)
	default:
		panic("yamldoc: no way to decode " + v.Type().String())
	}
	if !numeric || err != nil {
		v.SetZero()
		d.wrong(n, path, want)
	}
}

// Found describes a value for an error message: a short scalar as it is, anything else by its kind.
func (n *Node) Found() string {
	switch {
	case n.Kind == String && len(n.Text) < 40:
		return strconv.Quote(n.Text)
	case n.Scalar() && n.Kind != String:
		return n.Text
	}
	return n.Kind.String()
}

func (d *Decoder) wrong(n *Node, path, want string) {
	hint := ""
	if want == "text" && n.Kind == Bool {
		hint = "put it in quotes"
	} else if d.Hint != nil {
		hint = d.Hint(path, n)
	}
	d.fail(n.Pos, path, fmt.Sprintf("expected %s, found %s", want, n.Found()), hint)
}

func (d *Decoder) structure(n *Node, v reflect.Value, path string) {
	if n.Kind != Map {
		d.wrong(n, path, orText(v, "a mapping"))
		return
	}
	fields := Fields(v.Type())
	for _, e := range n.Entries {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == e.Key })
		if i < 0 {
			names := make([]string, len(fields))
			for j, f := range fields {
				names[j] = f.Name
			}
			d.fail(e.Pos, Join(path, e.Key), "unknown key", DidYouMean(e.Key, names))
			continue
		}
		f := fields[i]
		before := d.failed
		x := v.FieldByIndex(f.index)
		d.decode(e.Value, x, Join(path, f.Name))
		if d.failed == before && e.Value.Kind != Null {
			d.bounds(f, e.Value, x, Join(path, f.Name))
		}
	}
	for _, f := range fields {
		if f.Required && n.Get(f.Name) == nil {
			d.fail(n.Pos, path, fmt.Sprintf("the key %q is missing", f.Name), "")
		}
	}
}

// bounds checks a value against the tags of its field.
func (d *Decoder) bounds(f Field, n *Node, v reflect.Value, path string) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if f.Enum != nil {
		for _, s := range texts(v) {
			if !slices.Contains(f.Enum, s) {
				d.fail(n.Pos, path, fmt.Sprintf("%q is unknown", s), OrKnown(s, f.Enum))
			}
		}
	}
	if f.Names != "" && d.Names != nil {
		if names := d.Names(f.Names); !slices.Contains(names, v.String()) {
			d.fail(n.Pos, path, fmt.Sprintf("unknown %s %q", f.Names, v.String()), OrKnown(v.String(), names))
		}
	}
	var x float64
	switch {
	case v.Kind() == reflect.Slice:
		if f.Min != nil && float64(v.Len()) < *f.Min {
			d.fail(n.Pos, path, "the list is empty", "leave the key out for the default")
		}
		return
	case v.CanInt():
		x = float64(v.Int())
	case v.CanUint():
		x = float64(v.Uint())
	case v.CanFloat():
		x = v.Float()
	default:
		return
	}
	if f.Min != nil && x < *f.Min {
		d.fail(n.Pos, path, fmt.Sprintf("%s is too small; the least is %g", n.Text, *f.Min), "")
	}
	if f.Max != nil && x > *f.Max {
		most := strconv.FormatFloat(*f.Max, 'f', -1, 64)
		d.fail(n.Pos, path, fmt.Sprintf("%s is too large; the most is %s", n.Text, most), "")
	}
}

// texts returns a text, or those of a list.
func texts(v reflect.Value) []string {
	if v.Kind() != reflect.Slice {
		return []string{v.String()}
	}
	out := make([]string, v.Len())
	for i := range out {
		out[i] = v.Index(i).String()
	}
	return out
}

// OrKnown is like DidYouMean, but lists all names if none is near.
func OrKnown(word string, names []string) string {
	if h := DidYouMean(word, names); h != "" {
		return h
	}
	return "known: " + strings.Join(names, ", ")
}
