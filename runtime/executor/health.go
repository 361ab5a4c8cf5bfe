package executor

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An Execer runs commands in a sandbox: a [Client] or a sandbox.
type Execer interface {
	Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error)
}

// Defaults of health checks, as in container engines.
const (
	healthInterval      = 30 * time.Second
	healthTimeout       = 30 * time.Second
	healthStartInterval = 5 * time.Second
	healthRetries       = 3

	healthOutput = 4 << 10
)

// An Unhealthy error says that a sandbox's health check never succeeded.
type Unhealthy struct {
	Check  string // its command
	Tries  int    // how often it ran
	Why    string // "the check ended with code 1", "what it checks has ended …"
	Output string // the end of the last check's output; hostile
}

func (u *Unhealthy) Error() string {
	s := fmt.Sprintf("not healthy after %d checks (%s): %s", u.Tries, u.Check, u.Why)
	if u.Tries == 1 {
		s = fmt.Sprintf("not healthy after 1 check (%s): %s", u.Check, u.Why)
	}
	if out := strings.TrimSpace(u.Output); out != "" {
		if i := strings.LastIndexByte(out, '\n'); i >= 0 {
			out = strings.TrimSpace(out[i+1:])
		}
		s += ": " + short(out, 200)
	}
	return s
}

// WaitHealthy runs a sandbox's health check until it succeeds once, and then returns nil. It
// returns nil at once if there is no check. The first check runs at once. Failures of checks that
// start within the start period are not counted, and are followed by a wait of the start interval;
// later waits take the interval. After as many consecutive failures as there are retries,
// WaitHealthy returns an [Unhealthy] error. A check that exceeds its timeout is killed and has
// failed. Zero fields have the defaults of container engines: interval and timeout 30 s, no start
// period, start interval 5 s, 3 retries. If ended, which may be nil, is closed, WaitHealthy returns
// an Unhealthy error too. Other errors are those of ctx and of the sandbox.
func WaitHealthy(ctx context.Context, m Execer, h sandbox.Health, ended <-chan struct{}) error {
	args := healthArgs(h.Test)
	if args == nil {
		return nil
	}
	interval, startInterval := orDefault(h.Interval, healthInterval), orDefault(h.StartInterval, healthStartInterval)
	retries := h.Retries
	if retries <= 0 {
		retries = healthRetries
	}
	begun := time.Now()
	u := &Unhealthy{Check: checkName(args)}
	for failures := 0; ; {
		starting := time.Since(begun) < h.StartPeriod
		var out bytes.Buffer
		x, err := m.Exec(ctx, sandbox.Command{Args: args, Timeout: orDefault(h.Timeout, healthTimeout), Stdout: &out,
			Limit: healthOutput, FullLimit: -1})
		switch {
		case err != nil && ctx.Err() != nil:
			u.Tries++
			u.Why = "the check had not ended"
			return u.canceled(ctx)
		case err != nil:
			return err
		}
		if x.Code == 0 && !x.TimedOut {
			return nil
		}
		u.Tries++
		u.Output = strings.ToValidUTF8(out.String(), "\ufffd")
		switch {
		case x.TimedOut:
			u.Why = fmt.Sprintf("the check took longer than %v", orDefault(h.Timeout, healthTimeout))
		case x.Signal != "":
			u.Why = "the check was ended by " + x.Signal
		default:
			u.Why = fmt.Sprintf("the check ended with code %d", x.Code)
		}
		wait := startInterval
		if !starting {
			wait = interval
			if failures++; failures >= retries {
				return u.error()
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ended:
			timer.Stop()
			u.Why = "what it checks has ended; its last word: " + u.Why
			return u.error()
		case <-ctx.Done():
			timer.Stop()
			return u.canceled(ctx)
		}
	}
}

func (u *Unhealthy) error() error {
	return &sandbox.Error{Op: "health check", Err: u, Detail: u.Output, BadRequest: true, Permanent: true}
}

// checkName returns a check's command for messages. For a shell command it is the script.
func checkName(args []string) string {
	if len(args) == 3 && args[1] == "-c" {
		args = args[2:]
	}
	return short(strings.Join(strings.Fields(strings.Join(args, " ")), " "), 200)
}

// canceled returns ctx's cause with the state of the check.
func (u *Unhealthy) canceled(ctx context.Context) error {
	return &sandbox.Error{Op: "health check", Err: fmt.Errorf("%w (%w)", context.Cause(ctx), u), Detail: u.Output}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

// healthArgs returns the command line of a check, or nil if there is none.
func healthArgs(test []string) []string {
	if len(test) == 0 {
		return nil
	}
	switch test[0] {
	case "NONE", "":
		return nil
	case "CMD":
		if len(test) == 1 {
			return nil
		}
		return test[1:]
	case "CMD-SHELL":
		if len(test) == 1 {
			return nil
		}
		return []string{"/bin/sh", "-c", strings.Join(test[1:], " ")}
	}
	return test
}
