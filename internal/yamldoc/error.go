package yamldoc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/suggest"
)

// An Error is one error in a file.
type Error struct {
	Pos  Pos
	Key  string // dotted path, "arms[1].model"; "" means the whole file
	Msg  string
	Hint string // what to do; may be empty
	Err  error  // the cause, for errors.As; may be nil
}

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	at := e.Pos.String()
	switch {
	case at == "":
		return e.Text()
	case e.Key != "" && strings.HasSuffix(at, " "+e.Key): // a flag that names the key: --set limits.turns
		return at + ": " + strings.TrimPrefix(e.Text(), e.Key+": ")
	}
	return at + ": " + e.Text()
}

// Text returns the error without its position.
func (e *Error) Text() string {
	s := e.Msg
	if e.Key != "" {
		s = e.Key + ": " + s
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Errors lists the errors of a file in the order of the file.
type Errors []*Error

// maxErrors limits the number of errors reported for one file.
const maxErrors = 100

// Add adds an error. The same error about a value that is used in several places is added only
// once.
func (l *Errors) Add(e *Error) {
	same := func(o *Error) bool { return o.Pos == e.Pos && o.Msg == e.Msg }
	if len(*l) < maxErrors && !slices.ContainsFunc(*l, same) {
		*l = append(*l, e)
	}
}

// Err returns l as an error, or nil if it is empty.
func (l Errors) Err() error {
	if len(l) == 0 {
		return nil
	}
	l.Sort()
	return l
}

// Sort sorts the errors in the order of the file.
func (l Errors) Sort() {
	slices.SortStableFunc(l, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
}

func (l Errors) Error() string {
	lines := make([]string, len(l))
	for i, e := range l {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

func (l Errors) Unwrap() []error {
	out := make([]error, len(l))
	for i, e := range l {
		out[i] = e
	}
	return out
}

// DidYouMean suggests the names that are near word. If none is near and there are only few names,
// it lists them.
func DidYouMean(word string, names []string) string {
	meant := suggest.Names(word, names)
	if len(meant) == 0 {
		if len(names) == 0 || len(names) > 12 {
			return ""
		}
		return "known: " + strings.Join(names, ", ")
	}
	for i, n := range meant {
		meant[i] = fmt.Sprintf("%q", n)
	}
	return "did you mean " + strings.Join(meant, " or ") + "?"
}
