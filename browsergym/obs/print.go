package obs

import (
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym/py"
)

// shortTags have no end tag when they are empty.
var shortTags = set("area base basefont bgsound br col command embed frame hr image img input isindex keygen link menuitem meta nextid param source spacer track wbr")

// prettify prints what parseHTML read: a node a line, indented by its depth.
func prettify(root *htmlNode) string {
	var b []byte
	for _, k := range root.kids {
		b = printNode(b, k, 0, false)
	}
	return string(b)
}

func appendIndent(b []byte, depth int) []byte {
	for range depth {
		b = append(b, ' ')
	}
	return b
}

func printNode(b []byte, n *htmlNode, depth int, verbatim bool) []byte {
	if n.tag == "" {
		raw := n.parent != nil && (n.parent.tag == "script" || n.parent.tag == "style")
		s := n.text
		if !verbatim {
			if s = py.Strip(s); s == "" {
				return b
			}
			b = appendIndent(b, depth)
		}
		if raw {
			b = append(b, s...)
		} else {
			b = appendText(b, s)
		}
		if !verbatim {
			b = append(b, '\n')
		}
		return b
	}
	if !verbatim {
		b = appendIndent(b, depth)
	}
	b = append(append(b, '<'), n.tag...)
	if len(n.attrs) > 1 {
		slices.SortStableFunc(n.attrs, func(x, y htmlAttr) int { return strings.Compare(x.name, y.name) })
	}
	for _, a := range n.attrs {
		b = append(append(append(b, ' '), a.name...), '=')
		b = appendAttr(b, a.value)
	}
	if len(n.kids) == 0 && shortTags[n.tag] {
		b = append(b, "/>"...)
		if !verbatim {
			b = append(b, '\n')
		}
		return b
	}
	b = append(b, '>')
	inner := verbatim || n.tag == "pre" || n.tag == "textarea"
	if !inner {
		b = append(b, '\n')
	}
	for _, k := range n.kids {
		b = printNode(b, k, depth+1, inner)
	}
	if !inner {
		b = appendIndent(b, depth)
	}
	b = append(append(append(b, "</"...), n.tag...), '>')
	if !verbatim {
		b = append(b, '\n')
	}
	return b
}

func appendText(b []byte, s string) []byte {
	for {
		i := strings.IndexAny(s, "&<>")
		if i < 0 {
			return append(b, s...)
		}
		b = append(b, s[:i]...)
		switch s[i] {
		case '&':
			b = append(b, "&amp;"...)
		case '<':
			b = append(b, "&lt;"...)
		default:
			b = append(b, "&gt;"...)
		}
		s = s[i+1:]
	}
}

func appendAttr(b []byte, s string) []byte {
	quote := byte('"')
	if strings.IndexByte(s, '"') >= 0 {
		if strings.IndexByte(s, '\'') < 0 {
			quote = '\''
		} else {
			b = append(b, '"')
			for i, part := range strings.Split(s, `"`) {
				if i > 0 {
					b = append(b, "&quot;"...)
				}
				b = appendText(b, part)
			}
			return append(b, '"')
		}
	}
	b = append(b, quote)
	b = appendText(b, s)
	return append(b, quote)
}

var pruned = set("style link script br")
var bare = set("div span i p")

// PruneHTML takes out of a page's text what tells an agent little: scripts, styles, comments, and wrappers that have nothing but a bid.
func PruneHTML(s string) string {
	s = strings.ReplaceAll(s, "\n", " ")
	s = withoutComments(s)
	root := parseHTML(s)
	root.prune()
	return prettify(root)
}

func withoutComments(s string) string {
	i := strings.Index(s, "<!--")
	if i < 0 {
		return s
	}
	var b strings.Builder
	for i >= 0 {
		end := strings.Index(s[i+4:], "-->")
		if end < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i+4+end+3:]
		i = strings.Index(s, "<!--")
	}
	b.WriteString(s)
	return b.String()
}

// prune works from the last tag to the first, so a wrapper is judged after what is in it.
func (n *htmlNode) prune() {
	var kids []*htmlNode
	for i := len(n.kids) - 1; i >= 0; i-- {
		k := n.kids[i]
		if k.tag == "" {
			kids = append(kids, k)
			continue
		}
		k.prune()
		wrapper := bare[k.tag] && len(k.attrs) == 1 && k.attrs[0].name == "bid"
		switch {
		case pruned[k.tag], wrapper && len(k.kids) == 0:
		case k.tag == "html", k.tag == "body", wrapper:
			for j := len(k.kids) - 1; j >= 0; j-- {
				k.kids[j].parent = n
				kids = append(kids, k.kids[j])
			}
		default:
			kids = append(kids, k)
		}
	}
	slices.Reverse(kids)
	n.kids = kids
}
