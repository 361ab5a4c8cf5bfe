// Package limit keeps the calls to one service within what it takes.
//
// A [Limiter] belongs to one model at one address with one key, and is shared by all arms and
// sessions that use it. It lets a number of calls be in flight that adapts itself: it grows while
// the service answers, and halves when the service says that it is too much. Where one call at a
// time is still too much, it learns a rate: the gap between the starts of two calls.
//
//	grow    +1 a reply until the first cut (so it doubles each round trip), then +1 a window, but only while the window is used
//	cut     to half of what was in flight, once an episode: a refusal of a call that went out before the last cut is old news
//	gap     a cut at one call begins with a second; a further one makes it half as long again, and one without a reply since the last, twice
//	        as long, up to two minutes. Each reply shortens it: by half while it is longer than the first that was not refused can be, then by
//	        a 32nd, and by more after 16 replies without a cut. Below 50 ms it is over.
//	hint    a refusal may name a time (Retry-After). The call that was refused waits so long. The refusal is no proof that the rate of
//	        the calls is too high: some services refuse a share of them whatever the rate. So it cuts only where at least half of the
//	        last 64 calls were refused, or a quarter while there is a gap. What was refused in an outage is not counted any more
//	        when the service answers again.
//	pause   nobody goes out before the named time, up to a minute, while there is a gap or at least half of the last 64 calls (or of
//	        all, while they are fewer) were refused. The time is believed: the refusal lengthens the gap only to what it implies, and
//	        the gap stays within 8 times the named times, or 10 s if that is more, unless six calls in a row are refused all the same.
//	order   first come, first served. A refused call keeps its place: it goes out again before all that came later.
//	old     a call that is out for longer than a minute, and than twice the slowest of late, counts only against Max: it may never be
//	        answered, and does not hold up the others meanwhile
//
// Requests and tokens a minute can be bounded besides.
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

// Config of a limiter. Zero fields have the defaults given.
type Config struct {
	Start    int     // calls in flight at first: 64
	Max      int     // calls in flight at most: no bound
	Requests float64 // a minute: no bound
	Tokens   float64 // a minute, in and out together: no bound
	// Patience: where the service has answered nobody for so long, a refusal is one of all calls in
	// the queue too, which would wait for a turn that helps nobody. 30 min.
	Patience time.Duration
}

// A Limiter is safe for several goroutines.
type Limiter struct {
	mu       sync.Mutex
	max      int
	window   float64
	slow     bool      // growing by doubling: nothing has been refused yet
	out      list.List // of *flight, the oldest first
	slowest  time.Duration
	epoch    int       // counts cuts
	until    time.Time // nobody goes out before
	queue    list.List // of *waiter
	alarm    *time.Timer
	requests bucket
	tokens   bucket
	patience time.Duration

	gap      time.Duration // between the starts of two calls; 0: the window bounds them
	floor    time.Duration // replies halve a gap down to here, and shorten it slowly below
	before   time.Duration // the floor after the first cut of this run
	run      int           // cuts of the gap since the last reply
	last     time.Time     // a call went out
	streak   int           // replies since the last cut
	hint     time.Duration // the longest Retry-After of late; 0: the service names none
	accepted time.Time     // the last call that was answered went out
	tickets  uint64        // calls that have come so far
	sent     int           // calls that have gone out so far
	recent   uint64        // which of the last 64 of them were refused, a bit each; the lowest is the latest

	answered time.Time // a call was answered
	refusing time.Time // the first refusal since; zero: none
	back     time.Time // a call came back, whatever it brought
}

// A flight is a call that is out.
type flight struct {
	epoch  int
	number int // in the order in which calls went out
	start  time.Time
}

const (
	firstGap = time.Second
	maxGap   = 2 * time.Minute
	leastGap = 50 * time.Millisecond
	oldAge   = time.Minute

	hintFactor = 8                // a gap may be so many times as long as what the service asks to wait
	hintedGap  = 10 * time.Second // or so long, if that is more
	outage     = 6                // cuts in a row, so that the gap has grown by the factor 32
)

// A refusal that names a time is judged by how many of the last calls were refused.
const (
	recentCalls = 64
	tooMany     = recentCalls / 2 // the rate of the calls is to blame
	// the same while there is a gap. A service that counts refusals, too, needs few of them.
	tooManyStill = recentCalls / 4
)

// New makes a limiter.
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

// Stats are for progress and tests.
type Stats struct {
	Window, InFlight, Queued, Cuts int

	Gap   time.Duration // between the starts of two calls; 0: no rate is kept but the configured one
	Pause time.Duration // so long nobody goes out, as the service has asked
	// since anything came back, or the oldest call in flight went out, if that was later; 0: none
	// is in flight
	Silent time.Duration
}

// Stats of now.
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

// Answered is when the service last answered a call; zero: never.
func (l *Limiter) Answered() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered
}

// Wrap makes each call of next wait for its turn, first come, first served: the further tries of a
// call keep its place where their context has one ([model.WithPlace]). The wait is told to
// Binding.Waiting and counted by [model.Wait].
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
	defer func() { // also when next panics
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

// acquire waits for a turn and returns the call's place among those that are out.
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
	case <-w.turn: // it came at the same moment: hand it on
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

// ticket is the number of the call of ctx, in the order in which calls came. The tries of a call
// have the same.
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

// line puts w into the queue, before all that came later.
func (l *Limiter) line(w *waiter) *list.Element {
	if e := l.queue.Back(); e == nil || e.Value.(*waiter).ticket < w.ticket {
		return l.queue.PushBack(w)
	}
	e := l.queue.Front() // a refused call is among the first
	for e.Value.(*waiter).ticket < w.ticket {
		e = e.Next()
	}
	return l.queue.InsertBefore(w, e)
}

type waiter struct {
	ticket uint64
	turn   chan struct{} // closed when its turn has come
	tokens float64
	place  *list.Element
	err    error // in place of a turn
}

const forever = time.Duration(math.MaxInt64)

// ready is how long the next call has to wait; 0: not at all; forever: until one comes back.
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

// room is how long it takes until the window has room by itself, as calls grow old.
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

// wake gives turns to those who can have one, and sees to it that somebody looks again when time
// alone will help.
func (l *Limiter) wake() {
	for l.queue.Len() > 0 {
		now := time.Now()
		wait := l.ready(now)
		if wait == forever {
			return // the next release looks again
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

// look lets wake be called after wait, in place of what was set before.
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

// MaxPause bounds how long one refusal with a Retry-After keeps all calls back.
const MaxPause = time.Minute

// release takes a turn back and learns from how the call ended.
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
		// By the order in which calls go out: refusals come back sooner than replies.
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

// toBlame reports whether so many calls are refused that their rate must be the cause.
func (l *Limiter) toBlame() bool {
	n := bits.OnesCount64(l.recent)
	return n >= tooMany || n >= tooManyStill && l.gap > 0
}

// pauses reports whether what a refusal asks for holds for all calls.
func (l *Limiter) pauses() bool {
	return l.gap > 0 || 2*bits.OnesCount64(l.recent) >= min(l.sent, recentCalls)
}

// refuse ends the wait of all calls in the queue.
func (l *Limiter) refuse(e *model.Error) {
	for l.queue.Len() > 0 {
		w := l.queue.Remove(l.queue.Front()).(*waiter)
		w.err = &model.Error{Class: e.Class, HTTP: e.HTTP,
			Err: fmt.Errorf("the service has refused every call for %v: %w", l.patience, e.Err)}
		close(w.turn)
	}
}

// grow learns from a reply.
func (l *Limiter) grow(took time.Duration, full bool) {
	l.slowest = max(took, l.slowest-l.slowest/64)
	if l.run > outage { // what it refused says nothing of a rate
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
	case !full || l.window >= float64(l.max): // a window that nobody fills is no evidence that more would do
	case l.slow:
		l.window++
	default:
		l.window += 1 / l.window
	}
}

// cut learns from a refusal that asks to wait for after. The call that was refused is no longer
// among those that are out.
func (l *Limiter) cut(now time.Time, after time.Duration) {
	l.epoch++
	l.slow = false
	l.streak = 0
	if after > 0 {
		l.hint = max(after, l.hint-l.hint/8)
	}
	if l.gap == 0 {
		l.window = math.Floor(min(l.window, float64(l.out.Len()+1)) / 2)
		// To wait for longer than a call takes is less than one call at a time.
		if l.window < 1 || l.window == 1 && after > l.slowest {
			l.window, l.gap, l.run = 1, firstGap, 1
			l.recent = 0 // what was refused before there was a gap says nothing of the gap
			l.floor, l.before = l.gap, l.gap
		}
		return
	}
	l.run++
	longer := min(l.gap*3/2, l.longest())
	switch {
	// the time between two calls that the service takes, by its own word (0 s: less than one)
	case l.hint > 0 && l.run <= outage:
		implied := now.Add(after).Sub(l.accepted)
		l.gap = min(max(implied, l.gap*9/8), longer)
		l.floor = l.gap
		if l.run == 1 {
			l.before = l.gap
			// the next goes out when the service has asked for it, not a gap after the one that it
			// refused
			l.last = l.accepted
		}
		return
	case l.run == 1:
		l.gap, l.floor, l.before = longer, longer, longer
		return
	case l.run <= outage:
		l.floor = longer
	default: // whatever the gap: it is no rate that is kept, and what was known of one still holds
		l.floor = l.before
	}
	l.gap = min(l.gap*2, l.longest())
}

// longest is the longest gap. What the service has named bounds it, unless that has proved too
// short.
func (l *Limiter) longest() time.Duration {
	if l.hint == 0 || l.run > outage {
		return maxGap
	}
	return min(max(hintFactor*l.hint, hintedGap), maxGap)
}

// estimate is what a request is reckoned with until its usage is known: about four bytes a token,
// and some for the reply.
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

// A bucket fills with perMinute a minute, up to what a second gives (and at least one), and may be
// overdrawn: who comes later waits until it is above zero again.
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
