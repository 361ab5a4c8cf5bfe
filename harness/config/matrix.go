package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/suggest"
	"github.com/evalrun/evalrun/internal/yamldoc"
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

// settable reports whether an axis with this name sets the arm's key of the same name.
func settable(name string) bool {
	first, _, dotted := strings.Cut(name, ".")
	if !dotted {
		return first == "agent" || first == "model" || first == "prompt"
	}
	return slices.Contains(armKeys, first)
}

// matrix expands the axes into trees of arms, each with its axes.
func (l *layout) matrix(tree, base *node) []*node {
	m := tree.Get("matrix")
	if m == nil || m.Kind != yamldoc.Map {
		return nil
	}
	axes := map[string][]value{}
	var order []string
	for _, e := range m.Entries {
		vs := l.axis(e)
		if vs == nil {
			continue
		}
		axes[e.Key] = vs
		order = append(order, e.Key)
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

	if ex := tree.Get("exclude"); ex != nil && ex.Kind == yamldoc.List {
		for i, x := range ex.Items {
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
	if in := tree.Get("include"); in != nil && in.Kind == yamldoc.List {
		for i, x := range in.Items {
			if c, ok := l.included(x, base, axes, fmt.Sprintf("include[%d]", i)); ok {
				cells = append(cells, c)
			}
		}
	}
	var out []*node
	for _, c := range cells {
		ax := &node{Kind: yamldoc.Map, Pos: m.Pos}
		for _, name := range slices.Sorted(mapKeys(c.labels)) {
			ax = ax.With(name, &node{Kind: yamldoc.String, Text: c.labels[name], Pos: m.Pos})
		}
		out = append(out, c.tree.With("axes", ax))
	}
	return out
}

// axis reads the values of one axis.
func (l *layout) axis(e entry) []value {
	key := "matrix." + e.Key
	var out []value
	switch {
	case e.Value.Kind == yamldoc.Map && len(e.Value.Entries) > 0:
		for _, x := range e.Value.Entries {
			if !settable(e.Key) && x.Value.Kind != yamldoc.Map {
				l.fail(x.Value, key, fmt.Sprintf("value %s has to say what it sets", x.Key),
					"write "+x.Key+": {prompt: FILE}, say")
				return nil
			}
			out = append(out, value{x.Key, x.Value})
		}
		return out
	case e.Value.Kind != yamldoc.List || len(e.Value.Items) == 0:
		l.fail(e.Value, key, "an axis needs a list of values", "")
		return nil
	case !settable(e.Key):
		names := append(slices.Clone(armKeys[:3]), "params.temperature", "limits.turns", "sandbox.memory")
		hint := "an axis can set agent, model, prompt, params.*, limits.* and sandbox.*; an axis with a name of your " +
			"own is a mapping of each value to the keys that it sets"
		if meant := suggest.Names(e.Key, names); meant != nil {
			hint = fmt.Sprintf("did you mean %q?", meant[0])
		}
		l.errs.add(e.Pos, key, fmt.Sprintf("axis %q sets nothing", e.Key), hint)
		return nil
	}
	seen := map[string]bool{}
	for _, x := range e.Value.Items {
		v := value{label(e.Key, x), x}
		if v.label == "" {
			l.fail(x, key, "a value without a name", "write the axis as a mapping of names to values")
			return nil
		}
		if seen[v.label] {
			l.fail(x, key, fmt.Sprintf("the value %s is listed twice", v.label), "")
			return nil
		}
		seen[v.label] = true
		out = append(out, v)
	}
	return out
}

func label(axis string, n *node) string {
	switch n.Kind {
	case yamldoc.Map:
		if name := n.Get("name"); name != nil {
			return name.Text
		}
		if f := n.Get("file"); f != nil {
			return promptLabel(f.Text)
		}
		return ""
	case yamldoc.List, yamldoc.Null:
		return ""
	}
	if axis == "prompt" {
		return promptLabel(n.Text)
	}
	return n.Text
}

func (l *layout) extend(c cell, name string, v value) cell {
	labels := map[string]string{name: v.label}
	for k, x := range c.labels {
		labels[k] = x
	}
	switch {
	case v.node.Kind == yamldoc.Null: // the arm as it is without the axis
		return cell{c.tree, labels}
	case settable(name):
		return cell{put(c.tree, name, v.node), labels}
	}
	return cell{merge(v.node, c.tree, mergeKeys...), labels}
}

// match reads a partial cell: a map from axis to label.
func (l *layout) match(x *node, axes map[string][]value, key string) map[string]string {
	if x.Kind != yamldoc.Map {
		l.fail(x, key, "expected a mapping of axes to values", "")
		return nil
	}
	want := map[string]string{}
	for _, e := range x.Entries {
		vs, ok := axes[e.Key]
		if !ok {
			l.errs.add(e.Pos, key, fmt.Sprintf("the matrix has no axis %q", e.Key),
				yamldoc.DidYouMean(e.Key, slices.Sorted(mapKeys(axes))))
			return nil
		}
		want[e.Key] = label(e.Key, e.Value)
		var labels []string
		for _, v := range vs {
			labels = append(labels, v.label)
		}
		if !slices.Contains(labels, want[e.Key]) {
			l.fail(e.Value, key, fmt.Sprintf("axis %s has no value %q", e.Key, want[e.Key]),
				yamldoc.OrKnown(want[e.Key], labels))
			return nil
		}
	}
	return want
}

// included reads a cell to add: a map from axis to a label of the matrix or to a new value.
func (l *layout) included(x, base *node, axes map[string][]value, key string) (cell, bool) {
	c := cell{base, map[string]string{}}
	if x.Kind != yamldoc.Map {
		l.fail(x, key, "expected a mapping of axes to values", "")
		return c, false
	}
	for _, e := range x.Entries {
		v := value{label(e.Key, e.Value), e.Value}
		for _, known := range axes[e.Key] {
			if known.label == v.label {
				v = known
			}
		}
		if !settable(e.Key) && v.node == e.Value {
			l.errs.add(e.Pos, key, fmt.Sprintf("the matrix has no axis %q with the value %q", e.Key, v.label),
				yamldoc.DidYouMean(e.Key, slices.Sorted(mapKeys(axes))))
			return c, false
		}
		c = l.extend(c, e.Key, v)
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
