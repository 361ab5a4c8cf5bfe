package solve

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// A node is an element of the page, or, if it has no tag, a piece of text.
type node struct {
	tag, text string
	attr      map[string]string
	up        *node
	kids      []*node
	prop      obs.Property
}

// all returns the elements below n, in document order, that satisfy all conditions.
func (n *node) all(is ...func(*node) bool) (out []*node) {
	for _, k := range n.kids {
		ok := k.tag != ""
		for _, f := range is {
			ok = ok && f(k)
		}
		if ok {
			out = append(out, k)
		}
		out = append(out, k.all(is...)...)
	}
	return out
}

// one returns the first of all, or nil.
func (n *node) one(is ...func(*node) bool) *node {
	if all := n.all(is...); len(all) > 0 {
		return all[0]
	}
	return nil
}

// words returns the text of n and everything below it, with single spaces.
func (n *node) words() string {
	var b strings.Builder
	n.write(&b)
	return strings.Join(strings.Fields(b.String()), " ")
}

func (n *node) write(b *strings.Builder) {
	b.WriteString(n.text)
	for _, k := range n.kids {
		k.write(b)
	}
}

// next returns the next sibling element.
func (n *node) next() *node {
	for i, k := range n.up.kids {
		if k != n {
			continue
		}
		for _, k := range n.up.kids[i+1:] {
			if k.tag != "" {
				return k
			}
		}
	}
	return nil
}

// Conditions for elements.

func tag(names ...string) func(*node) bool {
	return func(n *node) bool {
		for _, x := range names {
			if n.tag == x {
				return true
			}
		}
		return false
	}
}

func id(s string) func(*node) bool { return attr("id", s) }

func attr(name, value string) func(*node) bool {
	return func(n *node) bool { return n.attr[name] == value }
}

func class(s string) func(*node) bool {
	return func(n *node) bool {
		for _, c := range strings.Fields(n.attr["class"]) {
			if c == s {
				return true
			}
		}
		return false
	}
}

func says(s string) func(*node) bool {
	return func(n *node) bool { return strings.EqualFold(n.words(), s) }
}

// seen holds for elements that are at least partly visible.
func seen(n *node) bool { return n.prop.Visibility >= 0.5 }

// parse builds the page of an observation.
func parse(log event.Log, p *player, b event.Browsed) (*node, error) {
	var s obs.Snapshot
	var props obs.Properties
	for _, x := range []struct {
		blob *event.Blob
		to   any
	}{{b.DOM, &s}, {b.Properties, &props}} {
		if x.blob == nil {
			return nil, fmt.Errorf("the observation has no DOM")
		}
		r, err := log.OpenBlob(p.ctx, *x.blob)
		if err != nil {
			return nil, err
		}
		raw, err := io.ReadAll(r)
		r.Close()
		if err == nil {
			err = json.Unmarshal(raw, x.to)
		}
		if err != nil {
			return nil, fmt.Errorf("reading what was seen: %w", err)
		}
	}
	str := func(i int) string {
		if i < 0 || i >= len(s.Strings) {
			return ""
		}
		return s.Strings[i]
	}
	root := &node{tag: "#document", attr: map[string]string{}}
	if len(s.Documents) == 0 {
		return root, nil
	}
	d := &s.Documents[0].Nodes
	nodes := make([]*node, len(d.ParentIndex))
	for i, parent := range d.ParentIndex {
		n := &node{attr: map[string]string{}}
		nodes[i] = n
		if parent < 0 {
			nodes[i] = root
			continue
		}
		if d.NodeType[i] == 3 {
			n.text = str(d.NodeValue[i])
		} else {
			n.tag = strings.ToLower(str(d.NodeName[i]))
		}
		for j := 0; j+1 < len(d.Attributes[i]); j += 2 {
			n.attr[str(d.Attributes[i][j])] = str(d.Attributes[i][j+1])
		}
		if x, ok := props.Get(n.attr["bid"]); ok {
			n.prop = x
		}
		n.up = nodes[parent]
		n.up.kids = append(n.up.kids, n)
	}
	return root, nil
}
