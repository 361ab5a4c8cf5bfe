package search

import (
	"bytes"
	"context"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

const (
	chunk   = 1 << 20
	maxLine = 16 << 20 // a longer line is taken as several
	// A file with a NUL in its beginning is binary; git looks as far.
	binaryHead = 8192
	// DeerFlow searches no larger files.
	deerflowFile = 1_000_000
)

// A job is a file to be searched.
type job struct {
	path  string
	named bool // the search is for this file alone
	hits  []sandbox.Hit
	err   error
	done  chan struct{}
}

// A scanner searches files, one after the other.
type scanner struct {
	m        *matcher
	width    int // characters of a line that are shown; 0: DefaultWidth
	most     int // hits of a file
	deerflow bool
	buf, low []byte
}

// scan searches a file. What is behind a NUL of a binary file is not searched, as with ripgrep.
func (s *scanner) scan(ctx context.Context, j *job) {
	fd, err := s.open(j)
	if err != nil {
		j.err = err
		return
	}
	if fd < 0 {
		return
	}
	defer unix.Close(fd)
	if s.buf == nil {
		s.buf = make([]byte, chunk)
	}
	line, size := 1, 0 // the number of the first line in the buffer, and the text of the hits
	have, first := 0, true
	for ctx.Err() == nil && len(j.hits) < s.most && size < maxText {
		n, err := readFile(fd, s.buf[have:])
		if err != nil {
			if err != unix.EAGAIN { // such as a file of /proc that waits
				j.err = err
			}
			return
		}
		have += n
		end, last := have, n == 0
		if first && (have >= binaryHead || last) {
			if bytes.IndexByte(s.buf[:min(have, binaryHead)], 0) >= 0 {
				return
			}
			first = false
		}
		if first {
			continue
		}
		if !s.deerflow {
			if i := bytes.IndexByte(s.buf[have-n:have], 0); i >= 0 {
				end, last = have-n+i, true
			}
		}
		if !last && have < len(s.buf) && n > 0 {
			continue // there may be more of the file
		}
		if !last {
			if i := bytes.LastIndexByte(s.buf[:have], '\n'); i >= 0 {
				end = i + 1
			} else if len(s.buf) < maxLine {
				s.buf = append(s.buf, make([]byte, len(s.buf))...)
				continue
			}
		}
		line, size = s.part(j, s.buf[:end], line, size)
		if last {
			return
		}
		have = copy(s.buf, s.buf[end:have])
	}
}

// open opens a file, and returns -1 for one that is not to be searched.
func (s *scanner) open(j *job) (int, error) {
	var fd int
	var err error
	if j.named {
		fd, err = openNamed(j.path)
	} else {
		fd, err = openFile(j.path)
	}
	if err != nil || !s.deerflow {
		return fd, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size > deerflowFile {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// part searches whole lines, the first of which has the number line, and returns the number of the
// next line and the size of the hits.
func (s *scanner) part(j *job, text []byte, line, size int) (int, int) {
	var low []byte
	if s.m.fold && len(s.m.literals) > 0 {
		s.low = lower(s.low[:0], text)
		low = s.low
	}
	counted := 0
	s.m.lines(text, low, func(start, end int) bool {
		line += bytes.Count(text[counted:start], []byte{'\n'})
		counted = start
		h := sandbox.Hit{Path: j.path, Line: line, Text: shown(text[start:end], s.width)}
		j.hits = append(j.hits, h)
		size += len(h.Text) + len(h.Path)
		return len(j.hits) < s.most && size < maxText
	})
	if len(j.hits) < s.most {
		line += bytes.Count(text[counted:], []byte{'\n'})
	}
	return line, size
}

// shown returns what is shown of a line.
func shown(line []byte, width int) string {
	if width <= 0 {
		width = sandbox.DefaultWidth
	}
	var b strings.Builder
	for ; width > 0 && len(line) > 0; width-- {
		r, size := utf8.DecodeRune(line)
		b.WriteRune(r)
		line = line[size:]
	}
	if len(line) > 0 {
		b.WriteString("...")
	}
	return b.String()
}

// lower appends text in lower case, of ASCII only.
func lower(to, text []byte) []byte {
	if cap(to) < len(text) {
		to = make([]byte, 0, max(len(text), chunk))
	}
	to = to[:len(text)]
	for i, c := range text {
		to[i] = lowerOf[c]
	}
	return to
}

var lowerOf = func() (t [256]byte) {
	for i := range t {
		t[i] = byte(i)
		if i >= 'A' && i <= 'Z' {
			t[i] += 'a' - 'A'
		}
	}
	return t
}()
