package jupyter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// A Part is a text or a picture.
type Part struct {
	Text  string
	Image []byte
	Type  string // of the picture: "image/png"
}

const (
	maxText   = 1 << 20 // of a cell, in bytes
	maxImages = 8       // of a cell
	maxImage  = 5 << 20 // bytes of a picture
)

// An output collects what a cell prints and shows: the beginning and the end of the text, and the
// first pictures.
type output struct {
	parts  []piecemeal
	head   int    // length of the text in parts
	tail   []byte // text after that; it has up to twice the bytes that are shown
	bytes  int64  // length of all text
	images int
	large  int // pictures that were left out for their size
}

// piecemeal is a part whose text is growing.
type piecemeal struct {
	text []byte
	Part // the picture
}

func (o *output) text(s string) {
	o.bytes += int64(len(s))
	if n := min(len(s), maxText/2-o.head); n > 0 {
		if k := len(o.parts); k == 0 || o.parts[k-1].Image != nil {
			o.parts = append(o.parts, piecemeal{})
		}
		last := &o.parts[len(o.parts)-1]
		last.text = append(last.text, s[:n]...)
		o.head += n
		s = s[n:]
	}
	if over := len(s) - maxText; over > 0 {
		s = s[over:]
	}
	o.tail = append(o.tail, s...)
	if over := len(o.tail) - maxText/2; over > maxText/2 {
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
}

// cut adds text of which the middle is missing.
func (o *output) cut(begin string, left int64, end string) {
	o.text(begin)
	o.head = maxText / 2 // what follows is the end
	o.bytes += left
	o.text(end)
}

// image adds a picture in base64, which may have line breaks.
func (o *output) image(kind, s string) {
	if o.images++; o.images > maxImages {
		return
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) == 0 || len(b) > maxImage {
		o.large++
		return
	}
	o.parts = append(o.parts, piecemeal{Part: Part{Image: b, Type: kind}})
}

// done returns the parts. The text has no escape codes.
func (o *output) done() []Part {
	if n := len(o.tail); n > 0 {
		end := o.tail[max(n-maxText/2, 0):]
		if left := o.bytes - int64(o.head+len(end)); left > 0 {
			end = fmt.Appendf(nil, "\n[... %d bytes left out ...]\n%s", left, end)
		}
		if k := len(o.parts); k == 0 || o.parts[k-1].Image != nil {
			o.parts = append(o.parts, piecemeal{})
		}
		last := &o.parts[len(o.parts)-1]
		last.text = append(last.text, end...)
	}
	var parts []Part
	for _, p := range o.parts {
		if p.Image == nil {
			p.Part.Text = plain(string(p.text))
		}
		parts = append(parts, p.Part)
	}
	var notes []string
	if n := o.images - maxImages; n > 0 {
		notes = append(notes, fmt.Sprintf("[%d more pictures are left out]", n))
	}
	if o.large > 0 {
		notes = append(notes, fmt.Sprintf("[%d pictures are left out: each may have %d MiB]", o.large, maxImage>>20))
	}
	if len(notes) > 0 {
		parts = append(parts, Part{Text: "\n" + strings.Join(notes, "\n") + "\n"})
	}
	return parts
}

// escapes are the control sequences of terminals.
var escapes = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\|$)|[ -/]*[0-~]|$)")

func plain(s string) string {
	s = strings.ReplaceAll(escapes.ReplaceAllString(s, ""), "\r\n", "\n") // "!" runs on a terminal
	return strings.ToValidUTF8(s, "\ufffd")
}

// imageTypes are the types of pictures that models take, in the order of preference.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// add adds what a message of the kernel shows. It returns what the state of the kernel is, if that is
// what the message says.
func (o *output) add(m message) (state string) {
	switch m.kind {
	case "stream":
		var c struct{ Text string }
		if m.decode(&c) {
			o.text(c.Text)
			return ""
		}
		begin, ok := after(m.content.b, "text")
		end, found := before(m.content.tail)
		if ok && found {
			o.cut(begin, m.content.left, end)
			return ""
		}
		o.omitted(m)
	case "execute_result", "display_data":
		var c struct{ Data map[string]json.RawMessage }
		if m.decode(&c) {
			o.show(c.Data)
			return ""
		}
		for _, kind := range imageTypes {
			if bytes.Contains(m.content.b, []byte(`"`+kind+`"`)) {
				o.images++
				o.large++
				return ""
			}
		}
		if begin, ok := after(m.content.b, "text/plain"); ok {
			o.cut(begin, m.content.left, "\n")
			return ""
		}
		o.omitted(m)
	case "error":
		var c struct {
			Name      string `json:"ename"`
			Value     string `json:"evalue"`
			Traceback []string
		}
		switch {
		case !m.decode(&c):
			o.omitted(m)
		case len(c.Traceback) == 0:
			o.text(c.Name + ": " + c.Value + "\n")
		default:
			o.text(strings.Join(c.Traceback, "\n") + "\n")
		}
	case "status":
		var c struct {
			State string `json:"execution_state"`
		}
		if m.decode(&c) {
			return c.State
		}
	}
	return ""
}

// omitted notes that a message is not shown.
func (o *output) omitted(m message) {
	o.text(fmt.Sprintf("[%d bytes of the kind %.20q are left out]\n",
		int64(len(m.content.b)+len(m.content.tail))+m.content.left, m.kind))
}

// show adds one of the forms of a value: a picture, else a text.
func (o *output) show(data map[string]json.RawMessage) {
	for _, kind := range imageTypes {
		if s, ok := text(data[kind]); ok {
			o.image(kind, s)
			return
		}
	}
	for _, kind := range []string{"text/plain", "text/markdown", "text/html"} {
		if s, ok := text(data[kind]); ok {
			o.text(strings.TrimSuffix(s, "\n") + "\n")
			return
		}
	}
}

// text returns a text, which may be a list of lines.
func text(raw json.RawMessage) (string, bool) {
	var s string
	var lines []string
	switch {
	case len(raw) == 0:
		return "", false
	case json.Unmarshal(raw, &s) == nil:
		return s, s != ""
	case json.Unmarshal(raw, &lines) == nil:
		return strings.Join(lines, ""), len(lines) > 0
	}
	return "", false
}

// longest escape in a JSON string, a pair of surrogates
const maxEscape = 12

// after returns the beginning of a member's text in the beginning of an object.
func after(b []byte, name string) (string, bool) {
	_, rest, ok := bytes.Cut(b, []byte(`"`+name+`":`))
	rest = bytes.TrimLeft(rest, " ")
	if !ok || len(rest) == 0 || rest[0] != '"' {
		return "", false
	}
	rest = rest[1:]
	for n := 0; n <= min(maxEscape, len(rest)); n++ {
		if s, ok := unquote(rest[:len(rest)-n]); ok {
			return s, true
		}
	}
	return "", false
}

// before returns the end of the text that ends an object.
func before(b []byte) (string, bool) {
	b, ok := bytes.CutSuffix(bytes.TrimRight(b, " \n"), []byte(`"}`))
	if !ok {
		return "", false
	}
	for n := 0; n <= min(maxEscape, len(b)); n++ {
		if s, ok := unquote(b[n:]); ok {
			return s, true
		}
	}
	return "", false
}

func unquote(b []byte) (s string, ok bool) {
	q := make([]byte, 0, len(b)+2)
	q = append(append(append(q, '"'), b...), '"')
	return s, json.Unmarshal(q, &s) == nil
}
