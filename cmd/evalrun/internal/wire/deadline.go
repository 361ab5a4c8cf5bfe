package wire

import (
	"cmp"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/config"
	"github.com/evalrun/evalrun/harness/record"
)

// noDeadline is what commands and run.json call a deadline that was lifted.
const noDeadline = "none"

// newDeadline reads the deadline that a command was given for a run that goes on; "" is none.
func newDeadline(text string, now time.Time) (config.Clock, error) {
	if text == noDeadline {
		return "", nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d <= 0 {
			return "", fmt.Errorf("--deadline: the duration %s leaves the run no time", text)
		}
		return config.Clock(now.Add(d + time.Second - 1).UTC().Format(time.RFC3339)), nil
	}
	c, err := config.ParseClock(text)
	if err != nil {
		return "", fmt.Errorf("--deadline: %q is no deadline; write a moment such as 2026-11-22T06:00:00Z, a time of day such as 06:00, a duration such as 2h, or none", text)
	}
	if t, ok := c.Moment(); ok && !t.After(now) {
		return "", fmt.Errorf("--deadline: the moment %s has passed", text)
	}
	return c, nil
}

// deadlineAhead refuses a new run whose deadline has passed.
func (r *Ready) deadlineAhead() error {
	if b := r.Eff.Budget; b != nil {
		if t, ok := b.Deadline.Moment(); ok && !t.After(time.Now()) {
			return r.Eff.Wrong("budget.deadline", fmt.Sprintf("budget.deadline: the moment %s has passed", b.Deadline), "")
		}
	}
	return nil
}

// restoreDeadline puts the deadline that this command was given, or one before it, in place of the configuration's.
func restoreDeadline(eff *config.Effective, run *record.Run, given string) error {
	if given == "" && run.Deadline == "" {
		return nil
	}
	if eff.Budget == nil {
		eff.Budget = new(config.Budget)
	}
	if given == "" {
		eff.Budget.Deadline = ""
		if run.Deadline != noDeadline {
			c, err := config.ParseClock(run.Deadline)
			if err != nil {
				return fmt.Errorf("run.json: deadline: %w", err)
			}
			eff.Budget.Deadline = c
		}
		return nil
	}
	c, err := newDeadline(given, time.Now())
	eff.Budget.Deadline = c
	return err
}

// keepDeadline makes the deadline that a command was given the run's own, for all commands after it.
func (r *Ready) keepDeadline(run *record.Run) {
	if r.o.Deadline != "" {
		run.Deadline = cmp.Or(string(r.Eff.Budget.Deadline), noDeadline)
	}
}
