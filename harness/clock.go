package harness

import (
	"sync"
	"time"
)

// A clock measures the agent's time and ends it at a limit. It stands still while anyone waits for what is not the agent's doing (the
// journal, a provider's back-off, a machine).
type clock struct {
	mu      sync.Mutex
	left    time.Duration // negative: no limit
	timer   *time.Timer
	fire    func()
	resumed time.Time
	used    time.Duration // while running
	waits   int
	running bool
}

// newClock runs from now. limit ≤ 0 is none.
func newClock(limit time.Duration, fire func()) *clock {
	c := &clock{left: limit, fire: fire, running: true}
	if limit <= 0 {
		c.left = -1
	}
	c.mu.Lock()
	c.run()
	c.mu.Unlock()
	return c
}

func (c *clock) run() {
	c.resumed = time.Now()
	if c.left >= 0 {
		if c.timer == nil {
			c.timer = time.AfterFunc(c.left, c.fire)
		} else {
			c.timer.Reset(c.left)
		}
	}
}

func (c *clock) halt() {
	d := time.Since(c.resumed)
	c.used += d
	if c.left >= 0 {
		c.timer.Stop()
		c.left = max(0, c.left-d)
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

// remaining is negative when there is no limit.
func (c *clock) remaining() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < 0 {
		return -1
	}
	if c.running && c.waits == 0 {
		return max(0, c.left-time.Since(c.resumed))
	}
	return c.left
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
