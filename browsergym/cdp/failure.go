package cdp

import (
	"errors"
	"fmt"
	"strings"
)

// A Failure is what an action could not do, in the reference's words: they are what an agent reads.
// Everything else that the methods of a page return as an error is the environment's trouble (a
// browser that died, a context that ended), not the agent's.
type Failure struct {
	Kind string // Error, TimeoutError, ValueError, TargetClosedError: Python's name of it
	Text string // several lines where there is a call log
}

func (f *Failure) Error() string { return f.Kind + ": " + f.Text }

// Timeout reports whether err says that an action took too long, which is when trying again by
// force may help.
func Timeout(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Kind == "TimeoutError"
}

// callLog is how a call's log follows its first line.
func callLog(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "\nCall log:\n" + strings.Join(lines, "\n  - ") + "\n"
}

// lost are the words by which a browser says that a document or a frame has gone while it was asked
// for. Another try may meet the next one.
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

// errNoFrame: a frame has gone between two calls.
var errNoFrame = errors.New("Frame was detached")

// transient reports whether err is such a loss.
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

// A Thrown is an exception of a page's script.
type Thrown struct{ Text string }

func (t *Thrown) Error() string { return fmt.Sprintf("the page's script threw: %s", t.Text) }
