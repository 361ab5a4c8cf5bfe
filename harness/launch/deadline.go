package launch

import (
	"fmt"
	"time"

	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/record"
)

// noDeadline stands for a removed deadline, in commands and in run.json.
const noDeadline = "none"

// newDeadline parses the deadline given to a command for an existing run and returns its form for
// run.json.
func newDeadline(text string, now time.Time) (string, error) {
	if text == noDeadline {
		return text, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d <= 0 {
			return "", fmt.Errorf("--deadline: the duration %s leaves the run no time", text)
		}
		return now.Add(d + time.Second - 1).UTC().Format(time.RFC3339), nil
	}
	c, err := config.ParseClock(text)
	if err != nil {
		return "", fmt.Errorf("--deadline: %q is no deadline; write a moment such as 2026-11-22T06:00:00Z, a time of "+
			"day such as 06:00, "+
			"a duration such as 2h, or none", text)
	}
	if t, ok := c.Moment(); ok && !t.After(now) {
		return "", fmt.Errorf("--deadline: the moment %s has passed", text)
	}
	return text, nil
}

// deadlineAhead returns an error if the deadline of a new run has passed.
func (r *Ready) deadlineAhead() error {
	if b := r.Eff.Budget; b != nil {
		if t, ok := b.Deadline.Moment(); ok && !t.After(time.Now()) {
			return r.Eff.Wrong("budget.deadline", fmt.Sprintf("the moment %s has passed", b.Deadline), "")
		}
	}
	return nil
}

// keepDeadline stores the deadline given to a command in run, where later commands find it.
func (r *Ready) keepDeadline(run *record.Run) {
	if r.o.Deadline == "" {
		return
	}
	run.Deadline = noDeadline
	if b := r.Eff.Budget; b != nil && b.Deadline != "" {
		run.Deadline = string(b.Deadline)
	}
}
