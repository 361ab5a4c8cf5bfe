package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An attempt is one try of a trial, from taking its lease to writing its verdict:
//
//	close interrupted attempt → needs → images → lease → open →
//	(next → agent → collect → evidence)… → grade → reduce → verdict
//
// Every phase has a timeout and runs under the run's context. Cleanup and writes that must happen
// after that context ends use a context without cancellation.
type attempt struct {
	*runner
	job   *Job
	arm   *Arm
	bench *Bench
	task  datasets.Task
	log   *sessionLog
	seed  uint64
	began time.Time

	// regrade is set when all evidence is durable and only the grading failed. The next attempt
	// then grades it without running the agent.
	regrade []record.Evidence
	replay  *replay
	clients map[roleKey]*recorder
	back    *rejoined       // the session to go on with after a crash; nil otherwise
	finding bool            // that session's sandboxes are being found; they are noted already
	numbers map[roleKey]int // of the next calls, for such a session
	before  int64           // tokens of such a session that a Spent entry has
	lease   sandbox.Lease
	needs   benchmarks.Needs
	verdict record.Verdict // play fills in status, scores and error; sum adds the counters at the end

	mu               sync.Mutex
	cur              *env
	clock            *clock
	inPhase          *clock // clock of the current phase; nil between phases
	steps            int64
	turns            int64
	bad              int64
	used             record.Usage // usage of the arm's models, without taken
	taken            record.Usage // usage of replies reused from earlier attempts
	others           record.Usage
	paidFor          record.Usage
	spent            float64 // dollars counted against limits.cost
	cut              error   // why the attempt ends without a verdict; nil if it was not cut off
	left             *int
	maxMemory        *int64
	ooms             int64
	abandoned        bool
	inside           bool     // the agent has acted since its sandboxes were last found without processes
	theirs           []string // IDs of the agent's sandboxes
	acted            bool     // the agent has executed at least one action
	lost             string   // why the agent may be to blame for a lost sandbox; "" if it is not
	driver           string
	made             []record.Image
	networks         []string // network policies of the agent's sandbox, in order
	proxied          bool     // programs in the agent's sandbox that ignore the proxy have no network
	open             []*watched
	reportedRefusals map[refusal]int64
	nrefused         int64
	regrading        *Regrading      // not nil while regrading: only an amendment is written
	claimed          *Claimed        // what is regraded; nil for second opinions
	last             bool            // no more tries follow
	results          []record.Result // results of a regrading
	damaged          error           // first error from reading a damaged blob
	lasting          bool            // a retry soon would fail in the same way, and the arm is not to blame
	pausing          bool            // the arm's other trials would also fail, until somebody fixes the cause
	undecided        bool            // the attempt ends without deciding the trial; a resume continues it
	touched          bool            // a person was in the agent's sandbox
	guests           guests
	t                record.Times
	life             life
}

// run makes the attempt. again reports whether a retry may do better. A non-nil error is a journal
// failure and ends the run.
func (a *attempt) run(ctx context.Context) (again bool, err error) {
	keep := context.WithoutCancel(ctx)
	a.seed = seed(a.Seed, a.job.Trial, a.job.Attempt)
	if a.job.Interrupted > 0 && !a.rejoin(ctx) {
		a.discard(keep)
		if err := a.takeUp(keep); err != nil {
			return false, err
		}
	}
	defer func() {
		if a.back != nil { // the attempt ended before its session went on
			a.back.held.all()
		}
	}()
	if len(a.job.Evidence) == 0 {
		if err := a.remember(keep); err != nil {
			return false, err
		}
	}
	if a.back == nil {
		a.log = newLog(a)
	}
	if err := a.begin(keep); err != nil {
		return false, err
	}
	if a.back != nil {
		if err := a.noteBack(keep); err != nil {
			return false, err
		}
	}
	leave := a.Live.join(a)
	c := a.play(ctx)
	leave()
	a.receive(nil)() // after a panic, there may be visits
	if err := a.log.close("the attempt ended"); err != nil && c.Storage == nil {
		c.Storage = err
	}
	a.sum()
	a.lasting, a.pausing, a.undecided = c.Lasting, c.Pause, c.Open
	return c.Again, c.Storage
}

// begin writes the attempt's first entry.
func (a *attempt) begin(ctx context.Context) error {
	return a.write(ctx, record.KindAttempt, record.Attempt{
		Arm: a.arm.ID, ArmName: a.arm.Name, Agent: a.arm.Arm.Agent, Model: a.arm.Arm.Model, Prompt: a.arm.Prompt,
		Axes:      a.arm.Axes,
		Benchmark: a.job.Task.Benchmark, Task: a.job.Task.ID, Digest: a.job.Task.Digest, Cluster: a.job.Task.Cluster,
		Repeat: a.job.Repeat, Attempt: a.job.Attempt, Seed: a.seed, Why: a.job.Why, Driver: a.Driver,
		Regrade: len(a.job.Evidence) > 0, Queued: a.began.Sub(a.job.Ready),
	})
}

// sum copies the attempt's counters and timings into the verdict.
func (a *attempt) sum() {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.verdict
	a.t.Wall = time.Since(a.began)
	v.Steps, v.Turns, v.BadCalls, v.Usage, v.Times, v.Left, v.Abandoned = a.steps, a.turns, a.bad, a.used, a.t, a.left,
		a.abandoned
	v.MaxMemory, v.OOMs = a.maxMemory, a.ooms
	v.Driver, v.Images, v.Network, v.Refused = a.driver, a.made, a.Mask.String(a.network()), a.nrefused
	v.Spent = a.paidFor
	v.Other = a.othersUsage()
	if !a.taken.None() {
		t := a.taken
		v.Taken = &t
	}
	if v.Error != nil {
		v.Error.Text = a.Mask.String(v.Error.Text)
	}
	if a.touched && !slices.Contains(v.Flags, record.Touched) {
		v.Flags = append(v.Flags, record.Touched)
	}
}

// othersUsage returns the usage so far of models other than the arm's, or nil if there is none. The
// caller holds the lock, because an abandoned grading may still be running.
func (a *attempt) othersUsage() *record.Usage {
	if a.others.None() {
		return nil
	}
	u := a.others
	return &u
}

// play runs the attempt, fills in its verdict, and returns the cause of its end.
func (a *attempt) play(ctx context.Context) (c cause) {
	defer func() {
		// Benchmark code runs in this goroutine, so this is not the agent's failure.
		if p := recover(); p != nil {
			a.Slog.Error("panic in a benchmark", "trial", a.job.Trial, "panic", p, "stack", string(debug.Stack()))
			c = cause{Fault: &record.Fault{Status: record.Infra, Phase: "session", Class: "panic",
				Text: panicked(p).Error()}, Again: true}
		}
		// Damaged storage counts even if an agent or a grader ignored the error.
		if err := a.damage(); err != nil && c.Storage == nil {
			c = storage(err)
		}
		if c.Fault != nil {
			a.explain(ctx, &c)
			a.verdict = record.Verdict{Status: c.Fault.Status, Error: c.Fault, Stages: len(a.regrade)}
		}
	}()
	ctx, done := a.live(ctx)
	defer done()
	if c = a.prepare(ctx); c.Fault != nil {
		return c
	}
	evidence := a.job.Evidence
	var results []benchmarks.Result
	if len(evidence) == 0 {
		if evidence, results, c = a.session(ctx); c.Fault != nil {
			return c
		}
	}
	if !a.needs.GradeLive || len(a.job.Evidence) > 0 {
		// From here on only the grading can fail, and it can be repeated without the agent.
		a.regrade = evidence
		a.beginWork()
		if results, c = a.gradeAll(ctx, evidence); c.Fault != nil && c.Fault.Class == classNeedsLive {
			a.regrade = nil
			if _, ok := a.bench.Benchmark.(benchmarks.Confirmer); a.claimed != nil && ok {
				return a.regradeWork(ctx)
			}
		}
		if c.Fault != nil {
			return c
		}
	}
	return a.reduce(ctx, evidence, results)
}

// prepare loads the task, asks the benchmark what it needs, and prepares its images.
func (a *attempt) prepare(ctx context.Context) cause {
	var task datasets.Task
	var needs benchmarks.Needs
	err := a.phase(ctx, "setup", a.Phases.Start, func(ctx context.Context) (err error) {
		if task, err = a.read(ctx); err == nil {
			needs, err = a.bench.Needs(task, a.bench.Options)
		}
		return err
	})
	if err == nil && needs.Skip != "" {
		err = &errSkip{"needs", needs.Skip, ""}
	}
	if err != nil {
		return phaseFault(ctx, "setup", err)
	}
	a.task, a.needs = task, needs
	a.machines()
	if len(a.job.Evidence) == 0 {
		if err := a.images(ctx, "agent", needs.Agent); err != nil {
			return a.imageFault(ctx, err)
		}
	}
	if err := a.images(ctx, "grader", needs.Grader); err != nil {
		a.regrade = a.job.Evidence
		return a.imageFault(ctx, err)
	}
	return cause{}
}

// read loads the task and checks that it has not changed since it was planned.
func (a *attempt) read(ctx context.Context) (task datasets.Task, err error) {
	if a.job.Task.Bad != "" {
		return task, &errSkip{"task", a.job.Task.Bad, a.job.Task.BadKind}
	}
	var bad *datasets.BadTask
	switch task, err = a.bench.Source().Task(ctx, a.job.Task.ID); {
	case errors.As(err, &bad), errors.Is(err, datasets.ErrNoTask):
		return task, &errSkip{"task", err.Error(), faultKind(err)}
	case err != nil, task.Digest == a.job.Task.Digest, a.regrading != nil && a.regrading.Changed:
		return task, err
	case a.regrading != nil:
		return task, &errSkip{"task", TaskChanged, ""}
	}
	return task, &errChanged{}
}

func (a *attempt) owner(role string) sandbox.Owner {
	o := a.Owner
	o.Trial, o.Attempt, o.Role = a.job.Trial, a.job.Attempt, role
	return o
}

// append writes one entry; data must be JSON.
func (a *attempt) append(ctx context.Context, kind string, data []byte) error {
	if a.regrading != nil { // the trial is already decided, so a regrading writes no entries of its attempt
		return nil
	}
	return a.journal.Append(ctx, record.Entry{Trial: a.job.Trial, Attempt: a.job.Attempt, Fence: a.job.Fence,
		Kind: kind, Data: data})
}

// write encodes and appends one entry. An entry that cannot be encoded or is too large is the
// trial's fault; any other error is a journal failure and is wrapped in errStorage, except
// [record.ErrFenced].
func (a *attempt) write(ctx context.Context, kind string, v any) error {
	data, err := encode(v)
	if err != nil {
		return fmt.Errorf("%s entry: %w", kind, err)
	}
	if len(data) > maxEntry {
		return fmt.Errorf("%s entry: it has %d bytes, more than %d", kind, len(data), maxEntry)
	}
	if err := a.append(ctx, kind, data); err != nil && !errors.Is(err, record.ErrFenced) {
		return &errStorage{err}
	} else if err != nil {
		return err
	}
	return nil
}

// maxEntry is the largest entry that a trial may write, in bytes.
const maxEntry = 32 << 20

// encode returns v as compact JSON without HTML escaping, so that "<" takes one byte.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (a *attempt) sync(ctx context.Context) error { return a.journal.Sync(ctx) }

func storage(err error) cause {
	c, ok := ours("record", err)
	if !ok {
		c, _ = ours("record", &errStorage{err})
	}
	return c
}

func (a *attempt) env() *env {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cur
}

func (a *attempt) setEnv(e *env) {
	a.mu.Lock()
	a.cur = e
	a.mu.Unlock()
}

// step counts an action. It returns a LimitError if the step limit is reached.
func (a *attempt) step() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.arm.Limits.Steps; l > 0 && a.steps >= l {
		return &agent.LimitError{Kind: agent.LimitSteps, Max: strconv.FormatInt(l, 10)}
	}
	a.steps++
	return nil
}

func (a *attempt) badCall() {
	a.mu.Lock()
	a.bad++
	a.mu.Unlock()
}

func (a *attempt) budget() agent.Budget {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.arm.Limits
	b := agent.Budget{Turns: -1, Tokens: -1, USD: -1, Time: -1}
	if l.Turns > 0 {
		b.Turns = max(0, l.Turns-a.turns)
	}
	if l.Tokens > 0 {
		b.Tokens = max(0, l.Tokens-a.gave())
	}
	if l.Cost > 0 {
		b.USD = max(0, l.Cost-a.spent)
	}
	if a.clock != nil {
		b.Time = a.clock.remaining()
	}
	return b
}

func (l *sessionLog) count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// seed returns the random seed of an attempt, derived from the run's seed, the trial and the
// attempt number.
func seed(run uint64, trial string, n int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%d", run, trial, n)
	return h.Sum64()
}

// cut shortens s to at most n bytes at a rune boundary and appends "…" if it was longer.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
