package obs

import (
	"strings"

	"github.com/evalrun/evalrun/browsergym/obs/internal/libxml"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// DOMText renders a cleaned snapshot as HTML in the format of Beautiful Soup. p may be nil if no
// option needs it; otherwise nil is an error, [ErrNoProperties].
func DOMText(s *Snapshot, p *Properties, o Options) (string, error) {
	if err := o.check(p); err != nil {
		return "", err
	}
	if len(s.Documents) == 0 {
		return "", nil
	}
	w := &domWriter{s: s, p: p, o: &o, open: make([]bool, len(s.Documents))}
	return w.document(0), nil
}

type domWriter struct {
	s    *Snapshot
	p    *Properties
	o    *Options
	open []bool // documents on the current path
}

// document returns the text of one document.
func (w *domWriter) document(d int) string {
	if w.open[d] {
		return ""
	}
	w.open[d] = true
	defer func() { w.open[d] = false }()
	doc := &w.s.Documents[d]
	n := len(doc.Nodes.NodeType)
	// Lists of children in node order, linked through two slices.
	first, next, last := make([]int, n), make([]int, n), make([]int, n)
	for i := range n {
		first[i], next[i], last[i] = -1, -1, -1
	}
	for i := 1; i < n; i++ {
		p := at(doc.Nodes.ParentIndex, i)
		if p < 0 || p >= i {
			continue
		}
		if last[p] < 0 {
			first[p] = i
		} else {
			next[last[p]] = i
		}
		last[p] = i
	}
	content := map[int]int{}
	for i, owner := range doc.Nodes.ContentDocumentIndex.Index {
		if c := at(doc.Nodes.ContentDocumentIndex.Value, i); c >= 0 && c < len(w.s.Documents) {
			content[owner] = c
		}
	}
	var b, attrs []byte
	var node func(i, level int, skipped bool)
	node = func(i, level int, parentSkipped bool) {
		if level > maxDepth {
			return
		}
		skipped := false
		end := ""
		switch at(doc.Nodes.NodeType, i) {
		case 3:
			if !parentSkipped {
				b = append(b, w.s.text(at(doc.Nodes.NodeValue, i))...)
			}
		case 4:
			if !parentSkipped {
				b = append(append(append(b, "<!CDATA[["...), w.s.text(at(doc.Nodes.NodeValue, i))...), "]]>"...)
			}
		case 1:
			bid := ""
			var list []int
			if i < len(doc.Nodes.Attributes) {
				list = doc.Nodes.Attributes[i]
			}
			attrs = attrs[:0]
			for k := 0; k+1 < len(list); k += 2 {
				switch name := w.s.text(list[k]); name {
				case "bid":
					bid = w.s.text(list[k+1])
				case "browsergym_visibility_ratio", "browsergym_set_of_marks":
				default:
					attrs = append(append(append(append(append(attrs, ' '), name...), `="`...), w.s.text(list[k+1])...),
						'"')
				}
			}
			var extra []byte
			extra, skipped = w.o.element(nil, w.p, bid, " ")
			if skipped {
				break
			}
			tag := strings.ToLower(pyrepr.Strip(w.s.text(at(doc.Nodes.NodeName, i))))
			b = append(append(b, '<'), tag...)
			if bid != "" && !w.o.hidden(w.p, bid) {
				b = append(append(append(b, ` bid="`...), bid...), '"')
			}
			if len(extra) > 0 {
				b = append(append(b, ' '), extra[:len(extra)-1]...)
			}
			b = append(append(b, attrs...), '>')
			end = tag
		default:
			skipped = true
		}
		if c, ok := content[i]; ok {
			b = append(b, w.document(c)...)
		}
		for c := first[i]; c >= 0; c = next[c] {
			node(c, level+1, skipped)
		}
		if end != "" {
			b = append(append(append(b, "</"...), end...), '>')
		}
	}
	if n > 0 {
		node(0, 0, false)
	}
	return libxml.Parse(string(b)).Prettify()
}
