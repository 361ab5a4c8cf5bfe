package tasks

import (
	"strings"
	"testing"
)

func TestDeep(t *testing.T) {
	if _, _, err := parse("f", []byte("tasks: "+strings.Repeat("[{a: ", 20000))); err == nil || !strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("%v", err)
	}
	if _, _, err := parse("f", []byte("tasks: [{a: \""+strings.Repeat("[", 20000)+"\"}]\nb: |\n  "+strings.Repeat("{", 20000)+"\n")); err != nil {
		t.Error(err)
	}
}

// Neither does a line that nests without brackets take the machine.
func TestDeepDashes(t *testing.T) {
	for _, s := range []string{"- ", "- ? ", "a: ", "&a ", "!!seq ", "- a: "} {
		if _, _, err := parse("f", []byte("tasks:\n  "+strings.Repeat(s, 200_000))); err == nil || !strings.HasPrefix(err.Error(), "f:2:") || !strings.Contains(err.Error(), "nested deeper") {
			t.Errorf("%q: %.100v", s, err)
		}
	}
}
