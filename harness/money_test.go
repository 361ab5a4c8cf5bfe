package harness_test

import (
	"context"
	"encoding/json"
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
	"github.com/evalrun/evalrun/agent/model/meter"
	"github.com/evalrun/evalrun/agent/model/price"
	"github.com/evalrun/evalrun/agent/model/retry"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/journal/journaltest"
	"github.com/evalrun/evalrun/harness/record"
)

// priced wraps f like a real run, at 1 dollar per million input tokens and 10 per million output
// tokens.
func priced(f model.Factory) model.Factory {
	table, err := price.Parse([]byte("models: {toy: {in: 1, out: 10}}"))
	if err != nil {
		panic(err)
	}
	return meter.New(meter.Gate(f), table)
}

// billed answers after a second and counts the calls.
func billed(n *atomic.Int64, u event.Usage) model.Factory {
	return priced(replies(func(model.Binding, *model.Request) (*model.Response, error) {
		n.Add(1)
		time.Sleep(time.Second)
		return &model.Response{Model: "toy", Parts: event.Text("more"), Usage: u}, nil
	}))
}

// A swallows agent makes calls, ignores their errors, and then gives the right answer.
func swallows(calls int) agent.Agent {
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		m, err := s.Model("main")
		if err != nil {
			return agent.Answer{}, err
		}
		for i := range calls {
			m.Generate(ctx, &model.Request{
				Messages: []model.Message{{Role: model.User, Parts: event.Text(fmt.Sprint(i))}}})
		}
		return agent.Answer{Parts: event.Text("right")}, nil
	})
}

// money returns the usage and cost in a bed's journal, counting each entry once.
func (b *bed) money(t *testing.T) (all record.Spent) {
	t.Helper()
	all.Other = new(record.Usage)
	for _, e := range b.j.Entries() {
		switch e.Kind {
		case record.KindVerdict, record.KindSpent, record.KindAmend:
			var s record.Spent
			if err := json.Unmarshal(e.Data, &s); err != nil {
				t.Fatal(err)
			}
			all.Usage.Add(s.Usage)
			all.Spent.Add(s.Spent)
			if s.Other != nil {
				all.Other.Add(*s.Other)
			}
		}
	}
	return all
}

// resumeWith resumes a bed after the given spending.
func (b *bed) resumeWith(t *testing.T, budget float64) harness.Summary {
	t.Helper()
	for id, p := range b.past() {
		if p.Interrupted > 0 {
			if err := harness.Settle(t.Context(), b.j, id, p.Interrupted, p.Fence); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.cfg.Whole = harness.Whole{Cost: budget, SpentCost: b.money(t).Spent.USD()}
	return b.run(t, t.Context())
}

// Cached tokens without a known price count at the dearest price. When the budget is reached, only
// the calls in flight are still paid for, a trial that needs another call is cut off and not
// scored, and a resume with a larger budget gives the result of an uninterrupted run.
func TestBudgetIsKeptWithinTheCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		b := newBed(t, &toy{tasks: 20}, swallows(10))
		b.cfg.Workers, b.cfg.Whole.Cost = 8, 1
		b.cfg.Arms[0].Model = billed(&calls, event.Usage{In: 9_990, Cached: 9_990, Out: 10}) // $0.10
		sum := b.run(t, t.Context())
		if n := calls.Load(); n < 10 || n > 17 {
			t.Errorf("%d calls of $0.10 with a budget of $1 and 8 workers", n)
		}
		if sum.Reason != "budget" || math.Abs(sum.Cost-0.1*float64(calls.Load())) > 1e-9 || sum.Estimated != sum.Cost {
			t.Errorf("%+v after %d calls", sum, calls.Load())
		}
		if got := b.money(t); math.Abs(got.Spent.USD()-sum.Cost) > 1e-9 || got.Spent.Cost != nil ||
			got.Usage.Calls != calls.Load() {
			t.Errorf("the journal holds %+v, the run spent %v", got, sum.Cost)
		}
		for k, v := range b.verdicts(t) {
			t.Errorf("%s has a verdict: %+v", k, v)
		}
		before := calls.Load()
		if sum := b.resumeWith(t, 1); sum.Reason != "budget" || calls.Load() != before || sum.Attempts != 0 {
			t.Errorf("a resume with nothing left: %+v, %d more calls", sum, calls.Load()-before)
		}
		if sum := b.resumeWith(t, 0); sum.Reason != "done" || sum.By[record.Scored] != 20 {
			t.Errorf("%+v", sum)
		}
		if calls.Load() != 200 { // paid replies are reused
			t.Errorf("%d calls in all", calls.Load())
		}
		if got := b.money(t); got.Usage.Calls != 200 || got.Spent.Calls != 200 {
			t.Errorf("%+v", got)
		}
		for k, v := range b.verdicts(t) {
			if u := v.Used(); *v.Reward != 1 || u.Calls != 10 || v.Turns != 10 {
				t.Errorf("%s: %+v", k, v)
			}
		}
		b.checkLog(t)
	})
}

// A trial's limit counts by the same rule.
func TestCostLimitCountsUnknownPrices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		b := newBed(t, &toy{tasks: 1}, swallows(10))
		b.cfg.Arms[0].Model = billed(&calls, event.Usage{In: 9_990, Cached: 9_990, Out: 10})
		b.cfg.Arms[0].Limits.Cost = 0.3
		b.run(t, t.Context())
		if v := b.verdicts(t)["arm0/t0"]; calls.Load() != 3 || v.Limit != agent.LimitCost || v.Usage.Cost != nil ||
			v.Usage.Unpriced != "cached" {
			t.Errorf("%d calls, %+v", calls.Load(), v)
		}
	})
}

// A reply without usage ends the run at once if a limit depends on it, and nothing is scored.
func TestReplyWithoutUsageEndsTheRun(t *testing.T) {
	for name, set := range map[string]func(*harness.Config){
		"limits.cost":   func(c *harness.Config) { c.Arms[0].Limits.Cost = 1 },
		"limits.tokens": func(c *harness.Config) { c.Arms[0].Limits.Tokens = 1000 },
		"budget.cost":   func(c *harness.Config) { c.Whole.Cost = 1 },
		"budget.tokens": func(c *harness.Config) { c.Whole.Tokens = 1000 },
		"":              func(*harness.Config) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			b := newBed(t, &toy{tasks: 5}, swallows(5))
			b.cfg.Workers = 2
			b.cfg.Arms[0].Model = billed(&calls, event.Usage{})
			set(&b.cfg)
			sum := b.run(t, t.Context())
			if name == "" {
				if sum.Reason != "done" || calls.Load() != 25 {
					t.Errorf("without a limit: %+v", sum)
				}
				return
			}
			if sum.Reason != "usage" || !strings.Contains(sum.Why,
				name+" cannot be kept for model toy: its service does not say") || calls.Load() > 2 {
				t.Errorf("%s: %+v after %d calls", name, sum, calls.Load())
			}
			if got := b.verdicts(t); len(got) != 0 {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
}

// A judges grader calls its model once per grading and ignores a failure, from which an agent must
// not profit.
func judges(host *benchmarks.Host, fail func() error) func(context.Context, benchmarks.Evidence,
	benchmarks.Episode) (benchmarks.Result, error) {
	return func(ctx context.Context, _ benchmarks.Evidence, _ benchmarks.Episode) (benchmarks.Result, error) {
		m, err := (*host).Model("grader")
		if err != nil {
			return benchmarks.Result{}, err
		}
		v := 1.0
		if _, err := m.Generate(ctx, &model.Request{}); err != nil {
			v = 0
		}
		if err := fail(); err != nil {
			return benchmarks.Result{}, err
		}
		return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}, nil
	}
}

// The graders' usage counts towards the budget, in first and later gradings, even if there is no
// grade in the end. A grader without its model gives no grade.
func TestGradersAreInTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var host benchmarks.Host
		b := newBed(t, &toy{tasks: 5}, says("right", 0))
		b.toy.hosts = func(h benchmarks.Host) { host = h }
		b.toy.grade = judges(&host, func() error { return nil })
		b.cfg.Workers, b.cfg.Whole.Cost = 1, 0.03
		// $0.01
		b.cfg.Benchmarks[0].Roles = map[string]model.Factory{"grader": billed(&calls, event.Usage{In: 9_990, Out: 1})}
		if sum := b.run(t, t.Context()); sum.Reason != "budget" || calls.Load() != 3 || sum.By[record.Scored] != 3 {
			t.Fatalf("%+v after %d calls", sum, calls.Load())
		}
		if sum := b.resumeWith(t, 0); sum.By[record.Scored] != 2 || calls.Load() != 5 {
			t.Fatalf("%+v after %d calls", sum, calls.Load())
		}
		for k, v := range b.verdicts(t) {
			if *v.Reward != 1 {
				t.Errorf("%s: %v", k, *v.Reward)
			}
		}

		b.cfg.Whole = harness.Whole{Cost: 0.07, SpentCost: b.money(t).Spent.USD()}
		b.cfg.Retry = harness.Retry{Attempts: 1}
		tried := 0
		b.toy.grade = judges(&host, func() error {
			if tried++; tried == 1 {
				return errors.New("the grader is confused")
			}
			return nil
		})
		got := b.regrade(t, harness.Regrading{Why: "again"})
		all := b.money(t)
		if calls.Load() != 7 || len(b.amends(t)) != 1 || all.Spent.Calls != 7 || all.Other.Calls != 7 ||
			math.Abs(all.Spent.USD()-0.07) > 1e-9 {
			t.Errorf("%d calls, %d amendments, %+v", calls.Load(), len(b.amends(t)), all)
		}
		for k, r := range got {
			if r.Verdict.Status == record.Scored && *r.Verdict.Reward != 1 {
				t.Errorf("%s: graded without its model: %+v", k, r.Verdict)
			}
		}
	})
}

// A killed process leaves its calls in the journal, and a resume starts with their cost.
func TestKilledAttemptIsInTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		b := newBed(t, &toy{tasks: 1}, swallows(10))
		b.cfg.Arms[0].Model = billed(&calls, event.Usage{In: 9_990, Out: 1}) // $0.01
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(4500*time.Millisecond, cancel)
		b.run(t, ctx)
		killed := new(journaltest.Memory)
		for _, e := range b.j.Entries() { // entries that only an orderly shutdown writes are missing
			if e.Kind != record.KindSpent {
				if err := killed.Append(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
		}
		b.j = killed
		paid := calls.Load()
		if paid < 3 {
			t.Fatalf("%d calls", paid)
		}
		if sum := b.resumeWith(t, 0.01); sum.Reason != "budget" || math.Abs(sum.Cost-0.01*float64(paid)) > 1e-9 ||
			calls.Load() != paid {
			t.Errorf("%+v after %d calls", sum, calls.Load())
		}
		if sum := b.resumeWith(t, 0); sum.By[record.Scored] != 1 {
			t.Errorf("%+v", sum)
		}
		if all := b.money(t); all.Spent.Calls != 10 || all.Usage.Calls != 10 {
			t.Errorf("%+v after %d calls", all, calls.Load())
		}
	})
}

// Failed tries count for limits and budgets by what the provider bills, and are in the journal
// before the next try. A try interrupted by a stop of the run is a call in flight.
func TestFailedTriesAreCounted(t *testing.T) {
	said := event.Usage{In: 9_990, Out: 1} // $0.01
	refused := &model.Error{Class: model.Refused, Err: errors.New("no")}
	for name, tt := range map[string]struct {
		charge  model.Charge
		budget  float64
		counted float64 // dollars per try
		lost    int64
	}{
		"said":  {model.Charge{Usage: said, Err: refused}, 0.03, 0.01, 0},
		"bound": {model.Charge{Usage: said, Bound: true, Err: refused}, 0.05, (2*9_990 + 10) / 1e6, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				b := newBed(t, &toy{tasks: 1}, swallows(10))
				b.cfg.Workers, b.cfg.Whole.Cost = 1, tt.budget
				b.cfg.Arms[0].Model = priced(replies(func(model.Binding, *model.Request) (*model.Response, error) {
					calls.Add(1)
					c := tt.charge
					return nil, &c
				}))
				sum := b.run(t, t.Context())
				got := b.money(t).Spent
				if sum.Reason != "budget" || calls.Load() != 3 || math.Abs(sum.Cost-3*tt.counted) > 1e-9 ||
					math.Abs(got.USD()-sum.Cost) > 1e-9 || sum.Tokens != 3*9_991 {
					t.Errorf("%+v, %+v after %d calls", sum, got, calls.Load())
				}
				if got.Calls != 0 || (got.Lost != nil) != (tt.lost > 0) || got.Lost != nil &&
					(got.Lost.Tries != tt.lost || sum.Estimated != sum.Cost) {
					t.Errorf("%+v", got)
				}
			})
		})
	}

	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &toy{tasks: 1}, swallows(10))
		b.cfg.Whole.Cost = 10
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tries := 0
		b.cfg.Arms[0].Model = retry.New(priced(replies(func(model.Binding, *model.Request) (*model.Response, error) {
			if tries++; tries == 3 {
				n := 0
				for _, e := range b.j.Entries() {
					if e.Kind == record.KindCall && strings.Contains(string(e.Data), `"lost":{"tries":1`) {
						n++
					}
				}
				if n != 2 {
					t.Errorf("%d of 2 tries are in the journal", n)
				}
				cancel()
			}
			return nil, &model.Charge{Usage: said, Bound: true,
				Err: &model.Error{Class: model.Network, Err: errors.New("cut")}}
		})), retry.Policy{})
		b.run(t, ctx)
		if got := b.money(t).Spent; tries != 3 || got.Lost == nil || got.Lost.Tries != 2 {
			t.Errorf("%+v after %d tries", got, tries)
		}
	})
}
