package limit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/retry"
)

// service takes capacity calls at once, each a second long, and refuses more.
type service struct {
	capacity int64
	after    time.Duration
	now      atomic.Int64
	peak     atomic.Int64
	refused  atomic.Int64
	served   atomic.Int64
}

func (s *service) generate(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	if n > s.peak.Load() {
		s.peak.Store(n)
	}
	if s.capacity > 0 && n > s.capacity {
		s.refused.Add(1)
		return nil, &model.Error{Class: model.Rate, After: s.after, Err: errors.New("too many")}
	}
	time.Sleep(time.Second)
	s.served.Add(1)
	r := modeltest.Text("hello")
	return &r, nil
}

func bind(t *testing.T, l *limit.Limiter, f modeltest.Func) model.Client {
	t.Helper()
	c, err := l.Wrap(f.Factory(0))(model.Binding{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sessions call until each has had n replies, and try again when refused.
func sessions(t *testing.T, c model.Client, count, n int) time.Duration {
	begun := time.Now()
	var wg sync.WaitGroup
	for range count {
		wg.Go(func() {
			for done := 0; done < n; {
				_, err := c.Generate(t.Context(), &model.Request{})
				if err == nil {
					done++
				} else {
					time.Sleep(time.Second)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun)
}

func TestGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		l := limit.New(limit.Config{})
		took := sessions(t, bind(t, l, s.generate), 1000, 10)
		if s.peak.Load() != 1000 || took > 15*time.Second {
			t.Errorf("peak %d, %v: it should have grown to all 1000", s.peak.Load(), took)
		}
	})
}

func TestMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		l := limit.New(limit.Config{Max: 7})
		took := sessions(t, bind(t, l, s.generate), 100, 7)
		if s.peak.Load() != 7 || took != 100*time.Second {
			t.Errorf("peak %d, %v", s.peak.Load(), took)
		}
	})
}

func TestFindsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{capacity: 50}
		l := limit.New(limit.Config{})
		took := sessions(t, bind(t, l, s.generate), 400, 25)
		// 10,000 calls at 50 a second take 200 s at best.
		if took > 400*time.Second {
			t.Errorf("%v for what takes 200s at best", took)
		}
		if r := float64(s.refused.Load()) / float64(s.served.Load()); r > 0.1 {
			t.Errorf("%.0f %% of the calls were refused", 100*r)
		}
		if st := l.Stats(); st.InFlight != 0 || st.Queued != 0 || st.Cuts == 0 {
			t.Errorf("at the end: %+v", st)
		}
	})
}

// Fifty refusals of calls that were in flight together are one episode.
func TestOneCutAnEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Start: 64})
		c := bind(t, l, func(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
			time.Sleep(time.Second)
			return nil, &model.Error{Class: model.Overload, HTTP: 529, Err: errors.New("overloaded")}
		})
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() { _, _ = c.Generate(t.Context(), &model.Request{}) })
		}
		wg.Wait()
		if st := l.Stats(); st.Cuts != 1 || st.Window != 32 {
			t.Errorf("%+v, want one cut to 32", st)
		}
	})
}

func TestRetryAfterPausesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		l := limit.New(limit.Config{})
		c := bind(t, l, func(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
			if first {
				first = false
				return nil, &model.Error{Class: model.Rate, After: 20 * time.Second, Err: errors.New("no")}
			}
			r := modeltest.Text("x")
			return &r, nil
		})
		begun := time.Now()
		_, _ = c.Generate(t.Context(), &model.Request{})
		ctx, waited := model.WithWait(t.Context())
		if _, err := c.Generate(ctx, &model.Request{}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d != 20*time.Second || waited.Total() != d {
			t.Errorf("the next call went out after %v, waited %v; want 20s", d, waited.Total())
		}
	})
}

func TestPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		l := limit.New(limit.Config{Requests: 120})
		if took := sessions(t, bind(t, l, s.generate), 240, 1); took < 115*time.Second || took > 125*time.Second {
			t.Errorf("240 requests at 120 a minute took %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Tokens: 60_000})
		c := bind(t, l, func(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
			return &model.Response{Usage: event.Usage{In: 9000, Out: 1000}}, nil
		})
		if took := sessions(t, c, 10, 6); took < 500*time.Second || took > 620*time.Second {
			t.Errorf("60 calls of 10,000 tokens at 60,000 a minute took %v", took)
		}
	})
}

func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		l := limit.New(limit.Config{Max: 1})
		c := bind(t, l, s.generate)
		stop := errors.New("stopped by the test")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		var failed atomic.Int64
		for i := range 20 {
			wg.Go(func() {
				use := ctx
				if i%2 == 0 {
					use = t.Context()
				}
				if _, err := c.Generate(use, &model.Request{}); errors.Is(err, stop) {
					failed.Add(1)
				} else if err != nil {
					t.Errorf("%v", err)
				}
			})
		}
		time.AfterFunc(1500*time.Millisecond, func() { cancel(stop) })
		wg.Wait()
		if st := l.Stats(); st.InFlight != 0 || st.Queued != 0 {
			t.Errorf("at the end: %+v", st)
		}
		if failed.Load() < 8 {
			t.Errorf("%d calls ended with the context", failed.Load())
		}
	})
}

// perMinute is a service that answers at most n requests in any minute and refuses others, without
// saying when to come back. With strict, refused requests count as well.
type perMinute struct {
	n      int
	strict bool
	took   time.Duration

	mu      sync.Mutex
	times   []time.Time
	refused int
	served  int
}

func (s *perMinute) generate(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
	s.mu.Lock()
	now := time.Now()
	for len(s.times) > 0 && now.Sub(s.times[0]) >= time.Minute {
		s.times = s.times[1:]
	}
	no := len(s.times) >= s.n
	if !no || s.strict && len(s.times) < 10*s.n {
		s.times = append(s.times, now)
	}
	if no {
		s.refused++
	} else {
		s.served++
	}
	s.mu.Unlock()
	if no {
		time.Sleep(20 * time.Millisecond)
		return nil, &model.Error{Class: model.Rate, HTTP: 429, Err: errors.New("too many")}
	}
	time.Sleep(s.took)
	r := modeltest.Text("hello")
	return &r, nil
}

// Ten requests a minute, for many sessions, and no Retry-After: nobody is lost, and what the
// service gives is used.
func TestRateBelowOneConnection(t *testing.T) {
	for _, tt := range []struct {
		name     string
		s        *perMinute
		sessions int
		calls    int
	}{
		{"64 sessions", &perMinute{n: 10, took: 2 * time.Second}, 64, 3},
		{"16 sessions", &perMinute{n: 10, took: 2 * time.Second}, 16, 6},
		{"1 session", &perMinute{n: 10, took: time.Second}, 1, 40},
		{"slow replies", &perMinute{n: 10, took: 90 * time.Second}, 64, 3},
		{"refusals count", &perMinute{n: 10, strict: true, took: 2 * time.Second}, 64, 3},
		{"one a minute", &perMinute{n: 1, took: time.Second}, 16, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limit.New(limit.Config{})
				s := tt.s
				f := retry.New(l.Wrap(modeltest.Func(s.generate).Factory(0)),
					retry.Policy{Answered: l.Answered, Held: limit.MaxPause})
				begun := time.Now()
				var lost atomic.Int64
				var all sync.WaitGroup
				for range tt.sessions {
					c, err := f(model.Binding{})
					if err != nil {
						t.Fatal(err)
					}
					all.Go(func() {
						for range tt.calls {
							if _, err := c.Generate(t.Context(), &model.Request{}); err != nil {
								t.Log(err)
								lost.Add(1)
								return
							}
						}
					})
				}
				all.Wait()
				took := time.Since(begun)
				best := time.Duration(tt.sessions*tt.calls) * time.Minute / time.Duration(s.n)
				t.Logf("%d answered, %d refused in %v; at best %v", s.served, s.refused, took.Round(time.Second), best)
				if n := lost.Load(); n > 0 {
					t.Errorf("%d of %d sessions were lost", n, tt.sessions)
				}
				if took > 2*best+5*time.Minute {
					t.Errorf("%v for what takes %v at best", took, best)
				}
				if s.refused > s.served/2+25 {
					t.Errorf("%d calls refused for %d answered", s.refused, s.served)
				}
			})
		})
	}
}

// A service that refused everything for a while is used in full soon after.
func TestRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{})
		well := time.Now().Add(10 * time.Minute)
		s := &service{}
		f := retry.New(l.Wrap(modeltest.Func(
			func(ctx context.Context, b model.Binding, n int, req *model.Request) (*model.Response, error) {
				if time.Now().Before(well) {
					return nil, &model.Error{Class: model.Overload, HTTP: 503, Err: errors.New("down")}
				}
				return s.generate(ctx, b, n, req)
			}).Factory(0)), retry.Policy{Answered: l.Answered, Held: limit.MaxPause})
		var all sync.WaitGroup
		for range 64 {
			c, err := f(model.Binding{})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				for range 20 {
					if _, err := c.Generate(t.Context(), &model.Request{}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if late := time.Since(well); late > 8*time.Minute {
			t.Errorf("through %v after the service was well again", late)
		} else {
			t.Log(late)
		}
	})
}

// Where nobody is answered, calls end after the policy's patience, also those that wait in the
// queue most of the time.
func TestDeadAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{})
		f := retry.New(l.Wrap(modeltest.Fail(model.Rate).Factory(0)),
			retry.Policy{Answered: l.Answered, Held: limit.MaxPause})
		begun := time.Now()
		var all sync.WaitGroup
		for range 64 {
			c, err := f(model.Binding{})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				var e *model.Error
				if _, err := c.Generate(t.Context(), &model.Request{}); !errors.As(err, &e) || e.Class != model.Rate {
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
		if d := time.Since(begun); d < 30*time.Minute || d > 40*time.Minute {
			t.Errorf("ended after %v", d)
		}
	})
}

// A call that is never answered holds the only place for a minute, not for ever, and the window
// grows again.
func TestHungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Start: 2})
		var n atomic.Int64
		c := bind(t, l, func(ctx context.Context, _ model.Binding, _ int, _ *model.Request) (*model.Response, error) {
			switch n.Add(1) {
			case 1:
				return nil, &model.Error{Class: model.Rate, Err: errors.New("too many")}
			case 2:
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			time.Sleep(time.Second)
			r := modeltest.Text("hello")
			return &r, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		var hung, all sync.WaitGroup
		hung.Go(func() { _, _ = c.Generate(t.Context(), &model.Request{}) })
		synctest.Wait() // it is refused
		if st := l.Stats(); st.Window != 1 || st.Gap != time.Second {
			t.Errorf("after a refusal: %+v", st)
		}
		hung.Go(func() { _, _ = c.Generate(ctx, &model.Request{}) })
		time.Sleep(2 * time.Second) // it is out
		for range 20 {
			all.Go(func() {
				if _, err := c.Generate(t.Context(), &model.Request{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if d := time.Since(begun); d > 2*time.Minute {
			t.Errorf("20 calls beside the hung one took %v", d)
		}
		if st := l.Stats(); st.InFlight != 1 || st.Gap != 0 && st.Gap >= time.Second {
			t.Errorf("at the end: %+v", st)
		}
		cancel()
		hung.Wait()
	})
}

// The same in a window of one call, without a rate.
func TestHungCallInWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Start: 1, Max: 8})
		var n atomic.Int64
		c := bind(t, l, func(ctx context.Context, _ model.Binding, _ int, _ *model.Request) (*model.Response, error) {
			if n.Add(1) == 1 {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			time.Sleep(time.Second)
			r := modeltest.Text("hello")
			return &r, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var hung, all sync.WaitGroup
		hung.Go(func() { _, _ = c.Generate(ctx, &model.Request{}) })
		synctest.Wait()
		if st := l.Stats(); st.InFlight != 1 {
			t.Fatalf("%+v", st)
		}
		begun := time.Now()
		for range 40 {
			all.Go(func() {
				if _, err := c.Generate(t.Context(), &model.Request{}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		time.Sleep(30 * time.Second)
		if st := l.Stats(); st.Queued != 40 || st.Silent != 30*time.Second {
			t.Errorf("after 30 s: %+v", st)
		}
		all.Wait()
		if d := time.Since(begun); d > 90*time.Second {
			t.Errorf("40 calls beside the hung one took %v", d)
		}
		if st := l.Stats(); st.Window < 2 {
			t.Errorf("the window has not grown: %+v", st)
		}
		cancel()
		hung.Wait()
	})
}

func TestPanic(t *testing.T) {
	l := limit.New(limit.Config{Max: 1})
	c := bind(t, l, func(context.Context, model.Binding, int, *model.Request) (*model.Response, error) { panic("oh") })
	func() {
		defer func() { _ = recover() }()
		_, _ = c.Generate(t.Context(), &model.Request{})
	}()
	if st := l.Stats(); st.InFlight != 0 {
		t.Errorf("a panic keeps its turn: %+v", st)
	}
}
