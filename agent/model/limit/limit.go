// Package limit keeps the calls to one account within what its service takes.
//
// A [Limiter] belongs to one provider and key, and is shared by all arms, sessions and roles that use it. It lets a number of calls be in
// flight that adapts itself: it grows while the service answers, and halves when the service says that it is too much.
//
//	grow    +1 a reply until the first cut (so it doubles each round trip), then +1 a window, but only while the window is used
//	cut     to half of what was in flight, once an episode: a refusal of a call that went out before the last cut is old news
//	pause   where the service names a time (Retry-After), nobody goes out before, up to a minute
//
// Requests and tokens a minute can be bounded besides.
package limit

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/model"
)

// Config of a limiter. Zero fields have the defaults given.
type Config struct {
	Start    int     // calls in flight at first: 64
	Max      int     // calls in flight at most: no bound
	Requests float64 // a minute: no bound
	Tokens   float64 // a minute, in and out together: no bound
}

// A Limiter is safe for several goroutines.
type Limiter struct {
	mu       sync.Mutex
	max      int
	window   float64
	slow     bool // growing by doubling: nothing has been refused yet
	inflight int
	epoch    int       // counts cuts
	until    time.Time // nobody goes out before
	cuts     int
	queue    list.List // of chan struct{}, closed when its turn has come
	waking   bool      // a timer will look at the queue
	requests bucket
	tokens   bucket
}

// New makes a limiter for one account.
func New(cfg Config) *Limiter {
	if cfg.Max <= 0 {
		cfg.Max = math.MaxInt32
	}
	if cfg.Start <= 0 {
		cfg.Start = 64
	}
	return &Limiter{
		max: cfg.Max, window: float64(min(cfg.Start, cfg.Max)), slow: true,
		requests: bucket{perMinute: cfg.Requests}, tokens: bucket{perMinute: cfg.Tokens},
	}
}

// Stats are for progress and tests.
type Stats struct{ Window, InFlight, Queued, Cuts int }

// Stats of now.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Window: int(l.window), InFlight: l.inflight, Queued: l.queue.Len(), Cuts: l.cuts}
}

// Wrap makes each call of next wait for its turn, first come, first served. The wait is told to Binding.Waiting and counted by
// [model.Wait].
func (l *Limiter) Wrap(next model.Factory) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		c, err := next(b)
		if err != nil {
			return nil, err
		}
		return &client{l: l, next: c, waiting: b.Waiting}, nil
	}
}

type client struct {
	l       *Limiter
	next    model.Client
	waiting func() func()
}

func (c *client) Info() model.Info { return c.next.Info() }

func (c *client) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	guess := 0.0
	if c.l.tokens.perMinute > 0 {
		guess = estimate(req)
	}
	epoch, err := c.l.acquire(ctx, guess, c.waiting)
	if err != nil {
		return nil, err
	}
	used := guess
	var back error
	done := false
	defer func() { // also when next panics
		if !done {
			back = errors.New("panic")
		}
		c.l.release(epoch, used-guess, back)
	}()
	resp, err := c.next.Generate(ctx, req)
	done, back = true, err
	if err == nil && resp.Usage.In+resp.Usage.Out > 0 {
		used = float64(resp.Usage.In + resp.Usage.Out)
	}
	return resp, err
}

// acquire waits for a turn and returns the epoch it was given in.
func (l *Limiter) acquire(ctx context.Context, tokens float64, waiting func() func()) (int, error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	l.mu.Lock()
	if l.queue.Len() == 0 && l.ready(time.Now()) <= 0 {
		defer l.mu.Unlock()
		return l.take(tokens), nil
	}
	turn := make(chan struct{})
	place := l.queue.PushBack(&waiter{turn: turn, tokens: tokens})
	l.wake()
	l.mu.Unlock()
	if waiting != nil {
		defer waiting()()
	}
	defer model.Wait(ctx)()
	select {
	case <-turn:
		return place.Value.(*waiter).epoch, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // it came at the same moment: hand it on
		l.inflight--
		l.requests.add(1)
		l.tokens.add(tokens)
		l.wake()
	default:
		l.queue.Remove(place)
		l.wake()
	}
	return 0, fmt.Errorf("waiting for the model's turn: %w", context.Cause(ctx))
}

type waiter struct {
	turn   chan struct{}
	tokens float64
	epoch  int
}

// ready is how long the next call has to wait; 0: not at all; negative never comes.
func (l *Limiter) ready(now time.Time) time.Duration {
	if l.inflight >= max(int(l.window), 1) {
		return forever
	}
	return max(l.until.Sub(now), l.requests.wait(now), l.tokens.wait(now), 0)
}

const forever = time.Duration(math.MaxInt64)

func (l *Limiter) take(tokens float64) int {
	l.inflight++
	l.requests.add(-1)
	l.tokens.add(-tokens)
	return l.epoch
}

// wake gives turns to those who can have one, and sees to it that somebody looks again when time alone will help.
func (l *Limiter) wake() {
	for l.queue.Len() > 0 {
		wait := l.ready(time.Now())
		if wait == forever {
			return // the next release looks again
		}
		if wait > 0 {
			if !l.waking {
				l.waking = true
				time.AfterFunc(wait, func() {
					l.mu.Lock()
					defer l.mu.Unlock()
					l.waking = false
					l.wake()
				})
			}
			return
		}
		w := l.queue.Remove(l.queue.Front()).(*waiter)
		w.epoch = l.take(w.tokens)
		close(w.turn)
	}
}

// maxPause bounds what one refusal can do to all.
const maxPause = time.Minute

// release takes a turn back and learns from how the call ended.
func (l *Limiter) release(epoch int, moreTokens float64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.inflight >= int(l.window)
	l.tokens.add(-moreTokens)
	var e *model.Error
	switch {
	case err == nil:
		if full && l.window < float64(l.max) { // a window that nobody fills is no evidence that more would do
			if l.slow {
				l.window++
			} else {
				l.window += 1 / l.window
			}
		}
	case errors.As(err, &e) && congested(e):
		if epoch == l.epoch {
			l.window = max(math.Floor(min(l.window, float64(l.inflight))/2), 1)
			l.slow = false
			l.epoch++
			l.cuts++
		}
		if e.After > 0 {
			if until := time.Now().Add(min(e.After, maxPause)); until.After(l.until) {
				l.until = until
			}
		}
	}
	l.inflight--
	l.wake()
}

// congested: the service says that it gets too much.
func congested(e *model.Error) bool {
	return e.Class == model.Rate ||
		e.Class == model.Overload && (e.HTTP == http.StatusServiceUnavailable || e.HTTP == 529)
}

// estimate is what a request is reckoned with until its usage is known: about four bytes a token, and some for the reply.
func estimate(req *model.Request) float64 {
	n := 0
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			n += len(p.Text)
		}
		for _, c := range m.Calls {
			n += len(c.Args)
		}
	}
	for _, t := range req.Tools {
		n += len(t.Description) + len(t.Schema)
	}
	return float64(n)/4 + 256
}

// A bucket fills with perMinute a minute, up to what a second gives (and at least one), and may be overdrawn: who comes later waits
// until it is above zero again.
type bucket struct {
	perMinute float64
	level     float64
	at        time.Time
}

func (b *bucket) wait(now time.Time) time.Duration {
	if b.perMinute <= 0 {
		return 0
	}
	full := max(b.perMinute/60, 1)
	if b.at.IsZero() {
		b.level = full
	} else {
		b.level = min(b.level+now.Sub(b.at).Minutes()*b.perMinute, full)
	}
	b.at = now
	if b.level > 0 {
		return 0
	}
	return time.Duration((-b.level)/b.perMinute*float64(time.Minute)) + time.Millisecond
}

func (b *bucket) add(n float64) {
	if b.perMinute > 0 {
		b.level += n
	}
}
