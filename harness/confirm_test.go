package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// doubted is a toy whose passes need a second opinion.
type doubted struct {
	*toy
	confirm func(c benchmarks.Claim) (record.Confirmation, error)
	regrade func(c benchmarks.Claim) ([]benchmarks.Result, error)
}

func (d doubted) Regrade(_ context.Context, _ benchmarks.Host, _ datasets.Task, _ benchmarks.Options,
	c benchmarks.Claim) ([]benchmarks.Result, error) {
	return d.regrade(c)
}

func (d doubted) Confirm(_ context.Context, _ benchmarks.Host, _ datasets.Task, _ benchmarks.Options,
	c benchmarks.Claim) (record.Confirmation, error) {
	return d.confirm(c)
}

// grades returns the grades of a bed's trials as they are.
func (b *bed) grades(t *testing.T) map[string]*ledger.Grade {
	t.Helper()
	grades := map[string]*ledger.Grade{}
	for _, e := range b.j.Entries() {
		switch e.Kind {
		case record.KindVerdict:
			var v record.Verdict
			if err := json.Unmarshal(e.Data, &v); err != nil {
				t.Fatal(err)
			}
			g := ledger.GradeOf(&v)
			grades[e.Trial] = &g
		case record.KindAmend:
			var a record.Amend
			if err := json.Unmarshal(e.Data, &a); err != nil {
				t.Fatal(err)
			}
			grades[e.Trial].Amend(&a)
		}
	}
	return grades
}

// own returns the grades of the verdicts.
func (b *bed) own(t *testing.T) map[string]*ledger.Grade {
	t.Helper()
	grades := map[string]*ledger.Grade{}
	for _, e := range b.j.Entries() {
		var v record.Verdict
		if e.Kind == record.KindVerdict && json.Unmarshal(e.Data, &v) == nil {
			g := ledger.GradeOf(&v)
			grades[e.Trial] = &g
		}
	}
	return grades
}

// confirm asks for the second opinions that a bed's grades wait for.
func (b *bed) confirm(t *testing.T, states ...string) (out []harness.Confirmed) {
	t.Helper()
	if states == nil {
		states = []string{record.Pending}
	}
	past, grades := b.past(), b.grades(t)
	jobs := func(yield func(harness.Claimed) bool) {
		for j := range plan.Jobs(b.plan, nil, nil) {
			g := grades[j.Trial]
			if g == nil || g.Confirmation == nil || !slices.Contains(states, g.Confirmation.State) {
				continue
			}
			p := past[j.Trial]
			j.Evidence, j.Attempt, j.Fence = p.Evidence, p.Attempts, p.Fence
			if !yield(harness.Claimed{Job: j, Grade: *g, Own: *b.own(t)[j.Trial]}) {
				return
			}
		}
	}
	if _, err := harness.Confirm(t.Context(), b.cfg, jobs, b.j,
		func(c harness.Confirmed) { out = append(out, c) }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConfirm(t *testing.T) {
	b := newBed(t, &toy{tasks: 3}, says("right", 0), says("wrong", 0))
	var confirm func(c benchmarks.Claim) (record.Confirmation, error)
	b.cfg.Benchmarks[0].Benchmark = doubted{b.toy,
		func(c benchmarks.Claim) (record.Confirmation, error) { return confirm(c) }, nil}
	b.toy.grade = func(_ context.Context, ev benchmarks.Evidence, _ benchmarks.Episode) (benchmarks.Result, error) {
		v := 0.0
		if ev.Answer.Text() == "right" {
			v = 1
		}
		return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}},
				Flags: []string{"odd"},
				Confirmation: &record.Confirmation{State: record.Pending, Why: "used", Slipped: []string{"/b", "/a"},
					Zero: true},
				Uses: []record.PathUse{{Path: "/hunter2-hunter2/b", Use: record.Opened}}},
			nil
	}
	b.cfg.Mask = harness.NewMasker("hunter2-hunter2")
	b.run(t, t.Context())
	for _, e := range b.j.Entries() {
		var r record.Result
		if e.Kind == record.KindResult && (json.Unmarshal(e.Data, &r) != nil || len(r.Uses) != 1 ||
			r.Uses[0].Path != "/"+harness.Masked+"/b") {
			t.Errorf("%s", e.Data)
		}
	}

	// What the infrastructure spoils is tried again, and stays pending if it goes on.
	calls := 0
	b.cfg.Workers, b.cfg.Retry.Attempts = 1, 2
	confirm = func(benchmarks.Claim) (record.Confirmation, error) {
		calls++
		return record.Confirmation{}, &sandbox.Error{Op: "create", Err: errors.New("it fell over")}
	}
	for _, c := range b.confirm(t) {
		if c.Confirmation != nil || c.Fault == nil || c.Fault.Class != "sandbox" {
			t.Errorf("%+v: %+v", c, c.Fault)
		}
	}
	if calls != 6 || len(b.amends(t)) != 0 { // three passes, twice each
		t.Fatalf("%d calls, %d amendments", calls, len(b.amends(t)))
	}

	confirm = func(c benchmarks.Claim) (record.Confirmation, error) {
		if c.Reward != 1 || len(c.Evidence) != 1 || c.Evidence[0].Answer.Text() != "right" ||
			c.Confirmation.Why != "used" || len(c.Confirmation.Slipped) != 2 || c.Oracle {
			t.Errorf("%+v", c)
		}
		calls++
		states := []string{record.Confirmed, record.Unconfirmed, record.Unknown}
		return record.Confirmation{State: states[calls-1], Why: "so",
			Uses: slices.Repeat([]record.PathUse{{Path: "/hunter2-hunter2/c", Use: record.Odd}}, record.MaxUses+1)}, nil
	}
	calls = 0
	if got := b.confirm(t); len(got) != 3 {
		t.Fatalf("%d second opinions", len(got))
	}
	for i, want := range []float64{1, 0, 1} { // an unconfirmed grade that counts 0
		a := b.amends(t)[i]
		if *a.Reward != want || len(a.Flags) != 1 || len(a.Scores) != 1 || a.Confirmation.Why != "so" ||
			!a.Confirmation.Zero || a.Status != "" || len(a.Confirmation.Uses) != record.MaxUses ||
			a.Confirmation.Uses[0].Path != "/"+harness.Masked+"/c" || *a.Scores[0].Value != want ||
			(want == 0) != strings.Contains(a.Scores[0].Why, "the verifier said 1") {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if got := b.confirm(t); len(got) != 0 {
		t.Errorf("%d were asked for again", len(got))
	}

	// What is not known is asked for once more, about the grade as it was given first. Only what is
	// new is noted.
	state, before := record.Unknown, len(b.amends(t))
	confirm = func(c benchmarks.Claim) (record.Confirmation, error) {
		if c.Reward != 1 || c.Confirmation.State != record.Unknown || c.Confirmation.Why != "used" ||
			len(c.Confirmation.Slipped) != 2 || len(c.Flags) != 1 {
			t.Errorf("%+v", c)
		}
		return record.Confirmation{State: state}, nil
	}
	for _, want := range []int{0, 1} {
		if got := b.confirm(t, record.Unknown); len(got) != 1 || got[0].Confirmation.State != state {
			t.Errorf("%+v", got)
		}
		if n := len(b.amends(t)) - before; n != want {
			t.Errorf("%s: %d amendments", state, n)
		}
		state = record.Unconfirmed
	}
	if a := b.amends(t)[before]; *a.Reward != 0 || a.Confirmation.State != record.Unconfirmed {
		t.Errorf("%+v", a)
	}
	b.checkLog(t)
}

// keys are references that keep nothing but the keys they are asked for.
type keys []string

func (k *keys) Get(ctx context.Context, key string, make func(context.Context) ([]byte, error)) ([]byte, error) {
	*k = append(*k, key)
	return make(ctx)
}

// References of machines with different images are kept apart.
func TestReferenceKeys(t *testing.T) {
	b := newBed(t, imaged(1), says("right", 1))
	p := pool.New(pool.Options{}, fake.New(fake.Options{}))
	defer p.Close()
	var asked keys
	b.cfg.Provider, b.cfg.Driver, b.cfg.References = p, "fake", &asked
	b.cfg.Retry.Attempts = 1
	one := 1.0
	b.toy.grade = func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
		return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &one}},
			Confirmation: &record.Confirmation{State: record.Pending}}, nil
	}
	b.cfg.Benchmarks[0].Benchmark = doubted{b.toy, func(c benchmarks.Claim) (record.Confirmation, error) {
		text, err := c.Reference(t.Context(), "key", func(context.Context) ([]byte, error) { return []byte("{}"), nil })
		if string(text) != "{}" {
			t.Errorf("%q, %v", text, err)
		}
		return record.Confirmation{}, errors.New("not now") // so that it stays pending
	}, nil}
	digest := ""
	images := func() *harness.Images {
		return &harness.Images{Get: func(_ context.Context, img sandbox.Image) (string, error) {
			return digest + img.Name + img.Ref, nil
		}}
	}
	for _, digest = range []string{"old ", "new ", "new "} {
		if b.cfg.Images = images(); len(asked) == 0 {
			b.run(t, t.Context())
		}
		b.confirm(t)
	}
	if len(asked) != 3 || asked[0] == asked[1] || asked[1] != asked[2] || !strings.Contains(asked[0], "key\x00old db:1\x00old good") {
		t.Errorf("%q", asked)
	}
}
