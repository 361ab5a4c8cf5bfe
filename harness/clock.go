package harness

import (
	"sync"
	"time"
)

// A clock measures the agent's time and ends it at a limit. It stands still while anyone waits for
// what is not the agent's doing (the journal, a provider's back-off, a machine). While a model call
// is out the clock runs, but the limit is looked at only when the call is back: then it is known
// whether that time was the agent's, or was lost by the service.
type clock struct {
	mu      sync.Mutex
	limit   time.Duration // ≤ 0: none
	timer   *time.Timer
	fire    func()
	resumed time.Time
	used    time.Duration // until resumed
	waits   int
	running bool
	out     map[*flight]struct{}
}

// newClock runs from now. limit ≤ 0 is none.
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

// spent is the time used so far. The caller holds the lock.
func (c *clock) spent() time.Duration {
	if c.running && c.waits == 0 {
		return c.used + time.Since(c.resumed)
	}
	return c.used
}

// look fires when the time is over and no call is out.
func (c *clock) look() {
	c.mu.Lock()
	over := c.limit > 0 && c.running && len(c.out) == 0 && c.spent() >= c.limit
	c.mu.Unlock()
	if over {
		c.fire()
	}
}

// wait stops the clock until the returned function is called. Waits may overlap.
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

// A flight is a model call while it is out.
type flight struct {
	c    *clock
	from time.Duration // of the clock's time, as the current try began
}

// call says that a model call begins. Its land must be called.
func (c *clock) call() *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &flight{c: c, from: c.spent()}
	c.out[f] = struct{}{}
	return f
}

// tried says that a try of the call has ended. What ran since the one before is given back when the
// service lost it.
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
		for g := range c.out { // another actor's call may be out for the same time, which is given back once
			g.from = min(g.from, c.used)
		}
		if runs {
			c.run()
		}
	}
	f.from = c.spent()
}

// land says that the call is over.
func (f *flight) land() {
	f.c.mu.Lock()
	delete(f.c.out, f)
	f.c.mu.Unlock()
	f.c.look()
}

// remaining is negative when there is no limit.
func (c *clock) remaining() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit <= 0 {
		return -1
	}
	return max(0, c.limit-c.spent())
}

// stop ends the measuring and returns the time that ran.
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
