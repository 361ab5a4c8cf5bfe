package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/reports/text"
)

// Exit codes. If several apply, the first of 1, 2, 130, 5, 4, 3 is used.
const (
	ExitDone     = 0
	ExitInternal = 1
	ExitUsage    = 2
	ExitCoverage = 3
	ExitGate     = 4
	ExitBudget   = 5
	ExitStopped  = 130
)

// exitCodes is the table printed by "help exit-codes", and the only definition of the codes'
// meaning.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{ExitDone, "done; enough of the planned trials are evidence"},
	{ExitInternal, "internal or storage failure"},
	{ExitUsage, "wrong usage or configuration; nothing was run"},
	{ExitCoverage, "coverage (evidence of planned, less skipped) is below min_coverage; where that is not set, below " +
		"1; or all trials were skipped"},
	{ExitGate, "a gate failed"},
	{ExitBudget, "the run's budget or deadline was reached, or a limit on money or tokens cannot be kept; it " +
		"can be resumed"},
	{ExitStopped, "stopped by a signal; it can be resumed"},
}

func printExitCodes(w io.Writer) {
	fmt.Fprint(w, "Exit codes of evalrun:\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range exitCodes {
		fmt.Fprintf(t, "  %d\t%s\n", c.code, c.meaning)
	}
	t.Flush()
	fmt.Fprint(w, "\nWhere several apply, the first of 1, 2, 130, 5, 4, 3 is taken.\n")
}

// An exitError ends the program with an exit code. Its error is nil if everything has been
// reported.
type exitError struct {
	code int
	err  error
	hint string // what the user can do next
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(hint, format string, args ...any) error {
	return &exitError{ExitUsage, fmt.Errorf(format, args...), hint}
}

// codeOf returns the exit code for an error.
func codeOf(err error) int {
	var x *exitError
	var c config.Errors
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &x):
		return x.code
	// needs a different version of evalrun
	case errors.As(err, &c), errors.Is(err, journal.ErrNewer):
		return ExitUsage
	}
	return ExitInternal
}

// report prints an error as text or as a JSON line.
func (a *app) report(err error) {
	var x *exitError
	errors.As(err, &x)
	if x != nil && x.err == nil {
		return
	}
	w, msg := a.Stderr, text.Clean(err.Error()) // the error may contain text from untrusted sources
	if a.json {
		line := map[string]any{"type": "error", "code": codeOf(err), "error": msg}
		if x != nil && x.hint != "" {
			line["hint"] = x.hint
		}
		a.line(line)
		return
	}
	switch head, rest, more := strings.Cut(msg, "\n"); {
	case more && strings.HasSuffix(head, ":"): // the following lines are its list
		fmt.Fprintf(w, "evalrun: %s\n%s\n", head, rest)
	case more:
		fmt.Fprintf(w, "evalrun:\n  %s\n", strings.ReplaceAll(msg, "\n", "\n  "))
	default:
		fmt.Fprintf(w, "evalrun: %s\n", msg)
	}
	if x != nil && x.hint != "" {
		fmt.Fprintf(w, "hint: %s\n", text.Clean(x.hint))
	}
}
