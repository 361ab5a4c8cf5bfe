package cdp

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// progress is one call that may take its time: its log, and when it has to be done.
type progress struct {
	context.Context
	p        *Page
	api      string
	limit    time.Duration
	log      []string
	cleanups []func() // when the call was cut short

	countsWaits bool          // only what it waits for counts against its limit: see try
	left        time.Duration // of the limit
	whole       context.Context
	stop        func()
}

// errTimeout: a call has used up its time.
var errTimeout = errors.New("late")

// withTimeout runs one call under a limit, turns its failure into the reference's words, and pauses as slow
// motion wants.
func (p *Page) withTimeout(ctx context.Context, api string, limit time.Duration, run func(*progress) error) error {
	return p.run(ctx, &progress{p: p, api: api, limit: limit}, limit, run)
}

// extraTime is how much longer than its limit a call may take whose limit is one of waiting.
const extraTime = 2 * time.Second

// withWaitTimeout is do for a call that waits for an element to come, to show itself or to come to rest. What
// counts against the limit is the time that it waits for the page, not the time that the browser
// takes to answer: on a busy machine it looks as often as on an idle one, and input that was on its
// way is not taken for lost and done twice. With fixed pauses all time counts, as the reference has
// it.
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

// pause waits a while, and counts it.
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

// startInput says that input is on its way: from now on all time counts, up to twice the limit, as what
// the page makes of it does.
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

// permanentError is a failure that another try does not mend.
type permanentError struct{ text string }

func (f permanentError) Error() string { return f.text }

// failure is what an agent reads of err.
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

// ended says that a page is closed, or has crashed, as an agent's failure, if that is what err is:
// the agent may have done it. Everything else stays what it is.
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
