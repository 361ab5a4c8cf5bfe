package config

import (
	"cmp"
	"slices"
	"strings"
)

// An Error is one thing that is wrong with a configuration.
type Error struct {
	Place string // "nightly.yaml:12:3", or the flag: "--workers"
	Key   string // dotted path: "arms[1].model"
	Msg   string
	Hint  string // what to do; may be empty

	at pos
}

func (e *Error) Error() string {
	s := e.Msg
	if e.Place != "" {
		s = e.Place + ": " + s
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Errors are all that is wrong with a configuration, in the order of the file.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, x := range e {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

type errorList struct{ list Errors }

func (l *errorList) add(at pos, key, msg, hint string) {
	for _, e := range l.list { // a value that many arms inherit is wrong once
		if e.at == at && (e.Msg == msg || at.line > 0 && bare(e.Key) == bare(key)) {
			return
		}
	}
	l.list = append(l.list, &Error{Place: at.String(), Key: key, Msg: msg, Hint: hint, at: at})
}

func (l *errorList) err() error {
	if len(l.list) == 0 {
		return nil
	}
	slices.SortStableFunc(l.list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.at.line, b.at.line), cmp.Compare(a.at.col, b.at.col))
	})
	return l.list
}

// bare is a key without the arm that inherited it.
func bare(key string) string {
	if rest, ok := strings.CutPrefix(key, "arms["); ok {
		if _, rest, ok = strings.Cut(rest, "]."); ok {
			return rest
		}
	}
	return key
}
