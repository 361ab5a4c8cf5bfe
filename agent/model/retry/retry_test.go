package retry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/retry"
)

// failing fails with errs in order, then answers.
func failing(errs ...error) modeltest.Func {
	return func(_ context.Context, _ model.Binding, n int, _ *model.Request) (*model.Response, error) {
		if n < len(errs) {
			return nil, errs[n]
		}
		r := modeltest.Text("hello")
		r.RequestID = "req_1"
		return &r, nil
	}
}

func class(c string, after time.Duration) error {
	return &model.Error{Class: c, After: after, HTTP: 429, ID: "req_0", Err: errors.New("no")}
}

// call makes one call inside a bubble and returns its tries and how long it took.
func call(t *testing.T, f modeltest.Func, p retry.Policy) (tries []model.Try, took, waiting time.Duration, err error) {
	synctest.Test(t, func(t *testing.T) {
		b := model.Binding{
			Try: func(x model.Try) { tries = append(tries, x) },
			Waiting: func() func() {
				begun := time.Now()
				return func() { waiting += time.Since(begun) }
			},
		}
		c, cerr := retry.New(f.Factory(time.Second), p)(b)
		if cerr != nil {
			t.Fatal(cerr)
		}
		begun := time.Now()
		_, err = c.Generate(t.Context(), &model.Request{})
		took = time.Since(begun)
	})
	return tries, took, waiting, err
}

func TestRetries(t *testing.T) {
	tries, took, waiting, err := call(t, failing(class(model.Rate, 20*time.Second), class(model.Network, 0)), retry.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if len(tries) != 3 {
		t.Fatalf("%d tries, want 3", len(tries))
	}
	if w := tries[1].Waited; w < 20*time.Second || w > 21*time.Second {
		t.Errorf("waited %v, want Retry-After and at most a second", w)
	}
	if w := tries[2].Waited; w < 0 || w > 2*time.Second {
		t.Errorf("waited %v, want at most 2s", w)
	}
	for i, x := range tries {
		if x.N != 0 || x.Try != i+1 || x.Latency != time.Second || x.Request == "" {
			t.Errorf("try %d: %+v", i, x)
		}
	}
	if tries[0].Err == nil || tries[0].HTTP != 429 || tries[0].ID != "req_0" || tries[2].Response == nil || tries[2].ID != "req_1" {
		t.Errorf("tries: %+v", tries)
	}
	if want := took - 3*time.Second; waiting != want {
		t.Errorf("told to wait %v, want %v", waiting, want)
	}
}

func TestGivesUp(t *testing.T) {
	many := func(c string, after time.Duration) modeltest.Func {
		errs := make([]error, 1000)
		for i := range errs {
			errs[i] = class(c, after)
		}
		return failing(errs...)
	}
	tests := map[string]struct {
		f     modeltest.Func
		p     retry.Policy
		class string
		tries int
		text  string
	}{
		"tries":            {many(model.Overload, 0), retry.Policy{Tries: 4}, model.Overload, 4, "4 tries"},
		"waits together":   {many(model.Rate, time.Minute), retry.Policy{Wait: 150 * time.Second}, model.Rate, 3, "no time for another"},
		"asks too much":    {many(model.Rate, time.Hour), retry.Policy{}, model.Rate, 1, "asks to wait 1h"},
		"auth":             {many(model.Auth, 0), retry.Policy{}, model.Auth, 1, ""},
		"quota":            {many(model.Quota, time.Second), retry.Policy{}, model.Quota, 1, ""},
		"refused":          {many(model.Refused, 0), retry.Policy{}, model.Refused, 1, ""},
		"context":          {many(model.Context, 0), retry.Policy{}, model.Context, 1, ""},
		"request":          {many(model.Invalid, 0), retry.Policy{}, model.Invalid, 1, ""},
		"whole call":       {modeltest.Func(hang), retry.Policy{Call: time.Minute}, model.Network, 1, "1m0s of a whole call"},
		"whole call, busy": {many(model.Rate, 10*time.Second), retry.Policy{Call: 20 * time.Second}, model.Rate, 2, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tries, _, _, err := call(t, tt.f, tt.p)
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.class || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("err = %v, want class %s and %q", err, tt.class, tt.text)
			}
			if len(tries) != tt.tries {
				t.Errorf("%d tries, want %d", len(tries), tt.tries)
			}
		})
	}
}

func hang(ctx context.Context, _ model.Binding, _ int, _ *model.Request) (*model.Response, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestContextEnds(t *testing.T) {
	stop := errors.New("stopped by the test")
	for name, f := range map[string]modeltest.Func{"in a try": hang, "between tries": failing(class(model.Rate, time.Minute))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(10*time.Second, func() { cancel(stop) })
				c, err := retry.New(f.Factory(0), retry.Policy{})(model.Binding{})
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				_, err = c.Generate(ctx, &model.Request{})
				if !errors.Is(err, stop) || time.Since(begun) != 10*time.Second {
					t.Errorf("%v after %v, want the cause after 10s", err, time.Since(begun))
				}
			})
		})
	}
}

// The queue of a limiter is no time of the service, and does not use up the call.
func TestQueueIsWaiting(t *testing.T) {
	f := modeltest.Func(func(ctx context.Context, _ model.Binding, _ int, _ *model.Request) (*model.Response, error) {
		done := model.Wait(ctx)
		time.Sleep(10 * time.Minute)
		done()
		time.Sleep(2 * time.Second)
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		r := modeltest.Text("hello")
		return &r, nil
	})
	tries, _, _, err := call(t, f, retry.Policy{Call: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if x := tries[0]; x.Waited != 10*time.Minute || x.Latency != 3*time.Second { // the factory's own second
		t.Errorf("waited %v, latency %v", x.Waited, x.Latency)
	}
}

// The number of a call is its session's, where that counts.
func TestNumbers(t *testing.T) {
	for name, n := range map[string]func() int{"own": nil, "the session's": func() int { return 7 }} {
		t.Run(name, func(t *testing.T) {
			var got []int
			c, err := retry.New(failing().Factory(0), retry.Policy{})(model.Binding{N: n, Try: func(x model.Try) { got = append(got, x.N) }})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := c.Generate(t.Context(), &model.Request{}); err != nil {
					t.Fatal(err)
				}
			}
			want := []int{0, 1}
			if n != nil {
				want = []int{7, 7}
			}
			if !slices.Equal(got, want) {
				t.Errorf("numbers %v, want %v", got, want)
			}
		})
	}
}
