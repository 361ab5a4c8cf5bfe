package harness_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A takes agent needs some time and then answers.
func takes(d time.Duration) agent.Agent {
	return agent.Func(func(ctx context.Context, _ *agent.Session) (agent.Answer, error) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return agent.Answer{}, context.Cause(ctx)
		}
		return agent.Answer{Parts: event.Text("right")}, nil
	})
}

// An asksOnce agent calls its model and answers.
func asksOnce() agent.Agent {
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		m, err := s.Model("main")
		if err == nil {
			_, err = m.Generate(ctx, &model.Request{})
		}
		return agent.Answer{Parts: event.Text("right")}, err
	})
}

// told counts the reports about an arm's trials: started, final verdicts (verdict), canceled.
func (b *bed) told(kind, arm string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.seen {
		if p.Kind == kind && p.Arm.Name == arm && (kind != "verdict" || p.Verdict.Final) {
			n++
		}
	}
	return n
}

// fast runs for a while and returns how many trials of the first arm were decided. set changes the
// bed and may be nil.
func fast(t *testing.T, workers int, whole time.Duration, set func(*bed), agents ...agent.Agent) (n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		bed := newBed(t, &toy{tasks: workers * int(whole/time.Second+1)}, agents...)
		bed.cfg.Workers = workers
		for i := range bed.cfg.Arms {
			bed.cfg.Arms[i].Limits.Time = -1
		}
		if set != nil {
			set(bed)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), whole+time.Second/2, harness.ErrStopped)
		defer cancel()
		bed.run(t, ctx)
		n = bed.told("verdict", "arm0")
	})
	return n
}

// Next to a slow arm, a fast arm gets at least half of what it would get alone.
func TestSlowArm(t *testing.T) {
	alone := fast(t, 16, 3*time.Minute, nil, takes(time.Second))
	beside := fast(t, 16, 3*time.Minute, nil, takes(time.Second), takes(20*time.Minute))
	if alone == 0 || 2*beside < alone {
		t.Errorf("beside a slow arm %d trials were played, alone %d", beside, alone)
	}
}

// Next to slow arms of one account, an arm of another gets at least half of what it would get
// alone.
func TestSlowAccount(t *testing.T) {
	alone := fast(t, 16, 3*time.Minute, nil, takes(time.Second))
	beside := fast(t, 16, 3*time.Minute, func(b *bed) {
		b.accounts = map[string]string{"arm0": "own", "arm1": "slow", "arm2": "slow", "arm3": "slow"}
	}, takes(time.Second), takes(20*time.Minute), takes(20*time.Minute), takes(20*time.Minute))
	if alone == 0 || 2*beside < alone {
		t.Errorf("beside slow arms %d trials were played, alone %d", beside, alone)
	}
}

// Sessions that wait for a provider occupy no worker, and when they continue, other sessions keep
// their share.
func TestThrottledAccount(t *testing.T) {
	alone := fast(t, 16, 3*time.Minute, nil, takes(time.Second))
	for _, after := range []time.Duration{time.Hour, time.Minute} { // time at which the provider answers again
		var alive, most atomic.Int32
		beside := fast(t, 16, 3*time.Minute, func(b *bed) {
			b.accounts = map[string]string{"arm0": "own", "arm1": "throttled"}
			l := limit.New(limit.Config{Start: 1000})
			service := func(model.Binding) (model.Client, error) {
				return clientFunc(func(ctx context.Context, _ *model.Request) (*model.Response, error) {
					select {
					case <-time.After(time.Hour):
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
					return &model.Response{}, nil
				}), nil
			}
			began := time.Now()
			b.cfg.Arms[1].Model = l.Wrap(service)
			wrapped := b.cfg.Arms[1].Model
			b.cfg.Arms[1].Model = func(bind model.Binding) (model.Client, error) {
				c, err := wrapped(bind)
				return clientFunc(func(ctx context.Context, r *model.Request) (*model.Response, error) {
					if d := after - time.Since(began); d > 0 {
						done := bind.Waiting()
						select {
						case <-time.After(d):
						case <-ctx.Done():
						}
						done()
					}
					return c.Generate(ctx, r)
				}), err
			}
			next := b.cfg.Observe
			b.cfg.Observe = func(p harness.Progress) {
				switch p.Kind {
				case "started":
					alive.Add(1)
					most.Store(max(most.Load(), alive.Load()))
				case "verdict", "canceled":
					alive.Add(-1)
				}
				next(p)
			}
		}, takes(time.Second), asksOnce())
		want := alone * 9 / 10
		if after < time.Hour { // one minute with all workers, then with half of them
			want = alone/3 + alone/3*9/10
		}
		if beside < want {
			t.Errorf("the service answers after %v: beside an account that waits %d trials were played, alone %d",
				after, beside, alone)
		}
		if most.Load() > 32 {
			t.Errorf("%d sessions were alive at once", most.Load())
		}
	}
}

// Sessions that wait for their own provider do not cause more sessions of the same kind to start.
func TestThrottledAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bed := newBed(t, &toy{tasks: 100}, asksOnce(), asksOnce())
		bed.cfg.Workers = 8
		bed.cfg.Arms[0].Model = limit.New(limit.Config{Start: 1, Max: 1}).Wrap(
			replies(func(model.Binding, *model.Request) (*model.Response, error) {
				time.Sleep(time.Minute)
				return &model.Response{}, nil
			}))
		bed.cfg.Arms[1].Model = bed.cfg.Arms[0].Model
		go func() {
			time.Sleep(30 * time.Second)
			if n := bed.told("started", "arm0") + bed.told("started", "arm1"); n != 8 {
				t.Errorf("%d sessions were begun for 8 workers", n)
			}
		}()
		if sum := bed.run(t, t.Context()); sum.By[record.Scored] != 200 {
			t.Errorf("%+v", sum)
		}
	})
}

// After a drain no agent starts, and an agent without a reply or an action does not delay the end
// of the run. The others are finished, and a resume runs the rest.
func TestDrainEndsWhatHasNotBegun(t *testing.T) {
	image := func(int) benchmarks.Needs {
		return benchmarks.Needs{Agent: []sandbox.Spec{{Image: sandbox.Image{Ref: "i"}}}}
	}
	for _, c := range []struct {
		wait  string
		needs func(int) benchmarks.Needs
		set   func(*bed)
		begun int32 // agents
	}{
		{"images", image, func(b *bed) {
			b.cfg.Images = &harness.Images{Get: func(ctx context.Context, _ sandbox.Image) (string, error) {
				select {
				case <-time.After(time.Hour):
					return "d", nil
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}}
		}, 0},
		{"machines", image, func(b *bed) {
			b.cfg.Provider = pool.New(pool.Options{Sandboxes: 1}, fake.New(fake.Options{}))
		}, 1},
		{"starts", image, func(b *bed) {
			b.cfg.Provider = pool.New(pool.Options{}, fake.New(fake.Options{SlowCreate: 4 * time.Minute}))
		}, 0},
		{"browsers", func(int) benchmarks.Needs { return benchmarks.Needs{Browser: true} },
			func(b *bed) { b.cfg.Browsers = 1 }, 1},
	} {
		t.Run(c.wait, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var agents atomic.Int32
				slow := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
					agents.Add(1)
					return takes(10*time.Minute).Run(ctx, s)
				})
				toy := &toy{tasks: 40, needs: c.needs}
				if c.wait == "starts" {
					toy.opens = func(h benchmarks.Host) error {
						_, err := h.Sandbox(t.Context(), sandbox.Spec{Image: sandbox.Image{Ref: "i"}})
						return err
					}
				}
				b := newBed(t, toy, slow)
				b.cfg.Workers = 16
				c.set(b)
				drain := make(chan struct{})
				b.cfg.Drain = drain
				time.AfterFunc(time.Minute, func() { close(drain) })
				began := time.Now()
				sum := b.run(t, t.Context())
				if n := agents.Load(); n != c.begun || sum.Final != int(c.begun) || sum.Reason != "drained" {
					t.Errorf("%d agents began, %d before the drain: %+v", n, c.begun, sum)
				}
				if d := time.Since(began); c.begun == 0 && d > 2*time.Minute || d > 11*time.Minute {
					t.Errorf("the run took %v", d)
				}
				b.cfg.Drain, b.cfg.Images, b.cfg.Provider, toy.needs, toy.opens = nil, nil, nil, nil, nil
				if b.run(t, t.Context()); len(b.verdicts(t)) != 40 {
					t.Errorf("%d trials are decided after a resume", len(b.verdicts(t)))
				}
				b.checkLog(t)
			})
		})
	}
}

// A drain interrupts the backoff of a session that has nothing to lose, and lets other sessions
// continue.
func TestDrainInBackoff(t *testing.T) {
	for _, c := range []struct {
		name string
		does func(context.Context, *agent.Session, model.Client) error // before the call that is refused
		want record.Status
	}{
		{"nothing", func(context.Context, *agent.Session, model.Client) error { return nil }, ""},
		{"an action", func(ctx context.Context, s *agent.Session, _ model.Client) error {
			_, err := s.Step(ctx, event.New(event.FromAgent, event.Run{Command: "true"}))
			return err
		}, record.Scored},
		{"a reply", func(ctx context.Context, _ *agent.Session, m model.Client) error {
			_, err := m.Generate(ctx, &model.Request{Choice: "fine"})
			return err
		}, record.Scored},
		{"a call under way", func(ctx context.Context, _ *agent.Session, m model.Client) error {
			go m.Generate(ctx, &model.Request{Choice: "slow"})
			time.Sleep(time.Second)
			return nil
		}, record.Scored},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ag := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
					m, err := s.Model("main")
					if err == nil {
						err = c.does(ctx, s, m)
					}
					if err == nil {
						_, err = m.Generate(ctx, &model.Request{})
					}
					return agent.Answer{Parts: event.Text("right")}, err
				})
				b := newBed(t, &toy{tasks: 1}, ag)
				var calm atomic.Bool
				b.cfg.Arms[0].Model = func(bind model.Binding) (model.Client, error) {
					return clientFunc(func(ctx context.Context, r *model.Request) (*model.Response, error) {
						switch {
						case r.Choice == "slow":
							time.Sleep(10 * time.Minute)
						case r.Choice == "" && !calm.Load():
							defer bind.Waiting()()
							select {
							case <-time.After(time.Hour):
							case <-ctx.Done():
								return nil, fmt.Errorf("waiting to try again: %w", context.Cause(ctx))
							}
						}
						return &model.Response{}, nil
					}), nil
				}
				drain := make(chan struct{})
				b.cfg.Drain = drain
				time.AfterFunc(time.Minute, func() { close(drain) })
				began := time.Now()
				b.run(t, t.Context())
				if v := b.verdicts(t)["arm0/t0"]; v.Status != c.want ||
					(c.want == "") != (time.Since(began) == time.Minute) {
					t.Errorf("after %v: %+v, want %q", time.Since(began), v, c.want)
				}
				calm.Store(true)
				b.cfg.Drain = nil
				b.run(t, t.Context())
				if v := b.verdicts(t)["arm0/t0"]; v.Status != record.Scored {
					t.Errorf("after a resume: %+v", v)
				}
			})
		})
	}
}

// The run's limit on concurrent gradings counts those that use their session's sandboxes, and no
// others.
func TestGradings(t *testing.T) {
	for _, live := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var open, most atomic.Int32
			b := newBed(t, &toy{tasks: 12, live: live,
				grade: func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
					most.Store(max(most.Load(), open.Add(1)))
					time.Sleep(time.Second)
					open.Add(-1)
					return scored(1), nil
				}}, says("right", 0))
			b.cfg.Workers, b.cfg.Graders = 12, 2
			b.run(t, t.Context())
			if want := map[bool]int32{true: 2, false: 12}[live]; most.Load() != want {
				t.Errorf("live %v: %d gradings at once, want %d", live, most.Load(), want)
			}
		})
	}
}
