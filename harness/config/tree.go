package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/evalrun/evalrun/datasets/nesting"
)

// pos is where a value was written. A value from the command line has its flag as file and no line.
type pos struct {
	file      string
	line, col int
}

func (p pos) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.col)
}

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindList
	kindMap
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a whole number", "a number", "text", "a list", "a mapping"}[k]
}

// A node is a value of the configuration, wherever it came from. The whole way from a file to an
// arm works on this tree, so that a value keeps its position through matrix, defaults and
// overrides.
type node struct {
	kind    kind
	text    string // of a scalar, as it was written
	list    []*node
	entries []entry
	at      pos
}

type entry struct {
	key string
	at  pos // of the key
	val *node
}

// get is the value of key. A null is as if the key were not there.
func (n *node) get(key string) *node {
	if n == nil || n.kind != kindMap {
		return nil
	}
	for _, e := range n.entries {
		if e.key == key && e.val.kind != kindNull {
			return e.val
		}
	}
	return nil
}

// with returns n with key set to v; n itself is not changed.
func (n *node) with(key string, v *node) *node {
	c := &node{kind: kindMap, at: v.at}
	if n != nil && n.kind == kindMap {
		c.at = n.at
		c.entries = make([]entry, len(n.entries), len(n.entries)+1)
		copy(c.entries, n.entries)
	}
	for i, e := range c.entries {
		if e.key == key {
			c.entries[i].val = v
			c.entries[i].at = v.at
			return c
		}
	}
	c.entries = append(c.entries, entry{key, v.at, v})
	return c
}

// without returns n less some keys.
func (n *node) without(keys ...string) *node {
	c := &node{kind: kindMap, at: n.at}
outer:
	for _, e := range n.entries {
		for _, k := range keys {
			if e.key == k {
				continue outer
			}
		}
		c.entries = append(c.entries, e)
	}
	return c
}

// put returns n with the value at a dotted path set to v. A short form on the way ("model:
// openai/x") is opened first.
func (n *node) put(path string, v *node) *node {
	key, rest, more := strings.Cut(path, ".")
	if !more {
		return n.with(key, v)
	}
	child := n.get(key)
	if child != nil && (child.kind == kindString || child.kind == kindInt) {
		child = open(key, child)
	}
	return n.with(key, child.put(rest, v))
}

// open turns the short form of a value into its long form.
func open(key string, v *node) *node {
	m := &node{kind: kindMap, at: v.at}
	part := func(s string) *node { return &node{kind: kindString, text: s, at: v.at} }
	name, rest, more := strings.Cut(v.text, ":")
	switch {
	case key == "prompt" || key == "tape":
		return m.with("file", v)
	case key == "benchmark" && more:
		return m.with("name", part(name)).with("path", part(rest))
	case key == "agent" && more:
		return m.with("name", part(name)).with("arg", part(rest))
	}
	return m.with("name", v)
}

// json is the node's value as JSON.
func (n *node) json() (json.RawMessage, error) {
	var buf bytes.Buffer
	if err := n.appendJSON(&buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func (n *node) appendJSON(buf *bytes.Buffer) error {
	switch n.kind {
	case kindNull:
		buf.WriteString("null")
	case kindBool, kindInt, kindFloat:
		t, err := n.literal()
		if err != nil {
			return err
		}
		buf.WriteString(t)
	case kindString:
		b, err := json.Marshal(n.text)
		if err != nil {
			return err
		}
		buf.Write(b)
	case kindList:
		buf.WriteByte('[')
		for i, v := range n.list {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := v.appendJSON(buf); err != nil {
				return err
			}
		}
		buf.WriteByte(']')
	case kindMap:
		buf.WriteByte('{')
		for i, e := range n.entries {
			if i > 0 {
				buf.WriteByte(',')
			}
			b, err := json.Marshal(e.key)
			if err != nil {
				return err
			}
			buf.Write(b)
			buf.WriteByte(':')
			if err := e.val.appendJSON(buf); err != nil {
				return err
			}
		}
		buf.WriteByte('}')
	}
	return nil
}

// notUTF8 is where data ceases to be UTF-8, the line from 1 and the column from 1 in characters; 0:
// nowhere.
func notUTF8(data []byte) (line, col int) {
	line, col = 1, 1
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return line, col
		case r == '\n':
			line, col = line+1, 1
		default:
			col++
		}
		i += n
	}
	return 0, 0
}

// parse reads YAML (and so JSON) into a tree, a null where there is none. It reports what it can
// and returns nil when there is nothing to go on with.
func parse(name string, data []byte, errs *errorList) *node {
	p := &treeParser{name: name, errs: errs, anchors: map[string]ast.Node{}}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // as some editors begin a file
	if bytes.IndexByte(data, 0) >= 0 {
		errs.add(pos{file: name}, "", "this is not a text file", "")
		return nil
	}
	if line, col := notUTF8(data); line > 0 {
		errs.add(pos{name, line, col}, "", "this is not UTF-8", "convert the file, for example by: iconv -f latin1 -t utf8")
		return nil
	}
	if line, col := nesting.Deep(data, maxDepth); line > 0 {
		errs.add(pos{name, line, col}, "", fmt.Sprintf("nested deeper than %d", maxDepth), "")
		return nil
	}
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		p.syntax(err)
		return nil
	}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			errs.add(p.at(d.Body), "", "a second document in one file", "a configuration is one YAML document; remove the line ---")
			return nil
		}
		body = d.Body
	}
	if body == nil {
		return &node{at: pos{name, 1, 1}}
	}
	return p.node(body, 0)
}

type treeParser struct {
	name    string
	errs    *errorList
	anchors map[string]ast.Node
	nodes   int
}

const (
	maxDepth = 64
	maxNodes = 1 << 20 // aliases of aliases grow without an end ("billion laughs")
)

func (p *treeParser) syntax(err error) {
	at := pos{file: p.name}
	msg := err.Error()
	var s interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if errors.As(err, &s) {
		msg = s.GetMessage()
		if t := s.GetToken(); t != nil && t.Position != nil {
			at.line, at.col = t.Position.Line, t.Position.Column
		}
	}
	p.errs.add(at, "", "not valid YAML: "+msg, "")
}

func (p *treeParser) at(n ast.Node) pos {
	at := pos{file: p.name}
	t := n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		t = m.Values[0].Key.GetToken()
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		t = m.Key.GetToken()
	}
	if t != nil && t.Position != nil {
		at.line, at.col = t.Position.Line, t.Position.Column
	}
	return at
}

func (p *treeParser) node(n ast.Node, depth int) *node {
	at := p.at(n)
	if p.nodes++; p.nodes > maxNodes || depth > maxDepth {
		if p.nodes != maxNodes+2 {
			p.errs.add(at, "", "nested too deeply or too large", "")
		}
		p.nodes = maxNodes + 1
		return &node{at: at}
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		m := &node{kind: kindMap, at: at}
		for _, v := range n.Values {
			p.entry(m, v, depth)
		}
		return m
	case *ast.MappingValueNode:
		m := &node{kind: kindMap, at: at}
		p.entry(m, n, depth)
		return m
	case *ast.SequenceNode:
		l := &node{kind: kindList, at: at}
		for _, v := range n.Values {
			l.list = append(l.list, p.node(v, depth+1))
		}
		return l
	case *ast.StringNode:
		if n.Token.Type == token.StringType { // plain, without quotes
			return &node{kind: plainKind(n.Value), text: n.Value, at: at}
		}
		return &node{kind: kindString, text: n.Value, at: at}
	case *ast.LiteralNode:
		return &node{kind: kindString, text: n.Value.Value, at: at}
	case *ast.IntegerNode:
		return &node{kind: kindInt, text: n.Token.Value, at: at}
	case *ast.FloatNode:
		return &node{kind: kindFloat, text: n.Token.Value, at: at}
	case *ast.BoolNode:
		return &node{kind: kindBool, text: strconv.FormatBool(n.Value), at: at}
	case *ast.NullNode:
		return &node{kind: kindNull, at: at}
	case *ast.AnchorNode:
		p.anchors[n.Name.GetToken().Value] = n.Value
		return p.node(n.Value, depth)
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		v, ok := p.anchors[name]
		if !ok {
			p.errs.add(at, "", fmt.Sprintf("no anchor &%s before this alias", name), "")
			return &node{at: at}
		}
		return p.node(v, depth+1)
	case *ast.TagNode:
		p.errs.add(at, "", fmt.Sprintf("the tag %s means nothing here", n.Start.Value), "remove it")
		return &node{at: at}
	case *ast.InfinityNode, *ast.NanNode:
		p.errs.add(at, "", "not a finite number", "")
		return &node{at: at}
	}
	p.errs.add(at, "", fmt.Sprintf("%s means nothing here", n.Type()), "")
	return &node{at: at}
}

func (p *treeParser) entry(m *node, v *ast.MappingValueNode, depth int) {
	kat := pos{file: p.name}
	t := v.Key.GetToken()
	if t != nil && t.Position != nil {
		kat.line, kat.col = t.Position.Line, t.Position.Column
	}
	if v.Key.IsMergeKey() { // <<: *base: keys that are written out win
		from := p.node(v.Value, depth+1)
		if from.kind != kindMap {
			p.errs.add(kat, "", "<< needs a mapping", "")
			return
		}
		for _, e := range from.entries {
			if !slices.ContainsFunc(m.entries, func(own entry) bool { return own.key == e.key }) {
				m.entries = append(m.entries, e)
			}
		}
		return
	}
	var key string
	switch k := v.Key.(type) {
	case *ast.StringNode:
		key = k.Value
	case *ast.MappingKeyNode:
		p.errs.add(kat, "", "a key is a plain word here", "")
		return
	default:
		key = t.Value
	}
	val := p.node(v.Value, depth+1)
	for i, e := range m.entries {
		if e.key == key {
			if e.at.line == 0 || !merged(v, e.at, m) {
				p.errs.add(kat, key, fmt.Sprintf("key %q is there twice; the first is at line %d", key, e.at.line), "")
			}
			m.entries[i] = entry{key, kat, val}
			return
		}
	}
	m.entries = append(m.entries, entry{key, kat, val})
}

// merged reports whether an entry came from an anchor that << brought in: it was written outside of
// m.
func merged(v *ast.MappingValueNode, at pos, m *node) bool {
	return at.line < m.at.line || at.col != v.Key.GetToken().Position.Column
}
