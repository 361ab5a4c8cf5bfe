package limit_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/retry"
)

// tokenBucket is a service that fills a bucket of burst requests with perMinute a minute and
// refuses what finds it empty, with the Retry-After that hint makes of the time until the next
// request would be taken.
type tokenBucket struct {
	perMinute float64
	burst     float64
	strict    bool          // a refused request takes half a token, too
	down      time.Duration // at first it refuses every request for so long
	took      time.Duration
	hint      func(time.Duration) time.Duration

	mu      sync.Mutex
	level   float64
	begun   time.Time
	at      time.Time
	served  int
	refused int
}

func (s *tokenBucket) generate(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
	s.mu.Lock()
	now := time.Now()
	if s.at.IsZero() {
		s.level, s.begun = s.burst, now
	} else {
		s.level = min(s.level+now.Sub(s.at).Minutes()*s.perMinute, s.burst)
	}
	s.at = now
	no := s.level < 1 || now.Sub(s.begun) < s.down
	left := time.Duration((1 - s.level) / s.perMinute * float64(time.Minute))
	if no {
		s.refused++
		if s.strict {
			s.level = max(s.level-0.5, -2)
		}
	} else {
		s.level--
		s.served++
	}
	s.mu.Unlock()
	if no {
		time.Sleep(20 * time.Millisecond)
		return nil, &model.Error{Class: model.Rate, HTTP: 429, After: s.hint(max(left, 0)), Err: errors.New("too many")}
	}
	time.Sleep(s.took)
	r := modeltest.Text("hello")
	return &r, nil
}

func exact(left time.Duration) time.Duration { return left }
func up(left time.Duration) time.Duration {
	return time.Duration(math.Ceil(left.Seconds())) * time.Second
}
func down(left time.Duration) time.Duration { return left.Truncate(time.Second) }
func always(d time.Duration) func(time.Duration) time.Duration {
	return func(time.Duration) time.Duration { return d }
}

// Many sessions share a service of ten requests a minute: no call is lost, no session waits much
// longer than the others, and the service's capacity is used.
func TestTokenBucket(t *testing.T) {
	base := tokenBucket{perMinute: 10, burst: 10, took: 2 * time.Second, hint: up}
	with := func(change func(*tokenBucket)) *tokenBucket {
		s := tokenBucket{perMinute: base.perMinute, burst: base.burst, took: base.took, hint: base.hint}
		change(&s)
		return &s
	}
	for name, s := range map[string]*tokenBucket{
		"exact":          with(func(s *tokenBucket) { s.hint = exact }),
		"rounded up":     with(func(s *tokenBucket) {}),
		"rounded down":   with(func(s *tokenBucket) { s.hint = down }),
		"always 1 s":     with(func(s *tokenBucket) { s.hint = always(time.Second) }),
		"always 20 ms":   with(func(s *tokenBucket) { s.hint = always(20 * time.Millisecond) }),
		"always 30 s":    with(func(s *tokenBucket) { s.hint = always(30 * time.Second) }),
		"no hint":        with(func(s *tokenBucket) { s.hint = always(0) }),
		"no burst":       with(func(s *tokenBucket) { s.burst = 1 }),
		"no burst, down": with(func(s *tokenBucket) { s.burst, s.hint = 1, down }),
		"slow replies":   with(func(s *tokenBucket) { s.took = 40 * time.Second }),
		"fast replies":   with(func(s *tokenBucket) { s.took = 100 * time.Millisecond }),
		"refusals count": with(func(s *tokenBucket) { s.strict, s.hint = true, always(time.Second) }),
		"down at first":  with(func(s *tokenBucket) { s.down, s.hint = 5*time.Minute, always(time.Second) }),
		"down at first, slow": with(func(s *tokenBucket) {
			s.down, s.hint, s.perMinute = 5*time.Minute, always(time.Second), 4
		}),
		"600 a minute": with(func(s *tokenBucket) { s.perMinute, s.burst = 600, 60 }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playBucket(t, s, 64, 6) })
		})
	}
}

// playBucket lets sessions make calls, one after the other each.
func playBucket(t *testing.T, s *tokenBucket, sessions, calls int) {
	l := limit.New(limit.Config{})
	f := retry.New(l.Wrap(modeltest.Func(s.generate).Factory(0)),
		retry.Policy{Answered: l.Answered, Held: limit.MaxPause})
	begun := time.Now()
	var lost atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	var sum, longest time.Duration
	for range sessions {
		c, err := f(model.Binding{})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for range calls {
				at := time.Now()
				if _, err := c.Generate(t.Context(), &model.Request{}); err != nil {
					t.Log(err)
					lost.Add(1)
					return
				}
				d := time.Since(at)
				mu.Lock()
				sum += d
				longest = max(longest, d)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	n := sessions * calls
	best := time.Duration((float64(n) - s.burst) / s.perMinute * float64(time.Minute))
	mean := sum / time.Duration(n)
	t.Logf("%d answered, %d refused in %v, at best %v; a call took %v, the longest %v",
		s.served, s.refused, took.Round(time.Second), best.Round(time.Second), mean.Round(time.Second),
		longest.Round(time.Second))
	if n := lost.Load(); n > 0 {
		t.Errorf("%d of %d sessions were lost", n, sessions)
	}
	if took-s.down-2*time.Minute > best*10/8 {
		t.Errorf("%v for what takes %v at best, after two minutes to learn", took-s.down, best)
	}
	if longest-s.down > 2*mean {
		t.Errorf("a call took %v, on average they took %v", longest, mean)
	}
	if s.refused > 2*s.served {
		t.Errorf("%d calls refused for %d answered", s.refused, s.served)
	}
}
