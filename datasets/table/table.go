// Package table makes a [datasets.Source] from any file of rows: JSON lines, CSV, Parquet.
//
// The reader of a format implements [File], and a benchmark's [Maker] converts rows to tasks. The
// source made by [New] adds the order, random access by task ID with a small index, and the
// detection of duplicate IDs and missing columns.
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
	Number int64  // from 0; bad rows are counted too
	Pos    int64  // position as defined by the File: a byte offset or a row number
	Line   int64  // line in a text file, from 1; else 0
	Place  string // "questions.jsonl:17", for messages
	Data   json.RawMessage
	Left   []string // columns missing from Data because they contain bytes that are not text
}

// A File is a sequence of rows.
type File interface {
	// Path returns the file's path, for messages. The places of rows begin with it.
	Path() string
	// Rows yields the rows in the file's order. A row that cannot be read is yielded as a
	// *[datasets.BadTask] with a Row that has its place, and the sequence continues; a
	// *[datasets.Fatal] ends it.
	Rows(ctx context.Context) iter.Seq2[Row, error]
	// At reads one row again. Its cost is about that of one row.
	At(ctx context.Context, at Row) (Row, error)
	// Columns returns the names of the columns if the format has a header. It returns nil if each
	// row has its own names.
	Columns(ctx context.Context) ([]string, error)
}

// Fields holds the members of a row by name.
type Fields map[string]json.RawMessage

// Fields decodes the row.
func (r Row) Fields() (Fields, error) {
	var f Fields
	if err := json.Unmarshal(r.Data, &f); err != nil {
		return nil, err
	}
	return f, nil
}

// Has reports whether a column exists and is not null.
func (f Fields) Has(name string) bool {
	v, ok := f[name]
	return ok && string(v) != "null"
}

// Text returns a column as text: a string as it is, any other scalar as it is written. A missing
// column is "".
func (f Fields) Text(name string) (string, error) {
	v, ok := f[name]
	if !ok {
		return "", nil
	}
	return text(name, v)
}

// Texts returns a column that contains one string or a list of strings. An empty list, null and a
// missing column are nil.
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

// A MissingColumn reports that a row does not have a column that tasks need. In the first valid row
// of a file it is an error of the file.
type MissingColumn struct {
	Want string   // for messages: "question", "answer or target"
	Have []string // existing columns
	Left []string // columns that contain bytes that are not text
}

func (e *MissingColumn) Error() string {
	have := slices.Sorted(slices.Values(e.Have))
	s := fmt.Sprintf("no column named %s; the columns are %s", e.Want, strings.Join(have, ", "))
	if len(e.Left) > 0 {
		s += "; left out, as they hold bytes that are not UTF-8: " + strings.Join(e.Left, ", ")
	}
	return s
}

// Missing returns a MissingColumn for a row's members.
func (f Fields) Missing(want string) error {
	e := &MissingColumn{Want: want}
	for k := range f {
		e.Have = append(e.Have, k)
	}
	return e
}

// broken wraps an error in one row.
func broken(r Row, id string, err error) error {
	var bad *datasets.BadTask
	var fatal *datasets.Fatal
	if errors.As(err, &bad) || errors.As(err, &fatal) {
		return err
	}
	return &datasets.BadTask{ID: id, Place: r.Place, Err: err}
}
