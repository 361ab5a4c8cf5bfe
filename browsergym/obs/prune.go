package obs

import (
	"strings"

	"github.com/evalrun/evalrun/browsergym/obs/internal/libxml"
)

// PruneHTML removes parts of a page's HTML that tell an agent little: scripts, styles, comments,
// and wrappers with nothing but a bid.
func PruneHTML(s string) string {
	s = strings.ReplaceAll(s, "\n", " ")
	root := libxml.Parse(withoutComments(s))
	prune(root)
	return root.Prettify()
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

// prune removes elements and replaces wrappers by their contents.
func prune(root *libxml.Node) {
	type level struct {
		n    *libxml.Node
		next int
		in   int // level of the element that receives n's content
		kids []*libxml.Node
	}
	open := []level{{n: root}}
	for len(open) > 0 {
		top := len(open) - 1
		at := &open[top]
		if at.next == len(at.n.Kids) {
			if at.in == top {
				at.n.Kids = at.kids
			}
			open = open[:top]
			continue
		}
		k := at.n.Kids[at.next]
		at.next++
		in := &open[at.in]
		if k.Kind != libxml.Element {
			in.kids = append(in.kids, k)
			continue
		}
		wrapper := false
		switch k.Data {
		case "style", "link", "script", "br":
			continue
		case "html", "body":
			wrapper = true
		case "div", "span", "i", "p":
			wrapper = len(k.Attrs) == 1 && k.Attrs[0].Name == "bid"
		}
		if wrapper {
			open = append(open, level{n: k, in: at.in})
		} else {
			in.kids = append(in.kids, k)
			open = append(open, level{n: k, in: top + 1})
		}
	}
}
