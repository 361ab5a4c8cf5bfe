// Package table makes a [datasets.Source] of any file of rows: JSON lines, CSV, Parquet.
//
// A reader of a format implements [File]; a benchmark says with a [Maker] how a row becomes a task;
// [Source] does the rest: order, random access by task ID with a small index, tasks of one ID,
// missing columns.
package table

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/datasets"
)

// A Row is one record of a file, as a JSON object.
type Row struct {
	Number int64  // from 0, counted over the good and the broken
	Pos    int64  // where it begins, as its File understands it: a byte, a number of a row
	Line   int64  // of a text file, from 1; else 0
	Place  string // "questions.jsonl:17", for people
	Data   json.RawMessage
	Left   []string // columns that Data lacks because they hold bytes that are no text
}

// A File is a sequence of rows.
type File interface {
	// Path of the file, for people; it begins the places of rows.
	Path() string
	// Rows yields the rows in the file's order. A row that cannot be read is yielded as a
	// *[datasets.BadTask] beside a Row that holds its place, and the sequence goes on; a
	// *[datasets.Fatal] ends it.
	Rows(ctx context.Context) iter.Seq2[Row, error]
	// At reads one row again. It costs about one row's work.
	At(ctx context.Context, at Row) (Row, error)
	// Columns are the names of the columns, when the format has a header; nil: each row names its
	// own.
	Columns(ctx context.Context) ([]string, error)
}

// Fields are the members of a row, by name.
type Fields map[string]json.RawMessage

// Fields parses the row.
func (r Row) Fields() (Fields, error) {
	var f Fields
	if err := json.Unmarshal(r.Data, &f); err != nil {
		return nil, err
	}
	return f, nil
}

// Has reports whether a column is there and not null.
func (f Fields) Has(name string) bool {
	v, ok := f[name]
	return ok && string(v) != "null"
}

// Text is a column as text: a string as it is, any other scalar as it is written. A missing column
// is "".
func (f Fields) Text(name string) (string, error) {
	v, ok := f[name]
	if !ok {
		return "", nil
	}
	return text(name, v)
}

// Texts is a column that holds one text or a list of them. An empty list, null and a missing column
// are nil.
func (f Fields) Texts(name string) ([]string, error) {
	v := bytes.TrimSpace(f[name])
	if len(v) == 0 || v[0] != '[' {
		s, err := f.Text(name)
		if err != nil || !f.Has(name) {
			return nil, err
		}
		return []string{s}, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(v, &list); err != nil {
		return nil, fmt.Errorf("column %q: %w", name, err)
	}
	var out []string
	for _, x := range list {
		s, err := text(name, x)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func text(name string, v json.RawMessage) (string, error) {
	switch {
	case len(v) == 0 || string(v) == "null":
		return "", nil
	case v[0] == '"':
		var s string
		err := json.Unmarshal(v, &s)
		return s, err
	case v[0] == '{' || v[0] == '[':
		return "", fmt.Errorf("column %q: want text, have %s", name,
			map[byte]string{'{': "an object", '[': "a list"}[v[0]])
	}
	return string(v), nil // a number or a boolean
}

// A MissingColumn says that a row lacks a column that tasks need. In the first good row of a file
// it is the file's fault.
type MissingColumn struct {
	Want string   // as people say it: "question", "answer or target"
	Have []string // columns that are there
	Left []string // columns that hold bytes that are no text
}

func (e *MissingColumn) Error() string {
	have := slices.Sorted(slices.Values(e.Have))
	s := fmt.Sprintf("no column named %s; the columns are %s", e.Want, strings.Join(have, ", "))
	if len(e.Left) > 0 {
		s += "; left out, as they hold bytes that are not UTF-8: " + strings.Join(e.Left, ", ")
	}
	return s
}

// Missing makes a MissingColumn of a row's members.
func (f Fields) Missing(want string) error {
	e := &MissingColumn{Want: want}
	for k := range f {
		e.Have = append(e.Have, k)
	}
	return e
}

// broken wraps what went wrong with one row.
func broken(r Row, id string, err error) error {
	var bad *datasets.BadTask
	var fatal *datasets.Fatal
	if errors.As(err, &bad) || errors.As(err, &fatal) {
		return err
	}
	return &datasets.BadTask{ID: id, Place: r.Place, Err: err}
}
