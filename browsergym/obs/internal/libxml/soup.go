package libxml

import (
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// A Kind is the type of a node.
type Kind uint8

const (
	Element Kind = iota
	Text
	Comment
	Instruction
	Doctype
)

// A Node is a part of a page. Data is the name of an element, or the text; the root is an element
// without a name.
type Node struct {
	Kind  Kind
	Data  string
	Attrs []Attr
	Kids  []*Node
}

// An Attr is an attribute of an element.
type Attr struct{ Name, Value string }

// A soup builds the tree from the parser's events like Beautiful Soup. It has its own stack,
// because the parser does not report every end.
type soup struct {
	root     *Node
	names    []string // names that are not in the tables
	open     []soupTag
	count    []int32 // number of open elements by name
	verbatim int     // number of open pre and textarea elements

	text string // text that is not in the tree yet
	more []byte // the same, if it came in several parts

	nodes []Node // preallocated nodes
	work  int
}

type soupTag struct {
	id tagID
	n  *Node
}

func (b *soup) init() {
	b.count = make([]int32, len(tags))
	b.root = b.node(Element, "")
	b.open = append(make([]soupTag, 0, 32), soupTag{-1, b.root})
}

func (b *soup) node(k Kind, data string) *Node {
	if len(b.nodes) == 0 {
		b.nodes = make([]Node, 64)
	}
	n := &b.nodes[0]
	b.nodes = b.nodes[1:]
	n.Kind, n.Data = k, data
	return n
}

func (b *soup) add(n *Node) {
	top := b.open[len(b.open)-1].n
	top.Kids = append(top.Kids, n)
}

// data adds text, joined to the preceding text.
func (b *soup) data(s string) {
	switch {
	case len(b.more) > 0:
		b.more = append(b.more, s...)
	case b.text != "":
		b.more = append(append(b.more, b.text...), s...)
		b.text = ""
	default:
		b.text = s
	}
}

// flush makes a node of the pending text. (BeautifulSoup.endData, which also collapses white space;
// that does not show in the print)
func (b *soup) flush() {
	if len(b.more) > 0 {
		b.text = string(b.more)
		b.more = b.more[:0]
	}
	if b.text != "" {
		b.add(b.node(Text, b.text))
		b.text = ""
	}
}

// special adds a comment, an instruction or a document type. White space alone becomes one
// character. (BeautifulSoup.endData)
func (b *soup) special(k Kind, s string) {
	b.flush()
	if b.verbatim == 0 && strings.Trim(s, " \n\t\f\r") == "" {
		if strings.Contains(s, "\n") {
			s = "\n"
		} else {
			s = " "
		}
	}
	b.add(b.node(k, s))
}

func (b *soup) start(id tagID, name string, attrs []Attr) {
	b.flush()
	n := b.node(Element, name)
	n.Attrs = append(n.Attrs, attrs...)
	substitute(n)
	b.add(n)
	b.open = append(b.open, soupTag{id, n})
	for int(id) >= len(b.count) {
		b.count = append(b.count, 0)
	}
	b.count[id]++
	if id == tagPre || id == tagTextarea {
		b.verbatim++
	}
}

// finish ends the topmost open element of a name and all open elements inside it.
// (BeautifulSoup._popToTag)
func (b *soup) finish(id tagID) {
	b.flush()
	if int(id) >= len(b.count) || b.count[id] == 0 {
		return
	}
	for {
		b.work++
		t := b.open[len(b.open)-1].id
		b.open = b.open[:len(b.open)-1]
		b.count[t]--
		if t == tagPre || t == tagTextarea {
			b.verbatim--
		}
		if t == id {
			return
		}
	}
}

// lists names the attributes whose values are lists of words, for the elements given, or for all.
// (HTMLTreeBuilder.DEFAULT_CDATA_LIST_ATTRIBUTES)
var lists = map[string][]string{
	"class": nil, "accesskey": nil, "dropzone": nil,
	"rel": {"a", "link", "area"}, "rev": {"a", "link"}, "headers": {"td", "th"}, "accept-charset": {"form"},
	"archive": {"object"},
	"sizes":   {"icon"}, "sandbox": {"iframe"}, "for": {"output"},
}

// charset matches the encoding declared by a meta element. (ContentMetaAttributeValue)
var charset = regexp.MustCompile(`(?m)((?:^|;)[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*charset=)[^;]*`)

// substitute converts attribute values to their printed form: words separated by single spaces, and
// the encoding of the print. (TreeBuilder._replace_cdata_list_attribute_values,
// HTMLTreeBuilder.set_up_substitutions)
func substitute(n *Node) {
	for i := range n.Attrs {
		a := &n.Attrs[i]
		if in, ok := lists[a.Name]; ok && (in == nil || contains(in, n.Data)) {
			a.Value = words(a.Value)
		}
	}
	if n.Data != "meta" {
		return
	}
	var content *Attr
	typed := false
	for i := range n.Attrs {
		switch a := &n.Attrs[i]; a.Name {
		case "charset":
			a.Value = "utf-8"
			return
		case "content":
			content = a
		case "http-equiv":
			typed = strings.ToLower(a.Value) == "content-type"
		}
	}
	if content != nil && typed {
		content.Value = charset.ReplaceAllString(content.Value, "${1}utf-8")
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func words(s string) string {
	plain := true // its only white space are single spaces
	for i := 0; i < len(s) && plain; i++ {
		c := s[i]
		plain = c > ' ' && c < 0x7f || c == ' ' && i > 0 && i+1 < len(s) && s[i-1] != ' '
	}
	if plain {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, pyrepr.IsSpace), " ")
}
