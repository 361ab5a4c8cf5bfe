package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/journal/journaltest"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
)

func withBlobs(t *testing.T, b *bed) *blob.Store {
	t.Helper()
	store, err := blob.Open(filepath.Join(t.TempDir(), "blobs"), blob.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	b.cfg.Blobs = store
	return store
}

// largest returns the size of the longest entry of each kind.
func (b *bed) largest() map[string]int {
	out := map[string]int{}
	for _, e := range b.j.Entries() {
		out[e.Kind] = max(out[e.Kind], len(e.Data))
	}
	return out
}

// Long goals and answers are stored in blobs. They are graded, regraded and resumed like short
// ones.
func TestLongTextsStandInBlobs(t *testing.T) {
	long := strings.Repeat("<", 12<<20) // 72 MiB as escaped JSON
	graded := 0
	b := newBed(t, &toy{tasks: 2}, agents2(long))
	store := withBlobs(t, b)
	b.toy.wrap = func(ep benchmarks.Episode) benchmarks.Episode { return longGoal{ep} }
	b.toy.grade = func(_ context.Context, ev evidenceOf, _ episodeOf) (resultOf, error) {
		if ev.Answer.Text() != long {
			return resultOf{}, fmt.Errorf("the answer has %d bytes, want %d", len(ev.Answer.Text()), len(long))
		}
		graded++
		return scored(1), nil
	}
	b.cfg.Workers = 1
	b.run(t, t.Context())
	for name, v := range b.verdicts(t) {
		if v.Status != record.Scored || *v.Reward != 1 || len(v.Answer) > 5<<10 {
			t.Errorf("%s: %+v", name, v)
		}
	}
	sizes := b.largest()
	if sizes[record.KindEvidence] > 1<<10 || sizes[record.KindStage] > 6<<10 || sizes[record.KindVerdict] > 8<<10 {
		t.Errorf("sizes of entries: %v", sizes)
	}
	blobs := map[string]bool{}
	for _, e := range b.j.Entries() {
		var x struct {
			Blob string `json:"blob"`
			Goal string `json:"goal_blob"`
		}
		if e.Kind != record.KindStage && e.Kind != record.KindEvidence {
			continue
		}
		if err := json.Unmarshal(e.Data, &x); err != nil {
			t.Fatal(err)
		}
		blobs[x.Blob+x.Goal] = true
		if _, err := store.Open(t.Context(), x.Blob+x.Goal); err != nil {
			t.Errorf("%s: %v", e.Kind, err)
		}
	}
	if len(blobs) != 2 {
		t.Errorf("%d blobs, want one for equal goals and one for equal evidence", len(blobs))
	}
	for name, r := range b.regrade(t, harness.Regrading{Why: "test"}) {
		if r.Verdict.Status != record.Scored {
			t.Errorf("regrading %s: %+v", name, r.Verdict)
		}
	}
	if graded != 4 {
		t.Errorf("graded %d times, want 4", graded)
	}
}

func agents2(answer string) agent.Agent {
	return agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) {
		return agent.Answer{Parts: event.Text(answer)}, nil
	})
}

type longGoal struct{ benchmarks.Episode }

func (l longGoal) Next(ctx context.Context, prev *benchmarks.Result) (*benchmarks.Stage, error) {
	st, err := l.Episode.Next(ctx, prev)
	if err == nil {
		st.Goal = agent.Goal{Parts: event.Text(strings.Repeat("goal ", 4<<10))}
	}
	return st, err
}

// A reducing is a toy benchmark with its own Reduce.
type reducing struct {
	*toy
	reduce func([]benchmarks.Result) (benchmarks.Result, error)
}

func (r reducing) Reduce(_ datasets.Task, rs []benchmarks.Result) (benchmarks.Result, error) {
	return r.reduce(rs)
}

// Nothing that an agent or a grader returns may end the run; it may only end its trial.
func TestOneTrialsFault(t *testing.T) {
	nan := math.NaN()
	many := func(n int) resultOf {
		r := scored(1)
		for i := range n {
			r.Tests = append(r.Tests, record.Test{Name: fmt.Sprint("test", i), Status: "passed",
				Message: strings.Repeat("m", 1000)})
		}
		return r
	}
	graded := func(r resultOf) func(context.Context, evidenceOf, episodeOf) (resultOf, error) {
		return func(context.Context, evidenceOf, episodeOf) (resultOf, error) { return r, nil }
	}
	for _, c := range []struct {
		name   string
		agent  agent.Agent
		grade  func(context.Context, evidenceOf, episodeOf) (resultOf, error)
		reduce func([]benchmarks.Result) (benchmarks.Result, error)
		status record.Status
		end    record.End
	}{
		{name: "NaN of a reducer", reduce: func([]benchmarks.Result) (benchmarks.Result, error) {
			return scored(nan), nil
		}, status: record.Grader},
		{name: "NaN of a grader", grade: graded(scored(nan)), status: record.Grader},
		{name: "very many tests", grade: graded(many(10_000)), status: record.Scored, end: record.Answered},
		{name: "a long text", grade: graded(
			resultOf{Scores: []record.Score{
				{Name: "s", Primary: true, Value: new(float64), Text: strings.Repeat("<", 70<<20)}}}),
			status: record.Scored, end: record.Answered},
		{name: "very many scores", grade: graded(resultOf{Scores: slices.Repeat([]record.Score{{Name: "s"}}, 5000)}),
			status: record.Grader},
		{name: "outputs that are not JSON",
			agent: agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) {
				return agent.Answer{Outputs: json.RawMessage("{")}, nil
			}), status: record.Scored, end: record.Broke},
		{name: "a long error", agent: agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) {
			return agent.Answer{}, fmt.Errorf("%s", strings.Repeat("e", 70<<20))
		}), status: record.Scored, end: record.Broke},
	} {
		t.Run(c.name, func(t *testing.T) {
			ag := c.agent
			if ag == nil {
				ag = says("right", 0)
			}
			b := newBed(t, &toy{tasks: 2, stages: 1, grade: c.grade}, ag)
			withBlobs(t, b)
			if c.reduce != nil {
				b.cfg.Benchmarks[0].Benchmark = reducing{b.toy, c.reduce}
			}
			b.cfg.Retry.Attempts = 1
			if sum := b.run(t, t.Context()); sum.Final != 2 || sum.Reason != "done" {
				t.Fatalf("%+v", sum)
			}
			for name, v := range b.verdicts(t) {
				if v.Status != c.status || v.End != c.end {
					t.Errorf("%s: %s %s, want %s %s (%+v)", name, v.Status, v.End, c.status, c.end, v.Error)
				}
			}
			if n := b.largest()[record.KindResult]; n > 1<<20 {
				t.Errorf("a result of %d bytes", n)
			}
			tests := 0
			for _, e := range b.j.Entries() {
				var r record.Result
				if e.Kind == record.KindResult && json.Unmarshal(e.Data, &r) == nil {
					tests += len(r.Tests)
				}
			}
			if c.name == "very many tests" && tests != 20_000 {
				t.Errorf("%d tests were kept, want 20000", tests)
			}
		})
	}
}

// A secret that is a number is masked inside JSON, and the result is valid JSON.
func TestNumericSecrets(t *testing.T) {
	const secret = "1234567890"
	b := newBed(t, &toy{tasks: 1}, agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		_, err := s.Step(ctx, event.New(event.FromAgent, event.Run{Command: "echo " + secret}))
		return agent.Answer{Parts: event.Text("right"),
			Outputs: json.RawMessage(`{"n":` + secret + `,"` + secret + `":[` + secret + `]}`)}, err
	}))
	withBlobs(t, b)
	b.toy.step = func(context.Context, event.Event) (benchmarks.Turn, error) {
		return benchmarks.Turn{Obs: event.RunResult{Output: secret, OutBytes: 1234567890},
			Info: json.RawMessage(`{"x":` + secret + `}`)}, nil
	}
	b.cfg.Mask = harness.NewMasker(secret)
	b.run(t, t.Context())
	if v := b.verdicts(t)["arm0/t0"]; v.Status != record.Scored || *v.Reward != 1 {
		t.Errorf("%+v", v)
	}
	for _, e := range b.j.Entries() {
		if !json.Valid(e.Data) || strings.Contains(string(e.Data), secret) {
			t.Errorf("%s: %s", e.Kind, e.Data)
		}
	}
}

// A watchedBlobs records which blobs are durable.
type watchedBlobs struct {
	record.Blobs
	mu      sync.Mutex
	put     []string
	durable map[string]bool
}

func (w *watchedBlobs) Put(ctx context.Context, r io.Reader) (string, int64, error) {
	sum, n, err := w.Blobs.Put(ctx, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put = append(w.put, sum)
	return sum, n, err
}

func (w *watchedBlobs) Sync(ctx context.Context) error {
	w.mu.Lock()
	put := slices.Clone(w.put)
	w.mu.Unlock()
	if err := w.Blobs.Sync(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sum := range put {
		w.durable[sum] = true
	}
	return nil
}

// A watchedJournal checks that all blobs are durable when a verdict or an amendment is appended.
type watchedJournal struct {
	record.Journal
	t     *testing.T
	blobs *watchedBlobs
	seen  int
}

func (w *watchedJournal) Append(ctx context.Context, e record.Entry) error {
	if e.Kind == record.KindVerdict || e.Kind == record.KindAmend {
		w.blobs.mu.Lock()
		for _, sum := range w.blobs.put {
			if w.seen++; !w.blobs.durable[sum] {
				w.t.Errorf("%s of trial %s comes before blob %s is durable", e.Kind, e.Trial, sum)
			}
		}
		w.blobs.mu.Unlock()
	}
	return w.Journal.Append(ctx, e)
}

// Everything that a verdict or its attempt refers to is durable before the verdict, including a
// grader's text.
func TestBlobsAreDurableBeforeTheVerdict(t *testing.T) {
	b := newBed(t, &toy{tasks: 1}, says("right", 1))
	n := 0
	b.toy.hosts = func(h benchmarks.Host) {
		n++
		if _, err := h.Log().PutBlob(t.Context(), "text/plain",
			strings.NewReader(fmt.Sprint("what the verifier printed ", n))); err != nil {
			t.Error(err)
		}
	}
	blobs := &watchedBlobs{Blobs: withBlobs(t, b), durable: map[string]bool{}}
	b.cfg.Blobs = blobs
	j := &watchedJournal{Journal: b.j, t: t, blobs: blobs}
	if _, err := harness.Run(t.Context(), b.cfg, jobsOf(b), j); err != nil {
		t.Fatal(err)
	}
	past := b.past()
	_, err := harness.Regrade(t.Context(), b.cfg, harness.Regrading{Why: "test"}, func(yield func(harness.Claimed) bool) {
		for job := range plan.Jobs(b.plan, nil, nil) {
			p := past[job.Trial]
			job.Evidence, job.Attempt, job.Fence = p.Evidence, p.Attempts, p.Fence
			yield(harness.Claimed{Job: job})
		}
	}, j, func(harness.Regraded) {})
	if err != nil || n != 2 || j.seen != 3 {
		t.Errorf("%v; %d gradings, %d blobs looked at", err, n, j.seen)
	}
}

// With two concurrent actors in a session, no action runs before it is durable.
func TestActionsOfTwoActorsAreDurableBeforeTheyRun(t *testing.T) {
	both := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				c := s.Child(fmt.Sprint("actor", i), s.Goal)
				for range 50 {
					if _, err := c.Step(ctx, event.New(event.FromAgent, event.Run{Command: "true"})); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return agent.Answer{Parts: event.Text("right")}, nil
	})
	b := newBed(t, &toy{tasks: 1}, both)
	slow := &slowJournal{Memory: b.j}
	b.toy.step = func(_ context.Context, a event.Event) (benchmarks.Turn, error) {
		if !slow.durable(a.ID) {
			t.Errorf("action %d runs before it is durable", a.ID)
		}
		return benchmarks.Turn{Obs: event.RunResult{Output: "ok"}}, nil
	}
	if _, err := harness.Run(t.Context(), b.cfg, jobsOf(b), slow); err != nil {
		t.Fatal(err)
	}
}

// A slowJournal lets other goroutines continue while it syncs.
type slowJournal struct {
	*journaltest.Memory
	mu     sync.Mutex
	synced int
}

func (s *slowJournal) Sync(ctx context.Context) error {
	n := len(s.Entries())
	for range 20 {
		runtime.Gosched()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = max(s.synced, n)
	return nil
}

func (s *slowJournal) durable(id int64) bool {
	s.mu.Lock()
	n := s.synced
	s.mu.Unlock()
	for _, e := range s.Entries()[:n] {
		if e.Kind == record.KindEvent {
			if ev, err := event.Default.Decode(e.Data); err == nil && ev.ID == id {
				return true
			}
		}
	}
	return false
}

// Outside JSON that is nested deeper than readers support does not make the record unreadable.
func TestDeepJSON(t *testing.T) {
	deep := json.RawMessage(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))
	ctx, stop := context.WithCancel(t.Context())
	b := newBed(t, &toy{tasks: 2}, nil)
	withBlobs(t, b)
	n := 0
	b.cfg.Arms[0].Agent = agents(agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		ans, err := asker(1, func(int) {}).Run(ctx, s)
		if n++; n == 2 {
			stop()
		}
		ans.Outputs = deep
		return ans, err
	}))
	b.cfg.Workers = 1
	b.cfg.Arms[0].Model = replies(func(model.Binding, *model.Request) (*model.Response, error) {
		return &model.Response{Parts: event.Text("right"), Opaque: deep, Raw: []byte(`{"x":` + string(deep) + `}`)}, nil
	})
	b.run(t, ctx)
	b.run(t, t.Context())
	for name, v := range b.verdicts(t) {
		if v.Status != record.Scored || v.End != record.Broke || v.Error == nil ||
			!strings.Contains(v.Error.Text, "nested deeper") {
			t.Errorf("%s: %+v", name, v)
		}
	}
	for _, e := range b.j.Entries() {
		var x any
		if err := json.Unmarshal(e.Data, &x); err != nil {
			t.Errorf("%s: %v", e.Kind, err)
		}
	}
}

// A reply is durable before the next request, whatever lies between them.
func TestReplyIsDurableBeforeTheNextCall(t *testing.T) {
	b := newBed(t, &toy{tasks: 1}, nil)
	b.cfg.Arms[0].Agent = agents(asker(5, func(int) {}))
	calls := 0
	b.cfg.Arms[0].Model = replies(func(model.Binding, *model.Request) (*model.Response, error) {
		kept := 0
		for _, e := range b.j.Synced() {
			if e.Kind == record.KindCall {
				kept++
			}
		}
		if kept != calls {
			t.Errorf("call %d is made while %d of the calls before it are durable", calls, kept)
		}
		calls++
		return &model.Response{Parts: event.Text("x")}, nil
	})
	b.run(t, t.Context())
	if calls != 5 {
		t.Errorf("%d calls", calls)
	}
}

// An unreadable record does not end a run that resumes it.
func TestUnreadableRecordIsTakenUp(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	b := newBed(t, &toy{tasks: 1}, says("right", 0))
	b.run(t, t.Context())
	id := b.j.Entries()[0].Trial
	put := func(kind, data string) {
		t.Helper()
		if err := b.j.Append(ctx, record.Entry{Trial: id, Attempt: 2, Fence: 9, Kind: kind,
			Data: json.RawMessage(data)}); err != nil {
			t.Fatal(err)
		}
	}
	put(record.KindAttempt, `{"attempt":2,"why":"rerun"}`)
	put(record.KindEvent, `{"id":0,"time":"2026-11-21T10:00:07.120000Z","mono_us":1,"source":"agent","class":"note","kind":"reply","body":{"usage":{"in":"<secret>"}}}`)
	put(record.KindCall, `{"role":"main","n":"<secret>"}`)
	if sum := b.run(t, t.Context()); sum.Final != 1 {
		t.Errorf("%+v", sum)
	}
}
