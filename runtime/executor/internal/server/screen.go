package server

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// A screen turns what programs write to a terminal into plain text. It removes escape codes and
// applies those that edit the line on which the cursor is, so that a progress bar becomes its last
// state. Lines above are never edited. What a full-screen program draws on the alternate screen is
// text only as long as the program shows that screen.
//
// It keeps at most maxLine bytes of a line and maxAlt bytes of the alternate screen.
type screen struct {
	out func(b []byte) // receives the text

	line []byte // the line, if the cursor is at its end
	// Otherwise the line is cells and the cursor is before cells[cur]. An invalid byte b is the cell
	// -1-b.
	cells []rune
	cur   int
	edit  bool // the line is in cells

	state int
	args  []byte // of a control sequence
	skip  int    // length of a string that is dropped
	part  []byte // an incomplete character, in edit

	onAlt bool
	alt   []byte
}

const (
	maxLine   = 64 << 10
	maxAlt    = 16 << 10
	maxString = 1 << 20
)

const (
	plainText   = iota
	escape      // after ESC
	escapeMore  // after ESC and an intermediate byte
	sequence    // after ESC [
	titleString // after ESC ]: ends with BEL, ESC \ or the line
	otherString // after ESC P, X, ^ or _: ends with ESC \
)

// write takes what was read from the terminal.
func (s *screen) write(b []byte) {
	for len(b) > 0 {
		if s.state == plainText && !s.edit {
			n := plainLen(b)
			s.plain(b[:n])
			if b = b[n:]; len(b) == 0 {
				return
			}
		}
		s.one(b[0])
		b = b[1:]
	}
}

// plainLen returns the length of the text at the beginning of b that needs no interpretation.
//
// Output is often long, so it looks at eight bytes at a time for one below a space, or 0x7f.
func plainLen(b []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		del := w ^ ones*0x7f
		if (w-ones*' ')&^w&tops|(del-ones)&^del&tops == 0 {
			continue
		}
		for k, c := range b[i : i+8] {
			if special[c] {
				return i + k
			}
		}
	}
	for ; i < len(b); i++ {
		if special[b[i]] {
			return i
		}
	}
	return i
}

// special has the bytes that are not plain text.
var special = func() (t [256]bool) {
	for c := range t {
		t[c] = c < ' ' && c != '\n' && c != '\t' && c != 0 || c == 0x7f
	}
	return t
}()

// plain appends text, which may have several lines, at the end of the line.
func (s *screen) plain(b []byte) {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		s.send(s.line)
		s.send(b[:i+1])
		s.line, b = s.line[:0], b[i+1:]
	}
	if len(s.line)+len(b) > maxLine {
		s.send(s.line)
		s.send(b)
		s.line = s.line[:0]
		return
	}
	s.line = append(s.line, b...)
}

func (s *screen) send(b []byte) {
	if len(b) == 0 {
		return
	}
	if !s.onAlt {
		s.out(b)
		return
	}
	s.alt = append(s.alt, b...)
	if n := len(s.alt) - maxAlt; n > maxAlt {
		s.alt = append(s.alt[:0], s.alt[n:]...)
	}
}

// flush sends the line as far as it is known. What follows continues behind it.
func (s *screen) flush() {
	s.endEdit()
	s.send(s.line)
	s.line = s.line[:0]
	if s.onAlt {
		b := s.alt
		s.out(b[max(0, len(b)-maxAlt):])
	}
}

// startEdit moves the line to cells.
func (s *screen) startEdit() {
	if s.edit {
		return
	}
	s.edit, s.cells = true, s.cells[:0]
	for b := s.line; len(b) > 0; {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n <= 1 {
			r = -1 - rune(b[0])
		}
		s.cells = append(s.cells, r)
		b = b[n:]
	}
	s.cur = len(s.cells)
	s.line = s.line[:0]
}

// endEdit moves the line back.
func (s *screen) endEdit() {
	if !s.edit {
		return
	}
	s.endPart()
	s.edit = false
	for _, r := range s.cells {
		if r < 0 {
			s.line = append(s.line, byte(-1-r))
		} else {
			s.line = utf8.AppendRune(s.line, r)
		}
	}
	s.cells, s.cur = s.cells[:0], 0
}

// put overwrites the cell at the cursor.
func (s *screen) put(r rune) {
	if s.cur < len(s.cells) {
		s.cells[s.cur] = r
	} else {
		s.cells = append(s.cells, r)
	}
	if s.cur++; s.cur >= maxLine/4 {
		s.endEdit()
		s.send(s.line)
		s.line = s.line[:0]
	}
}

// putByte is put for the bytes of characters.
func (s *screen) putByte(c byte) {
	s.part = append(s.part, c)
	if !utf8.FullRune(s.part) {
		return
	}
	if r, n := utf8.DecodeRune(s.part); n == len(s.part) && (r != utf8.RuneError || n > 1) {
		s.part = s.part[:0]
		s.put(r)
		return
	}
	s.endPart()
}

func (s *screen) endPart() {
	part := s.part
	s.part = nil // put may end the line
	for _, c := range part {
		if !s.edit {
			s.line = append(s.line, c)
			continue
		}
		s.put(-1 - rune(c))
	}
}

// newline ends the line.
func (s *screen) newline() {
	s.endEdit()
	s.line = append(s.line, '\n')
	s.send(s.line)
	s.line = s.line[:0]
}

// one takes one byte.
func (s *screen) one(c byte) {
	switch s.state {
	case plainText:
		s.character(c)
	case escape:
		s.state = plainText
		switch {
		case c == '[':
			s.state, s.args = sequence, s.args[:0]
		case c == ']':
			s.state, s.skip = titleString, 0
		case c == 'P' || c == 'X' || c == '^' || c == '_':
			s.state, s.skip = otherString, 0
		case c == 0x1b:
			s.state = escape
		case c == 'c': // reset
			s.leaveAlt()
		case c >= ' ' && c <= '/':
			s.state = escapeMore
		case c < ' ':
			s.character(c)
		}
	case escapeMore:
		if c < ' ' || c > '/' {
			s.state = plainText
		}
	case sequence:
		switch {
		case c >= '@' && c <= '~':
			s.state = plainText
			s.control(c)
		case c == 0x1b:
			s.state = escape
		case c == 0x18 || c == 0x1a || c >= 0x7f: // cancelled
			s.state = plainText
		case c < ' ':
			s.character(c)
		case len(s.args) < 64:
			s.args = append(s.args, c)
		}
	case titleString, otherString:
		s.skip++
		switch {
		case c == 0x1b:
			s.state = escape // ESC \ or another code
		case c == 0x18 || c == 0x1a || s.skip > maxString:
			s.state = plainText
		case s.state == titleString && c == 7:
			s.state = plainText
		case s.state == titleString && c == '\n':
			s.state = plainText
			s.character(c)
		}
	}
}

// character takes a byte outside of escape codes.
func (s *screen) character(c byte) {
	if c >= ' ' && c != 0x7f || c == '\t' || c == 0 {
		if s.edit {
			s.putByte(c)
		} else {
			s.plain([]byte{c})
		}
		return
	}
	if s.edit {
		s.endPart()
	}
	switch c {
	case '\n', '\v', '\f':
		s.newline()
	case '\r':
		s.startEdit()
		s.cur = 0
	case '\b':
		s.startEdit()
		s.cur = max(s.cur-1, 0)
	case 0x1b:
		s.state = escape
	}
}

// control takes a control sequence that ends in c.
func (s *screen) control(c byte) {
	private := len(s.args) > 0 && s.args[0] >= '<' && s.args[0] <= '?'
	args := s.args
	if private {
		args = args[1:]
	}
	n, i := 0, 0
	for ; i < len(args) && args[i] >= '0' && args[i] <= '9'; i++ {
		n = min(n*10+int(args[i]-'0'), terminalCols)
	}
	if private {
		if (c == 'h' || c == 'l') && s.args[0] == '?' {
			for v := range bytes.SplitSeq(args, []byte{';'}) {
				if m := string(v); m == "1049" || m == "1047" || m == "47" {
					if c == 'l' {
						s.leaveAlt()
					} else {
						s.enterAlt()
					}
				}
			}
		}
		return
	}
	if s.edit {
		s.endPart()
	}
	switch c {
	case 'C': // right
		s.startEdit()
		for s.cur += max(n, 1); len(s.cells) < s.cur && len(s.cells) < maxLine/4; {
			s.cells = append(s.cells, ' ')
		}
		s.cur = min(s.cur, len(s.cells))
	case 'D': // left
		s.startEdit()
		s.cur = max(s.cur-max(n, 1), 0)
	case 'G': // column
		s.startEdit()
		s.cur = min(max(n, 1)-1, len(s.cells))
	case 'K', 'J': // erase in the line, on the screen
		if c == 'J' && n >= 2 {
			if s.onAlt {
				s.endEdit()
				s.alt, s.line = s.alt[:0], s.line[:0]
			}
			break
		}
		s.startEdit()
		switch n {
		case 0:
			s.cells = s.cells[:s.cur]
		case 1:
			for i := range s.cells[:s.cur] {
				s.cells[i] = ' '
			}
		case 2:
			s.cells, s.cur = s.cells[:0], 0
		}
	case 'P': // delete characters
		s.startEdit()
		s.cells = append(s.cells[:s.cur], s.cells[min(len(s.cells), s.cur+max(n, 1)):]...)
	case 'H', 'f', 'd': // another line
		if s.endEdit(); len(s.line) > 0 {
			s.newline()
		}
	}
}

func (s *screen) enterAlt() {
	if s.onAlt {
		return
	}
	s.endEdit()
	s.send(s.line)
	s.line, s.alt, s.onAlt = s.line[:0], s.alt[:0], true
}

// begin is for a new command: it shall not write to a screen, or into an escape code, that an earlier
// one has left open.
func (s *screen) begin() {
	s.state = plainText
	s.leaveAlt()
}

func (s *screen) leaveAlt() {
	if !s.onAlt {
		return
	}
	s.endEdit()
	s.line, s.alt, s.onAlt = s.line[:0], nil, false
}
