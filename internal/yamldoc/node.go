package yamldoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A Pos is the position of a value. A value of the command line has its flag as File and no line.
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

// A Node is a value. Trees may share nodes, so every change makes a copy.
type Node struct {
	Kind    Kind
	Text    string // of a scalar: its original text, without quotes
	Items   []*Node
	Entries []Entry
	Pos     Pos

	up  *Node  // parent in the file
	raw []byte // original text in a JSON file
}

// An Entry is a key of a mapping and its value.
type Entry struct {
	Key   string
	Pos   Pos // position of the key
	Value *Node
}

// Scalar reports whether n is a single value other than null.
func (n *Node) Scalar() bool { return n.Kind != Null && n.Kind < List }

// Find returns the value of a key, or nil.
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

// Get is like Find but returns nil for a null.
func (n *Node) Get(key string) *Node {
	if v := n.Find(key); v != nil && v.Kind != Null {
		return v
	}
	return nil
}

// At returns the last existing node on a dotted path; n itself if there is none.
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

// With returns a copy of n with key set to v. If n is not a mapping, it returns a new mapping.
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

// Without returns a copy of n without the given keys.
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

// Path returns the path of n in its file: "services.main.volumes[1]", or "" for the root.
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

// Join returns the path of a key below path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Errorf returns an error about a value.
func (n *Node) Errorf(format string, args ...any) *Error {
	return &Error{Pos: n.Pos, Key: n.Path(), Msg: fmt.Sprintf(format, args...)}
}

// Errorf returns an error about a key, rather than about its value.
func (e Entry) Errorf(format string, args ...any) *Error {
	return &Error{Pos: e.Pos, Key: e.Value.Path(), Msg: fmt.Sprintf(format, args...)}
}

// JSON returns the value as JSON with the keys in the file's order. A value parsed from JSON is
// returned unchanged.
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
		b, _ := json.Marshal(s) // a string can always be encoded
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

// Part returns a node for a text that is a part of n or replaces it. Errors about it name n.
func (n *Node) Part(text string) *Node {
	return &Node{Kind: String, Text: text, Pos: n.Pos, up: n}
}
