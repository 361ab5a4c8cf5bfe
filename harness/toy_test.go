package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/journal/journaltest"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/queue"
	"github.com/evalrun/evalrun/harness/record"
)

// A toy is a benchmark without sandboxes: the answer "right" scores 1. Each part can be told to
// misbehave.
type toy struct {
	tasks  int
	stages int
	live   bool          // GradeLive
	last   bool          // stages say that they are the last
	time   time.Duration // of a stage
	step   func(ctx context.Context, a event.Event) (benchmarks.Turn, error)
	open   func() error
	opens  func(benchmarks.Host) error
	hosts  func(benchmarks.Host) // of gradings
	needs  func(i int) benchmarks.Needs
	wrap   func(benchmarks.Episode) benchmarks.Episode
	grade  func(ctx context.Context, ev benchmarks.Evidence, live benchmarks.Episode) (benchmarks.Result, error)

	mu     sync.Mutex
	opened map[string]int // per task
	graded map[string]int
}

func (t *toy) Name() string            { return "toy" }
func (t *toy) Source() datasets.Source { return toySource{t.tasks} }

type toySource struct{ n int }

func (s toySource) Tasks(context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		for i := range s.n {
			if !yield(toyTask(i), nil) {
				return
			}
		}
	}
}

func (s toySource) Task(_ context.Context, id string) (datasets.Task, error) {
	var i int
	if _, err := fmt.Sscanf(id, "t%d", &i); err != nil || i >= s.n {
		return datasets.Task{}, datasets.ErrNoTask
	}
	return toyTask(i), nil
}

func toyTask(i int) datasets.Task {
	t := datasets.Task{ID: fmt.Sprintf("t%d", i), Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}
	t.Digest, _ = record.TaskDigest("toy", t.ID, t.Data)
	return t
}

func (t *toy) Needs(task datasets.Task, _ benchmarks.Options) (benchmarks.Needs, error) {
	if t.needs != nil {
		var i int
		fmt.Sscanf(task.ID, "t%d", &i)
		return t.needs(i), nil
	}
	return benchmarks.Needs{GradeLive: t.live}, nil
}

func (t *toy) Open(ctx context.Context, h benchmarks.Host, task datasets.Task,
	_ benchmarks.Options) (benchmarks.Episode, error) {
	t.mu.Lock()
	if t.opened == nil {
		t.opened, t.graded = map[string]int{}, map[string]int{}
	}
	t.opened[task.ID]++
	t.mu.Unlock()
	if t.open != nil {
		if err := t.open(); err != nil {
			return nil, err
		}
	}
	if t.opens != nil {
		if err := t.opens(h); err != nil {
			return nil, err
		}
	}
	ep := &toyEpisode{toy: t, task: task, host: h}
	if t.wrap != nil {
		return t.wrap(ep), nil
	}
	return ep, nil
}

func (t *toy) Grade(ctx context.Context, h benchmarks.Host, task datasets.Task, ev benchmarks.Evidence,
	live benchmarks.Episode) (benchmarks.Result, error) {
	t.mu.Lock()
	t.graded[task.ID]++
	if t.hosts != nil {
		t.hosts(h)
	}
	t.mu.Unlock()
	if t.grade != nil {
		return t.grade(ctx, ev, live)
	}
	v := 0.0
	if ev.Answer.Text() == "right" {
		v = 1
	}
	return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}, nil
}

type toyEpisode struct {
	host benchmarks.Host
	toy  *toy
	task datasets.Task
	n    int
}

func (e *toyEpisode) Next(_ context.Context, prev *benchmarks.Result) (*benchmarks.Stage, error) {
	if e.n >= max(1, e.toy.stages) {
		return nil, io.EOF
	}
	if e.n > 0 && e.toy.live && prev == nil {
		return nil, errors.New("no grade of the stage before")
	}
	e.n++
	return &benchmarks.Stage{Goal: agent.Goal{Parts: event.Text("say right")}, Kinds: []string{"run"}, Time: e.toy.time,
		Last: e.toy.last || e.toy.stages < 2}, nil
}

func (e *toyEpisode) Step(ctx context.Context, a event.Event) (benchmarks.Turn, error) {
	if e.toy.step != nil {
		return e.toy.step(ctx, a)
	}
	return benchmarks.Turn{Obs: event.RunResult{Output: "ok"}}, nil
}

func (e *toyEpisode) Collect(_ context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	return benchmarks.Evidence{Answer: ans}, nil
}
func (e *toyEpisode) Close() error { return nil }

// says is an agent that acts n times and answers.
func says(text string, steps int) agent.Agent {
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		for range steps {
			if _, err := s.Step(ctx, event.New(event.FromAgent, event.Run{Command: "true"})); err != nil {
				return agent.Answer{}, err
			}
		}
		return agent.Answer{Parts: event.Text(text)}, nil
	})
}

// A bed is a run of the toy benchmark.
type bed struct {
	cfg  harness.Config
	toy  *toy
	j    *journaltest.Memory
	plan *record.Plan
	// accounts of the arms' models, by arm name
	accounts map[string]string

	seen []harness.Progress
	mu   sync.Mutex
}

func newBed(t testing.TB, b *toy, agents ...agent.Agent) *bed {
	t.Helper()
	bed := &bed{toy: b, j: &journaltest.Memory{}}
	bed.cfg = harness.Config{
		Run: "r", Workers: 4, Benchmarks: []harness.Bench{{Benchmark: b}}, Phases: harness.Phases{Grace: time.Second},
		Retry:   harness.Retry{Budget: 100, Delay: time.Millisecond},
		Observe: func(p harness.Progress) { bed.mu.Lock(); bed.seen = append(bed.seen, p); bed.mu.Unlock() },
	}
	var arms []record.Arm
	for i, ag := range agents {
		id, err := record.ArmID(map[string]int{"n": i + 1})
		if err != nil {
			t.Fatal(err)
		}
		arm := record.Arm{ID: id, Name: fmt.Sprintf("arm%d", i), Agent: "func"}
		arms = append(arms, arm)
		bed.cfg.Arms = append(bed.cfg.Arms,
			harness.Arm{Arm: arm, Agent: func(benchmarks.Benchmark, datasets.Task) (agent.Agent, error) {
				return ag, nil
			}})
	}
	p, err := plan.Build(t.Context(), plan.Spec{Run: "r", Repeats: 1, Arms: arms,
		Benches: []plan.Bench{{Benchmark: b, Spec: "toy"}}})
	if err != nil {
		t.Fatal(err)
	}
	bed.plan = p
	return bed
}

// past reads the journal as a resume does.
func (b *bed) past() map[string]plan.Past {
	trials, kept := map[string]ledger.Trial{}, map[string][]record.Evidence{}
	for _, e := range b.j.Entries() {
		t, l := trials[e.Trial], ledger.Of(&e)
		had := t.Evidence
		if t.Apply(&l) == ledger.Kept {
			var ev record.Evidence
			if err := json.Unmarshal(e.Data, &ev); err != nil {
				panic(err)
			}
			if had != t.Evidence {
				kept[e.Trial] = nil
			}
			kept[e.Trial] = append(kept[e.Trial], ev)
		}
		trials[e.Trial] = t
	}
	out := map[string]plan.Past{}
	for id, t := range trials {
		p := plan.PastOf(t, func(s record.Status) bool { return s == record.Provider })
		if t.Evidence > 0 || t.Decided {
			p.Evidence = kept[id]
		}
		out[id] = p
	}
	return out
}

func (b *bed) run(t testing.TB, ctx context.Context) harness.Summary {
	t.Helper()
	past := b.past()
	var streams []queue.Stream
	for _, s := range plan.Streams(b.plan, func(id string) plan.Past { return past[id] }, nil) {
		account := ""
		if s.Arm >= 0 {
			account = b.accounts[b.plan.Arms[s.Arm].Name]
		}
		streams = append(streams, queue.Stream{Account: account, Jobs: s.Jobs})
	}
	q := queue.New(b.cfg.Workers, streams...)
	defer q.Close()
	sum, err := harness.Run(ctx, b.cfg, q, b.j)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// verdicts returns the current verdicts, by arm and task.
func (b *bed) verdicts(t testing.TB) map[string]record.Verdict {
	t.Helper()
	out := map[string]record.Verdict{}
	names := map[string]string{}
	for _, e := range b.j.Entries() {
		switch e.Kind {
		case record.KindAttempt:
			var a record.Attempt
			if err := json.Unmarshal(e.Data, &a); err != nil {
				t.Fatal(err)
			}
			names[e.Trial] = a.ArmName + "/" + a.Task
		case record.KindVerdict:
			var v record.Verdict
			if err := json.Unmarshal(e.Data, &v); err != nil {
				t.Fatal(err)
			}
			if v.Final {
				if old, ok := out[names[e.Trial]]; ok {
					t.Errorf("%s has two final verdicts: %+v, %+v", names[e.Trial], old, v)
				}
				out[names[e.Trial]] = v
			}
		}
	}
	return out
}

// checkLog checks that every action of every attempt has exactly one observation and that IDs are
// consecutive.
func (b *bed) checkLog(t testing.TB) {
	t.Helper()
	type key struct {
		trial   string
		attempt int
	}
	next := map[key]int64{}
	open := map[key][]int64{}
	for _, e := range b.j.Entries() {
		k := key{e.Trial, e.Attempt}
		if e.Kind != record.KindEvent {
			continue
		}
		ev, err := event.Default.Decode(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		if ev.ID != next[k] {
			t.Errorf("%v: event %d, want %d", k, ev.ID, next[k])
		}
		next[k]++
		switch ev.Body.Class() {
		case event.Action:
			open[k] = append(open[k], ev.ID)
		case event.Observation:
			if !slices.Contains(open[k], ev.Cause) {
				t.Errorf("%v: observation %d answers %d, which is not open", k, ev.ID, ev.Cause)
			}
			open[k] = slices.DeleteFunc(open[k], func(id int64) bool { return id == ev.Cause })
		}
	}
	for k, ids := range open {
		if len(ids) > 0 {
			t.Errorf("%v: actions %v have no observation", k, ids)
		}
	}
}

// replies returns a model factory whose clients call f.
func replies(f func(b model.Binding, req *model.Request) (*model.Response, error)) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		return clientFunc(func(_ context.Context, req *model.Request) (*model.Response, error) { return f(b, req) }),
			nil
	}
}

type clientFunc func(context.Context, *model.Request) (*model.Response, error)

func (f clientFunc) Generate(ctx context.Context, r *model.Request) (*model.Response, error) {
	return f(ctx, r)
}
func (f clientFunc) Info() model.Info { return model.Info{Vendor: "toy", Name: "toy"} }

type (
	evidenceOf = benchmarks.Evidence
	episodeOf  = benchmarks.Episode
	resultOf   = benchmarks.Result
)

// scored returns a result with one score.
func scored(v float64) benchmarks.Result {
	return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}
}

// agents makes ag the agent of every session.
func agents(ag agent.Agent) func(benchmarks.Benchmark, datasets.Task) (agent.Agent, error) {
	return func(benchmarks.Benchmark, datasets.Task) (agent.Agent, error) { return ag, nil }
}

// jobsOf returns a queue with all trials of a bed, ignoring its journal.
func jobsOf(b *bed) harness.Queue {
	return queue.New(b.cfg.Workers, queue.Stream{Jobs: plan.Jobs(b.plan, nil, nil)})
}

// rerun runs decided trials again.
func (b *bed) rerun(t testing.TB, ctx context.Context) {
	t.Helper()
	past := b.past()
	q := queue.New(b.cfg.Workers, queue.Stream{
		Jobs: plan.Jobs(b.plan, func(id string) plan.Past { return past[id] }, func(plan.Past) bool { return true })})
	defer q.Close()
	if _, err := harness.Run(ctx, b.cfg, q, b.j); err != nil {
		t.Fatal(err)
	}
}
