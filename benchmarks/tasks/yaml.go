package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/nesting"
	"github.com/evalrun/evalrun/internal/suggest"
)

// maxNodes bounds what aliases may blow a file up to.
const maxNodes = 1 << 20

// A decoder turns YAML into JSON of a Go type, and lists everything that does not fit, with its
// place. Going by the type keeps texts as they are written (an answer 007 stays 007, a version 1.10
// stays 1.10).
type decoder struct {
	file    string
	anchors map[string]ast.Node
	errs    []error
	nodes   int
}

// parse parses a file's first document.
func parse(file string, text []byte) (*decoder, ast.Node, error) {
	if line, column := nesting.Deep(text, maxDepth); line > 0 {
		return nil, nil, &placed{fmt.Sprintf("%s:%d:%d", file, line, column), fmt.Sprintf("nested deeper than %d", maxDepth)}
	}
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		// The library writes "[line:column] what".
		if pos, what, ok := strings.Cut(strings.TrimPrefix(line, "["), "] "); ok {
			return nil, nil, &placed{file + ":" + pos, what}
		}
		return nil, nil, &placed{file, line}
	}
	d := &decoder{file: file, anchors: map[string]ast.Node{}}
	for _, doc := range f.Docs {
		if doc.Body != nil {
			return d, doc.Body, nil
		}
	}
	return d, nil, nil
}

// maxDepth of values within values on one line.
const maxDepth = 500

// placed is an error at a place of the file.
type placed struct{ place, what string }

func (e *placed) Error() string { return e.place + ": " + e.what }

// fatal is what is wrong with a file as a whole, in the file's order.
func fatal(file string, errs ...error) error {
	text := make([]string, len(errs))
	for i, err := range errs {
		text[i] = err.Error()
	}
	f := &datasets.Fatal{Place: file}
	if p := (*placed)(nil); errors.As(errs[0], &p) {
		f.Place, text[0] = p.place, p.what
	}
	f.Err = errors.New(strings.Join(text, "\n"))
	return f
}

func (d *decoder) bad(n ast.Node, format string, args ...any) {
	d.errs = append(d.errs, &placed{d.place(n), fmt.Sprintf(format, args...)})
}

func (d *decoder) place(n ast.Node) string {
	t := n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 { // its own token is the first colon
		t = m.Values[0].Key.GetToken()
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		t = m.Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return d.file
	}
	return fmt.Sprintf("%s:%d:%d", d.file, t.Position.Line, t.Position.Column)
}

// resolve follows anchors, aliases and tags to the node that counts; nil after an error.
func (d *decoder) resolve(n ast.Node) ast.Node {
	for range 100 {
		if d.nodes++; d.nodes > maxNodes {
			if d.nodes == maxNodes+1 {
				d.bad(n, "the file grows beyond %d values by its aliases", maxNodes)
			}
			return nil
		}
		switch x := n.(type) {
		case *ast.AnchorNode:
			d.anchors[x.Name.GetToken().Value] = x.Value
			n = x.Value
		case *ast.AliasNode:
			to, ok := d.anchors[x.Value.GetToken().Value]
			if !ok {
				d.bad(x, "no anchor &%s before this", x.Value.GetToken().Value)
				return nil
			}
			n = to
		case *ast.TagNode:
			n = x.Value
		default:
			return n
		}
	}
	d.bad(n, "aliases without an end")
	return nil
}

// members are the keys and values of a mapping, merged ones after its own.
func (d *decoder) members(n ast.Node) (out []*ast.MappingValueNode, ok bool) {
	var values []*ast.MappingValueNode
	switch x := n.(type) {
	case *ast.MappingNode:
		values = x.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{x}
	default:
		return nil, false
	}
	var merged []*ast.MappingValueNode
	for _, v := range values {
		if _, is := v.Key.(*ast.MergeKeyNode); is {
			if m := d.resolve(v.Value); m != nil {
				more, ok := d.members(m)
				if !ok {
					d.bad(v.Value, "<< wants a mapping")
				}
				merged = append(merged, more...)
			}
			continue
		}
		out = append(out, v)
	}
	own := map[string]bool{}
	for _, v := range out {
		own[keyOf(v)] = true
	}
	for _, v := range merged {
		if !own[keyOf(v)] {
			out = append(out, v)
		}
	}
	return out, true
}

func keyOf(v *ast.MappingValueNode) string { return v.Key.GetToken().Value }

// value is n as JSON of type t. What is wrong is noted, and left out.
func (d *decoder) value(n ast.Node, t reflect.Type) (out any) {
	if n = d.resolve(n); n == nil {
		return nil
	}
	if _, null := n.(*ast.NullNode); null {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := reflect.Zero(t).Interface().(shaped); ok {
		isScalar, isList := s.shapes()
		if text, ok := d.text(n); ok && isScalar {
			if err := s.check(text); err != nil {
				d.bad(n, "%v", err)
				return nil
			}
			return text
		}
		if seq, ok := n.(*ast.SequenceNode); ok && isList {
			return d.list(seq, reflect.TypeFor[string]())
		}
		if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
			d.bad(n, "want text%s", map[bool]string{true: " or a list of texts"}[isList])
			return nil
		}
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.object(n, t)
	case reflect.Map:
		m := map[string]any{}
		members, ok := d.members(n)
		if !ok {
			d.bad(n, "want keys and values")
		}
		for _, v := range members {
			m[keyOf(v)] = d.value(v.Value, t.Elem())
		}
		return m
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			text, _ := d.text(n)
			return strings.Join(strings.Fields(text), "")
		}
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			d.bad(n, "want a list")
			return nil
		}
		return d.list(seq, t.Elem())
	}
	text, ok := d.text(n)
	if !ok {
		d.bad(n, "want %s", map[reflect.Kind]string{reflect.String: "text", reflect.Bool: "true or false"}[t.Kind()]+map[bool]string{true: "a number"}[t.Kind() != reflect.String && t.Kind() != reflect.Bool])
		return nil
	}
	if t.Kind() == reflect.String {
		return text
	}
	raw := json.RawMessage(text)
	if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
		d.bad(n, "%q: want %s", text, map[bool]string{true: "true or false", false: "a number"}[t.Kind() == reflect.Bool])
		return nil
	}
	return raw
}

func (d *decoder) list(seq *ast.SequenceNode, t reflect.Type) any {
	out := []any{}
	for _, v := range seq.Values {
		out = append(out, d.value(v, t))
	}
	return out
}

func (d *decoder) object(n ast.Node, t reflect.Type) any {
	members, ok := d.members(n)
	if !ok {
		d.bad(n, "want keys and values")
		return nil
	}
	known := fields(t)
	m := map[string]any{}
	for _, v := range members {
		k := keyOf(v)
		ft, ok := known[k]
		if !ok {
			d.bad(v.Key, "unknown key %q%s", k, nearest(k, sorted(known)))
			continue
		}
		if _, twice := m[k]; twice {
			d.bad(v.Key, "the key %q stands here twice", k)
		}
		m[k] = d.value(v.Value, ft)
	}
	return m
}

// fields are the JSON members of a struct, embedded ones among them.
func fields(t reflect.Type) map[string]reflect.Type {
	m := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			for k, v := range fields(f.Type) {
				m[k] = v
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		m[name] = f.Type
	}
	return m
}

// text is a scalar as it is written.
func (d *decoder) text(n ast.Node) (string, bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, true
	case *ast.LiteralNode:
		return x.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// nearest suggests the known key that is meant, if one is near.
func nearest(key string, known []string) string {
	if meant := suggest.Names(key, known); meant != nil {
		return fmt.Sprintf("; is it %q?", meant[0])
	}
	return "; known are " + strings.Join(known, ", ")
}
