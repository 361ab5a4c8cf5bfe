// Package limit keeps the rate of calls to a service within what the service accepts.
//
// A [Limiter] belongs to one model at one address with one key, and is shared by all arms and
// sessions that use it. It adapts the number of calls in flight (the window): the window grows
// while the service replies, and is halved when the service refuses calls. If even one call at a
// time is refused, the limiter learns a rate: the gap between the starts of two calls.
//
//	grow    The window grows by 1 with each reply until the first cut, so it doubles each round
//	        trip, and after that by 1 per window of replies. It grows only while it is full.
//	cut     A refusal cuts the window to half of the calls in flight, once per episode: a refusal
//	        of a call that was sent before the last cut is ignored.
//	gap     A cut at one call in flight sets a gap of one second. A further cut lengthens it by
//	        half; a cut with no reply since the last one doubles it, up to two minutes. Each reply
//	        shortens it: by half while it is longer than the first gap that can have been
//	        accepted, then by a 32nd, and by more after 16 replies without a cut. A gap below
//	        50 ms is dropped.
//	hint    A refusal may name a time (Retry-After), and the refused call waits that long. Such a
//	        refusal does not prove that the rate of calls is too high, because some services
//	        refuse a share of calls at any rate. So it cuts only if at least half of the last 64
//	        calls were refused, or a quarter while there is a gap. Refusals during an outage are
//	        forgotten when the service replies again.
//	pause   No call is sent before the named time, up to a minute, while there is a gap or at
//	        least half of the last 64 calls (or of all calls, if fewer) were refused. The named
//	        time is trusted: the refusal lengthens the gap only to what it implies, and the gap
//	        stays within 8 times the named time or 10 s, whichever is more, unless six calls in a
//	        row are refused anyway.
//	order   First come, first served. A refused call keeps its place: it is sent again before all
//	        calls that came later.
//	old     A call in flight for longer than a minute, and for longer than twice the slowest
//	        recent call, counts only against Max. It may never be answered and must not hold up
//	        the others.
//
// Requests and tokens per minute can be limited too.
package limit

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/model"
)

// Config configures a limiter. A zero field means the default given.
type Config struct {
	Start    int     // initial number of calls in flight; default 64
	Max      int     // maximum number of calls in flight; default no limit
	Requests float64 // per minute; default no limit
	Tokens   float64 // per minute, input and output together; default no limit
	// Patience is how long the service may refuse all calls. After that, a refusal also ends the
	// wait of every call in the queue. Default 30 min.
	Patience time.Duration
}

// A Limiter limits the calls of the clients that it wraps. It is safe for concurrent use.
type Limiter struct {
	mu       sync.Mutex
	max      int
	window   float64
	slow     bool      // the window still doubles, because nothing has been refused yet
	out      list.List // of *flight, oldest first
	slowest  time.Duration
	epoch    int       // number of cuts
	until    time.Time // no call is sent before this time
	queue    list.List // of *waiter
	alarm    *time.Timer
	requests bucket
	tokens   bucket
	patience time.Duration

	gap      time.Duration // between the starts of two calls; 0 if only the window limits them
	floor    time.Duration // replies halve a gap above this value and shorten it slowly below
	before   time.Duration // floor after the first cut of this run
	run      int           // cuts of the gap since the last reply
	last     time.Time     // when the last call was sent
	streak   int           // replies since the last cut
	hint     time.Duration // longest recent Retry-After; 0 if the service names none
	accepted time.Time     // when the latest accepted call was sent
	tickets  uint64        // number of calls that have arrived
	sent     int           // number of calls that have been sent
	recent   uint64        // bit mask of which of the last 64 calls sent were refused; bit 0 is the latest

	answered time.Time // when a call was last answered
	refusing time.Time // first refusal since then; zero if there is none
	back     time.Time // when a call last returned, whatever its result
}

// A flight is a call in flight.
type flight struct {
	epoch  int
	number int // number of the call in the order of sending
	start  time.Time
}

const (
	firstGap = time.Second
	maxGap   = 2 * time.Minute
	leastGap = 50 * time.Millisecond
	oldAge   = time.Minute

	hintFactor = 8                // maximum gap, as a multiple of the wait that the service asks for
	hintedGap  = 10 * time.Second // maximum gap if that multiple is shorter
	outage     = 6                // cuts in a row that mean an outage; the gap has grown 32-fold by then
)

// A refusal that names a time is judged by the share of recent calls that were refused.
const (
	recentCalls = 64
	tooMany     = recentCalls / 2 // the rate of calls is too high
	// The same while there is a gap. A service that counts refused calls too needs fewer of them.
	tooManyStill = recentCalls / 4
)

// New returns a limiter.
func New(cfg Config) *Limiter {
	if cfg.Max <= 0 {
		cfg.Max = math.MaxInt32
	}
	if cfg.Start <= 0 {
		cfg.Start = 64
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 30 * time.Minute
	}
	return &Limiter{
		patience: cfg.Patience, max: cfg.Max, window: float64(min(cfg.Start, cfg.Max)), slow: true,
		requests: bucket{perMinute: cfg.Requests}, tokens: bucket{perMinute: cfg.Tokens},
	}
}

// Stats is a snapshot of a limiter, for progress output and tests.
type Stats struct {
	Window, InFlight, Queued, Cuts int

	Gap   time.Duration // between the starts of two calls; 0 if only a configured rate applies
	Pause time.Duration // how long no call will be sent, as requested by the service
	// Silent is the time since a call last returned or, if that was later, since the oldest call in
	// flight was sent. It is 0 if no call is in flight.
	Silent time.Duration
}

// Stats returns the current state.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := Stats{Window: int(l.window), InFlight: l.out.Len(), Queued: l.queue.Len(), Cuts: l.epoch, Gap: l.gap,
		Pause: max(l.until.Sub(now), 0)}
	if e := l.out.Front(); e != nil {
		since := e.Value.(*flight).start
		if l.back.After(since) {
			since = l.back
		}
		s.Silent = now.Sub(since)
	}
	return s
}

// Answered returns when the service last answered a call, or the zero time.
func (l *Limiter) Answered() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered
}

// Wrap returns a factory whose clients wait for their turn before they call next, first come, first
// served. Retries of a call keep its place if the context has one ([model.WithPlace]). The wait is
// reported to Binding.Waiting and measured by [model.Wait].
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
	place, err := c.l.acquire(ctx, guess, c.waiting)
	if err != nil {
		return nil, err
	}
	used := guess
	var back error
	done := false
	defer func() { // runs also when next panics
		if !done {
			back = errors.New("panic")
		}
		c.l.release(place, used-guess, back)
	}()
	resp, err := c.next.Generate(ctx, req)
	done, back = true, err
	if err == nil && resp.Usage.In+resp.Usage.Out > 0 {
		used = float64(resp.Usage.In + resp.Usage.Out)
	}
	return resp, err
}

// acquire waits for a turn and returns the call's entry in the list of calls in flight.
func (l *Limiter) acquire(ctx context.Context, tokens float64, waiting func() func()) (*list.Element, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	if now := time.Now(); l.queue.Len() == 0 && l.ready(now) <= 0 {
		defer l.mu.Unlock()
		l.ticket(ctx)
		return l.take(now, tokens), nil
	}
	w := &waiter{turn: make(chan struct{}), tokens: tokens, ticket: l.ticket(ctx)}
	place := l.line(w)
	l.wake()
	l.mu.Unlock()
	if waiting != nil {
		defer waiting()()
	}
	defer model.Wait(ctx)()
	select {
	case <-w.turn:
		return w.place, w.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.turn: // the turn came at the same moment; give it back
		if w.err == nil {
			l.out.Remove(w.place)
			l.requests.add(1)
			l.tokens.add(tokens)
		}
	default:
		l.queue.Remove(place)
	}
	l.wake()
	return nil, fmt.Errorf("waiting for the model's turn: %w", context.Cause(ctx))
}

// ticket returns the number of ctx's call in the order of arrival. All tries of a call have the
// same number.
func (l *Limiter) ticket(ctx context.Context) uint64 {
	place := model.Place(ctx)
	if place != nil && *place > 0 {
		return *place
	}
	l.tickets++
	if place != nil {
		*place = l.tickets
	}
	return l.tickets
}

// line inserts w into the queue before all calls that came later.
func (l *Limiter) line(w *waiter) *list.Element {
	if e := l.queue.Back(); e == nil || e.Value.(*waiter).ticket < w.ticket {
		return l.queue.PushBack(w)
	}
	e := l.queue.Front() // a refused call is near the front
	for e.Value.(*waiter).ticket < w.ticket {
		e = e.Next()
	}
	return l.queue.InsertBefore(w, e)
}

type waiter struct {
	ticket uint64
	turn   chan struct{} // closed when the turn has come
	tokens float64
	place  *list.Element
	err    error // set if the call is refused instead
}

const forever = time.Duration(math.MaxInt64)

// ready returns how long the next call must wait: 0 if it can be sent now, forever if it must wait
// for another call to return.
func (l *Limiter) ready(now time.Time) time.Duration {
	if l.out.Len() >= l.max {
		return forever
	}
	wait := max(l.until.Sub(now), l.requests.wait(now), l.tokens.wait(now), 0)
	if l.gap > 0 {
		return max(wait, l.last.Add(l.gap).Sub(now))
	}
	return max(wait, l.room(now))
}

// room returns how long it takes until the window has room without any call returning, because
// calls in flight grow old.
func (l *Limiter) room(now time.Time) time.Duration {
	over := l.out.Len() - max(int(l.window), 1)
	if over < 0 {
		return 0
	}
	e := l.out.Front()
	for ; over > 0; over-- {
		e = e.Next()
	}
	return e.Value.(*flight).start.Add(max(oldAge, 2*l.slowest)).Sub(now)
}

func (l *Limiter) take(now time.Time, tokens float64) *list.Element {
	l.requests.add(-1)
	l.tokens.add(-tokens)
	l.last = now
	l.sent++
	l.recent <<= 1
	return l.out.PushBack(&flight{epoch: l.epoch, number: l.sent, start: now})
}

// wake gives turns to the waiters that can have one. It sets the alarm if more turns become
// available just by waiting.
func (l *Limiter) wake() {
	for l.queue.Len() > 0 {
		now := time.Now()
		wait := l.ready(now)
		if wait == forever {
			return // the next release calls wake
		}
		if wait > 0 {
			l.look(wait)
			return
		}
		w := l.queue.Remove(l.queue.Front()).(*waiter)
		w.place = l.take(now, w.tokens)
		close(w.turn)
	}
}

// look arranges a call of wake after wait. It replaces an earlier alarm.
func (l *Limiter) look(wait time.Duration) {
	if l.alarm != nil {
		l.alarm.Reset(wait)
		return
	}
	l.alarm = time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wake()
	})
}

// MaxPause limits how long one refusal with a Retry-After holds back all calls.
const MaxPause = time.Minute

// release ends a call's turn and adjusts the limits to its result.
func (l *Limiter) release(place *list.Element, moreTokens float64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	f := place.Value.(*flight)
	full := l.out.Len() >= int(l.window)
	l.out.Remove(place)
	l.tokens.add(-moreTokens)
	l.back = now
	var e *model.Error
	switch {
	case err == nil:
		l.answered, l.refusing = now, time.Time{}
		if f.start.After(l.accepted) {
			l.accepted = f.start
		}
		l.grow(now.Sub(f.start), full)
	case !errors.As(err, &e):
	case e.Refusal():
		// Indexed by sending order, because refusals return sooner than replies.
		if age := l.sent - f.number; age < recentCalls {
			l.recent |= 1 << age
		}
		if f.epoch == l.epoch && (e.After <= 0 || l.toBlame()) {
			l.cut(now, e.After)
		}
		if l.refusing.IsZero() {
			l.refusing = now
		}
		if now.Sub(l.refusing) > l.patience {
			l.refuse(e)
		}
		if e.After > 0 && l.pauses() {
			if until := now.Add(min(e.After, MaxPause)); until.After(l.until) {
				l.until = until
			}
		}
	case !e.Provider():
		l.answered, l.refusing = now, time.Time{}
	}
	l.wake()
}

// toBlame reports whether so many recent calls were refused that the rate must be too high.
func (l *Limiter) toBlame() bool {
	n := bits.OnesCount64(l.recent)
	return n >= tooMany || n >= tooManyStill && l.gap > 0
}

// pauses reports whether the Retry-After of a refusal applies to all calls.
func (l *Limiter) pauses() bool {
	return l.gap > 0 || 2*bits.OnesCount64(l.recent) >= min(l.sent, recentCalls)
}

// refuse fails all calls in the queue.
func (l *Limiter) refuse(e *model.Error) {
	for l.queue.Len() > 0 {
		w := l.queue.Remove(l.queue.Front()).(*waiter)
		w.err = &model.Error{Class: e.Class, HTTP: e.HTTP,
			Err: fmt.Errorf("the service has refused every call for %v: %w", l.patience, e.Err)}
		close(w.turn)
	}
}

// grow adjusts the limits after a reply.
func (l *Limiter) grow(took time.Duration, full bool) {
	l.slowest = max(took, l.slowest-l.slowest/64)
	if l.run > outage { // refusals during an outage say nothing about the rate
		l.recent = 0
	}
	l.run = 0
	l.streak++
	switch {
	case l.gap > 0:
		l.gap, l.floor = min(l.gap, l.longest()), min(l.floor, l.longest())
		if l.gap > l.floor {
			l.gap = max(l.gap/2, l.floor)
		} else {
			l.gap -= l.gap / 32 << min(l.streak/16, 3)
		}
		if l.gap < leastGap {
			l.gap, l.window = 0, float64(min(l.out.Len()+1, l.max))
		}
	case !full || l.window >= float64(l.max): // a window that is not full is no evidence that a larger one would work
	case l.slow:
		l.window++
	default:
		l.window += 1 / l.window
	}
}

// cut adjusts the limits after a refusal that asks to wait for after. The refused call is no longer
// in flight.
func (l *Limiter) cut(now time.Time, after time.Duration) {
	l.epoch++
	l.slow = false
	l.streak = 0
	if after > 0 {
		l.hint = max(after, l.hint-l.hint/8)
	}
	if l.gap == 0 {
		l.window = math.Floor(min(l.window, float64(l.out.Len()+1)) / 2)
		// Waiting for longer than a call takes means less than one call at a time.
		if l.window < 1 || l.window == 1 && after > l.slowest {
			l.window, l.gap, l.run = 1, firstGap, 1
			l.recent = 0 // refusals from before the gap say nothing about the gap
			l.floor, l.before = l.gap, l.gap
		}
		return
	}
	l.run++
	longer := min(l.gap*3/2, l.longest())
	switch {
	// The service has named the time between two calls that it accepts (0 s: less than one second).
	case l.hint > 0 && l.run <= outage:
		implied := now.Add(after).Sub(l.accepted)
		l.gap = min(max(implied, l.gap*9/8), longer)
		l.floor = l.gap
		if l.run == 1 {
			l.before = l.gap
			// Send the next call when the service asked for it, not one gap after the refused call.
			l.last = l.accepted
		}
		return
	case l.run == 1:
		l.gap, l.floor, l.before = longer, longer, longer
		return
	case l.run <= outage:
		l.floor = longer
	default: // During an outage no gap is kept, but what was known about the rate still holds.
		l.floor = l.before
	}
	l.gap = min(l.gap*2, l.longest())
}

// longest returns the maximum gap. The time named by the service limits it, unless that has proved
// too short.
func (l *Limiter) longest() time.Duration {
	if l.hint == 0 || l.run > outage {
		return maxGap
	}
	return min(max(hintFactor*l.hint, hintedGap), maxGap)
}

// estimate returns the assumed number of tokens of a request until its usage is known: one per four
// bytes, plus some for the reply.
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

// A bucket is a token bucket that fills at perMinute per minute and holds at most one second's
// worth (and at least one). It may be overdrawn; later calls then wait until it is above zero
// again.
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
