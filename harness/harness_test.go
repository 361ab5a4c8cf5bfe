package harness_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestScored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gaveUp := agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) {
			return agent.Answer{GaveUp: "too hard"}, nil
		})
		b := newBed(t, &toy{tasks: 10}, says("right", 3), says("wrong", 0), gaveUp)
		sum := b.run(t, t.Context())
		if sum.Reason != "done" || sum.Final != 30 || sum.By[record.Scored] != 30 {
			t.Fatalf("summary %+v", sum)
		}
		got := b.verdicts(t)
		for i := range 10 {
			right, wrong, gave := got[fmt.Sprintf("arm0/t%d", i)], got[fmt.Sprintf("arm1/t%d", i)],
				got[fmt.Sprintf("arm2/t%d", i)]
			if *right.Reward != 1 || right.End != record.Answered || right.Steps != 3 || right.Answer != "right" {
				t.Errorf("right: %+v", right)
			}
			if *wrong.Reward != 0 || wrong.End != record.Answered {
				t.Errorf("wrong: %+v", wrong)
			}
			if gave.End != record.GaveUp || *gave.Reward != 0 {
				t.Errorf("gave up: %+v", gave)
			}
		}
		b.checkLog(t)
	})
}

func TestInfraIsRetriedAndNeverScored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		b := newBed(t, &toy{tasks: 4, open: func() error {
			if n.Add(1) <= 4 {
				return &sandbox.Error{Op: "create", Err: errors.New("no room")}
			}
			return nil
		}}, says("right", 0))
		b.cfg.Workers = 1
		sum := b.run(t, t.Context())
		if sum.By[record.Scored] != 4 || sum.Retries != 4 || sum.Attempts != 8 {
			t.Fatalf("summary %+v", sum)
		}
	})
}

func TestRetriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &toy{tasks: 5, open: func() error {
			return &sandbox.Error{Op: "create", Err: errors.New("never")}
		}}, says("right", 0), says("right", 1))
		b.cfg.Retry = harness.Retry{Attempts: 3, Budget: 4, Delay: time.Minute}
		sum := b.run(t, t.Context())
		if sum.By[record.Infra] != 10 || sum.Retries != 4 || sum.Attempts != 14 {
			t.Fatalf("summary %+v", sum)
		}
		for k, v := range b.verdicts(t) {
			if v.Reward != nil || v.Error == nil || v.Error.Phase != "start" || v.Error.Class != "sandbox" {
				t.Errorf("%s: %+v", k, v)
			}
		}
	})
}

// A request by a task that nobody can fulfil is the task's fault and is not retried.
func TestAskedIsTheTasksFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &toy{tasks: 3, open: func() error {
			return &sandbox.Error{Op: "create", Err: errors.New("never healthy"), BadRequest: true, Permanent: true}
		}}, says("right", 0))
		b.cfg.Retry = harness.Retry{Attempts: 3, Budget: 9, Delay: time.Minute, Pause: 1}
		sum := b.run(t, t.Context())
		if sum.By[record.Infra] != 3 || sum.Attempts != 3 || len(sum.Paused) > 0 {
			t.Fatalf("summary %+v", sum)
		}
		for k, v := range b.verdicts(t) {
			if v.Error == nil || v.Error.Phase != "start" || v.Error.Class != "task" {
				t.Errorf("%s: %+v", k, v)
			}
		}
	})
}

func TestArmIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := replies(func(model.Binding, *model.Request) (*model.Response, error) {
			return nil, &model.Error{Class: model.Network, Err: errors.New("nobody answers")}
		})
		ask := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
			m, err := s.Model("main")
			if err != nil {
				return agent.Answer{}, err
			}
			_, err = m.Generate(ctx, &model.Request{})
			if err != nil {
				return agent.Answer{Parts: event.Text("right")}, nil // swallows it
			}
			return agent.Answer{}, nil
		})
		b := newBed(t, &toy{tasks: 50}, ask, says("right", 0))
		b.cfg.Workers = 1
		b.cfg.Arms[0].Model = broken
		b.cfg.Retry = harness.Retry{Attempts: 1, Pause: 3, Budget: 10}
		sum := b.run(t, t.Context())
		if sum.By[record.Provider] != 3 || sum.By[record.Scored] != 50 || len(sum.Paused) != 1 {
			t.Fatalf("summary %+v", sum)
		}
	})
}

func TestWhoseFault(t *testing.T) {
	fail := func(err error) agent.Agent {
		return agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) { return agent.Answer{}, err })
	}
	ask := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		m, err := s.Model("main")
		if err == nil {
			_, err = m.Generate(ctx, &model.Request{})
		}
		return agent.Answer{}, err
	})
	score := func(vs ...float64) func(context.Context, benchmarks.Evidence,
		benchmarks.Episode) (benchmarks.Result, error) {
		return func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
			var r benchmarks.Result
			for _, v := range vs {
				r.Scores = append(r.Scores, record.Score{Name: "s", Primary: true, Value: &v})
			}
			return r, nil
		}
	}
	modelErr := func(class string) model.Factory {
		return replies(func(model.Binding, *model.Request) (*model.Response, error) {
			return nil, &model.Error{Class: class, Err: errors.New(class)}
		})
	}
	for _, c := range []struct {
		name   string
		toy    *toy
		agent  agent.Agent
		model  model.Factory
		limits harness.Limits
		status record.Status
		end    record.End
		class  string
	}{
		{name: "own error", agent: fail(errors.New("oops")), status: record.Scored, end: record.Broke, class: "broke"},
		{name: "panic", agent: agent.Func(
			func(context.Context, *agent.Session) (agent.Answer, error) { panic("boom") }), status: record.Scored,
			end: record.Broke, class: "broke"},
		{name: "step panics", toy: &toy{
			step: func(context.Context, event.Event) (benchmarks.Turn, error) { panic("boom") }},
			agent: says("right", 1), status: record.Infra, class: "internal"},
		{name: "step fails", toy: &toy{step: func(context.Context, event.Event) (benchmarks.Turn, error) {
			return benchmarks.Turn{}, &sandbox.Error{Op: "exec", Err: sandbox.ErrGone}
		}}, agent: says("right", 1), status: record.Infra, class: "sandbox"},
		{name: "open panics", toy: &toy{open: func() error { panic("boom") }}, agent: says("right", 1),
			status: record.Infra, class: "internal"},
		{name: "needs panics", toy: &toy{needs: func(int) benchmarks.Needs { panic("boom") }}, agent: says("right", 1),
			status: record.Infra, class: "internal"},
		{name: "unsupported", toy: &toy{
			open: func() error { return &sandbox.Unsupported{Driver: "toy", What: "flying"} }}, agent: says("right", 1),
			status: record.Skipped, class: "unsupported"},
		{name: "steps", limits: harness.Limits{Steps: 2}, agent: says("right", 5), status: record.Scored,
			end: record.Limit},
		{name: "time", limits: harness.Limits{Time: time.Minute},
			agent: agent.Func(func(ctx context.Context, _ *agent.Session) (agent.Answer, error) {
				<-ctx.Done()
				return agent.Answer{}, ctx.Err()
			}), status: record.Scored, end: record.Limit},
		{name: "NaN", toy: &toy{grade: score(math.NaN())}, agent: says("right", 0), status: record.Grader,
			class: "internal"},
		{name: "two rewards", toy: &toy{grade: score(1, 1)}, agent: says("right", 0), status: record.Grader,
			class: "internal"},
		{name: "no reward", toy: &toy{grade: score()}, agent: says("right", 0), status: record.Grader,
			class: "internal"},
		{name: "grader fails", toy: &toy{
			grade: func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
				return benchmarks.Result{}, &sandbox.Error{Op: "exec", Err: sandbox.ErrGone}
			}}, agent: says("right", 0), status: record.Grader, class: "sandbox"},
		{name: "grader hangs", toy: &toy{
			grade: func(ctx context.Context, _ benchmarks.Evidence, _ benchmarks.Episode) (benchmarks.Result, error) {
				<-ctx.Done()
				return benchmarks.Result{}, ctx.Err()
			}}, agent: says("right", 0), status: record.Grader, class: "timeout"},
		{name: "rate", agent: ask, model: modelErr(model.Rate), status: record.Provider, class: model.Rate},
		{name: "auth", agent: ask, model: modelErr(model.Auth), status: record.Provider, class: model.Auth},
		{name: "context", agent: ask, model: modelErr(model.Context), status: record.Scored, end: record.Broke,
			class: "broke"},
		{name: "refused", agent: ask, model: modelErr(model.Refused), status: record.Scored, end: record.Broke,
			class: "broke"},
		{name: "malformed", agent: ask, model: modelErr(model.Invalid), status: record.Infra, class: model.Invalid},
		{name: "no model", agent: ask, status: record.Scored, end: record.Broke, class: "broke"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.toy == nil {
					c.toy = &toy{}
				}
				c.toy.tasks = 1
				b := newBed(t, c.toy, c.agent)
				b.cfg.Arms[0].Model, b.cfg.Arms[0].Limits = c.model, c.limits
				b.cfg.Retry.Attempts = 2
				b.run(t, t.Context())
				v := b.verdicts(t)["arm0/t0"]
				if v.Status != c.status || v.End != c.end {
					t.Fatalf("status %s, end %q, error %+v; want %s, %q", v.Status, v.End, v.Error, c.status, c.end)
				}
				if (v.Reward != nil) != (c.status == record.Scored) {
					t.Errorf("reward %v with status %s", v.Reward, v.Status)
				}
				class := ""
				if v.Error != nil {
					class = v.Error.Class
				}
				if class != c.class {
					t.Errorf("class %q (%+v), want %q", class, v.Error, c.class)
				}
				b.checkLog(t)
			})
		})
	}
}

func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stubborn := agent.Func(func(_ context.Context, s *agent.Session) (agent.Answer, error) {
			<-release
			// A call that comes after the end of the session is refused everywhere.
			if _, err := s.Step(context.Background(),
				event.New(event.FromAgent, event.Run{Command: "true"})); err == nil {
				panic("a step after the end")
			}
			return agent.Answer{Parts: event.Text("right")}, nil
		})
		b := newBed(t, &toy{tasks: 1}, stubborn)
		b.cfg.Arms[0].Limits.Time = time.Minute
		sum := b.run(t, t.Context())
		v := b.verdicts(t)["arm0/t0"]
		if !v.Abandoned || sum.Abandoned != 1 || v.End != record.Limit || v.Limit != agent.LimitTime || *v.Reward != 0 {
			t.Fatalf("%+v", v)
		}
		close(release)
		synctest.Wait()
		b.checkLog(t)
	})
}

func TestActionWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		b := newBed(t, &toy{tasks: 1, step: func(context.Context, event.Event) (benchmarks.Turn, error) {
			<-hang
			return benchmarks.Turn{Obs: event.RunResult{}}, nil
		}}, says("right", 1))
		b.cfg.Phases.Command = time.Minute
		b.cfg.Retry.Attempts = 1
		b.run(t, t.Context())
		if v := b.verdicts(t)["arm0/t0"]; v.Status != record.Infra || v.Error.Class != "timeout" {
			t.Fatalf("%+v %+v", v, v.Error)
		}
		b.checkLog(t)
		close(hang)
		synctest.Wait()
	})
}

// A benchmark whose Needs never returns does not block a worker.
func TestNeedsWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		b := newBed(t, &toy{tasks: 2, needs: func(i int) benchmarks.Needs {
			if i == 0 {
				<-hang
			}
			return benchmarks.Needs{}
		}}, says("right", 1))
		b.cfg.Workers, b.cfg.Retry.Attempts = 1, 1
		b.run(t, t.Context())
		if v := b.verdicts(t)["arm0/t0"]; v.Status != record.Infra || v.Error.Class != "timeout" ||
			v.Error.Phase != "setup" {
			t.Errorf("%+v %+v", v, v.Error)
		}
		if v := b.verdicts(t)["arm0/t1"]; v.Status != record.Scored {
			t.Errorf("%+v %+v", v, v.Error)
		}
		close(hang)
		synctest.Wait()
	})
}

func TestBackoffIsNotTheAgentsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
			m, err := s.Model("main")
			if err == nil {
				_, err = m.Generate(ctx, &model.Request{})
			}
			return agent.Answer{Parts: event.Text("right")}, err
		})
		b := newBed(t, &toy{tasks: 1}, ask)
		b.cfg.Arms[0].Limits.Time = time.Minute
		b.cfg.Arms[0].Model = replies(func(b model.Binding, _ *model.Request) (*model.Response, error) {
			done := b.Waiting()
			time.Sleep(time.Hour)
			done()
			time.Sleep(30 * time.Second)
			return &model.Response{}, nil
		})
		b.run(t, t.Context())
		v := b.verdicts(t)["arm0/t0"]
		if v.End != record.Answered || v.Times.Working != 30*time.Second || v.Times.Agent < time.Hour {
			t.Fatalf("%+v", v)
		}
	})
}

func TestStopAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paid atomic.Int64
		talk := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
			m, err := s.Model("main")
			if err != nil {
				return agent.Answer{}, err
			}
			var msgs []model.Message
			for i := range 10 {
				r, err := m.Generate(ctx, &model.Request{Messages: msgs})
				if err != nil {
					return agent.Answer{}, err
				}
				msgs = append(msgs, model.Message{Role: model.Assistant, Parts: r.Parts})
				if _, err := s.Step(ctx, event.New(event.FromAgent, event.Run{Command: fmt.Sprint(i)})); err != nil {
					return agent.Answer{}, err
				}
			}
			return agent.Answer{Parts: event.Text("right")}, nil
		})
		one := 1.0
		b := newBed(t, &toy{tasks: 6, step: func(ctx context.Context, _ event.Event) (benchmarks.Turn, error) {
			select {
			case <-time.After(time.Second):
				return benchmarks.Turn{Obs: event.RunResult{}}, nil
			case <-ctx.Done():
				return benchmarks.Turn{}, ctx.Err()
			}
		}}, talk)
		b.cfg.Workers = 3
		b.cfg.Arms[0].Model = replies(func(_ model.Binding, req *model.Request) (*model.Response, error) {
			paid.Add(1)
			return &model.Response{Parts: event.Text(fmt.Sprint("reply ", len(req.Messages))),
				Usage: event.Usage{In: 1, Cost: &one}}, nil
		})
		// Interrupt the run again and again, a little later each time, until it is finished.
		runs := 0
		for stop := 2500 * time.Millisecond; ; stop += 2 * time.Second {
			ctx, cancel := context.WithTimeoutCause(t.Context(), stop, harness.ErrStopped)
			sum := b.run(t, ctx)
			cancel()
			runs++
			if sum.Reason == "done" {
				break
			}
			if sum.Reason != "stopped" || runs > 20 {
				t.Fatalf("%+v", sum)
			}
		}
		got := b.verdicts(t)
		for i := range 6 {
			v := got[fmt.Sprintf("arm0/t%d", i)]
			if v.Reward == nil || *v.Reward != 1 || v.Turns != 10 {
				t.Errorf("t%d: %+v", i, v)
			}
		}
		if n := paid.Load(); n != 60 {
			t.Errorf("%d calls were paid for, want 60: none is in flight when the steps are cut off", n)
		}
		if runs < 3 {
			t.Errorf("only %d runs: the test cut off too little", runs)
		}
		b.checkLog(t)
	})
}

func TestStopDuringGradingKeepsTheEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := true
		tb := &toy{tasks: 2}
		tb.grade = func(ctx context.Context, ev benchmarks.Evidence, _ benchmarks.Episode) (benchmarks.Result, error) {
			if slow {
				<-ctx.Done()
				return benchmarks.Result{}, ctx.Err()
			}
			v := 1.0
			return benchmarks.Result{Scores: []record.Score{{Name: "s", Primary: true, Value: &v}}}, nil
		}
		b := newBed(t, tb, says("right", 1))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, harness.ErrStopped)
		defer cancel()
		b.run(t, ctx)
		slow = false
		b.run(t, t.Context())
		for i := range 2 {
			if v := b.verdicts(t)[fmt.Sprintf("arm0/t%d", i)]; v.Reward == nil || *v.Reward != 1 ||
				v.Answer != "right" {
				t.Errorf("%+v", v)
			}
			if n := tb.opened[fmt.Sprintf("t%d", i)]; n != 1 {
				t.Errorf("t%d was played %d times", i, n)
			}
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drain := make(chan struct{})
		b := newBed(t, &toy{tasks: 10}, agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) {
			time.Sleep(time.Minute)
			return agent.Answer{}, nil
		}))
		b.cfg.Workers, b.cfg.Drain = 2, drain
		time.AfterFunc(90*time.Second, func() { close(drain) })
		sum := b.run(t, t.Context())
		if sum.Reason != "drained" || sum.Final != 4 {
			t.Fatalf("%+v", sum)
		}
	})
}

func TestBudgetAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := 1.0
		ask := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
			m, err := s.Model("main")
			if err == nil {
				_, err = m.Generate(ctx, &model.Request{})
			}
			return agent.Answer{}, err
		})
		b := newBed(t, &toy{tasks: 10}, ask)
		b.cfg.Workers = 1
		b.cfg.Whole.Cost = 3
		b.cfg.Arms[0].Model = replies(func(model.Binding, *model.Request) (*model.Response, error) {
			return &model.Response{Usage: event.Usage{In: 10, Out: 5, Cost: &cost}}, nil
		})
		if sum := b.run(t, t.Context()); sum.Reason != "budget" || sum.Final != 3 || sum.Cost != 3 || sum.Tokens != 45 {
			t.Fatalf("%+v", sum)
		}
		b = newBed(t, &toy{tasks: 10}, agent.Func(func(ctx context.Context, _ *agent.Session) (agent.Answer, error) {
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}
			return agent.Answer{}, ctx.Err()
		}))
		b.cfg.Workers = 1
		b.cfg.Whole.Deadline = time.Now().Add(150 * time.Second)
		if sum := b.run(t, t.Context()); sum.Reason != "deadline" || sum.Final != 2 {
			t.Fatalf("%+v", sum)
		}
	})
}

func TestSecretsAreMasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = `sk-very"secret\value`
		b := newBed(t, &toy{tasks: 1, step: func(context.Context, event.Event) (benchmarks.Turn, error) {
			return benchmarks.Turn{Obs: event.RunResult{Output: "the key is " + key}}, nil
		}}, agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
			obs, err := s.Step(ctx, event.New(event.FromAgent, event.Run{Command: "echo " + key}))
			if err != nil {
				return agent.Answer{}, err
			}
			if out := obs.Body.(event.RunResult).Output; out != "the key is "+harness.Masked {
				panic(out)
			}
			return agent.Answer{Parts: event.Text(key)}, errors.New("failed with " + key)
		}))
		b.cfg.Mask = harness.NewMasker(key)
		b.run(t, t.Context())
		for _, e := range b.j.Entries() {
			if strings.Contains(string(e.Data), "very") {
				t.Errorf("%s: %s", e.Kind, e.Data)
			}
		}
	})
}

func TestStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		ag := agent.Func(func(_ context.Context, s *agent.Session) (agent.Answer, error) {
			n++
			if n == 2 {
				return agent.Answer{Parts: event.Text("wrong")}, nil
			}
			return agent.Answer{Parts: event.Text("right")}, nil
		})
		for _, live := range []bool{true, false} {
			n = 0
			b := newBed(t, &toy{tasks: 1, stages: 3, live: live}, ag)
			b.run(t, t.Context())
			v := b.verdicts(t)["arm0/t0"]
			if v.Stages != 3 || v.Reward == nil || math.Abs(*v.Reward-2.0/3) > 1e-9 || len(v.Scores) != 4 {
				t.Errorf("live %v: %+v", live, v)
			}
		}
	})
}

func TestEveryObservationIsUnique(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &toy{tasks: 1}, agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
			obs, err := s.Step(ctx, event.New(event.FromAgent, event.Run{Command: "true"}))
			if err != nil {
				return agent.Answer{}, err
			}
			twice := event.New(event.FromEnvironment, event.RunResult{})
			twice.Cause = obs.Cause
			if _, err := s.Log.Append(ctx, twice); !errors.Is(err, event.ErrAnswered) {
				t.Errorf("a second observation: %v", err)
			}
			twice.Cause = 99
			if _, err := s.Log.Append(ctx, twice); !errors.Is(err, event.ErrNoAction) {
				t.Errorf("an observation of nothing: %v", err)
			}
			for _, a := range []event.Body{event.Think{Thought: "hm"}, event.Finish{},
				event.Invalid{Name: "x", Why: "no"}, event.ToolCall{Name: "no_such"},
				event.Unknown{K: "edit", C: event.Action, Raw: []byte("{}")}} {
				if _, err := s.Step(ctx, event.New(event.FromAgent, a)); err != nil {
					t.Errorf("%s: %v", a.Kind(), err)
				}
			}
			var got []string
			for e, err := range s.Log.Events(0) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e.Body.Class().String()+" "+e.Body.Kind())
			}
			want := "action run,observation run,action think,observation think,action finish,observation finish,action invalid,observation error,action tool,observation error,action edit,observation error"
			if s := strings.Join(got, ","); s != want {
				t.Errorf("log: %s", s)
			}
			return agent.Answer{Parts: event.Text("right")}, nil
		}))
		b.run(t, t.Context())
		if v := b.verdicts(t)["arm0/t0"]; v.BadCalls != 2 || *v.Reward != 1 {
			t.Errorf("%+v %+v", v, v.Error)
		}
		b.checkLog(t)
	})
}
