package parquetlog

import (
	"io"
	"reflect"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/harness/record"
)

// axes adds a column axis_<name> for each axis of the plan's matrix to the columns of T. The zero
// value adds none.
type axes[T any] struct {
	names []string
	of    func(*T) map[string]string
}

// axisNames returns the names of all axes of a plan, sorted.
func axisNames(p *record.Plan) []string {
	seen := map[string]bool{}
	for _, a := range p.Arms {
		for n := range a.Axes {
			seen[n] = true
		}
	}
	var names []string
	for n := range seen {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// schema returns T's schema with the axes appended, so that the other columns keep their positions.
func (a axes[T]) schema() *parquet.Schema {
	base := parquet.SchemaOf(new(T))
	w := wide{Node: base, fields: base.Fields()}
	for _, n := range a.names {
		w.fields = append(w.fields, axis{parquet.Optional(parquet.Encoded(parquet.String(), &parquet.RLEDictionary)),
			"axis_" + n})
	}
	return parquet.NewSchema(base.Name(), w)
}

// wide is a group with more fields than its Go type has.
type wide struct {
	parquet.Node
	fields []parquet.Field
}

func (w wide) Fields() []parquet.Field { return w.fields }

// An axis is one of the added fields. A column defined by a struct tag cannot have every name that
// an axis may have; this type can.
type axis struct {
	parquet.Node
	name string
}

func (a axis) Name() string { return a.name }

// Value is never called, because axisWriter deconstructs the rows.
func (a axis) Value(reflect.Value) reflect.Value { return reflect.ValueOf("") }

func (a axes[T]) writer(opts []parquet.WriterOption) encoder[T] {
	schema := a.schema()
	return &axisWriter[T]{Writer: parquet.NewWriter(nil, append(opts, schema)...), base: parquet.SchemaOf(new(T)),
		axes: a}
}

// An axisWriter writes a T and its axes.
type axisWriter[T any] struct {
	*parquet.Writer
	base *parquet.Schema
	axes axes[T]
	row  []parquet.Row
}

func (w *axisWriter[T]) Reset(out io.Writer) { w.Writer.Reset(out) }

func (w *axisWriter[T]) Write(rs []T) (int, error) {
	columns := len(w.base.Columns())
	w.row = append(w.row[:0], nil)
	for i := range rs {
		row := w.base.Deconstruct(w.row[0][:0], &rs[i])
		of := w.axes.of(&rs[i])
		for j, n := range w.axes.names {
			if v, ok := of[n]; ok {
				row = append(row, parquet.ValueOf(v).Level(0, 1, columns+j))
			} else {
				row = append(row, parquet.ValueOf(nil).Level(0, 0, columns+j))
			}
		}
		w.row[0] = row
		if _, err := w.WriteRows(w.row); err != nil {
			return i, err
		}
	}
	return len(rs), nil
}
