// Package retry makes the tries of a call: it waits as long as the service asks or backs off by
// itself, stops where another try cannot help, and tells Binding.Try of each. See [New].
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/evalrun/evalrun/agent/model"
)

// A Policy bounds a call. Zero fields have the defaults given.
type Policy struct {
	// Tries bounds the tries of a call that fail. A refusal ([model.Error.Refusal]) is none of
	// them: it uses up time, of which Patience is the bound. Default 10.
	Tries int
	First time.Duration // the first back-off's upper bound, doubled with each try: 1 s
	Max   time.Duration // the largest upper bound: 60 s
	After time.Duration // the longest Retry-After that is waited for; a longer one ends the call: 5 min
	// Patience bounds the time of a call in tries and back-offs, without its time in a limiter's
	// queue: after it no other try is begun. A call that is refused also ends when nobody who uses
	// the account was answered for so long. Default 30 min.
	Patience time.Duration
	// Answered is when the account last answered anybody. Nil: other calls are not known of.
	Answered func() time.Time
	// Held is how long a Retry-After the limiter below may keep all calls back for. A refused call
	// waits for its Retry-After without a back-off of its own, then lines up again in its old
	// place, and goes out when the limiter lets it. A wait of no more than Held does not count
	// against Patience, as time in the queue does not. 0: there is no limiter.
	Held time.Duration
}

func (p Policy) withDefaults() Policy {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if p.Tries <= 0 {
		p.Tries = 10
	}
	set(&p.First, time.Second)
	set(&p.Max, time.Minute)
	set(&p.After, 5*time.Minute)
	set(&p.Patience, 30*time.Minute)
	if p.Answered == nil {
		p.Answered = func() time.Time { return time.Time{} }
	}
	return p
}

// New wraps next. Errors of the classes rate, overload and network are tried again: after
// Retry-After and up to one back-off more where the service named a time, else after a random part
// of the back-off (full jitter), so that a thousand sessions do not come back at once. A refused
// call waits in the limiter instead, where there is one (Policy.Held). What comes back in the end
// is the last try's error, of the same class; it is [model.Error.Open] where the service asks to
// come back later than Policy.After allows. How long one try may take is the vendor's client's
// business.
func New(next model.Factory, p Policy) model.Factory {
	p = p.withDefaults()
	return func(b model.Binding) (model.Client, error) {
		c, err := next(b)
		if err != nil {
			return nil, err
		}
		return &client{next: c, b: b, p: p, n: b.Counter()}, nil
	}
}

type client struct {
	next model.Client
	b    model.Binding
	p    Policy
	n    func() int
}

func (c *client) Info() model.Info { return c.next.Info() }

func (c *client) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	n := c.n()
	hash := req.Hash()
	name := c.next.Info().Name
	began := time.Now()
	ctx = model.WithPlace(ctx)
	var used, pause time.Duration // used: in tries and between them
	failed := 0
	for try := 1; ; try++ {
		t := model.Try{N: n, Try: try, Model: name, Request: hash, Waited: pause}
		resp, err := c.once(ctx, req, &t)
		used += t.Latency
		if c.b.Try != nil {
			c.b.Try(t)
		}
		if err == nil {
			return resp, nil
		}
		var e *model.Error
		if !errors.As(err, &e) || context.Cause(ctx) != nil || !e.Retry() {
			return nil, err
		}
		if !e.Refusal() {
			failed++
		}
		pause = c.pause(try, e)
		counted := pause
		if e.Refusal() && pause <= c.p.Held {
			counted = 0
		}
		if err := c.over(try, failed, used+counted, began, e); err != nil {
			return nil, err
		}
		if err := c.sleep(ctx, pause); err != nil {
			return nil, err
		}
		used += counted
	}
}

// over is the error of a call that is not tried again, or nil. used includes the back-off that
// would come next.
func (c *client) over(try, failed int, used time.Duration, began time.Time, e *model.Error) error {
	end := func(open bool, format string, args ...any) error {
		return &model.Error{Class: e.Class, After: e.After, HTTP: e.HTTP, ID: e.ID, Open: open,
			Err: fmt.Errorf(format+": %w", append(args, e.Err)...)}
	}
	answered := c.p.Answered()
	if began.After(answered) {
		answered = began
	}
	switch silent := time.Since(answered); {
	case e.After > c.p.After:
		return end(true, "the service asks to wait %v, more than %v", e.After, c.p.After)
	case failed >= c.p.Tries:
		return end(false, "%d tries failed", failed)
	case used > c.p.Patience:
		return end(false, "no answer in %d tries, and the %v for them are over", try, c.p.Patience)
	case e.Refusal() && silent > c.p.Patience:
		return end(false, "the service has refused every call for %v", silent.Round(time.Second))
	}
	return nil
}

// once makes a try and fills t in.
func (c *client) once(ctx context.Context, req *model.Request, t *model.Try) (*model.Response, error) {
	ctx, waits := model.WithWait(ctx)
	begun := time.Now()
	resp, err := c.next.Generate(ctx, req)
	queued := waits.Total()
	t.Start, t.Waited = begun, t.Waited+queued
	if out := waits.Ended(); !out.IsZero() {
		t.Start = out
	}
	t.Latency = max(time.Since(begun)-queued, 0)
	if err == nil {
		t.HTTP, t.ID, t.Response = 200, resp.RequestID, resp
		return resp, nil
	}
	t.Err = err
	var e *model.Error
	if errors.As(err, &e) {
		t.HTTP, t.ID = e.HTTP, e.ID
		if e.Provider() {
			t.Waited += t.Latency
		}
	}
	return nil, err
}

// pause is how long to wait before try+1.
func (c *client) pause(try int, e *model.Error) time.Duration {
	if e.Refusal() && c.p.Held > 0 {
		return e.After
	}
	bound := c.p.Max
	if try < 32 {
		bound = min(c.p.First<<(try-1), c.p.Max)
	}
	if bound <= 0 { // shifted out of range
		bound = c.p.Max
	}
	return e.After + rand.N(bound)
}

func (c *client) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if c.b.Waiting != nil {
		defer c.b.Waiting()()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting to try again: %w", context.Cause(ctx))
	}
}
