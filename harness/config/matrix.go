package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/suggest"
)

// A value is one value of an axis.
type value struct {
	label string
	node  *node
}

// A cell is one combination of values.
type cell struct {
	tree   *node
	labels map[string]string
}

// settable reports whether an axis of this name sets the key of an arm by itself.
func settable(name string) bool {
	first, _, dotted := strings.Cut(name, ".")
	if !dotted {
		return first == "agent" || first == "model" || first == "prompt"
	}
	return slices.Contains(armKeys, first)
}

// matrix lays the axes out as trees of arms, each with its axes.
func (l *layout) matrix(tree, base *node) []*node {
	m := tree.get("matrix")
	if m == nil || m.kind != kindMap {
		return nil
	}
	axes := map[string][]value{}
	var order []string
	for _, e := range m.entries {
		vs := l.axis(e)
		if vs == nil {
			continue
		}
		axes[e.key] = vs
		order = append(order, e.key)
	}
	cells := []cell{{base, map[string]string{}}}
	for _, name := range order {
		var next []cell
		for _, c := range cells {
			for _, v := range axes[name] {
				next = append(next, l.extend(c, name, v))
			}
		}
		if len(next) > 10_000 {
			l.fail(m, "matrix", "the matrix has more than 10000 cells", "")
			return nil
		}
		cells = next
	}
	if len(order) == 0 {
		cells = nil
	}

	if ex := tree.get("exclude"); ex != nil && ex.kind == kindList {
		for i, x := range ex.list {
			want := l.match(x, axes, fmt.Sprintf("exclude[%d]", i))
			if want == nil {
				continue
			}
			n := len(cells)
			cells = slices.DeleteFunc(cells, func(c cell) bool {
				for k, v := range want {
					if c.labels[k] != v {
						return false
					}
				}
				return true
			})
			if len(cells) == n {
				l.fail(x, "exclude", "this leaves out no cell of the matrix", "")
			}
		}
	}
	if in := tree.get("include"); in != nil && in.kind == kindList {
		for i, x := range in.list {
			if c, ok := l.included(x, base, axes, fmt.Sprintf("include[%d]", i)); ok {
				cells = append(cells, c)
			}
		}
	}
	var out []*node
	for _, c := range cells {
		ax := &node{kind: kindMap, at: m.at}
		for _, name := range slices.Sorted(mapKeys(c.labels)) {
			ax = ax.with(name, &node{kind: kindString, text: c.labels[name], at: m.at})
		}
		out = append(out, c.tree.with("axes", ax))
	}
	return out
}

// axis reads the values of one axis.
func (l *layout) axis(e entry) []value {
	key := "matrix." + e.key
	var out []value
	switch {
	case e.val.kind == kindMap && len(e.val.entries) > 0:
		for _, x := range e.val.entries {
			if !settable(e.key) && x.val.kind != kindMap {
				l.fail(x.val, key, fmt.Sprintf("axis %s: value %s has to say what it sets", e.key, x.key), "write "+x.key+": {prompt: FILE}, say")
				return nil
			}
			out = append(out, value{x.key, x.val})
		}
		return out
	case e.val.kind != kindList || len(e.val.list) == 0:
		l.fail(e.val, key, fmt.Sprintf("axis %s needs a list of values", e.key), "")
		return nil
	case !settable(e.key):
		names := append(slices.Clone(armKeys[:3]), "params.temperature", "limits.turns", "sandbox.memory")
		hint := "an axis of one's own is a mapping: each value with what it sets"
		if meant := suggest.Names(e.key, names); meant != nil {
			hint = fmt.Sprintf("did you mean %q?", meant[0])
		}
		l.errs.add(e.at, key, fmt.Sprintf("axis %q sets nothing", e.key), hint)
		return nil
	}
	seen := map[string]bool{}
	for _, x := range e.val.list {
		v := value{label(e.key, x), x}
		if v.label == "" {
			l.fail(x, key, fmt.Sprintf("axis %s: a value without a name", e.key), "write the axis as a mapping of names to values")
			return nil
		}
		if seen[v.label] {
			l.fail(x, key, fmt.Sprintf("axis %s: the value %s is there twice", e.key, v.label), "")
			return nil
		}
		seen[v.label] = true
		out = append(out, v)
	}
	return out
}

func label(axis string, n *node) string {
	switch n.kind {
	case kindMap:
		if name := n.get("name"); name != nil {
			return name.text
		}
		if f := n.get("file"); f != nil {
			return promptLabel(f.text)
		}
		return ""
	case kindList, kindNull:
		return ""
	}
	if axis == "prompt" {
		return promptLabel(n.text)
	}
	return n.text
}

func (l *layout) extend(c cell, name string, v value) cell {
	labels := map[string]string{name: v.label}
	for k, x := range c.labels {
		labels[k] = x
	}
	switch {
	case v.node.kind == kindNull: // as it is without the axis
		return cell{c.tree, labels}
	case settable(name):
		return cell{c.tree.put(name, v.node), labels}
	}
	return cell{merge(v.node, c.tree, mergeKeys...), labels}
}

// match reads a partial cell: axis → label.
func (l *layout) match(x *node, axes map[string][]value, key string) map[string]string {
	if x.kind != kindMap {
		l.fail(x, key, "expected a mapping of axes to values", "")
		return nil
	}
	want := map[string]string{}
	for _, e := range x.entries {
		vs, ok := axes[e.key]
		if !ok {
			l.errs.add(e.at, key, fmt.Sprintf("the matrix has no axis %q", e.key), didYouMean(e.key, slices.Sorted(mapKeys(axes))))
			return nil
		}
		want[e.key] = label(e.key, e.val)
		var labels []string
		for _, v := range vs {
			labels = append(labels, v.label)
		}
		if !slices.Contains(labels, want[e.key]) {
			l.fail(e.val, key, fmt.Sprintf("axis %s has no value %q", e.key, want[e.key]), orKnown(want[e.key], labels))
			return nil
		}
	}
	return want
}

// included reads a cell that is added: axis → label of the matrix, or a value of its own.
func (l *layout) included(x, base *node, axes map[string][]value, key string) (cell, bool) {
	c := cell{base, map[string]string{}}
	if x.kind != kindMap {
		l.fail(x, key, "expected a mapping of axes to values", "")
		return c, false
	}
	for _, e := range x.entries {
		v := value{label(e.key, e.val), e.val}
		for _, known := range axes[e.key] {
			if known.label == v.label {
				v = known
			}
		}
		if !settable(e.key) && v.node == e.val {
			l.errs.add(e.at, key, fmt.Sprintf("the matrix has no axis %q with the value %q", e.key, v.label), didYouMean(e.key, slices.Sorted(mapKeys(axes))))
			return c, false
		}
		c = l.extend(c, e.key, v)
	}
	return c, true
}

func mapKeys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
