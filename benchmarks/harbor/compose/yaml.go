package compose

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/evalrun/evalrun/datasets/nesting"
)

// Bounds of a file.
const (
	maxSize  = 256 << 10
	maxDepth = 40
	maxNodes = 50_000 // after aliases

	maxServices = 64 // each is a container, and they start together
)

// A node is a value with its place. Aliases and merge keys are resolved, variables filled in.
type node struct {
	place string
	kind  kind
	text  string // of a scalar
	items []*node
	keys  []field // of a mapping, in the file's order
}

type kind uint8

const (
	null kind = iota
	scalar
	list
	mapping
)

func (k kind) String() string {
	return [...]string{"nothing", "a single value", "a list", "a mapping"}[k]
}

type field struct {
	name  string
	place string
	value *node
}

// get is a key's value, or nil.
func (n *node) get(name string) *node {
	for _, f := range n.keys {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// A yamlReader turns the syntax tree into nodes.
type yamlReader struct {
	file    string
	anchors map[string]ast.Node
	open    map[ast.Node]bool // being resolved: an alias to one of them has no end
	nodes   int
	bytes   int
	expand  func(place, text string) (string, error)
	errs    []error
}

var errBounds = errors.New("too large")

// parse reads a file of one document.
func parse(file string, text []byte, expand func(place, text string) (string, error)) (n *node, err error) {
	defer func() {
		if r := recover(); r != nil { // the library's, on input that nobody foresaw
			n, err = nil, fmt.Errorf("%s: cannot be parsed: %v", file, r)
		}
	}()
	text = []byte(strings.TrimPrefix(string(text), "\ufeff"))
	switch {
	case len(text) > maxSize:
		return nil, fmt.Errorf("%s: larger than %d KiB", file, maxSize>>10)
	case !utf8.Valid(text):
		return nil, fmt.Errorf("%s: not UTF-8; convert the file, with iconv say", file)
	}
	if line, column := nesting.Deep(text, maxDepth); line > 0 {
		return nil, fmt.Errorf("%s:%d:%d: nested deeper than %d", file, line, column, maxDepth)
	}
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		if pos, what, ok := strings.Cut(strings.TrimPrefix(line, "["), "] "); ok { // the library writes "[line:column] what"
			return nil, fmt.Errorf("%s:%s: %s", file, pos, what)
		}
		return nil, fmt.Errorf("%s: %s", file, line)
	}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			return nil, fmt.Errorf("%s: a second document; want one", place(file, d.Body))
		}
		body = d.Body
	}
	if body == nil {
		return nil, fmt.Errorf("%s: the file is empty", file)
	}
	r := &yamlReader{file: file, anchors: map[string]ast.Node{}, open: map[ast.Node]bool{}, expand: expand}
	n = r.node(body, 0)
	return n, errors.Join(r.errs...)
}

func place(file string, n ast.Node) string {
	t := n.GetToken()
	switch x := n.(type) {
	case *ast.MappingNode: // its own token is the first colon
		if len(x.Values) > 0 {
			t = x.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		t = x.Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return file
	}
	return fmt.Sprintf("%s:%d:%d", file, t.Position.Line, t.Position.Column)
}

func (r *yamlReader) bad(n ast.Node, format string, args ...any) {
	if len(r.errs) < 50 {
		r.errs = append(r.errs, fmt.Errorf("%s: %s", place(r.file, n), fmt.Sprintf(format, args...)))
	}
}

// node is never nil.
func (r *yamlReader) node(n ast.Node, depth int) *node {
	out := &node{place: place(r.file, n)}
	if r.nodes++; r.nodes > maxNodes || depth > maxDepth {
		if !slices.Contains(r.errs, errBounds) {
			r.bad(n, "the file grows beyond %d values, or is nested deeper than %d", maxNodes, maxDepth)
			r.errs = append(r.errs, errBounds)
		}
		return out
	}
	switch x := n.(type) {
	case *ast.AnchorNode:
		r.anchors[x.Name.GetToken().Value] = x.Value
		return r.node(x.Value, depth+1)
	case *ast.AliasNode:
		name := x.Value.GetToken().Value
		to, ok := r.anchors[name]
		switch {
		case !ok:
			r.bad(x, "no anchor &%s before this", name)
			return out
		case r.open[to]:
			r.bad(x, "the alias *%s stands inside what it names", name)
			return out
		}
		return r.node(to, depth+1)
	case *ast.TagNode:
		if tag := x.Start.Value; tag == "!reset" || tag == "!override" {
			r.bad(x, "the tag %s is not supported", tag)
			return out
		}
		if x.Value == nil {
			return out
		}
		return r.node(x.Value, depth+1)
	case *ast.NullNode:
		return out
	case *ast.SequenceNode:
		r.open[n] = true
		defer delete(r.open, n)
		out.kind = list
		for _, v := range x.Values {
			out.items = append(out.items, r.node(v, depth+1))
		}
		return out
	case *ast.MappingNode:
		r.open[n] = true
		defer delete(r.open, n)
		return r.mapping(out, x.Values, depth)
	case *ast.MappingValueNode:
		r.open[n] = true
		defer delete(r.open, n)
		return r.mapping(out, []*ast.MappingValueNode{x}, depth)
	}
	text, ok := scalarText(n)
	if !ok {
		r.bad(n, "a value of a kind that is not supported")
		return out
	}
	out.kind = scalar
	var err error
	if out.text, err = r.expand(out.place, text); err != nil {
		r.errs = append(r.errs, err)
	}
	if r.bytes += len(out.text); r.bytes > 4*maxSize {
		r.bad(n, "the file's texts grow beyond %d KiB", 4*maxSize>>10)
		r.nodes = maxNodes
	}
	return out
}

// mapping has its own keys first; merged ones do not replace them.
func (r *yamlReader) mapping(out *node, values []*ast.MappingValueNode, depth int) *node {
	out.kind = mapping
	var merged []*node
	for _, v := range values {
		if _, is := v.Key.(*ast.MergeKeyNode); is {
			m := r.node(v.Value, depth+1)
			if m.kind == list {
				merged = append(merged, m.items...)
			} else {
				merged = append(merged, m)
			}
			continue
		}
		name, ok := scalarText(v.Key)
		if !ok {
			r.bad(v.Key, "a key that is no plain text")
			continue
		}
		if out.get(name) != nil {
			r.bad(v.Key, "the key %q stands here twice", name)
			continue
		}
		out.keys = append(out.keys, field{name, place(r.file, v.Key), r.node(v.Value, depth+1)})
	}
	for _, m := range merged {
		if m.kind != mapping {
			r.errs = append(r.errs, fmt.Errorf("%s: << wants a mapping", m.place))
			continue
		}
		for _, f := range m.keys {
			if out.get(f.name) == nil {
				out.keys = append(out.keys, f)
			}
		}
	}
	return out
}

func scalarText(n ast.Node) (string, bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, true
	case *ast.LiteralNode:
		return x.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.NullNode:
		return n.GetToken().Value, true
	}
	return "", false
}
