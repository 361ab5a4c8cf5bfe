// Package csv reads files of comma- or tab-separated values, plain or gzipped. The first record
// names the columns. All values are text. It keeps one record in memory, of at most [MaxRecord]
// bytes.
package csv

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/table"
)

// MaxRecord is the size in bytes of the longest record that is read. A longer one, usually caused
// by an unclosed quote, ends the reading.
const MaxRecord = 64 << 20

// Open returns the file's rows. Values are separated by tabs if the name says tsv, else by commas.
// Open itself reads nothing.
func Open(path string) table.File {
	f := &file{disk: table.Disk{Name: path}, comma: ','}
	if strings.HasSuffix(strings.TrimSuffix(path, ".gz"), ".tsv") {
		f.comma = '\t'
	}
	return f
}

type file struct {
	disk  table.Disk
	comma rune
}

func (f *file) Path() string { return f.disk.Name }

func (f *file) Columns(context.Context) ([]string, error) {
	c, err := f.begin()
	if err != nil {
		return nil, err
	}
	return c.header, nil
}

func (f *file) Rows(ctx context.Context) iter.Seq2[table.Row, error] {
	return func(yield func(table.Row, error) bool) {
		c, err := f.begin()
		if err != nil {
			yield(table.Row{}, err)
			return
		}
		for n := int64(0); ctx.Err() == nil; n++ {
			pos, line := c.pos+c.r.InputOffset(), c.line
			record, err := c.read()
			if err == io.EOF {
				return
			}
			row := table.Row{Number: n, Pos: pos, Line: line}
			row.Place = f.place(c.at)
			if err == nil {
				row.Data, err = c.object(record)
			}
			if errors.Is(err, errLong) {
				yield(row, &datasets.Fatal{Place: f.place(line), Err: err})
				return
			}
			if err != nil {
				err = &datasets.BadTask{Place: row.Place, Err: err}
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

func (f *file) At(ctx context.Context, at table.Row) (table.Row, error) {
	head, err := f.begin()
	if err != nil {
		return at, err
	}
	r, size, err := f.disk.Reader()
	if err != nil {
		return at, err
	}
	c := f.cursor(io.NewSectionReader(r, at.Pos, size-at.Pos))
	c.header, c.line = head.header, at.Line
	record, err := c.read()
	at.Place = f.place(c.at)
	if err == nil {
		at.Data, err = c.object(record)
	}
	if err != nil {
		err = &datasets.BadTask{Place: at.Place, Err: err}
	}
	return at, err
}

func (f *file) place(line int64) string { return fmt.Sprintf("%s:%d", f.disk.Name, line) }

// begin reads the header.
func (f *file) begin() (*cursor, error) {
	r, size, err := f.disk.Reader()
	if err != nil {
		return nil, err
	}
	start := int64(0)
	var bom [3]byte
	if n, _ := r.ReadAt(bom[:], 0); n == 3 && string(bom[:]) == "\xef\xbb\xbf" {
		start = 3
	}
	c := f.cursor(io.NewSectionReader(r, start, size-start))
	c.pos, c.line = start, 1
	header, err := c.read()
	switch {
	case err == io.EOF:
		err = errors.New("the file is empty; its first line has to name the columns")
	case err == nil:
		seen := map[string]bool{}
		for _, h := range header {
			if seen[h] {
				err = fmt.Errorf("column %q is named twice", h)
			}
			if !utf8.ValidString(h) {
				err = errors.New("the header is not UTF-8; convert the file, with iconv say")
			}
			seen[h] = true
		}
	}
	if err != nil {
		return nil, &datasets.Fatal{Place: f.place(1), Err: err}
	}
	c.header = header
	return c, nil
}

func (f *file) cursor(r io.Reader) *cursor {
	c := &cursor{budget: budget{r: r}}
	c.r = csv.NewReader(&c.budget)
	c.r.Comma = f.comma
	c.r.FieldsPerRecord = -1 // counted here, so that a short record is an error of that record only
	return c
}

// A cursor reads records and keeps track of their lines.
type cursor struct {
	r      *csv.Reader
	budget budget
	header []string
	pos    int64 // offset in the file at which r started
	line   int64 // line of the file at which the next record starts at the earliest
	at     int64 // line at which the latest record started
	rel    int64 // lines that r has read so far
}

func (c *cursor) read() ([]string, error) {
	c.budget.left = MaxRecord
	record, err := c.r.Read()
	c.at = c.line
	if errors.Is(err, errLong) {
		return nil, errLong
	}
	var parse *csv.ParseError
	switch {
	case errors.As(err, &parse):
		c.at = c.line + int64(parse.StartLine) - c.rel - 1
		c.line += int64(parse.Line) - c.rel
		c.rel = int64(parse.Line)
		return nil, fmt.Errorf("column %d: %w", parse.Column, parse.Err)
	case err != nil:
		return nil, err
	}
	first, _ := c.r.FieldPos(0)
	last, _ := c.r.FieldPos(len(record) - 1)
	last += strings.Count(record[len(record)-1], "\n")
	c.at = c.line + int64(first) - c.rel - 1
	c.line += int64(last) - c.rel
	c.rel = int64(last)
	return record, nil
}

func (c *cursor) object(record []string) (json.RawMessage, error) {
	if len(record) != len(c.header) {
		return nil, fmt.Errorf("the record has %d fields, the header %d", len(record), len(c.header))
	}
	m := make(map[string]string, len(record))
	for i, v := range record {
		if !utf8.ValidString(v) {
			return nil, fmt.Errorf("column %q is not UTF-8; convert the file, with iconv say", c.header[i])
		}
		m[c.header[i]] = v
	}
	return json.Marshal(m)
}

var errLong = fmt.Errorf("a record is longer than %d MiB, the most that is read; is a quote never closed?",
	MaxRecord>>20)

// A budget ends the reading of a record that is too long.
type budget struct {
	r    io.Reader
	left int
}

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLong
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}
