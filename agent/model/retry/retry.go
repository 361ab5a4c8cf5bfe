// Package retry makes the tries of a call: it waits as long as the service asks or backs off by itself, stops where another try cannot help,
// and tells Binding.Try of each. See [New].
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/model"
)

// A Policy bounds a call. Zero fields have the defaults given.
type Policy struct {
	Tries int           // 10
	First time.Duration // the first back-off's upper bound, doubled with each try: 1 s
	Max   time.Duration // the largest upper bound: 60 s
	After time.Duration // the longest Retry-After that is waited for; a longer one ends the call: 5 min
	Wait  time.Duration // all waits of a call between its tries together: 15 min
	Call  time.Duration // the whole call, tries and waits, without its time in a limiter's queue: 30 min
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
	set(&p.Wait, 15*time.Minute)
	set(&p.Call, 30*time.Minute)
	return p
}

// New wraps next. Errors of the classes rate, overload and network are tried again: after Retry-After and up to one back-off more
// where the service named a time, else after a random part of the back-off (full jitter), so that a thousand sessions do not come back at
// once. What comes back in the end is the last try's error, of the same class.
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
	var waited, spent time.Duration // between tries; in the service's hands
	var pause time.Duration
	for try := 1; ; try++ {
		t := model.Try{N: n, Try: try, Model: name, Request: hash, Waited: pause, Start: time.Now()}
		resp, err := c.once(ctx, req, &t, c.p.Call-waited-spent)
		spent += t.Latency
		c.tell(t)
		if err == nil {
			return resp, nil
		}
		var e *model.Error
		if !errors.As(err, &e) || context.Cause(ctx) != nil || !e.Retry() {
			return nil, err
		}
		pause = c.pause(try, e)
		switch {
		case e.After > c.p.After:
			return nil, final(e, fmt.Errorf("the service asks to wait %v, more than %v: %w", e.After, c.p.After, e.Err))
		case try >= c.p.Tries:
			return nil, final(e, fmt.Errorf("%d tries in %v: %w", try, (waited+spent).Round(time.Millisecond), e.Err))
		case waited+pause > c.p.Wait, waited+spent+pause >= c.p.Call:
			return nil, final(e, fmt.Errorf("%d tries, and no time for another: %w", try, e.Err))
		}
		if err := c.sleep(ctx, pause); err != nil {
			return nil, err
		}
		waited += pause
	}
}

// once makes a try and fills t in.
func (c *client) once(ctx context.Context, req *model.Request, t *model.Try, left time.Duration) (*model.Response, error) {
	over := fmt.Errorf("no answer within the %v of a whole call", c.p.Call)
	ctx2, queued := model.WithWait(ctx)
	ctx2, cancel := context.WithCancelCause(ctx2)
	defer cancel(nil)
	// The clock runs on in a limiter's queue, so what it was there for is given back before the call is called off.
	clock := watch(left, queued, func() { cancel(over) })
	resp, err := c.next.Generate(ctx2, req)
	clock.Stop()
	q := queued()
	t.Waited += q
	t.Latency = max(time.Since(t.Start)-q, 0)
	var e *model.Error
	switch {
	case err == nil:
		t.HTTP, t.ID, t.Response = 200, resp.RequestID, resp
		return resp, nil
	case context.Cause(ctx) == nil && errors.Is(err, over):
		err = &model.Error{Class: model.Network, Err: over}
	case errors.As(err, &e):
		t.HTTP, t.ID = e.HTTP, e.ID
	}
	t.Err = err
	return nil, err
}

// watch calls end after left, and what queued tells by then is not counted.
func watch(left time.Duration, queued func() time.Duration, end func()) *time.Timer {
	var mu sync.Mutex // the function may run before t is set
	var given time.Duration
	var t *time.Timer
	mu.Lock()
	defer mu.Unlock()
	t = time.AfterFunc(left, func() {
		mu.Lock()
		defer mu.Unlock()
		if q := queued(); q > given {
			t.Reset(q - given)
			given = q
			return
		}
		end()
	})
	return t
}

// pause is how long to wait before try+1.
func (c *client) pause(try int, e *model.Error) time.Duration {
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

func (c *client) tell(t model.Try) {
	if c.b.Try != nil {
		c.b.Try(t)
	}
}

func final(e *model.Error, err error) error {
	return &model.Error{Class: e.Class, After: e.After, HTTP: e.HTTP, ID: e.ID, Err: err}
}
