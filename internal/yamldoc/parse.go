package yamldoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxDepth is the maximum nesting of values.
const MaxDepth = 64

// maxValues limits a file if its format has no limit, because aliases of aliases grow
// exponentially.
const maxValues = 1 << 20

// Bounds are a format's limits on a file. A zero field means no limit of the format's own.
type Bounds struct {
	Size      int  // bytes
	Values    int  // counted after aliases are resolved
	NoAliases bool // anchors and aliases are errors
}

// Parse parses one document of YAML, which includes JSON. An empty file is a null. The error is of
// type [Errors]. The tree is nil if there is nothing to continue with.
func Parse(file string, data []byte, b Bounds) (root *Node, err error) {
	p := &treeParser{file: file, b: b, anchors: map[string]ast.Node{}, open: map[ast.Node]bool{}}
	defer func() {
		if r := recover(); r != nil { // a panic of the library on unexpected input
			p.fail(Pos{File: file}, "cannot be parsed: %v", r)
			root, err = nil, p.errs.Err()
		}
	}()
	if p.b.Values == 0 {
		p.b.Values = maxValues
	}
	root = p.document(data)
	return root, p.errs.Err()
}

// NotUTF8 is the error message for text that is not UTF-8.
const NotUTF8 = "this is not UTF-8"

// check rejects content that no text may have.
func check(file string, data []byte) *Error {
	if bytes.IndexByte(data, 0) >= 0 {
		return &Error{Pos: Pos{File: file}, Msg: "this is not a text file"}
	}
	if utf8.Valid(data) {
		return nil
	}
	at := Pos{file, 1, 1}
	for {
		r, n := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && n == 1:
			return &Error{Pos: at, Msg: NotUTF8, Hint: "convert the file, for example by: iconv -f latin1 -t utf8"}
		case r == '\n':
			at.Line, at.Column = at.Line+1, 1
		default:
			at.Column++
		}
		data = data[n:]
	}
}

type treeParser struct {
	file    string
	b       Bounds
	errs    Errors
	anchors map[string]ast.Node
	open    map[ast.Node]bool // nodes being converted: an alias to one of them never ends
	values  int
}

func (p *treeParser) fail(at Pos, format string, args ...any) {
	p.errs.Add(&Error{Pos: at, Msg: fmt.Sprintf(format, args...)})
}

// bad reports an error about a value of the unfinished tree.
func (p *treeParser) bad(n *Node, hint, format string, args ...any) *Node {
	// limited, because computing a path takes time linear in the length of lists
	if n.Kind = Null; len(p.errs) < maxErrors {
		e := n.Errorf(format, args...)
		e.Hint = hint
		p.errs.Add(e)
	}
	return n
}

func (p *treeParser) document(data []byte) *Node {
	if p.b.Size > 0 && len(data) > p.b.Size {
		p.fail(Pos{File: p.file}, "larger than %d KiB", p.b.Size>>10)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // some editors add it
	if e := check(p.file, data); e != nil {
		p.errs.Add(e)
		return nil
	}
	if at, msg := costly(data, MaxDepth); msg != "" {
		p.fail(Pos{p.file, at.Line, at.Column}, "%s", msg)
		return nil
	}
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, msg := Pos{File: p.file}, err.Error()
		if e := yaml.Error(nil); errors.As(err, &e) {
			msg = e.GetMessage()
			at = p.at(e.GetToken())
		}
		p.fail(at, "not valid YAML: %s", msg)
		return nil
	}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			p.errs.Add(&Error{Pos: p.pos(d.Body), Msg: "a second document in one file", Hint: "remove the line ---"})
			return nil
		}
		body = d.Body
	}
	if body == nil {
		return &Node{Pos: Pos{p.file, 1, 1}}
	}
	root := &Node{}
	p.fill(root, body, 0)
	return root
}

func (p *treeParser) at(t *token.Token) Pos {
	if t == nil || t.Position == nil {
		return Pos{File: p.file}
	}
	return Pos{p.file, t.Position.Line, t.Position.Column}
}

func (p *treeParser) pos(n ast.Node) Pos {
	switch n := n.(type) {
	case *ast.MappingNode: // the token of the mapping itself is its first colon
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return p.at(n.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		return p.at(n.Key.GetToken())
	}
	return p.at(n.GetToken())
}

// fill converts n. The parent of out has been set before.
func (p *treeParser) fill(out *Node, n ast.Node, depth int) *Node {
	out.Pos = p.pos(n)
	if p.values++; p.values > p.b.Values {
		if p.values == p.b.Values+1 {
			p.bad(out, "", "the file grows beyond %d values", p.b.Values)
		}
		return out
	}
	if depth > MaxDepth {
		return p.bad(out, "", "nested deeper than %d", MaxDepth)
	}
	scalar := func(k Kind, text string) *Node {
		out.Kind, out.Text = k, text
		return out
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return p.mapping(out, n, n.Values, depth)
	case *ast.MappingValueNode:
		return p.mapping(out, n, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		p.open[n] = true
		defer delete(p.open, n)
		out.Kind, out.Items = List, make([]*Node, len(n.Values))
		for i, v := range n.Values {
			out.Items[i] = &Node{up: out}
			p.fill(out.Items[i], v, depth+1)
		}
		return out
	case *ast.StringNode:
		if n.Token.Type == token.StringType { // not quoted
			return scalar(PlainKind(n.Value), n.Value)
		}
		return scalar(String, n.Value)
	case *ast.LiteralNode:
		return scalar(String, n.Value.Value)
	case *ast.IntegerNode:
		return scalar(Int, n.Token.Value)
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return scalar(Float, n.GetToken().Value)
	case *ast.BoolNode:
		return scalar(Bool, n.Token.Value)
	case *ast.NullNode:
		return scalar(Null, n.Token.Value)
	case *ast.AnchorNode, *ast.AliasNode:
		return p.alias(out, n, depth)
	case *ast.TagNode:
		tag := n.Start.Value
		if len(tag) < 2 || tag[:2] != "!!" {
			return p.bad(out, "remove it", "the tag %s is not supported", tag)
		}
		if n.Value == nil {
			return out
		}
		if p.fill(out, n.Value, depth+1); tag == "!!str" && out.Scalar() {
			out.Kind = String
		}
		return out
	}
	return p.bad(out, "", "%s is not supported", n.Type())
}

func (p *treeParser) alias(out *Node, n ast.Node, depth int) *Node {
	if p.b.NoAliases {
		return p.bad(out, "", "anchors and aliases are not supported here")
	}
	if a, ok := n.(*ast.AnchorNode); ok {
		p.anchors[a.Name.GetToken().Value] = a.Value
		return p.fill(out, a.Value, depth)
	}
	name := n.(*ast.AliasNode).Value.GetToken().Value
	to, ok := p.anchors[name]
	switch {
	case !ok:
		return p.bad(out, "", "no anchor &%s before this alias", name)
	case p.open[to]:
		return p.bad(out, "", "the alias *%s stands inside what it names", name)
	}
	return p.fill(out, to, depth+1)
}

// mapping converts a mapping. Entries merged by << come in its place and do not replace the
// mapping's own keys.
func (p *treeParser) mapping(out *Node, n ast.Node, values []*ast.MappingValueNode, depth int) *Node {
	p.open[n] = true
	defer delete(p.open, n)
	out.Kind = Map
	index, merged := map[string]int{}, map[string]bool{}
	for _, v := range values {
		key := Entry{Pos: p.at(v.Key.GetToken()), Value: &Node{up: out}}
		switch k := v.Key.(type) {
		case *ast.MergeKeyNode:
			before := len(p.errs)
			p.fill(key.Value, v.Value, depth+1)
			if len(p.errs) > before {
				continue
			}
			from := []*Node{key.Value}
			if key.Value.Kind == List {
				from = key.Value.Items
			}
			for _, m := range from {
				if m.Kind != Map {
					p.errs.Add(&Error{Pos: key.Pos, Key: out.Path(), Msg: "<< wants a mapping"})
					break
				}
				for _, e := range m.Entries {
					if _, have := index[e.Key]; !have {
						index[e.Key], merged[e.Key] = len(out.Entries), true
						e.Value.up = out
						out.Entries = append(out.Entries, e)
					}
				}
			}
			continue
		case *ast.StringNode:
			key.Key = k.Value
		case *ast.LiteralNode:
			key.Key = k.Value.Value
		case *ast.MappingKeyNode, *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
			p.fail(key.Pos, "a key is a plain word here")
			continue
		default:
			key.Key = k.GetToken().Value
		}
		i, twice := index[key.Key]
		if !twice {
			i = len(out.Entries)
			out.Entries = append(out.Entries, key)
		} else if !merged[key.Key] && len(p.errs) < maxErrors {
			p.errs.Add(&Error{Pos: key.Pos, Key: out.Entries[i].Value.Path(),
				Msg: fmt.Sprintf("the key stands here twice; the first is at line %d", out.Entries[i].Pos.Line)})
		}
		index[key.Key], out.Entries[i] = i, key
		delete(merged, key.Key)
		p.fill(key.Value, v.Value, depth+1)
	}
	return out
}

// maxKeys limits the number of keys in one mapping written without braces.
const maxKeys = 5000

// costly finds input for which the library's time and memory grow quadratically, and describes it:
// more than [MaxDepth] nested brackets; on one line, more than that many nested dashes, keys,
// anchors or tags (text nested by indentation is itself that long); and more than [maxKeys] keys in
// one mapping. msg is "" if there is none.
func costly(text []byte, depth int) (at token.Position, msg string) {
	if !suspect(text, depth) {
		return at, ""
	}
	type mapping struct{ column, keys int }
	var blocks []mapping // open blocks, innermost last
	within := func(column int) {
		for len(blocks) > 0 && blocks[len(blocks)-1].column > column {
			blocks = blocks[:len(blocks)-1]
		}
	}
	open, run, line := 0, 0, 0
	for _, t := range lexer.Tokenize(string(text)) {
		if t.Position.Line != line {
			run, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open++
		case token.SequenceEndType, token.MappingEndType:
			open--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.AnchorType, token.TagType:
			run++
		case token.CollectEntryType: // after a comma the next value is a sibling, not nested
			run = 0
		}
		switch {
		case open > depth || run > depth:
			return *t.Position, fmt.Sprintf("nested deeper than %d", depth)
		case open > 0:
		case t.Type == token.SequenceEntryType:
			within(t.Position.Column)
		case t.Type == token.MappingValueType && t.Prev != nil:
			column := t.Prev.Position.Column
			if within(column); len(blocks) == 0 || blocks[len(blocks)-1].column < column {
				blocks = append(blocks, mapping{column, 0})
			}
			b := &blocks[len(blocks)-1]
			if b.keys++; b.keys > maxKeys {
				return *t.Prev.Position, fmt.Sprintf("more than %d keys in one mapping", maxKeys)
			}
		}
	}
	return at, ""
}

// suspect reports whether a text could be costly, judging only by its bytes. Most texts are not,
// and need not be tokenized twice.
func suspect(text []byte, depth int) bool {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > depth ||
		bytes.Count(text, []byte(":")) > maxKeys {
		return true
	}
	for line := range bytes.Lines(text) {
		n := 0
		for _, c := range line {
			switch c {
			case '-', '?', ':', '&', '!':
				if n++; n > depth {
					return true
				}
			}
		}
	}
	return false
}

// ParseJSON parses one JSON value that begins at the given position, such as a line of a JSONL
// file. It keeps the text of the value and of all values in it.
func ParseJSON(at Pos, data []byte) (*Node, error) {
	if e := check(at.File, data); e != nil {
		e.Pos = at
		return nil, Errors{e}
	}
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return nil, Errors{{Pos: at, Msg: "not JSON: " + err.Error()}}
	}
	p := &jsonParser{at: at, data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	root := &Node{}
	p.value(root, 0)
	return root, p.errs.Err()
}

type jsonParser struct {
	at   Pos
	data []byte
	dec  *json.Decoder
	errs Errors

	seen  int64 // positions are computed up to here
	where Pos
}

// pos returns the position of the next token.
func (p *jsonParser) pos() Pos {
	if p.seen == 0 {
		p.where = p.at
	}
	from := p.dec.InputOffset()
	for from < int64(len(p.data)) && bytes.IndexByte([]byte(" \t\r\n,:"), p.data[from]) >= 0 {
		from++
	}
	for ; p.seen < from; p.seen++ {
		switch c := p.data[p.seen]; {
		case c == '\n':
			p.where.Line, p.where.Column = p.where.Line+1, 1
		case utf8.RuneStart(c):
			p.where.Column++
		}
	}
	return p.where
}

func (p *jsonParser) value(out *Node, depth int) {
	out.Pos = p.pos()
	begin := p.seen
	t, err := p.dec.Token()
	if err != nil && err != io.EOF { // cannot happen: it was checked
		p.errs.Add(out.Errorf("not JSON: %v", err))
		return
	}
	if depth > MaxDepth {
		p.errs.Add(out.Errorf("nested deeper than %d", MaxDepth))
		return
	}
	switch t := t.(type) {
	case bool:
		out.Kind, out.Text = Bool, fmt.Sprint(t)
	case json.Number:
		out.Kind, out.Text = PlainKind(t.String()), t.String()
	case string:
		out.Kind, out.Text = String, t
	case json.Delim:
		if out.Kind = List; t == '{' {
			out.Kind = Map
		}
		index := map[string]bool{}
		for p.dec.More() && len(p.errs) == 0 {
			v, at := &Node{up: out}, p.pos()
			if out.Kind == List {
				out.Items = append(out.Items, v)
			} else {
				k, _ := p.dec.Token()
				key, _ := k.(string)
				out.Entries = append(out.Entries, Entry{key, at, v})
				if index[key] {
					p.errs.Add(&Error{Pos: at, Key: v.Path(), Msg: "the key stands here twice"})
				}
				index[key] = true
			}
			p.value(v, depth+1)
		}
		_, _ = p.dec.Token() // cannot fail: the text is valid JSON
	}
	out.raw = bytes.TrimSpace(p.data[begin:p.dec.InputOffset()])
}
