package libxml

import (
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// maxIndent limits the bytes of indentation of a print, which otherwise grow quadratically with a
// page's depth. Lines beyond the limit are not indented. (The reference prints until it runs out of
// memory.)
const maxIndent = 64 << 20

// Prettify prints the descendants of a root, one node per line, indented by depth. (Tag.decode with
// indentation, and the formatter "minimal")
func (n *Node) Prettify() string {
	p := printer{left: maxIndent}
	p.print(n)
	return string(p.b)
}

type printer struct {
	b    []byte
	left int // remaining part of maxIndent
}

func (p *printer) indent(depth int) {
	if p.left -= depth; p.left < 0 {
		p.left = 0
		return
	}
	const spaces = "                                                                "
	for ; depth > len(spaces); depth -= len(spaces) {
		p.b = append(p.b, spaces...)
	}
	p.b = append(p.b, spaces[:depth]...)
}

func (p *printer) print(root *Node) {
	type level struct {
		n    *Node
		next int
	}
	open := []level{{n: root}}
	verbatim := 0 // depth of the element whose content is printed unchanged
	for {
		at := &open[len(open)-1]
		depth := len(open) - 1
		if at.next == len(at.n.Kids) {
			if depth == 0 {
				return
			}
			open = open[:depth]
			if verbatim == 0 {
				p.indent(depth - 1)
			}
			p.b = append(append(append(p.b, "</"...), at.n.Data...), '>')
			if verbatim == 0 || verbatim == depth {
				p.b = append(p.b, '\n')
				verbatim = 0
			}
			continue
		}
		k := at.n.Kids[at.next]
		at.next++
		if k.Kind != Element {
			p.text(k, at.n.Data, depth, verbatim > 0)
			continue
		}
		if verbatim == 0 {
			p.indent(depth)
		}
		p.tag(k)
		if len(k.Kids) == 0 && isShort(k.Data) {
			p.b = append(p.b, "/>"...)
			if verbatim == 0 {
				p.b = append(p.b, '\n')
			}
			continue
		}
		p.b = append(p.b, '>')
		open = append(open, level{n: k})
		if verbatim == 0 {
			if k.Data == "pre" || k.Data == "textarea" {
				verbatim = depth + 1
			} else {
				p.b = append(p.b, '\n')
			}
		}
	}
}

func isShort(name string) bool {
	id, ok := tagIDs[name]
	return ok && tags[id].short
}

// text prints a node that is not an element.
func (p *printer) text(n *Node, in string, depth int, verbatim bool) {
	s, before, after := n.Data, "", ""
	switch n.Kind {
	case Comment:
		before, after = "<!--", "-->"
	case Instruction:
		before, after = "<?", ">"
	case Doctype:
		before, after = "<!DOCTYPE ", ">"
		if verbatim {
			after = ">\n"
		}
	default:
		if !verbatim {
			if s = pyrepr.Strip(s); s == "" {
				return
			}
		}
	}
	if !verbatim {
		p.indent(depth)
	}
	p.b = append(p.b, before...)
	if n.Kind != Text || in == "script" || in == "style" {
		p.b = append(p.b, s...)
	} else {
		p.b = appendText(p.b, s)
	}
	p.b = append(p.b, after...)
	if !verbatim {
		p.b = append(p.b, '\n')
	}
}

// tag prints a start tag without its end. Attributes are sorted by name.
func (p *printer) tag(n *Node) {
	p.b = append(append(p.b, '<'), n.Data...)
	if len(n.Attrs) > 1 {
		slices.SortFunc(n.Attrs, func(x, y Attr) int { return strings.Compare(x.Name, y.Name) })
	}
	for _, a := range n.Attrs {
		p.b = append(append(append(p.b, ' '), a.Name...), '=')
		p.b = appendValue(p.b, a.Value)
	}
}

// appendText escapes &, < and >. (EntitySubstitution.substitute_xml)
func appendText(b []byte, s string) []byte {
	from := 0
	for i := 0; i < len(s); i++ {
		r := ""
		switch s[i] {
		case '&':
			r = "&amp;"
		case '<':
			r = "&lt;"
		case '>':
			r = "&gt;"
		default:
			continue
		}
		b = append(append(b, s[from:i]...), r...)
		from = i + 1
	}
	return append(b, s[from:]...)
}

// appendValue writes a value in quotes that it does not contain.
// (EntitySubstitution.quoted_attribute_value)
func appendValue(b []byte, s string) []byte {
	quote := byte('"')
	if strings.IndexByte(s, '"') >= 0 {
		if strings.IndexByte(s, '\'') >= 0 {
			b = append(b, '"')
			for i, part := range strings.Split(s, `"`) {
				if i > 0 {
					b = append(b, "&quot;"...)
				}
				b = appendText(b, part)
			}
			return append(b, '"')
		}
		quote = '\''
	}
	b = append(b, quote)
	b = appendText(b, s)
	return append(b, quote)
}
