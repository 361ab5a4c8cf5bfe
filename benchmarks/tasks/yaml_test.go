package tasks

import (
	"strings"
	"testing"
	"testing/fstest"
)

// What is nested beyond reason does not take the machine.
func TestDeep(t *testing.T) {
	read := func(text string) error {
		s := &yamlSource{place: place{shown: "f", file: "f", fsys: fstest.MapFS{"f": {Data: []byte(text)}}}}
		s.load()
		return s.fatal
	}
	if err := read("tasks: " + strings.Repeat("[{a: ", 20000)); err == nil ||
		!strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("%v", err)
	}
	if err := read("tasks: [{a: \"" + strings.Repeat("[", 20000) + "\"}]\nx-b: |\n  " + strings.Repeat("{", 20000) +
		"\n"); err != nil {
		t.Error(err)
	}
	for _, s := range []string{"- ", "- ? ", "a: ", "&a ", "!!seq ", "- a: "} {
		if err := read("tasks:\n  " + strings.Repeat(s, 200_000)); err == nil ||
			!strings.HasPrefix(err.Error(), "f:2:") || !strings.Contains(err.Error(), "nested deeper") {
			t.Errorf("%q: %.100v", s, err)
		}
	}
}
