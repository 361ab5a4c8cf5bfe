package harness_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/retry"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
)

// An asks agent calls its model n times and answers "right".
func askTimes(n int) agent.Agent {
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		m, err := s.Model("main")
		for i := 0; err == nil && i < n; i++ {
			_, err = m.Generate(ctx, &model.Request{})
		}
		return agent.Answer{Parts: event.Text("right")}, err
	})
}

// service returns a model whose call n of the run, from 1, is answered by f, with the usual
// policies.
func service(f func(ctx context.Context, n int) (*model.Response, error)) model.Factory {
	n := 0 // the tests use one worker
	l := limit.New(limit.Config{})
	return retry.New(l.Wrap(func(model.Binding) (model.Client, error) {
		return clientFunc(func(ctx context.Context, _ *model.Request) (*model.Response, error) {
			n++
			return f(ctx, n)
		}), nil
	}), retry.Policy{Answered: l.Answered, Held: limit.MaxPause})
}

func failure(class string, status int, after time.Duration) error {
	return &model.Error{Class: class, HTTP: status, After: after, Err: errors.New("says the service")}
}

// The client times out a call that the provider never answers, and retries it. None of that counts
// as the agent's time, even if it takes longer than the agent's limit.
func TestHungCallIsNotTheAgentsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &toy{tasks: 1}, askTimes(3))
		b.cfg.Workers = 1
		b.cfg.Arms[0].Limits.Time = 5 * time.Minute
		b.cfg.Arms[0].Model = service(func(_ context.Context, n int) (*model.Response, error) {
			if n == 2 { // the client's own timeout
				time.Sleep(10 * time.Minute)
				return nil, failure(model.Network, 0, 0)
			}
			time.Sleep(30 * time.Second)
			return &model.Response{}, nil
		})
		b.run(t, t.Context())
		v := b.verdicts(t)["arm0/t0"]
		if v.Status != record.Scored || v.End != record.Answered {
			t.Fatalf("%s %s: %+v", v.Status, v.End, v.Error)
		}
		if w := v.Times; w.Working != 90*time.Second || w.Model != 90*time.Second || w.Backoff < 10*time.Minute ||
			w.Backoff > 10*time.Minute+time.Second {
			t.Errorf("working %v, model %v, back-off %v", w.Working, w.Model, w.Backoff)
		}
	})
}

// The time of a successful model call counts as the agent's. If the limit is reached meanwhile, the
// trial ends when the reply arrives.
func TestSlowAnswerIsTheAgentsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &toy{tasks: 1}, askTimes(3))
		b.cfg.Workers = 1
		b.cfg.Arms[0].Limits.Time = 5 * time.Minute
		b.cfg.Arms[0].Model = service(func(context.Context, int) (*model.Response, error) {
			time.Sleep(4 * time.Minute)
			return &model.Response{}, nil
		})
		b.run(t, t.Context())
		if v := b.verdicts(t)["arm0/t0"]; v.End != record.Limit || v.Limit != agent.LimitTime || v.Turns != 2 ||
			v.Times.Working != 8*time.Minute {
			t.Errorf("%s, limit %q, %d turns, working %v: %+v", v.End, v.Limit, v.Turns, v.Times.Working, v.Error)
		}
	})
}

// A model that cannot be called pauses its arm at the first trial, and no other arm.
func TestPausedAtOnce(t *testing.T) {
	for class, status := range map[string]int{model.Missing: 404, model.Auth: 401, model.Quota: 402} {
		t.Run(class, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &toy{tasks: 20}, askTimes(1), says("right", 1))
				b.cfg.Workers, b.cfg.Retry.Pause = 1, 10
				b.cfg.Arms[0].Model = service(
					func(context.Context, int) (*model.Response, error) { return nil, failure(class, status, 0) })
				sum := b.run(t, t.Context())
				if sum.By[record.Provider] != 1 || sum.By[record.Scored] != 20 || len(sum.Paused) != 1 ||
					sum.Paused[0] != "arm0" {
					t.Errorf("%+v", sum)
				}
			})
		})
	}
}

// If a provider asks to come back in three hours, the trials of its arm stay undecided, and a
// resume runs them.
func TestComeBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &toy{tasks: 20}, askTimes(2))
		b.cfg.Workers, b.cfg.Retry.Pause = 1, 10
		well := false
		calls := 0
		b.cfg.Arms[0].Model = service(func(context.Context, int) (*model.Response, error) {
			if calls++; well || calls == 1 {
				return &model.Response{}, nil
			}
			return nil, failure(model.Rate, 429, 3*time.Hour)
		})
		sum := b.run(t, t.Context())
		if sum.Final != 0 || sum.Retries != 0 || len(sum.Paused) != 1 || calls != 2 {
			t.Errorf("after %d calls: %+v", calls, sum)
		}
		var left harness.Progress
		for _, p := range b.seen {
			if p.Kind == "verdict" {
				left = p
			}
		}
		if v := left.Verdict; v == nil || v.Final || v.Status != record.Provider || !left.Open {
			t.Errorf("told of %+v", left)
		}
		well = true
		if sum := b.run(t, t.Context()); sum.By[record.Scored] != 20 || sum.Reason != "done" {
			t.Errorf("resumed: %+v", sum)
		}
	})
}

// The phase timeout does not end a grader whose model is throttled or loses a call. It does end one
// whose model is slow.
func TestGradersWait(t *testing.T) {
	for _, tt := range []struct {
		name   string
		took   time.Duration
		status record.Status
	}{
		{"throttled", 20 * time.Second, record.Scored},
		{"slow", 45 * time.Second, record.Grader},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var host benchmarks.Host
				tb := &toy{tasks: 1, hosts: func(h benchmarks.Host) { host = h }}
				tb.grade = func(ctx context.Context, _ benchmarks.Evidence,
					_ benchmarks.Episode) (benchmarks.Result, error) {
					m, err := host.Model("grader")
					for i := 0; err == nil && i < 3; i++ {
						_, err = m.Generate(ctx, &model.Request{})
					}
					v := 1.0
					return benchmarks.Result{Scores: []record.Score{{Name: "s", Primary: true, Value: &v}}}, err
				}
				b := newBed(t, tb, says("right", 1))
				b.cfg.Workers, b.cfg.Retry.Attempts, b.cfg.Phases.Grade = 1, 1, 80*time.Second
				b.cfg.Benchmarks[0].Roles = map[string]model.Factory{
					"grader": service(func(_ context.Context, n int) (*model.Response, error) {
						switch n {
						case 1:
							return nil, failure(model.Rate, 429, 4*time.Minute)
						case 2:
							time.Sleep(10 * time.Minute)
							return nil, failure(model.Network, 0, 0)
						}
						time.Sleep(tt.took)
						return &model.Response{}, nil
					})}
				b.run(t, t.Context())
				if v := b.verdicts(t)["arm0/t0"]; v.Status != tt.status {
					t.Errorf("%s: %+v", v.Status, v.Error)
				}
			})
		})
	}
}
