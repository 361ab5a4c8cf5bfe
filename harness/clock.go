package harness

import (
	"sync"
	"time"
)

// A clock measures the agent's time and calls a function when a limit is reached. It is paused
// while the agent waits for something it does not control: the journal, a provider's backoff, a
// sandbox. The clock runs during a model call, but the limit is checked only when the call returns,
// because only then is it known whether the time counts as the agent's or was lost by the provider.
type clock struct {
	mu      sync.Mutex
	limit   time.Duration // ≤ 0 means no limit
	timer   *time.Timer
	fire    func()
	resumed time.Time
	used    time.Duration // time counted before resumed
	waits   int
	running bool
	out     map[*flight]struct{}
}

// newClock returns a running clock. limit ≤ 0 means no limit.
func newClock(limit time.Duration, fire func()) *clock {
	c := &clock{limit: limit, fire: fire, running: true, out: map[*flight]struct{}{}}
	c.mu.Lock()
	c.run()
	c.mu.Unlock()
	return c
}

func (c *clock) run() {
	c.resumed = time.Now()
	if c.limit > 0 {
		left := max(0, c.limit-c.used)
		if c.timer == nil {
			c.timer = time.AfterFunc(left, c.look)
		} else {
			c.timer.Reset(left)
		}
	}
}

func (c *clock) halt() {
	c.used += time.Since(c.resumed)
	if c.timer != nil {
		c.timer.Stop()
	}
}

// spent returns the time used so far. The caller holds the lock.
func (c *clock) spent() time.Duration {
	if c.running && c.waits == 0 {
		return c.used + time.Since(c.resumed)
	}
	return c.used
}

// look calls fire if the limit is reached and no model call is in flight.
func (c *clock) look() {
	c.mu.Lock()
	over := c.limit > 0 && c.running && len(c.out) == 0 && c.spent() >= c.limit
	c.mu.Unlock()
	if over {
		c.fire()
	}
}

// wait pauses the clock until the returned function is called. Waits may overlap.
func (c *clock) wait() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits++
	if c.waits == 1 && c.running {
		c.halt()
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.waits--
			if c.waits == 0 && c.running {
				c.run()
			}
		})
	}
}

// A flight is a model call in flight.
type flight struct {
	c    *clock
	from time.Duration // clock time at which the current try began
}

// call registers the start of a model call. The caller must call land on the result.
func (c *clock) call() *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &flight{c: c, from: c.spent()}
	c.out[f] = struct{}{}
	return f
}

// tried registers the end of one try of the call. If the provider lost the try, the time since the
// previous try is not counted.
func (f *flight) tried(lost bool) {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.spent()
	if lost && now > f.from {
		runs := c.running && c.waits == 0
		if runs {
			c.halt()
		}
		c.used -= now - f.from
		for g := range c.out { // calls in flight at the same time get that time back only once
			g.from = min(g.from, c.used)
		}
		if runs {
			c.run()
		}
	}
	f.from = c.spent()
}

// land registers the end of the call and checks the limit.
func (f *flight) land() {
	f.c.mu.Lock()
	delete(f.c.out, f)
	f.c.mu.Unlock()
	f.c.look()
}

// remaining returns the time left, or -1 if there is no limit.
func (c *clock) remaining() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit <= 0 {
		return -1
	}
	return max(0, c.limit-c.spent())
}

// stop stops the clock and returns the time it counted.
func (c *clock) stop() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		if c.waits == 0 {
			c.halt()
		}
		c.running = false
	}
	return c.used
}
