package config

import (
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/yamldoc"
)

// An Error is one error in a configuration.
type Error = yamldoc.Error

// Errors are all errors in a configuration, in the order of the file.
type Errors = yamldoc.Errors

type errorList struct{ list Errors }

func (l *errorList) add(at pos, key, msg, hint string) {
	l.Add(&Error{Pos: at, Key: strings.TrimSuffix(key, "."), Msg: msg, Hint: hint})
}

// Add adds an error. An error in a value that several arms inherit is added once.
func (l *errorList) Add(e *Error) {
	if !slices.ContainsFunc(l.list, func(o *Error) bool {
		return o.Pos == e.Pos && e.Pos.Line > 0 && bare(o.Key) == bare(e.Key)
	}) {
		l.list.Add(e)
	}
}

func (l *errorList) err() error { return l.list.Err() }

// bare returns a key without the arm that inherited it.
func bare(key string) string {
	if rest, ok := strings.CutPrefix(key, "arms["); ok {
		if _, rest, ok = strings.Cut(rest, "]."); ok {
			return rest
		}
	}
	return key
}
