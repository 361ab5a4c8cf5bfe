// Package termsafe makes what hostile programs write to a terminal safe for the terminal of a person.
//
// What a program needs to be used passes: text, colours, cursor movements, erasing, scrolling, the
// alternate screen, line drawing, mouse reports. What reaches beyond the screen does not: it could
// write the clipboard, set titles, ask the terminal questions whose answers are then typed into a
// shell, print, resize windows, change keys, hide where a link leads, or turn text around.
//
// So [Writer] passes only what it knows, whole sequences at a time; the table in this file is the
// list. Everything else is dropped, up to its end.
package termsafe

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// What passes:
//
//	characters    all of valid UTF-8 but C0, C1, DEL, bidirectional controls, line and paragraph
//	              separators, tags and the byte order mark; an invalid byte becomes U+FFFD
//	controls      BEL BS HT LF VT FF CR
//	ESC …         7 8 (cursor), D E M (lines), H (tabs), = > (keypad)
//	ESC ( ) …     0 B (line drawing, ASCII), and SI SO, which select one of the two
//	CSI …         those of plainCSI, without a prefix, and SGR, DECSCUSR, DECSTR
//	CSI ? … h l   the modes of modes
//
// What does not, among others: OSC (title, clipboard, colours, links, notifications), DCS (queries,
// pictures, macros), APC, PM, SOS; CSI c n x t i q p y and all with other prefixes or intermediates
// (questions and their answers, windows, printing, LEDs, keyboard protocols); ENQ; the modes 3
// (132 columns), 1004 (focus reports), 2026 (holds the screen), 2031 and others; RIS, DECALN, S7C1T.
const plainCSI = "@ABCDEFGHIJKLMPSTXZ`abdefgrsu"

// modes are the private modes that programs may set.
var modes = []int{1, 6, 7, 12, 25, 47, 1000, 1002, 1003, 1006, 1047, 1048, 1049, 2004}

// Limits of sequences. A terminal may take long for a large number.
const (
	maxParams = 64
	maxNumber = 9999
	maxString = 64 << 10 // bytes of a string that are dropped; what follows is text again
)

// A Writer passes to w what is safe. It holds back a sequence until it is complete, and an incomplete
// character.
type Writer struct {
	w     io.Writer
	out   []byte
	part  []byte // of a character
	state state
	seq   []byte // of a sequence, after its introducer
	drop  int    // bytes of a string that were dropped
	esc   bool   // in a string, after ESC

	// What the program has changed and Reset undoes.
	set  map[int]bool // private modes that differ from their default
	used bool         // it has written any sequence
}

type state uint8

const (
	text state = iota
	escape
	charset // after ESC ( or )
	csi
	ignore // a sequence that is too long, up to its final byte
	str    // OSC, DCS, APC, PM, SOS
	osc    // as str, but BEL ends it too
	skip   // after ESC and an intermediate byte
)

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, set: map[int]bool{}} }

// Write passes on what of p is safe. It always takes all of p.
func (f *Writer) Write(p []byte) (int, error) {
	f.out = f.out[:0]
	for _, c := range p {
		f.one(c)
	}
	if len(f.out) == 0 {
		return len(p), nil
	}
	if _, err := f.w.Write(f.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close passes on what is left of an incomplete character.
func (f *Writer) Close() error {
	if len(f.part) == 0 {
		return nil
	}
	f.part = nil
	_, err := f.w.Write([]byte("\uFFFD"))
	return err
}

// defaults are the private modes that a terminal begins with.
var defaults = map[int]bool{7: true, 25: true}

// Reset returns what brings the terminal back from what the program has left it in. It is empty if the
// program has written no sequence.
func (f *Writer) Reset() []byte {
	if !f.used {
		return nil
	}
	var b bytes.Buffer
	for _, m := range slices.Sorted(keys(f.set)) {
		final := 'l'
		if defaults[m] {
			final = 'h'
		}
		b.WriteString("\x1b[?" + strconv.Itoa(m) + string(final))
	}
	// Insert mode, the keypad, character sets, the scrolling region (which moves the cursor), colours.
	b.WriteString("\x1b[4l\x1b>\x1b(B\x1b)B\x0f\x1b7\x1b[r\x1b8\x1b[m")
	return b.Bytes()
}

func keys(m map[int]bool) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (f *Writer) one(c byte) {
	switch f.state {
	case str, osc:
		f.inString(c)
		return
	case text:
		if len(f.part) > 0 || c >= utf8.RuneSelf {
			f.char(c)
			return
		}
	}
	switch {
	case c == 0x1b:
		f.state = escape
		return
	case c == 0x18 || c == 0x1a: // CAN and SUB end a sequence
		f.state = text
		return
	case c < ' ': // a terminal obeys controls in the middle of a sequence, too
		f.control(c)
		return
	case c == 0x7f:
		return
	case c >= utf8.RuneSelf && f.state != text: // no part of any sequence
		f.state = text
		f.char(c)
		return
	}
	switch f.state {
	case text:
		f.out = append(f.out, c)
	case escape:
		f.afterEscape(c)
	case charset:
		if c == '0' || c == 'B' {
			f.pass(append(f.seq, c))
		}
		f.state = text
	case skip:
		if c >= '0' {
			f.state = text
		}
	case ignore:
		if c >= '@' {
			f.state = text
		}
	case csi:
		switch {
		case c >= '@':
			f.state = text
			f.sequence(c)
		case len(f.seq) >= maxParams:
			f.state = ignore
		default:
			f.seq = append(f.seq, c)
		}
	}
}

func (f *Writer) control(c byte) {
	switch c {
	case '\a', '\b', '\t', '\n', '\v', '\f', '\r':
		f.out = append(f.out, c)
	case 0x0e, 0x0f: // SO, SI
		f.used = true
		f.out = append(f.out, c)
	}
}

func (f *Writer) afterEscape(c byte) {
	f.state = text
	switch c {
	case '[':
		f.state, f.seq = csi, f.seq[:0]
	case ']':
		f.state, f.drop, f.esc = osc, 0, false
	case 'P', 'X', '^', '_':
		f.state, f.drop, f.esc = str, 0, false
	case '(', ')':
		f.state, f.seq = charset, append(f.seq[:0], 0x1b, c)
	case '7', '8', 'D', 'E', 'M', 'H', '=', '>':
		f.pass([]byte{0x1b, c})
	default:
		if c < '0' { // an intermediate byte
			f.state = skip
		}
	}
}

// inString drops a string. An ESC that does not end it begins another sequence.
func (f *Writer) inString(c byte) {
	f.drop++
	switch {
	case c == 0x18 || c == 0x1a, c == '\a' && f.state == osc:
		f.state = text
	case f.esc && c == '\\':
		f.state = text
	case f.esc && c != 0x1b:
		f.state = escape
		f.one(c)
	case f.drop >= maxString:
		f.state = text
	default:
		f.esc = c == 0x1b
	}
}

func (f *Writer) pass(b []byte) {
	f.used = true
	f.out = append(f.out, b...)
}

// sequence passes a control sequence if it is safe.
func (f *Writer) sequence(final byte) {
	private := bytes.HasPrefix(f.seq, []byte("?"))
	params := bytes.TrimPrefix(f.seq, []byte("?"))
	more := bytes.TrimLeft(params, "0123456789;:") // prefixes and intermediates
	numbers, ok := numbersOf(params[:len(params)-len(more)])
	whole := append(append([]byte("\x1b["), f.seq...), final)
	switch {
	case !ok:
	case !private && len(more) == 0 && (final == 'm' || bytes.IndexByte([]byte(plainCSI), final) >= 0),
		!private && len(more) == 0 && (final == 'h' || final == 'l') && slices.Equal(numbers, []int{4}), // insert
		!private && string(more) == " " && final == 'q',                                                 // the cursor's shape
		string(f.seq) == "!" && final == 'p',                                                            // soft reset
		private && len(more) == 0 && (final == 'J' || final == 'K'):                                     // erase
		f.pass(whole)
	case private && len(more) == 0 && (final == 'h' || final == 'l'):
		for _, n := range numbers { // each alone, so that one that is refused takes no other with it
			if slices.Contains(modes, n) {
				f.mode(n, final == 'h')
				f.pass([]byte("\x1b[?" + strconv.Itoa(n) + string(final)))
			}
		}
	}
}

func (f *Writer) mode(n int, on bool) {
	switch {
	case n == 1048: // saves or restores the cursor
	case on == defaults[n]:
		delete(f.set, n)
	default:
		f.set[n] = true
	}
}

// numbersOf returns the numbers of parameters; a missing one is 0.
func numbersOf(b []byte) (out []int, ok bool) {
	for _, s := range bytes.FieldsFunc(b, func(r rune) bool { return r == ';' || r == ':' }) {
		n, err := strconv.Atoi(string(s))
		if err != nil || n > maxNumber {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

// char takes a byte of a character that is not ASCII, or one that cuts such a character off.
func (f *Writer) char(c byte) {
	f.part = append(f.part, c)
	for len(f.part) > 0 && utf8.FullRune(f.part) {
		r, n := utf8.DecodeRune(f.part)
		rest := slices.Clone(f.part[n:])
		f.part = f.part[:0]
		switch {
		case r < utf8.RuneSelf: // after an invalid byte
			f.one(byte(r))
		case !misleading(r):
			f.out = utf8.AppendRune(f.out, r)
		}
		if f.part = append(f.part, rest...); len(f.part) > 0 && f.part[0] < utf8.RuneSelf {
			c := f.part[0]
			f.part = f.part[:0]
			f.one(c)
		}
	}
}

// misleading reports whether r could control a terminal or mislead a reader.
func misleading(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0x9f: // C1
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // bidi
	case r == 0x2028, r == 0x2029, r == 0xfeff, r >= 0xe0000 && r <= 0xe007f: // separators, mark, tags
	default:
		return false
	}
	return true
}
