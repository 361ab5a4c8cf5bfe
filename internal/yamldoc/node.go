package yamldoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A Pos is where a value was written. A value of the command line has its flag as File, and no
// line.
type Pos struct {
	File         string
	Line, Column int
}

func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// A Kind is the type of a node.
type Kind uint8

const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	List
	Map
)

func (k Kind) String() string {
	return [...]string{"nothing", "true or false", "a whole number", "a number", "text", "a list", "a mapping"}[k]
}

// A Node is a value. Nodes may be shared by trees, so what changes one makes a copy.
type Node struct {
	Kind    Kind
	Text    string // of a scalar, as it was written, without quotes
	Items   []*Node
	Entries []Entry
	Pos     Pos

	up  *Node  // where it stood in the file
	raw []byte // of a JSON file
}

// An Entry is a key of a mapping, with its value.
type Entry struct {
	Key   string
	Pos   Pos // of the key
	Value *Node
}

// Scalar reports whether n is a single value.
func (n *Node) Scalar() bool { return n.Kind != Null && n.Kind < List }

// Find is what stands at a key, or nil.
func (n *Node) Find(key string) *Node {
	if n != nil {
		for _, e := range n.Entries {
			if e.Key == key {
				return e.Value
			}
		}
	}
	return nil
}

// Get is like Find, and nil for a null.
func (n *Node) Get(key string) *Node {
	if v := n.Find(key); v != nil && v.Kind != Null {
		return v
	}
	return nil
}

// At is the last node on a dotted path that is there: n itself where none is.
func (n *Node) At(path string) *Node {
	for key := range strings.SplitSeq(path, ".") {
		v := n.Get(key)
		if v == nil {
			break
		}
		n = v
	}
	return n
}

// With returns n with key set to v. In place of anything but a mapping it returns a new one.
func (n *Node) With(key string, v *Node) *Node {
	c := &Node{Kind: Map, Pos: v.Pos}
	if n != nil && n.Kind == Map {
		c.Pos, c.up = n.Pos, n.up
		c.Entries = make([]Entry, len(n.Entries), len(n.Entries)+1)
		copy(c.Entries, n.Entries)
	}
	for i, e := range c.Entries {
		if e.Key == key {
			c.Entries[i] = Entry{key, v.Pos, v}
			return c
		}
	}
	c.Entries = append(c.Entries, Entry{key, v.Pos, v})
	return c
}

// Without returns n less some keys.
func (n *Node) Without(keys ...string) *Node {
	c := &Node{Kind: Map, Pos: n.Pos, up: n.up}
outer:
	for _, e := range n.Entries {
		for _, k := range keys {
			if e.Key == k {
				continue outer
			}
		}
		c.Entries = append(c.Entries, e)
	}
	return c
}

// Path is where n stands in its file: "services.main.volumes[1]", "" for the root.
func (n *Node) Path() string {
	if n == nil || n.up == nil {
		return ""
	}
	for i, v := range n.up.Items {
		if v == n {
			return fmt.Sprintf("%s[%d]", n.up.Path(), i)
		}
	}
	for _, e := range n.up.Entries {
		if e.Value == n {
			return Join(n.up.Path(), e.Key)
		}
	}
	return n.up.Path()
}

// Join is the path of a key below another path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Errorf is an error about a value.
func (n *Node) Errorf(format string, args ...any) *Error {
	return &Error{Pos: n.Pos, Key: n.Path(), Msg: fmt.Sprintf(format, args...)}
}

// Errorf is an error about a key, rather than about what it holds.
func (e Entry) Errorf(format string, args ...any) *Error {
	return &Error{Pos: e.Pos, Key: e.Value.Path(), Msg: fmt.Sprintf(format, args...)}
}

// JSON is the value as JSON, its keys in the file's order. What was read as JSON stays as it is.
func (n *Node) JSON() (json.RawMessage, error) {
	if n.raw != nil {
		return n.raw, nil
	}
	var buf bytes.Buffer
	if err := n.appendJSON(&buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func (n *Node) appendJSON(buf *bytes.Buffer) error {
	text := func(s string) {
		b, _ := json.Marshal(s) // a string always can be
		buf.Write(b)
	}
	switch n.Kind {
	case Null:
		buf.WriteString("null")
	case Bool, Int, Float:
		t, err := n.literal()
		if err != nil {
			return err
		}
		buf.WriteString(t)
	case String:
		text(n.Text)
	case List:
		buf.WriteByte('[')
		for i, v := range n.Items {
			if i > 0 {
				buf.WriteByte(',')
			}
			if err := v.appendJSON(buf); err != nil {
				return err
			}
		}
		buf.WriteByte(']')
	case Map:
		buf.WriteByte('{')
		for i, e := range n.Entries {
			if i > 0 {
				buf.WriteByte(',')
			}
			text(e.Key)
			buf.WriteByte(':')
			if err := e.Value.appendJSON(buf); err != nil {
				return err
			}
		}
		buf.WriteByte('}')
	}
	return nil
}

// Part is a text that is a part of n, or stands for it: errors about it name n.
func (n *Node) Part(text string) *Node {
	return &Node{Kind: String, Text: text, Pos: n.Pos, up: n}
}
