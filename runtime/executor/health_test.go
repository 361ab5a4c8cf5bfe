package executor

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// checks is a machine whose health checks end as it says, at the times that it notes.
type checks struct {
	begun time.Time
	at    []time.Duration
	cmds  []sandbox.Command
	run   func(n int, c sandbox.Command) (sandbox.Exit, error)
}

func (c *checks) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	c.at = append(c.at, time.Since(c.begun))
	c.cmds = append(c.cmds, cmd)
	return c.run(len(c.at), cmd)
}

func secs(ns ...int) (ds []time.Duration) {
	for _, n := range ns {
		ds = append(ds, time.Duration(n)*time.Second)
	}
	return ds
}

func TestWaitHealthy(t *testing.T) {
	fail := func(int, sandbox.Command) (sandbox.Exit, error) { return sandbox.Exit{Code: 1}, nil }
	from := func(first int) func(int, sandbox.Command) (sandbox.Exit, error) {
		return func(n int, c sandbox.Command) (sandbox.Exit, error) {
			if n >= first {
				return sandbox.Exit{}, nil
			}
			io.WriteString(c.Stdout, "no luck\nstill none")
			return sandbox.Exit{Code: 7}, nil
		}
	}
	test := []string{"CMD", "true"}
	s := time.Second
	for _, tt := range []struct {
		name string
		h    sandbox.Health
		run  func(int, sandbox.Command) (sandbox.Exit, error)
		at   []time.Duration
		end  time.Duration
		err  string // "": healthy
	}{
		{"at once", sandbox.Health{Test: test}, from(1), secs(0), 0, ""},
		{"what engines do", sandbox.Health{Test: test}, fail, secs(0, 30, 60), 60 * s,
			"not healthy after 3 checks (true): the check ended with code 1"},
		{"the second", sandbox.Health{Test: test, Interval: 5 * s}, from(2), secs(0, 5), 5 * s, ""},
		{"one try", sandbox.Health{Test: test, Retries: 1}, from(2), secs(0), 0,
			"not healthy after 1 check (true): the check ended with code 7: still none"},
		{"a start period that helps", sandbox.Health{Test: test, Interval: 60 * s, StartPeriod: 10 * s,
			StartInterval: 2 * s, Retries: 1}, from(5), secs(0, 2, 4, 6, 8), 8 * s, ""},
		{"a start period that does not",
			sandbox.Health{Test: test, Interval: 60 * s, StartPeriod: 5 * s, StartInterval: 2 * s, Retries: 2}, fail,
			secs(0, 2, 4, 6, 66), 66 * s, "not healthy after 5 checks"},
		{"start interval by default", sandbox.Health{Test: test, StartPeriod: 12 * s, Retries: 1}, fail,
			secs(0, 5, 10, 15), 15 * s, "not healthy after 4 checks"},
		{"a check that takes long", sandbox.Health{Test: test, Interval: 5 * s, Timeout: 2 * s, Retries: 2},
			func(_ int, c sandbox.Command) (sandbox.Exit, error) {
				time.Sleep(c.Timeout)
				return sandbox.Exit{Code: -1, TimedOut: true}, nil
			}, secs(0, 7), 9 * s, "the check took longer than 2s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &checks{begun: time.Now(), run: tt.run}
				err := WaitHealthy(t.Context(), c, tt.h, nil)
				if end := time.Since(c.begun); end != tt.end || !reflect.DeepEqual(c.at, tt.at) {
					t.Errorf("checked at %v and ended at %v, want %v and %v", c.at, end, tt.at, tt.end)
				}
				if tt.err == "" && err != nil || tt.err != "" &&
					(err == nil || !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				if u := (*Unhealthy)(nil); err != nil && !errors.As(err, &u) {
					t.Errorf("error %T", err)
				}
			})
		})
	}
}

func TestWaitHealthyEnds(t *testing.T) {
	fail := func(int, sandbox.Command) (sandbox.Exit, error) { return sandbox.Exit{Code: 1}, nil }
	h := sandbox.Health{Test: []string{"CMD", "true"}, Interval: time.Hour}
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
		defer cancel()
		if err := WaitHealthy(ctx, &checks{run: fail}, h, nil); !errors.Is(err, cause) {
			t.Errorf("an ended context: %v", err)
		}
		hangs := &checks{run: func(int, sandbox.Command) (sandbox.Exit, error) {
			<-ctx.Done()
			return sandbox.Exit{}, ctx.Err()
		}}
		if err := WaitHealthy(ctx, hangs, h, nil); !errors.Is(err, cause) ||
			!strings.Contains(err.Error(), "not healthy after 1 check (true): the check had not ended") {
			t.Errorf("an ended context while a check hangs: %v", err)
		}
		ended := make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(ended) })
		begun := time.Now()
		var u *Unhealthy
		if err := WaitHealthy(t.Context(), &checks{run: fail}, h, ended); !errors.As(err, &u) ||
			time.Since(begun) != time.Minute {
			t.Errorf("what is checked has ended: %v after %v", err, time.Since(begun))
		}
		broken := &sandbox.Error{Op: "exec", Err: sandbox.ErrGone}
		err := WaitHealthy(t.Context(), &checks{
			run: func(int, sandbox.Command) (sandbox.Exit, error) { return sandbox.Exit{}, broken }}, h, nil)
		if !errors.Is(err, sandbox.ErrGone) || errors.As(err, &u) && u.Tries == 0 {
			t.Errorf("a machine that is gone: %v", err)
		}
	})
}

func TestHealthForms(t *testing.T) {
	for _, tt := range []struct{ test, args []string }{
		{nil, nil},
		{[]string{"NONE"}, nil},
		{[]string{"CMD"}, nil},
		{[]string{"CMD", "curl", "-f", "localhost"}, []string{"curl", "-f", "localhost"}},
		{[]string{"CMD-SHELL", "curl -f localhost || exit 1"},
			[]string{"/bin/sh", "-c", "curl -f localhost || exit 1"}},
		{[]string{"/bin/check", "NONE"}, []string{"/bin/check", "NONE"}},
	} {
		if got := healthArgs(tt.test); !reflect.DeepEqual(got, tt.args) {
			t.Errorf("%q is %q, want %q", tt.test, got, tt.args)
		}
	}
	c, _ := boot(t).first(Config{})
	var u *Unhealthy
	err := WaitHealthy(t.Context(), c, sandbox.Health{Test: []string{"CMD-SHELL", "echo why >&2; exit 3"}, Retries: 1},
		nil)
	if !errors.As(err, &u) || u.Output != "why\n" || !strings.Contains(err.Error(), "code 3: why") {
		t.Errorf("%v, %+v", err, u)
	}
	if err := WaitHealthy(t.Context(), c, sandbox.Health{Test: []string{"CMD", "true"}}, nil); err != nil {
		t.Error(err)
	}
}
