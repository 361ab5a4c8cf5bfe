package launch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/retry"
)

// The reason why a provider keeps callers waiting is reported meanwhile, and each failed try and
// each retry is logged.
func TestServiceState(t *testing.T) {
	rate := &model.Error{Class: model.Rate, HTTP: 429, Err: errors.New("slow down")}
	broken := &model.Error{Class: model.Network, Err: errors.New("connection refused")}
	for name, tt := range map[string]struct {
		cfg   limit.Config
		calls int
		f     func(n int) error // reply to call n, from 1; nil means answered after a minute
		after time.Duration
		want  string
	}{
		"nothing": {limit.Config{}, 3, nil, time.Second, ""},
		"silent": {limit.Config{}, 3, func(int) error { time.Sleep(time.Hour); return nil }, 3 * time.Minute,
			"openai/m has not answered for 3m0s (3 calls out)"},
		"connections": {limit.Config{Start: 2, Max: 2}, 5, nil, time.Second,
			"openai/m: 3 calls wait for one of 2 connections"},
		"per minute": {limit.Config{Requests: 1}, 3, nil, time.Second, "openai/m: 1 call waits (per_minute)"},
		"refused": {limit.Config{}, 1, func(int) error { return rate }, 20 * time.Second,
			"openai/m throttles: 1 call waits (rate, HTTP 429, slowed to "},
		"asked for": {limit.Config{}, 2, func(int) error {
			return &model.Error{Class: model.Overload, HTTP: 503, After: 50 * time.Second, Err: errors.New("later")}
		}, time.Second, "openai/m throttles: 2 calls wait (overload, HTTP 503, until UNTIL as it asked)"},
		"unreachable": {limit.Config{}, 4, func(int) error { return broken }, 20 * time.Second,
			"openai/m fails: 4 calls wait (network)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				var mu sync.Mutex
				n := 0
				want := strings.ReplaceAll(tt.want, "UNTIL", time.Now().Add(50*time.Second).Format("15:04:05"))
				v := &service{name: "openai/m", limiter: limit.New(tt.cfg)}
				f := modeltest.Func(func(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
					mu.Lock()
					n++
					i := n
					mu.Unlock()
					if tt.f != nil {
						if err := tt.f(i); err != nil {
							return nil, err
						}
					}
					time.Sleep(time.Minute)
					r := modeltest.Text("hello")
					return &r, nil
				})
				made := v.watch(retry.New(v.limiter.Wrap(f.Factory(0)),
					retry.Policy{Answered: v.limiter.Answered, First: time.Minute, Held: limit.MaxPause}),
					slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range tt.calls {
					c, err := made(model.Binding{Trial: "abc", Role: "main"})
					if err != nil {
						t.Fatal(err)
					}
					all.Go(func() { _, _ = c.Generate(ctx, &model.Request{}) })
				}
				time.Sleep(tt.after)
				synctest.Wait()
				got := v.state()
				if want == "" && got != "" || !strings.HasPrefix(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
				cancel()
				all.Wait()
				if got := v.state(); got != "" {
					t.Errorf("afterwards: %q", got)
				}
				if fails := tt.f != nil && name != "silent"; fails &&
					!strings.Contains(log.String(), "trial=abc role=main call=0 try=1 ") || name == "nothing" &&
					strings.Contains(log.String(), "try=2") {
					t.Errorf("log: %s", log.String())
				}
			})
		})
	}
}
