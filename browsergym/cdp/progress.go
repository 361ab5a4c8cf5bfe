package cdp

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// progress is the state of one call: its log and its time limit.
type progress struct {
	context.Context
	p        *Page
	api      string
	limit    time.Duration
	log      []string
	cleanups []func() // called if the call fails

	countsWaits bool          // only pauses count against the limit: see withWaitTimeout
	left        time.Duration // of the limit
	whole       context.Context
	stop        func()
}

// errTimeout reports that a call has exceeded its limit.
var errTimeout = errors.New("late")

// withTimeout runs one call with a time limit, converts its error to the reference's words, and
// pauses for SlowMo.
func (p *Page) withTimeout(ctx context.Context, api string, limit time.Duration, run func(*progress) error) error {
	return p.run(ctx, &progress{p: p, api: api, limit: limit}, limit, run)
}

// extraTime is added to the limit of a call for which only pauses count.
const extraTime = 2 * time.Second

// withWaitTimeout is withTimeout for a call that waits until an element exists, is visible or is
// stable. Only pauses count against the limit, not the time that the browser takes to answer. So on
// a busy machine there are as many attempts as on an idle one, and slow input is not repeated. With
// FixedPauses all time counts, as in the reference.
func (p *Page) withWaitTimeout(ctx context.Context, api string, limit time.Duration, run func(*progress) error) error {
	pr := &progress{p: p, api: api, limit: limit, left: limit, countsWaits: !p.c.opts.FixedPauses}
	if pr.countsWaits {
		limit += extraTime
	}
	return p.run(ctx, pr, limit, run)
}

func (p *Page) run(ctx context.Context, pr *progress, limit time.Duration, run func(*progress) error) error {
	short, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	pr.Context, pr.whole, pr.stop = short, short, func() {}
	err := run(pr)
	pr.stop()
	if err != nil {
		for _, end := range pr.cleanups {
			end()
		}
		err = pr.failure(err)
	}
	p.slowMo(ctx)
	return err
}

// slowMo pauses after a call that slow motion slows down.
func (p *Page) slowMo(ctx context.Context) {
	if p.c.opts.SlowMo > 0 {
		pause(ctx, p.c.opts.SlowMo)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause waits and counts the time against the limit.
func (pr *progress) pause(d time.Duration) error {
	if !pr.countsWaits || d < pr.left {
		pr.left -= d
		return pause(pr, d)
	}
	if err := pause(pr, pr.left); err != nil {
		return err
	}
	pr.left = 0
	return errTimeout
}

// startInput records that input is sent. From now on all time counts, up to twice the limit.
func (pr *progress) startInput() {
	if !pr.countsWaits {
		return
	}
	pr.stop()
	pr.Context, pr.stop = context.WithTimeoutCause(pr.whole, 2*pr.limit, errTimeout)
}

func (pr *progress) logf(format string, args ...any) {
	pr.log = append(pr.log, fmt.Sprintf(format, args...))
}

// permanentError is a failure that is not retried.
type permanentError struct{ text string }

func (f permanentError) Error() string { return f.text }

// failure returns err in the form shown to an agent.
func (pr *progress) failure(err error) error {
	var f permanentError
	switch {
	case errors.Is(err, errTimeout):
		return &Failure{"TimeoutError", fmt.Sprintf("%s: Timeout %dms exceeded.%s", pr.api, pr.limit.Milliseconds(),
			callLog(pr.log))}
	case errors.As(err, &f):
		return &Failure{"Error", pr.api + ": " + f.text + callLog(pr.log)}
	}
	err = pr.p.ended(pr.api, err)
	var said *Failure
	if errors.As(err, &said) {
		said.Text += callLog(pr.log)
	}
	return err
}

// ended converts an error about a closed or crashed page to a failure of the agent, who may have
// caused it. It returns all other errors unchanged.
func (p *Page) ended(api string, err error) error {
	if text, ok := exceptionText(err); ok {
		return &Failure{"Error", api + ": " + text}
	}
	var refused *Error
	switch {
	case errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, errCrashed):
		return &Failure{"Error", api + ": Target crashed"}
	case errors.As(err, new(errHung)):
		return &Failure{"Error", api + ": " + err.Error()}
	case errors.Is(err, ErrGone):
		return &Failure{"TargetClosedError", api + ": Target page, context or browser has been closed"}
	case errors.As(err, &refused):
		return &Failure{"Error", fmt.Sprintf("%s: Protocol error (%s): %s", api, refused.Method, refused.Message)}
	case transient(err):
		return &Failure{"Error", api + ": " + err.Error()}
	}
	return err
}
