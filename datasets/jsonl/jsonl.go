// Package jsonl reads files of JSON lines, plain or gzipped: one object per line, in UTF-8; blank
// lines are allowed. It keeps one line in memory, of at most [MaxLine] bytes.
package jsonl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/table"
)

// MaxLine is the size in bytes of the longest line that is read. A longer line is a bad row; the
// rows after it are read.
const MaxLine = 64 << 20

// Open returns the file's rows. Open itself reads nothing.
func Open(path string) table.File { return &file{disk: table.Disk{Name: path}} }

type file struct{ disk table.Disk }

func (f *file) Path() string { return f.disk.Name }

func (f *file) Columns(context.Context) ([]string, error) { return nil, nil }

func (f *file) Rows(ctx context.Context) iter.Seq2[table.Row, error] {
	return func(yield func(table.Row, error) bool) {
		r, size, err := f.disk.Reader()
		if err != nil {
			yield(table.Row{}, err)
			return
		}
		l := lines{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16)}
		if err := l.begin(); err != nil {
			yield(table.Row{}, &datasets.Fatal{Place: f.disk.Name, Err: err})
			return
		}
		for n := int64(0); ctx.Err() == nil; {
			pos, line, err := l.next()
			if err == io.EOF {
				return
			}
			row := table.Row{Number: n, Pos: pos, Line: l.line, Place: f.place(l.line)}
			switch {
			case errors.Is(err, errLong):
				err = f.bad(row, err)
			case err != nil:
				yield(row, &datasets.Fatal{Place: row.Place, Err: err})
				return
			case len(line) == 0:
				continue
			default:
				row.Data, err = f.object(row, line)
			}
			if !yield(row, err) {
				return
			}
			n++
		}
	}
}

func (f *file) At(ctx context.Context, at table.Row) (table.Row, error) {
	at.Place = f.place(at.Line)
	r, size, err := f.disk.Reader()
	if err != nil {
		return at, err
	}
	l := lines{r: bufio.NewReader(io.NewSectionReader(r, at.Pos, size-at.Pos))}
	_, line, err := l.next()
	if err != nil {
		return at, f.bad(at, err)
	}
	at.Data, err = f.object(at, line)
	return at, err
}

// object checks a line and returns a copy of it.
func (f *file) object(row table.Row, line []byte) (json.RawMessage, error) {
	if i := badUTF8(line); i >= 0 {
		return nil, f.bad(row, fmt.Errorf("byte %d of the line is not UTF-8; convert the file, with iconv say", i+1))
	}
	if !json.Valid(line) {
		return nil, f.bad(row, fmt.Errorf("not JSON: %w", json.Unmarshal(line, new(any))))
	}
	if line[0] != '{' {
		return nil, f.bad(row, errors.New("not a JSON object; each line holds one, as in {\"question\": …}"))
	}
	return bytes.Clone(line), nil
}

func (f *file) bad(row table.Row, err error) error {
	return &datasets.BadTask{Place: row.Place, Err: err}
}

func (f *file) place(line int64) string { return fmt.Sprintf("%s:%d", f.disk.Name, line) }

// badUTF8 returns the index of the first byte that is not UTF-8, or -1.
func badUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// lines reads lines and their positions.
type lines struct {
	r    *bufio.Reader
	pos  int64 // offset of the next line
	line int64 // number of the line that next returned
	buf  []byte
}

var errLong = fmt.Errorf("the line is longer than %d MiB, the most that is read", MaxLine>>20)

// begin skips a byte order mark.
func (l *lines) begin() error {
	head, _ := l.r.Peek(3)
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		l.r.Discard(3)
		l.pos = 3
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return errors.New("the file is UTF-16; convert it to UTF-8, with iconv say")
	}
	return nil
}

// next returns the next line without its line break and surrounding spaces. It is valid until the
// next call. errLong is returned after the whole line was skipped, so reading can continue.
func (l *lines) next() (pos int64, line []byte, err error) {
	pos = l.pos
	l.buf = l.buf[:0]
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		l.pos += int64(len(part))
		if len(l.buf)+len(part) > MaxLine {
			long = true
		}
		if !long {
			l.buf = append(l.buf, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && l.pos == pos:
			return pos, nil, io.EOF
		case err != nil && err != io.EOF:
			return pos, nil, err
		}
		break
	}
	l.line++
	if long {
		l.buf = nil
		return pos, nil, errLong
	}
	return pos, bytes.TrimSpace(l.buf), nil
}
