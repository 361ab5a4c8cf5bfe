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
