package obs

import (
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// AXOptions are the options of [AXText]. Start from [DefaultAX].
type AXOptions struct {
	Options
	SkipGeneric       bool
	SkipRedundantText bool // leave out text that repeats part of its parent's name
	HideChildren      bool // leave out the children of nodes that are left out
	IgnoredRoles      []string
	IgnoredProperties []string
}

// DefaultAX returns BrowserGym's defaults.
func DefaultAX() AXOptions {
	return AXOptions{
		SkipGeneric: true, SkipRedundantText: true,
		IgnoredRoles:      []string{"LineBreak"},
		IgnoredProperties: []string{"editable", "readonly", "level", "settable", "multiline", "invalid", "focusable"},
	}
}

// maxDepth is the depth to which trees of a page are followed. (The reference fails at about the
// same depth, where Python's stack ends.)
const maxDepth = 1000

// AXText renders a merged tree with one line per node. p may be nil if no option needs it;
// otherwise nil is an error, [ErrNoProperties].
func AXText(t *AXTree, p *Properties, o AXOptions) (string, error) {
	if err := o.check(p); err != nil {
		return "", err
	}
	if len(t.Nodes) == 0 {
		return "", nil
	}
	w := &axWriter{t: t, p: p, o: &o, index: make(map[string]int, len(t.Nodes)), b: make([]byte, 0, 64*len(t.Nodes)),
		open: make([]bool, len(t.Nodes))}
	for i := range t.Nodes {
		w.index[t.Nodes[i].ID] = i
	}
	w.node(0, 0, 0, false, "")
	if n := len(w.b); n > 0 { // the last line has no line break
		w.b = w.b[:n-1]
	}
	return string(w.b), nil
}

type axWriter struct {
	t     *AXTree
	p     *Properties
	o     *AXOptions
	index map[string]int
	b     []byte
	attrs []byte
	open  []bool // nodes on the current path, so that a cycle in the tree ends
}

// node prints a node and its descendants. level is its depth in the tree, indent that of its line.
func (w *axWriter) node(i, level, indent int, parentLeftOut bool, parentName string) {
	if w.open[i] || level > maxDepth {
		return
	}
	n, o := &w.t.Nodes[i], w.o
	printed, leftOut, name := false, false, ""
	role := n.Role.text()
	if n.Name != nil && !slices.Contains(o.IgnoredRoles, role) {
		name = n.Name.text()
		w.attrs = w.attrs[:0]
		skip := false
		extra := 0
		if role == "StaticText" {
			w.properties(n)
			skip = parentLeftOut || o.SkipRedundantText && strings.Contains(parentName, name)
		} else {
			w.attrs, leftOut = o.element(w.attrs, w.p, n.Bid, ", ")
			extra = len(w.attrs)
			w.properties(n)
			skip = leftOut
		}
		skip = skip || o.SkipGeneric && role == "generic" && len(w.attrs) == extra || o.HideChildren && parentLeftOut
		if !skip {
			printed = true
			w.line(n, role, name, indent)
		}
	}
	w.open[i] = true
	next := indent
	if printed {
		next++
	}
	for _, id := range n.Children {
		if c, ok := w.index[id]; ok && c != i {
			w.node(c, level+1, next, leftOut, name)
		}
	}
	w.open[i] = false
}

func (w *axWriter) line(n *AXNode, role, name string, indent int) {
	b := w.b
	for range indent {
		b = append(b, '\t')
	}
	if n.Bid != "" && !w.o.hidden(w.p, n.Bid) {
		b = append(b, '[')
		b = append(b, n.Bid...)
		b = append(b, "] "...)
	}
	b = append(b, role...)
	if role != "generic" || name != "" {
		b = append(b, ' ')
		b = pyrepr.AppendRepr(b, pyrepr.Strip(name))
	}
	if n.Value != nil && n.Value.Value != nil {
		b = append(b, " value="...)
		b = n.Value.Value.appendTo(b)
	}
	if len(w.attrs) > 0 {
		b = append(b, ", "...)
		b = append(b, w.attrs[:len(w.attrs)-2]...)
	}
	w.b = append(b, '\n')
}

// properties appends the node's own attributes, each followed by ", ".
func (w *axWriter) properties(n *AXNode) {
	for _, p := range n.Properties {
		if p.Value == nil || p.Value.Value == nil || slices.Contains(w.o.IgnoredProperties, p.Name) {
			continue
		}
		switch p.Name {
		case "required", "focused", "atomic":
			if !p.Value.Value.truth() {
				continue
			}
			w.attrs = append(w.attrs, p.Name...)
		default:
			w.attrs = append(append(w.attrs, p.Name...), '=')
			w.attrs = p.Value.Value.appendTo(w.attrs)
		}
		w.attrs = append(w.attrs, ", "...)
	}
}
