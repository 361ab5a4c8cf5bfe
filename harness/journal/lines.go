package journal

import (
	"bytes"
	"io"
)

// lines splits a stream into lines without copying them.
type lines struct {
	r          io.Reader
	buf        []byte
	start, end int   // unread part of buf
	off        int64 // stream offset of buf[start]
	scanned    int   // buf[start:start+scanned] has no newline
}

func newLines(r io.Reader, off int64) *lines {
	return &lines{r: r, off: off, buf: make([]byte, 256<<10)}
}

// next returns the next line without its newline, and its offset. At the end it returns io.EOF and
// keeps the bytes after the last newline, so that next may be called again when the file has grown.
// The line is valid until the next call.
func (l *lines) next() ([]byte, int64, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.start+l.scanned:l.end], '\n'); i >= 0 {
			n := l.scanned + i
			line, off := l.buf[l.start:l.start+n], l.off
			l.start += n + 1
			l.off += int64(n + 1)
			l.scanned = 0
			return line, off, nil
		}
		l.scanned = l.end - l.start
		if l.start > 0 && l.end > len(l.buf)*3/4 {
			copy(l.buf, l.buf[l.start:l.end])
			l.start, l.end = 0, l.scanned
		}
		if l.end == len(l.buf) {
			l.buf = append(l.buf, make([]byte, len(l.buf))...)
		}
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if n == 0 && err != nil {
			return nil, l.off, err
		}
	}
}

// rest returns the number of bytes after the last newline. It is valid after io.EOF.
func (l *lines) rest() int64 { return int64(l.end - l.start) }
