package harness

import (
	"testing"
	"testing/synctest"
	"time"
)

// Time lost by two concurrent calls is given back once, and the agent's work during a successful
// call counts.
func TestClockFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fired time.Time
		begun := time.Now()
		c := newClock(time.Minute, func() { fired = time.Now() })
		a := c.call()
		time.Sleep(10 * time.Second) // lost
		b := c.call()
		time.Sleep(10 * time.Second) // lost
		a.tried(true)
		a.land()
		time.Sleep(10 * time.Second) // lost
		b.tried(true)
		if left := c.remaining(); left != time.Minute {
			t.Errorf("%v left after lost calls", left)
		}
		time.Sleep(20 * time.Second) // the agent's
		b.tried(false)
		wait := c.wait()
		time.Sleep(time.Hour)
		wait()
		b.land()
		if left := c.remaining(); left != 40*time.Second {
			t.Errorf("%v left, want 40s", left)
		}
		b = c.call()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if !fired.IsZero() {
			t.Error("fired while a call was out")
		}
		b.tried(false)
		b.land()
		if want := begun.Add(100*time.Second + time.Hour); !fired.Equal(want) {
			t.Errorf("fired at %v, want %v", fired, want)
		}
		if used := c.stop(); used != 70*time.Second {
			t.Errorf("used %v", used)
		}
	})
	synctest.Test(t, func(t *testing.T) { // no call
		fired := false
		c := newClock(time.Minute, func() { fired = true })
		time.Sleep(time.Minute)
		synctest.Wait()
		if !fired || c.stop() != time.Minute {
			t.Error("did not fire")
		}
	})
}
