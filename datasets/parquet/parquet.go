// Package parquet reads Parquet files, and folders of them, as rows. A column of lists becomes a
// list; members of a group become columns named "group.member". Values follow the logical type of
// their column; a file with an unknown type is rejected. Bytes without such a type that are not
// text, such as images, are left out, and so is a list that contains some.
//
// Files may come from anywhere and are treated as hostile. A pass over a file keeps one page and
// the dictionary of each column in memory, at most [MaxHeld] bytes in all, and decodes values one
// at a time. Each size stated by a file is compared with a limit before it is used, and no page
// decompresses to more than its stated size. A whole file decompresses to no more than a compressed
// text file may ([table.MaxUnpacked]).
package parquet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/table"
)

// Open returns the file's rows. Open itself reads nothing.
func Open(path string) table.File { return &file{disk: &table.Disk{Name: path}} }

type file struct {
	disk *table.Disk

	mu     sync.Mutex
	footer *footer // read once
	at     *cursor // cursor of At, kept for the rows that follow
}

func (f *file) Path() string { return f.disk.Name }

// open returns the file's metadata. The first call reads it.
func (f *file) open() (io.ReaderAt, *footer, error) {
	r, size, err := f.disk.Reader()
	if err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.footer == nil {
		ft, err := readFooter(r, size)
		if err != nil {
			return nil, nil, &datasets.Fatal{Place: f.disk.Name, Err: err}
		}
		f.footer = ft
	}
	return r, f.footer, nil
}

func (f *file) Columns(context.Context) ([]string, error) {
	_, ft, err := f.open()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range ft.cols {
		names = append(names, c.name)
	}
	return names, nil
}

func (f *file) place(n int64) string { return f.disk.Name + ": row " + strconv.FormatInt(n+1, 10) }

func (f *file) Rows(ctx context.Context) iter.Seq2[table.Row, error] {
	return func(yield func(table.Row, error) bool) {
		r, ft, err := f.open()
		if err != nil {
			yield(table.Row{}, err)
			return
		}
		n := int64(0)
		g := &guard{limit: ft.limit}
		for i, group := range ft.groups {
			c := newCursor(r, ft, i, g)
			for range group.rows {
				if ctx.Err() != nil {
					return
				}
				row := table.Row{Number: n, Pos: n, Place: f.place(n)}
				n++
				row.Data, err = c.next()
				row.Left = c.left
				var bad *rowError
				switch {
				case errors.As(err, &bad):
					err = &datasets.BadTask{Place: row.Place, Err: bad.err}
				case err != nil:
					err = &datasets.Fatal{Place: row.Place, Err: err}
				}
				if !yield(row, err) || err != nil && bad == nil {
					return
				}
			}
			c.close()
		}
	}
}

// At reads one row again. Rows requested in order cost no more than in [file.Rows]; for other rows
// the preceding pages of their row group are skipped.
func (f *file) At(_ context.Context, at table.Row) (table.Row, error) {
	at.Place = f.place(at.Pos)
	r, ft, err := f.open()
	if err != nil {
		return at, err
	}
	i, left := 0, at.Pos
	for i < len(ft.groups) && left >= ft.groups[i].rows {
		left -= ft.groups[i].rows
		i++
	}
	if left < 0 || i == len(ft.groups) {
		return at, &datasets.BadTask{Place: at.Place, Err: errors.New("no such row")}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.at
	if c == nil || c.group != i || c.row > left {
		c = newCursor(r, ft, i, &guard{})
	}
	f.at = nil
	if err = c.skip(left - c.row); err == nil {
		at.Data, err = c.next()
		at.Left = c.left
	}
	var bad *rowError
	if errors.As(err, &bad) {
		err = bad.err
	}
	if err != nil {
		if bad == nil {
			c = nil
		}
		err = &datasets.BadTask{Place: at.Place, Err: err}
	}
	f.at = c
	return at, err
}

// A rowError is an error in one row; the rows after it can be read.
type rowError struct{ err error }

func (e *rowError) Error() string { return e.err.Error() }

// A cursor reads the rows of a row group.
type cursor struct {
	footer *footer
	group  int
	row    int64 // number of the next row in the group
	guard  *guard
	cols   []*reader // of the footer's members; nil for a null column
	buf    []byte
	left   []string // columns missing from the row because they contain bytes that are not text
}

func newCursor(f io.ReaderAt, ft *footer, group int, g *guard) *cursor {
	c := &cursor{footer: ft, group: group, guard: g}
	c.cols = make([]*reader, len(ft.members))
	for i, m := range ft.members {
		if m.col >= 0 {
			c.cols[i] = newReader(f, ft, m.col, ft.groups[group].chunks[m.col], g)
		}
	}
	return c
}

func (c *cursor) close() {
	for _, r := range c.cols {
		if r != nil {
			r.close()
		}
	}
}

// fault adds the position to an error.
func (c *cursor) fault(r *reader, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errors.New("it ends before its rows do")
	}
	return fmt.Errorf("column %q of row group %d: %w", r.col.name, c.group+1, err)
}

func (c *cursor) skip(n int64) error {
	if n == 0 {
		return nil
	}
	for _, r := range c.cols {
		if r == nil {
			continue
		}
		if err := r.skip(n); err != nil {
			return c.fault(r, err)
		}
	}
	c.row += n
	return nil
}

// next returns the next row as a JSON object with its members sorted by name.
func (c *cursor) next() (json.RawMessage, error) {
	var bad error
	c.left = nil
	b := append(c.buf[:0], '{')
	for i, r := range c.cols {
		begin := len(b)
		if begin > 1 {
			b = append(b, ',')
		}
		b = append(text(b, []byte(c.footer.members[i].name)), ':')
		if r == nil {
			b = append(b, "null"...)
			continue
		}
		if r.col.list() {
			b = append(b, '[')
		}
		first, none, left := len(b), true, false
		err := r.row(func(v *value) error {
			if len(b) > MaxRow || len(v.b) > MaxRow {
				bad = fmt.Errorf("the row is longer than %d MiB, the most that is read", MaxRow>>20)
				return nil
			}
			last := len(b)
			if last > first {
				b = append(b, ',')
			}
			switch x, err := scalar(b, r.col, v); {
			case err == nil:
				b, none = x, false
			case err == errNone:
				b = b[:last]
			case err == errBytes && !r.col.text():
				b, left = b[:last], true
			default:
				b, bad = b[:last], fmt.Errorf("column %q: %w", r.col.name, err)
			}
			return nil
		})
		if err != nil {
			return nil, c.fault(r, err)
		}
		switch {
		case left:
			b = b[:begin]
			c.left = append(c.left, r.col.name)
		case r.col.list():
			b = append(b, ']')
		case none:
			b = append(b, "null"...)
		}
	}
	c.row++
	c.buf = b[:0]
	if cap(c.buf) > 1<<20 {
		c.buf = nil
	}
	b = append(b, '}')
	if err := c.guard.row(len(b)); err != nil {
		return nil, err
	}
	if bad != nil {
		return nil, &rowError{bad}
	}
	return append(json.RawMessage(nil), b...), nil
}

// scalar appends v as JSON.
func scalar(b []byte, c *column, v *value) ([]byte, error) {
	if id := c.logical.id; id != 0 && id != logicalUnknown && !c.text() {
		return meant(b, c, v)
	}
	switch c.kind {
	case kindBool:
		return strconv.AppendBool(b, v.num != 0), nil
	case kindInt32:
		return strconv.AppendInt(b, int64(int32(v.num)), 10), nil
	case kindInt64:
		return strconv.AppendInt(b, int64(v.num), 10), nil
	case kindInt96:
		return moment(b, int96(v.b), "2006-01-02T15:04:05.999999999")
	case kindFloat:
		x := math.Float32frombits(uint32(v.num))
		return number32or64(b, float64(x), x)
	case kindDouble:
		x := math.Float64frombits(v.num)
		return number32or64(b, x, x)
	}
	if !utf8.Valid(v.b) {
		return b, errBytes
	}
	return text(b, v.b), nil
}

// number32or64 appends x, a float32 or a float64.
func number32or64(b []byte, size float64, x any) ([]byte, error) {
	if math.IsNaN(size) || math.IsInf(size, 0) {
		return b, errNone
	}
	t, err := json.Marshal(x)
	return append(b, t...), err
}

// text appends a JSON string.
func text(b, s []byte) []byte {
	for _, c := range s {
		if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			t, _ := json.Marshal(string(s))
			return append(b, t...)
		}
	}
	b = append(append(b, '"'), s...)
	return append(b, '"')
}
