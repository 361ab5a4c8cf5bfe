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
		if d := time.Since(begun); d != 20*time.Second || waited() != d {
			t.Errorf("the next call went out after %v, waited %v; want 20s", d, waited())
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
