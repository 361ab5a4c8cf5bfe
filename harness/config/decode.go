package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A decoder fills structs from a tree, guided by the tags of their fields. It goes on after an
// error.
type decoder struct {
	reg     *Registry
	errs    *errorList
	root    string // put before every path
	failed  int    // errors that it has met, those that were known before counted
	rewrite bool   // what is decoded becomes what its type has: a list for a value alone, text for a number where text is meant
}

// field is what the tags of a struct's field say.
type field struct {
	index     int
	name, doc string
	enum      []string
	min, max  *float64
	names     string // "driver": must be one of the registry
	required  bool
	typ       reflect.Type
}

func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name, _, _ = strings.Cut(f.Tag.Get("yaml"), ",")
		}
		if !f.IsExported() || name == "" || name == "-" {
			continue
		}
		x := field{index: i, name: name, doc: f.Tag.Get("doc"), names: f.Tag.Get("names"), typ: f.Type, required: f.Tag.Get("required") != ""}
		if e := f.Tag.Get("enum"); e != "" {
			x.enum = strings.Split(e, ",")
		}
		x.min, x.max = bound(f.Tag.Get("min")), bound(f.Tag.Get("max"))
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
		panic("config: bad bound in a tag: " + s)
	}
	return &f
}

var (
	rawType         = reflect.TypeFor[json.RawMessage]()
	nodeAxis        = reflect.TypeFor[axis]()
	nodeRaw         = reflect.TypeFor[raw]()
	scalarType      = reflect.TypeFor[scalar]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// shorter is a type with a short form: one word instead of a mapping.
type shorter interface {
	short(text string, reg *Registry) error
}

func (d *decoder) fail(n *node, path, msg, hint string) {
	d.failed++
	d.errs.add(n.at, d.root+path, msg, hint)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// single reports whether one value may stand for a list of such.
func single(t reflect.Type) bool {
	return slices.Contains([]reflect.Kind{reflect.String, reflect.Int, reflect.Int64}, t.Kind())
}

// decode fills v from n. A null is as if the key were not there.
func (d *decoder) decode(n *node, v reflect.Value, path string) {
	if n.kind == kindNull {
		return
	}
	t := v.Type()
	switch t {
	case rawType:
		b, err := n.json()
		if err != nil {
			d.fail(n, path, err.Error(), "")
			return
		}
		v.SetBytes(b)
		return
	case nodeAxis:
		v.Set(reflect.ValueOf(axis{n}))
		return
	case nodeRaw:
		v.Set(reflect.ValueOf(raw{n}))
		return
	}
	if v.CanAddr() && reflect.PointerTo(t).Implements(scalarType) {
		d.scalar(n, v.Addr().Interface().(scalar), path)
		return
	}
	if v.CanAddr() && t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(unmarshalerType) { // another package's notation
		b, err := n.json()
		if err == nil {
			err = json.Unmarshal(b, v.Addr().Interface())
		}
		if err != nil {
			d.fail(n, path, last(path)+": "+strings.TrimPrefix(err.Error(), "json: "), "")
		}
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
		if n.kind != kindList {
			if single(t.Elem()) && n.kind != kindMap { // one value where a list is meant
				one := *n
				list := node{kind: kindList, list: []*node{&one}, at: n.at}
				if d.rewrite {
					*n = list
				}
				n = &list
			} else {
				d.wrong(n, path, "a list")
				return
			}
		}
		s := reflect.MakeSlice(t, len(n.list), len(n.list))
		for i, x := range n.list {
			at := fmt.Sprintf("%s[%d]", path, i)
			if x.kind == kindNull {
				d.wrong(x, at, "a value")
				continue
			}
			d.decode(x, s.Index(i), at)
		}
		v.Set(s)
	case reflect.Map:
		if n.kind != kindMap {
			d.wrong(n, path, "a mapping")
			return
		}
		m := reflect.MakeMapWithSize(t, len(n.entries))
		for _, e := range n.entries {
			if e.val.kind == kindNull {
				continue
			}
			x := reflect.New(t.Elem()).Elem()
			d.decode(e.val, x, join(path, e.key))
			m.SetMapIndex(reflect.ValueOf(e.key), x)
		}
		v.Set(m)
	case reflect.String:
		if n.kind != kindString && n.kind != kindInt && n.kind != kindFloat {
			d.wrong(n, path, "text")
			return
		}
		if secretForm.MatchString(n.text) {
			d.fail(n, path, fmt.Sprintf("%s is not replaced here", n.text), "variables are read only where a value is a secret: key, secrets")
			return
		}
		if d.rewrite {
			n.kind = kindString
		}
		v.SetString(n.text)
	case reflect.Bool:
		if n.kind != kindBool {
			d.wrong(n, path, "true or false")
			return
		}
		v.SetBool(n.text == "true")
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(n.digits(), 10, 64)
		if !numeric(n, kindInt) || err != nil {
			d.wrong(n, path, "a whole number")
			return
		}
		v.SetInt(i)
	case reflect.Uint64:
		i, err := strconv.ParseUint(n.digits(), 10, 64)
		if !numeric(n, kindInt) || err != nil {
			d.wrong(n, path, "a whole number from 0 on")
			return
		}
		v.SetUint(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.digits(), 64)
		if !numeric(n, kindInt, kindFloat) || err != nil || f-f != 0 {
			d.wrong(n, path, "a number")
			return
		}
		v.SetFloat(f)
	case reflect.Interface:
		b, err := n.json()
		if err == nil {
			var x any
			err = json.Unmarshal(b, &x)
			v.Set(reflect.ValueOf(x))
		}
		if err != nil {
			d.fail(n, path, err.Error(), "")
		}
	default:
		panic("config: no way to decode " + t.String())
	}
}

// numeric reports whether n is a number. What a flag brings is text, so there the text decides.
func numeric(n *node, kinds ...kind) bool {
	return slices.Contains(kinds, n.kind) || n.kind == kindString && n.at.line == 0
}

// oneOfMany says where several are named, of keys that take one.
var oneOfMany = map[string]string{
	"benchmark": "several are named under benchmarks",
	"agent":     "each is an arm of its own: name them under arms, or as an axis of matrix",
	"model":     "each is an arm of its own: name them under arms, or as an axis of matrix",
	"prompt":    "each is an arm of its own: name them under arms, or as an axis of matrix",
}

func (d *decoder) wrong(n *node, path, want string) {
	got := n.kind.String()
	if n.kind == kindString && len(n.text) < 40 || n.kind == kindInt || n.kind == kindFloat || n.kind == kindBool {
		got = strconv.Quote(n.text)
		if n.kind != kindString {
			got = n.text
		}
	}
	hint := ""
	switch {
	case want == "text" && n.kind == kindBool:
		hint = "put it in quotes"
	case n.kind == kindList:
		hint = oneOfMany[path]
	}
	d.fail(n, path, fmt.Sprintf("%s: expected %s, found %s", last(path), want, got), hint)
}

func last(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

func (d *decoder) scalar(n *node, v scalar, path string) {
	what, _, example := v.what()
	if l, ok := v.(interface{ setList([]string) error }); ok && n.kind == kindList {
		var items []string
		for i, x := range n.list {
			if x.kind != kindString {
				d.wrong(x, fmt.Sprintf("%s[%d]", path, i), "text")
				return
			}
			items = append(items, x.text)
		}
		if err := l.setList(items); err != nil {
			d.fail(n, path, last(path)+": "+err.Error(), "")
		}
		return
	}
	if n.kind == kindList || n.kind == kindMap || n.kind == kindBool {
		d.wrong(n, path, what)
		return
	}
	if err := v.set(n.text); err != nil {
		hint := "write it as " + example
		if _, ok := v.(*Secret); ok {
			hint = ""
		}
		d.fail(n, path, last(path)+": "+err.Error(), hint)
	}
}

func (d *decoder) structure(n *node, v reflect.Value, path string) {
	if n.kind != kindMap {
		s, ok := v.Addr().Interface().(shorter)
		if !ok || n.kind != kindString {
			d.wrong(n, path, "a mapping")
			return
		}
		if err := s.short(n.text, d.reg); err != nil {
			d.fail(n, path, last(path)+": "+err.Error(), "")
		}
		return
	}
	fields := fieldsOf(v.Type())
	for _, e := range n.entries {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == e.key })
		if i < 0 {
			names := make([]string, len(fields))
			for j, f := range fields {
				names[j] = f.name
			}
			where := ""
			if path != "" {
				where = " in " + path
			}
			d.failed++
			d.errs.add(e.at, d.root+join(path, e.key), fmt.Sprintf("unknown key %q%s", e.key, where), didYouMean(e.key, names))
			continue
		}
		f := fields[i]
		before := d.failed
		x := v.Field(f.index)
		d.decode(e.val, x, join(path, f.name))
		if d.failed == before && e.val.kind != kindNull {
			d.check(f, e.val, x, join(path, f.name))
		}
	}
	for _, f := range fields {
		if f.required && n.get(f.name) == nil {
			d.fail(n, path, fmt.Sprintf("%s needs the key %q", orConfig(path), f.name), "")
		}
	}
}

func orConfig(path string) string {
	if path == "" {
		return "this mapping"
	}
	return path
}

// check holds a value against the tags of its field.
func (d *decoder) check(f field, n *node, v reflect.Value, path string) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if f.enum != nil && !slices.Contains(f.enum, v.String()) {
		d.fail(n, path, fmt.Sprintf("%s: %q is unknown", f.name, v.String()), orKnown(v.String(), f.enum))
	}
	if f.names != "" && d.reg != nil {
		if names := d.reg.names(f.names); !slices.Contains(names, v.String()) {
			d.fail(n, path, fmt.Sprintf("unknown %s %q", f.names, v.String()), orKnown(v.String(), names))
		}
	}
	var x float64
	switch {
	case v.Kind() == reflect.Slice:
		if f.min != nil && float64(v.Len()) < *f.min {
			d.fail(n, path, f.name+": the list is empty", "leave the key out for the default")
		}
		return
	case v.CanInt():
		x = float64(v.Int())
	case v.CanFloat():
		x = v.Float()
	default:
		return
	}
	if f.min != nil && x < *f.min {
		d.fail(n, path, fmt.Sprintf("%s: %s is too small; the least is %g", f.name, n.text, *f.min), "")
	}
	if f.max != nil && x > *f.max {
		d.fail(n, path, fmt.Sprintf("%s: %s is too large; the most is %s", f.name, n.text, strconv.FormatFloat(*f.max, 'f', -1, 64)), "")
	}
}

func orKnown(word string, names []string) string {
	if h := didYouMean(word, names); h != "" {
		return h
	}
	return "known: " + strings.Join(names, ", ")
}
