// Package retry retries failed calls. It waits as long as the service asks or backs off by itself,
// stops if another try cannot help, and calls Binding.Try for each try. See [New].
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/evalrun/evalrun/agent/model"
)

// A Policy limits the tries of a call. A zero field means the default given.
type Policy struct {
	// Tries is the maximum number of failed tries of a call. Refusals ([model.Error.Refusal]) do
	// not count; they are limited by Patience. Default 10.
	Tries int
	First time.Duration // upper bound of the first back-off, doubled with each try; default 1 s
	Max   time.Duration // largest upper bound of a back-off; default 60 s
	After time.Duration // longest Retry-After to wait for; a longer one ends the call; default 5 min
	// Patience limits the time of a call in tries and back-offs, without its time in a limiter's
	// queue. No try begins after it. A refused call also ends if nobody who uses the account got an
	// answer for this long. Default 30 min.
	Patience time.Duration
	// Answered returns when the account last got an answer to any call. If nil, other calls are not
	// considered.
	Answered func() time.Time
	// Held is the longest Retry-After for which the limiter below may hold back all calls. A
	// refused call waits for its Retry-After without a back-off of its own, then queues again in
	// its old place, and is sent when the limiter allows it. A wait of at most Held does not count
	// against Patience, and neither does time in the queue. 0 means that there is no limiter.
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

// New wraps next so that errors of the classes rate, overload and network are retried. The wait
// before a retry is Retry-After plus a random part of one back-off if the service named a time,
// else a random part of the back-off (full jitter), so that a thousand sessions do not retry at
// once. With a limiter (Policy.Held), a refused call waits there instead. The error returned is
// that of the last try, with the same class. It is [model.Error.Open] if the service asks for a
// longer wait than Policy.After allows. The timeout of a single try is up to the vendor's client.
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
	var used, pause time.Duration // used is the time in tries and between them
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

// over returns the error of a call that must not be retried, or nil. used includes the next
// back-off.
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

// once makes a try and fills in t.
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

// pause returns the wait before the next try.
func (c *client) pause(try int, e *model.Error) time.Duration {
	if e.Refusal() && c.p.Held > 0 {
		return e.After
	}
	bound := c.p.Max
	if try < 32 {
		bound = min(c.p.First<<(try-1), c.p.Max)
	}
	if bound <= 0 { // overflow of the shift
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
