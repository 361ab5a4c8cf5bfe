// Package parquet reads Parquet files as rows. A column of lists is a list; members of a group are columns of their own, named
// "group.member". What is neither text nor number (bytes of an image, say) is left out.
package parquet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/rows"
)

// Open returns the file's rows. Nothing is read before it is asked for.
func Open(path string) rows.File { return &file{disk: rows.Disk{Name: path}} }

type file struct{ disk rows.Disk }

func (f *file) Path() string { return f.disk.Name }

// guard turns the library's panics over damaged files into errors.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the file is damaged: %v", p)
	}
}

type column struct {
	name string
	list bool
	text bool
}

func (f *file) open() (p *parquet.File, cols []column, err error) {
	defer func() {
		if err != nil {
			err = &datasets.Fatal{Place: f.disk.Name, Err: err}
		}
	}()
	defer guard(&err)
	r, size, err := f.disk.Reader()
	if fatal := (*datasets.Fatal)(nil); errors.As(err, &fatal) {
		return nil, nil, fatal.Err
	}
	p, err = parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, nil, fmt.Errorf("not a Parquet file, or a damaged one: %w", err)
	}
	s := p.Schema()
	for _, path := range s.Columns() {
		leaf, _ := s.Lookup(path...)
		c := column{list: leaf.MaxRepetitionLevel > 0}
		if t := leaf.Node.Type().LogicalType(); t != nil {
			switch t.Value.(type) {
			case *format.StringType, *format.JsonType, *format.EnumType:
				c.text = true
			}
		}
		c.name = strings.Join(plain(path), ".")
		cols = append(cols, c)
	}
	return p, cols, nil
}

// plain takes the inner names that writers give to lists out of a path.
func plain(path []string) []string {
	n := len(path)
	if n > 2 {
		switch path[n-2] + "." + path[n-1] {
		case "list.element", "list.item", "list.array", "bag.array_element", "bag.array", "array.array_element":
			return path[:n-2]
		}
	}
	return path
}

func (f *file) Columns(context.Context) ([]string, error) {
	_, cols, err := f.open()
	var names []string
	for _, c := range cols {
		names = append(names, c.name)
	}
	return names, err
}

func (f *file) place(n int64) string { return fmt.Sprintf("%s: row %d", f.disk.Name, n+1) }

func (f *file) Rows(ctx context.Context) iter.Seq2[rows.Row, error] {
	return func(yield func(rows.Row, error) bool) {
		p, cols, err := f.open()
		if err != nil {
			yield(rows.Row{}, err)
			return
		}
		n := int64(0)
		for _, g := range p.RowGroups() {
			r := g.Rows()
			buf := make([]parquet.Row, 64)
			for ctx.Err() == nil {
				k, err := read(r, buf)
				for _, v := range buf[:k] {
					row := rows.Row{Number: n, Pos: n, Place: f.place(n)}
					n++
					var err error
					row.Data, err = object(cols, v)
					if err != nil {
						err = &datasets.BadTask{Place: row.Place, Err: err}
					}
					if !yield(row, err) {
						r.Close()
						return
					}
				}
				if err == io.EOF {
					break
				}
				if err != nil {
					r.Close()
					yield(rows.Row{}, &datasets.Fatal{Place: f.place(n), Err: err})
					return
				}
			}
			r.Close()
		}
	}
}

func read(r parquet.Rows, buf []parquet.Row) (n int, err error) {
	defer guard(&err)
	return r.ReadRows(buf)
}

func (f *file) At(ctx context.Context, at rows.Row) (row rows.Row, err error) {
	at.Place = f.place(at.Pos)
	p, cols, err := f.open()
	if err != nil {
		return at, err
	}
	defer guard(&err)
	left := at.Pos
	for _, g := range p.RowGroups() {
		if left >= g.NumRows() {
			left -= g.NumRows()
			continue
		}
		r := g.Rows()
		defer r.Close()
		if err := r.SeekToRow(left); err != nil {
			return at, &datasets.BadTask{Place: at.Place, Err: err}
		}
		buf := make([]parquet.Row, 1)
		if n, err := r.ReadRows(buf); n == 0 {
			return at, &datasets.BadTask{Place: at.Place, Err: fmt.Errorf("reading: %w", err)}
		}
		at.Data, err = object(cols, buf[0])
		return at, err
	}
	return at, &datasets.BadTask{Place: at.Place, Err: errors.New("no such row")}
}

// object makes a JSON object of a row's values.
func object(cols []column, row parquet.Row) (json.RawMessage, error) {
	m := make(map[string]any, len(cols))
	var bad error
	row.Range(func(i int, values []parquet.Value) bool {
		if i >= len(cols) {
			return false
		}
		c := cols[i]
		var list []any
		for _, v := range values {
			x, ok := scalar(v)
			if !ok && c.text {
				bad = fmt.Errorf("column %q is not UTF-8", c.name)
			}
			if ok && (x != nil || !c.list) {
				list = append(list, x)
			}
		}
		switch {
		case c.list:
			m[c.name] = append([]any{}, list...)
		case len(list) == 1:
			m[c.name] = list[0]
		}
		return true
	})
	if bad != nil {
		return nil, bad
	}
	return json.Marshal(m)
}

// scalar is v as JSON knows it; false for bytes that are no text.
func scalar(v parquet.Value) (any, bool) {
	if v.IsNull() {
		return nil, true
	}
	switch v.Kind() {
	case parquet.Boolean:
		return v.Boolean(), true
	case parquet.Int32:
		return v.Int32(), true
	case parquet.Int64:
		return v.Int64(), true
	case parquet.Float:
		return float(float64(v.Float()), 32)
	case parquet.Double:
		return float(v.Double(), 64)
	case parquet.ByteArray, parquet.FixedLenByteArray:
		b := v.ByteArray()
		return string(b), utf8.Valid(b)
	}
	return nil, false
}

func float(x float64, bits int) (any, bool) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil, true // JSON has no such number
	}
	if bits == 32 {
		return float32(x), true
	}
	return x, true
}
