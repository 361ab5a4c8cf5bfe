package cdp

import (
	"errors"
	"fmt"
	"strings"
)

// A Failure reports that an action failed, with the reference's text, which is shown to the agent.
// All other errors returned by a page's methods are infrastructure errors (a dead browser, a
// cancelled context), not the agent's.
type Failure struct {
	Kind string // name of Python's exception: Error, TimeoutError, ValueError, TargetClosedError
	Text string // several lines if there is a call log
}

func (f *Failure) Error() string { return f.Kind + ": " + f.Text }

// Timeout reports whether err says that an action timed out; a retry with force may then help.
func Timeout(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Kind == "TimeoutError"
}

// callLog formats a call's log to follow the first line of an error.
func callLog(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "\nCall log:\n" + strings.Join(lines, "\n  - ") + "\n"
}

// lost lists the browser's error texts for a document or frame that disappeared during a call. A
// retry may find the next one.
var lost = []string{
	"Execution context was destroyed", "Cannot find context with specified id", "Inspected target navigated or closed",
	"Frame with the given", "No frame for given id", "No frame with given id", "Frame was detached",
	"Frame has been detached",
	"Could not find object with given id", "Could not find node with given id", "No node with given id",
	"uniqueContextId not found",
	"Node with given id does not belong to the document", "Cannot mark a child frame without a bid",
	"Cannot read properties of undefined",
	"No node found for given backend id", "Argument should belong to the same JavaScript world",
}

// errNoFrame reports that a frame disappeared between two calls.
var errNoFrame = errors.New("Frame was detached")

// transient reports whether err is such an error.
func transient(err error) bool {
	if err == nil || errors.Is(err, ErrGone) || errors.Is(err, ErrClosed) {
		return false
	}
	s := err.Error()
	for _, l := range lost {
		if strings.Contains(s, l) {
			return true
		}
	}
	return false
}

// A Thrown is an exception thrown by a page's script.
type Thrown struct{ Text string }

func (t *Thrown) Error() string { return fmt.Sprintf("the page's script threw: %s", t.Text) }
