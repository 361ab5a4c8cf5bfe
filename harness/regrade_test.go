package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// regrade regrades all decided trials of a bed.
func (b *bed) regrade(t *testing.T, o harness.Regrading) map[string]harness.Regraded {
	t.Helper()
	past, grades, own := b.past(), b.grades(t), b.own(t)
	jobs := func(yield func(harness.Claimed) bool) {
		for j := range plan.Jobs(b.plan, nil, nil) {
			p := past[j.Trial]
			if !p.Decided {
				continue
			}
			j.Evidence, j.Attempt, j.Fence = p.Evidence, p.Attempts, p.Fence
			if !yield(harness.Claimed{Job: j, Grade: *grades[j.Trial], Own: *own[j.Trial]}) {
				return
			}
		}
	}
	out := map[string]harness.Regraded{}
	if _, err := harness.Regrade(t.Context(), b.cfg, o, jobs, b.j,
		func(r harness.Regraded) { out[b.plan.Arms[r.Job.Arm].Name+"/"+r.Job.Task.ID] = r }); err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *bed) amends(t *testing.T) (out []record.Amend) {
	t.Helper()
	for _, e := range b.j.Entries() {
		if e.Kind == record.KindAmend {
			var a record.Amend
			if err := json.Unmarshal(e.Data, &a); err != nil {
				t.Fatal(err)
			}
			out = append(out, a)
		}
	}
	return out
}

func TestRegrade(t *testing.T) {
	b := newBed(t, &toy{tasks: 4}, says("right", 1), says("wrong", 1))
	b.run(t, t.Context())
	before := len(b.j.Entries())
	tries := 0
	b.toy.grade = func(_ context.Context, ev benchmarks.Evidence, live benchmarks.Episode) (benchmarks.Result, error) {
		if live != nil {
			t.Error("a live session")
		}
		v := 0.5
		return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}},
			Tests: []record.Test{{Name: "a", Status: "passed"}}, Flags: []string{"odd"}}, nil
	}
	got := b.regrade(t, harness.Regrading{Why: "again"})
	as := b.amends(t)
	if len(got) != 8 || len(as) != 8 || len(b.j.Entries()) != before+8 {
		t.Fatalf("%d graded again, %d amendments, %d entries more", len(got), len(as), len(b.j.Entries())-before)
	}
	if a := as[0]; a.Why != "again" || *a.Reward != 0.5 || a.Status != record.Scored || a.End != record.Answered ||
		len(a.Results) != 1 || len(a.Results[0].Tests) != 1 || a.Flags[0] != "odd" || a.Task != "" {
		t.Errorf("%+v", a)
	}

	// A failed regrading leaves the old grade, a temporary failure is retried, and a grading that
	// needs the session reports so.
	b.cfg.Workers = 1
	b.toy.grade = func(_ context.Context, ev benchmarks.Evidence, _ benchmarks.Episode) (benchmarks.Result, error) {
		tries++
		v := 1.0
		switch {
		case ev.Answer.Text() == "wrong":
			return benchmarks.Result{}, benchmarks.ErrNeedsLive
		case tries == 1:
			return benchmarks.Result{}, &sandbox.Error{Op: "exec", Err: errors.New("it fell over")}
		case tries == 3 || tries > 7:
			return benchmarks.Result{}, errors.New("the grader is confused")
		}
		return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}, nil
	}
	var scored, live, failed int
	for _, r := range b.regrade(t, harness.Regrading{Why: "third"}) {
		switch {
		case r.Live:
			live++
		case r.Verdict.Status == record.Scored:
			scored++
		default:
			failed++
			if r.Verdict.Status != record.Grader {
				t.Errorf("%+v", r.Verdict)
			}
		}
	}
	if live != 4 || scored+failed != 4 || scored == 0 || len(b.amends(t)) != 8+scored {
		t.Errorf("%d live, %d scored, %d failed, %d amendments", live, scored, failed, len(b.amends(t)))
	}
	b.checkLog(t)
}

// Where the machine is gone, the work is graded in a fresh one if the benchmark can.
func TestRegradeWork(t *testing.T) {
	b := newBed(t, &toy{tasks: 2}, says("right", 0))
	calls, now, lost := 0, 0.5, benchmarks.ErrNeedsLive
	b.cfg.Benchmarks[0].Benchmark = doubted{b.toy, nil, func(c benchmarks.Claim) ([]benchmarks.Result, error) {
		calls++
		if c.Reward != 1 || c.Flags[0] != "odd" || c.Task == "" || len(c.Evidence) != 1 || c.Evidence[0].Answer.Text() != "right" {
			t.Errorf("%+v", c)
		}
		if now < 0 {
			return nil, fmt.Errorf("%w, and so on", lost)
		}
		return []benchmarks.Result{{Scores: []record.Score{{Name: "toy", Primary: true, Value: &now}},
			Flags: []string{benchmarks.FlagFromWork}, Confirmation: &record.Confirmation{State: record.Confirmed}}}, nil
	}}
	b.toy.grade = func(_ context.Context, _ benchmarks.Evidence, _ benchmarks.Episode) (benchmarks.Result, error) {
		one := 1.0
		return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &one}},
			Flags: []string{"odd"}}, nil
	}
	b.run(t, t.Context())
	b.toy.grade = func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
		return benchmarks.Result{}, benchmarks.ErrNeedsLive
	}
	b.cfg.Workers = 1
	for _, c := range []struct {
		reward float64
		why    string // the old grade stays
	}{{0.5, "it had 1, and 0.5 in a fresh machine"}, {-1, "and so on"}, {1, ""}} {
		calls, now = 0, c.reward
		for _, r := range b.regrade(t, harness.Regrading{Why: "again"}) {
			if c.why != "" && (!r.Live || r.Verdict.Error == nil || !strings.Contains(r.Verdict.Error.Text, c.why)) ||
				c.why == "" && (r.Live || r.Verdict.Status != record.Scored) {
				t.Errorf("%v: %+v, %+v", c.reward, r, r.Verdict.Error)
			}
		}
		if calls != 2 {
			t.Errorf("%v: %d calls", c.reward, calls)
		}
	}
	as := b.amends(t)
	if len(as) != 2 || *as[0].Reward != 1 || len(as[0].Results) != 1 || as[0].Flags[0] != benchmarks.FlagFromWork ||
		as[0].Confirmation == nil || as[0].Confirmation.State != record.Confirmed {
		t.Errorf("%+v", as)
	}
	b.checkLog(t)
}

// A grade that is higher than the verdict's, as another version of the task gave it, can be lowered
// again.
func TestRegradeWorkBack(t *testing.T) {
	b := newBed(t, &toy{tasks: 1}, says("right", 0))
	now := 0.0
	grade := func() benchmarks.Result {
		v := now
		return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}
	}
	b.cfg.Benchmarks[0].Benchmark = doubted{b.toy, nil,
		func(benchmarks.Claim) ([]benchmarks.Result, error) { return []benchmarks.Result{grade()}, nil }}
	b.toy.grade = func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
		return grade(), nil
	}
	b.run(t, t.Context())
	b.toy.grade = func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
		return benchmarks.Result{}, benchmarks.ErrNeedsLive
	}
	for _, now = range []float64{1, 0} {
		for _, r := range b.regrade(t, harness.Regrading{Why: "again"}) {
			if r.Live || r.Verdict.Reward == nil || *r.Verdict.Reward != now {
				t.Errorf("%v: %+v", now, r)
			}
		}
	}
}

// A drain lets gradings in progress finish and starts no more.
func TestRegradeDrain(t *testing.T) {
	b := newBed(t, &toy{tasks: 6}, says("right", 0))
	b.run(t, t.Context())
	drain := make(chan struct{})
	b.cfg.Workers, b.cfg.Drain = 1, drain
	n := 0
	b.toy.grade = func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
		if n++; n == 1 {
			close(drain)
		}
		v := 1.0
		return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}, nil
	}
	got := b.regrade(t, harness.Regrading{})
	if len(got) != len(b.amends(t)) || len(got) == 0 || len(got) > 2 {
		t.Errorf("%d reported, %d amended", len(got), len(b.amends(t)))
	}
}

// Notes and replies of a regrading belong to no attempt.
func TestRegradeWritesNoEvents(t *testing.T) {
	b := newBed(t, &toy{tasks: 1}, says("right", 0))
	b.run(t, t.Context())
	var host benchmarks.Host
	b.toy.hosts = func(h benchmarks.Host) { host = h }
	before := len(b.j.Entries())
	b.toy.grade = func(ctx context.Context, _ benchmarks.Evidence, _ benchmarks.Episode) (benchmarks.Result, error) {
		if _, err := host.Log().Append(ctx, event.New(event.FromEnvironment, event.Info{What: "graded"})); err != nil {
			t.Error(err)
		}
		v := 1.0
		return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}, nil
	}
	b.regrade(t, harness.Regrading{})
	if n := len(b.j.Entries()) - before; n != 1 {
		t.Errorf("%d entries", n)
	}
}
