package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An attempt is one try of a trial, from its lease to its verdict:
//
//	close what was interrupted → needs → images → lease → open → (next → agent → collect → evidence)… → grade → reduce → verdict
//
// Every phase has a limit and runs under the run's context; what must happen after its end (closing, writing) does not.
type attempt struct {
	*runner
	job   Job
	arm   *Arm
	bench *Bench
	task  datasets.Task
	log   *sessionLog
	seed  uint64
	began time.Time

	// regrade is set when all evidence is durable and only the grading failed: the next attempt needs no agent.
	regrade []record.Evidence
	replay  *replay
	lease   sandbox.Lease
	needs   benchmarks.Needs

	mu        sync.Mutex
	cur       *env
	clock     *clock
	steps     int64
	turns     int64
	bad       int64
	used      record.Usage
	others    record.Usage
	paidFor   record.Usage
	spent     float64
	left      *int
	maxMemory *int64
	ooms      int64
	abandoned bool
	driver    string
	made      []record.Image
	networks  []string // policies of the agent's machine, in order
	proxied   bool     // programs in it that know no proxy have none of it
	open      []*watched
	told      map[refusal]int64
	nrefused  int64
	regrading *Regrading      // only an amendment will be written
	results   []record.Result // of a regrading
	lasting   bool            // another attempt would soon fail in the same way, through no fault of the arm's
	t         record.Times
}

// run makes the attempt. The error is a failure of the journal: the run ends.
func (a *attempt) run(ctx context.Context) (v record.Verdict, again bool, err error) {
	keep := context.WithoutCancel(ctx)
	a.seed = seed(a.Seed, a.job.Trial, a.job.Attempt)
	if a.job.Interrupted > 0 {
		if err := a.takeUp(keep); err != nil {
			return v, false, err
		}
	}
	a.log = newLog(a)
	if err := a.write(keep, record.KindAttempt, record.Attempt{
		Arm: a.arm.ID, ArmName: a.arm.Name, Agent: a.arm.Arm.Agent, Model: a.arm.Arm.Model, Prompt: a.arm.Prompt, Axes: a.arm.Axes,
		Benchmark: a.job.Task.Benchmark, Task: a.job.Task.ID, Digest: a.job.Task.Digest, Cluster: a.job.Task.Cluster,
		Repeat: a.job.Repeat, Attempt: a.job.Attempt, Seed: a.seed, Why: a.job.Why, Driver: a.Driver,
		Regrade: len(a.job.Evidence) > 0, Queued: a.began.Sub(a.job.Ready),
	}); err != nil {
		return v, false, err
	}
	v, c := a.play(ctx)
	if err := a.log.close("the attempt ended"); err != nil && c.Storage == nil {
		c.Storage = err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.t.Wall = time.Since(a.began)
	v.Steps, v.Turns, v.BadCalls, v.Usage, v.Times, v.Left, v.Abandoned = a.steps, a.turns, a.bad, a.used, a.t, a.left, a.abandoned
	v.MaxMemory, v.OOMs = a.maxMemory, a.ooms
	v.Driver, v.Images, v.Network, v.Refused = a.driver, a.made, a.Mask.String(a.network()), a.nrefused
	a.lasting = c.Lasting
	v.Spent = a.paidFor
	if a.others.Calls > 0 {
		v.Other = &a.others
	}
	if v.Error != nil {
		v.Error.Text = a.Mask.String(v.Error.Text)
	}
	return v, c.Again, c.Storage
}

// play returns the verdict's substance, and the cause it comes from.
func (a *attempt) play(ctx context.Context) (v record.Verdict, c cause) {
	none := func(c cause) (record.Verdict, cause) {
		return record.Verdict{Status: c.Fault.Status, Error: c.Fault}, c
	}
	defer func() { // a benchmark's own panic: ours
		if p := recover(); p != nil {
			a.Slog.Error("panic in a benchmark", "trial", a.job.Trial, "panic", p, "stack", string(debug.Stack()))
			v, c = none(cause{Fault: &record.Fault{Status: record.Infra, Phase: "session", Class: "panic", Text: panicked(p).Error()}, Again: true})
		}
	}()
	if a.job.Task.Bad != "" {
		return none(skip("task", a.job.Task.Bad))
	}
	var err error
	if a.task, err = a.bench.Source().Task(ctx, a.job.Task.ID); err != nil {
		var bad *datasets.BadTask
		if errors.As(err, &bad) || errors.Is(err, datasets.ErrNoTask) {
			return none(skip("task", err.Error()))
		}
		return none(phaseFault(ctx, "setup", err))
	}
	if a.task.Digest != a.job.Task.Digest && (a.regrading == nil || !a.regrading.Changed) {
		if a.regrading != nil {
			return none(skip("task", "the task's content is no longer what was played"))
		}
		return none(skip("task", "the task's content is not what it was when the run was planned; start a new run"))
	}
	needs, err := a.bench.Needs(a.task, a.bench.Options)
	if err != nil {
		return none(phaseFault(ctx, "setup", err))
	}
	if needs.Skip != "" {
		return none(skip("needs", needs.Skip))
	}
	a.needs = needs
	a.machines(needs)
	if len(a.job.Evidence) == 0 {
		if err := a.images(ctx, "agent", needs.Agent); err != nil {
			return none(a.imageFault(ctx, err))
		}
	}
	if err := a.images(ctx, "grader", needs.Grader); err != nil {
		a.regrade = a.job.Evidence
		return none(a.imageFault(ctx, err))
	}
	evidence := a.job.Evidence
	var results []benchmarks.Result
	if len(evidence) == 0 {
		if evidence, results, c = a.session(ctx, needs); c.Fault != nil {
			return none(c)
		}
	}
	if !needs.GradeLive || len(a.job.Evidence) > 0 {
		// From here on only the grading can fail, and it can be done again without the agent.
		a.regrade = evidence
		if results, c = a.gradeAll(ctx, needs, evidence); c.Fault != nil {
			if c.Fault.Class == classNeedsLive {
				a.regrade = nil
			}
			return none(c)
		}
	}
	return a.reduce(evidence, results)
}

func skip(class, why string) cause {
	return cause{Fault: &record.Fault{Status: record.Skipped, Phase: "setup", Class: class, Text: why}}
}

func (a *attempt) owner(role string) sandbox.Owner {
	o := a.Owner
	o.Trial, o.Attempt, o.Role = a.job.Trial, a.job.Attempt, role
	return o
}

// append writes one entry whose data is JSON already.
func (a *attempt) append(ctx context.Context, kind string, data []byte) error {
	if a.regrading != nil { // the trial is decided: what grading it again says on its way belongs to no attempt
		return nil
	}
	return a.journal.Append(ctx, record.Entry{Trial: a.job.Trial, Attempt: a.job.Attempt, Fence: a.job.Fence, Kind: kind, Data: data})
}

func (a *attempt) write(ctx context.Context, kind string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s entry: %w", kind, err)
	}
	return a.append(ctx, kind, data)
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

// step counts an action and says whether it may be.
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
		b.Tokens = max(0, l.Tokens-a.used.In-a.used.Out)
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

// seed of an attempt: the same for the same run seed, trial and attempt.
func seed(run uint64, trial string, n int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%d", run, trial, n)
	return h.Sum64()
}

// cut shortens s to at most n bytes, at a rune's border.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
