package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// What a run folder or a benchmark says does not steer the terminal by way of an error.
func TestReportIsClean(t *testing.T) {
	var b bytes.Buffer
	a := &app{System: System{Stderr: &b}}
	a.report(usage("flags: \x1b]0;x\a", "no \x1b[2J\u202ehere"))
	a.say("warning: %v", errors.New("\x1b[2Jdamaged"))
	if strings.ContainsAny(b.String(), "\x1b\a\u202e") || !strings.Contains(b.String(), "damaged") {
		t.Errorf("%q", b.String())
	}
}
