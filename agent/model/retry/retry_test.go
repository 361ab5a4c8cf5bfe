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
	tries, took, waiting, err := call(t, failing(class(model.Rate, 20*time.Second), class(model.Network, 0)),
		retry.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if len(tries) != 3 {
		t.Fatalf("%d tries, want 3", len(tries))
	}
	if w := tries[1].Waited; w < 21*time.Second || w > 22*time.Second {
		t.Errorf("waited %v, want Retry-After, at most a second, and the second of the try that failed", w)
	}
	if w := tries[2].Waited; w < 0 || w > 2*time.Second {
		t.Errorf("waited %v, want at most 2s", w)
	}
	for i, x := range tries {
		if x.N != 0 || x.Try != i+1 || x.Start.IsZero() || x.Latency != time.Second || x.Request == "" {
			t.Errorf("try %d: %+v", i, x)
		}
	}
	if tries[0].Err == nil || tries[0].HTTP != 429 || tries[0].ID != "req_0" || tries[2].Response == nil ||
		tries[2].ID != "req_1" {
		t.Errorf("tries: %+v", tries)
	}
	if want := took - 3*time.Second; waiting != want {
		t.Errorf("told to wait %v, want %v", waiting, want)
	}
}

func TestGivesUp(t *testing.T) {
	many := func(status int, c string, after time.Duration) modeltest.Func {
		errs := make([]error, 1000)
		for i := range errs {
			errs[i] = &model.Error{Class: c, After: after, HTTP: status, Err: errors.New("no")}
		}
		return failing(errs...)
	}
	tests := map[string]struct {
		f     modeltest.Func
		p     retry.Policy
		class string
		least int // tries
		most  int
		text  string
		open  bool
	}{
		"tries": {many(500, model.Overload, 0), retry.Policy{Tries: 4}, model.Overload, 4, 4, "4 tries failed",
			false},
		"timeouts": {many(0, model.Network, 0), retry.Policy{Tries: 3}, model.Network, 3, 3, "3 tries failed",
			false},
		"refused": {many(429, model.Rate, time.Minute), retry.Policy{Tries: 1}, model.Rate, 20, 40,
			"the 30m0s for them are over", false},
		"overloaded": {many(529, model.Overload, 0), retry.Policy{Tries: 1}, model.Overload, 30, 200,
			"the 30m0s for them are over", false},
		"patience": {many(429, model.Rate, 10*time.Second), retry.Policy{Patience: 20 * time.Second}, model.Rate,
			1, 2, "", false},
		"asks too much": {many(429, model.Rate, time.Hour), retry.Policy{}, model.Rate, 1, 1, "asks to wait 1h", true},
		"auth":          {many(401, model.Auth, 0), retry.Policy{}, model.Auth, 1, 1, "", false},
		"quota":         {many(429, model.Quota, time.Second), retry.Policy{}, model.Quota, 1, 1, "", false},
		"missing":       {many(404, model.Missing, 0), retry.Policy{}, model.Missing, 1, 1, "", false},
		"filtered":      {many(400, model.Refused, 0), retry.Policy{}, model.Refused, 1, 1, "", false},
		"context":       {many(400, model.Context, 0), retry.Policy{}, model.Context, 1, 1, "", false},
		"request":       {many(400, model.Invalid, 0), retry.Policy{}, model.Invalid, 1, 1, "", false},
		"slow time-outs": {modeltest.Func(timeout), retry.Policy{}, model.Network, 3, 3, "the 30m0s for them are over",
			false},
		"nobody answered": {many(429, model.Rate, 0),
			retry.Policy{Patience: 5 * time.Minute,
				Answered: func() time.Time { return time.Now().Add(-6 * time.Minute) }},
			model.Rate, 5, 100, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tries, _, _, err := call(t, tt.f, tt.p)
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.class || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("err = %v, want class %s and %q", err, tt.class, tt.text)
			}
			if e != nil && e.Open != tt.open {
				t.Errorf("open %v", e.Open)
			}
			if n := len(tries); n < tt.least || n > tt.most {
				t.Errorf("%d tries, want %d to %d", n, tt.least, tt.most)
			}
		})
	}
}

// timeout is a try that the vendor's client gives up after its time.
func timeout(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
	time.Sleep(10 * time.Minute)
	return nil, &model.Error{Class: model.Network, Err: errors.New("no whole answer in time")}
}

func hang(ctx context.Context, _ model.Binding, _ int, _ *model.Request) (*model.Response, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestContextEnds(t *testing.T) {
	stop := errors.New("stopped by the test")
	for name, f := range map[string]modeltest.Func{"in a try": hang,
		"between tries": failing(class(model.Rate, time.Minute))} {
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

// The queue of a limiter is no time of the service, and does not use up the call. A try begins when
// its request goes out.
func TestQueueIsWaiting(t *testing.T) {
	var out time.Time
	f := modeltest.Func(func(ctx context.Context, _ model.Binding, n int, _ *model.Request) (*model.Response, error) {
		done := model.Wait(ctx)
		time.Sleep(2 * time.Hour)
		done()
		out = time.Now()
		time.Sleep(2 * time.Second)
		r := modeltest.Text("hello")
		return &r, nil
	})
	tries, _, _, err := call(t, f, retry.Policy{Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	// the factory's own second
	if x := tries[0]; x.Waited != 2*time.Hour || x.Latency != 3*time.Second || !x.Start.Equal(out) {
		t.Errorf("waited %v, latency %v, started %v; it went out at %v", x.Waited, x.Latency, x.Start, out)
	}
}

// What a try took that the service failed is waiting, too: it is no time of the agent's.
func TestFailedTryIsWaiting(t *testing.T) {
	n := 0
	f := modeltest.Func(func(ctx context.Context, b model.Binding, i int, r *model.Request) (*model.Response, error) {
		if n++; n == 1 {
			return timeout(ctx, b, i, r)
		}
		x := modeltest.Text("hello")
		return &x, nil
	})
	tries, took, waiting, err := call(t, f, retry.Policy{})
	if err != nil || len(tries) != 2 {
		t.Fatal(tries, err)
	}
	if x := tries[0]; x.Waited != x.Latency || x.Latency != 10*time.Minute+time.Second {
		t.Errorf("the try that failed: waited %v, latency %v", x.Waited, x.Latency)
	}
	if x := tries[1]; x.Waited != waiting || took != tries[0].Waited+x.Waited+x.Latency {
		t.Errorf("the other: waited %v (told %v), latency %v, in %v", x.Waited, waiting, x.Latency, took)
	}
}

// The number of a call is its session's, where that counts.
func TestNumbers(t *testing.T) {
	for name, n := range map[string]func() int{"own": nil, "the session's": func() int { return 7 }} {
		t.Run(name, func(t *testing.T) {
			var got []int
			c, err := retry.New(failing().Factory(0),
				retry.Policy{})(model.Binding{N: n, Try: func(x model.Try) { got = append(got, x.N) }})
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

// Above a limiter a refused call waits for Retry-After and no longer.
func TestHeld(t *testing.T) {
	p := retry.Policy{Held: time.Minute}
	tries, took, _, err := call(t, failing(class(model.Rate, 0), class(model.Rate, time.Minute),
		class(model.Rate, 2*time.Minute)), p)
	if err != nil || len(tries) != 4 {
		t.Fatal(tries, err)
	}
	if want := 3*time.Minute + 4*time.Second; took != want { // a second a try
		t.Errorf("took %v, want %v", took, want)
	}
	if _, took, _, _ := call(t, failing(class(model.Network, time.Minute)), p); took < time.Minute {
		t.Errorf("no refusal: took %v", took)
	}
}
