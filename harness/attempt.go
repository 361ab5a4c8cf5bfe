package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An attempt is one try of a trial, from its lease to its verdict:
//
//	close what was interrupted → needs → lease → open → (next → agent → collect → evidence)… → grade → reduce → verdict
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

	mu        sync.Mutex
	cur       *env
	clock     *clock
	steps     int64
	turns     int64
	bad       int64
	used      record.Usage
	others    record.Usage
	spent     float64
	left      *int
	maxMemory *int64
	ooms      int64
	abandoned bool
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
	if a.task.Digest != a.job.Task.Digest {
		return none(skip("task", "the task's content is not what it was when the run was planned; start a new run"))
	}
	needs, err := a.bench.Needs(a.task, a.bench.Options)
	if err != nil {
		return none(phaseFault(ctx, "setup", err))
	}
	if needs.Skip != "" {
		return none(skip("needs", needs.Skip))
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
			if c.Fault.Class == "needs_live" {
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

// session plays all stages and returns their evidence and, when grading is live, their results.
func (a *attempt) session(ctx context.Context, needs benchmarks.Needs) (evs []record.Evidence, results []benchmarks.Result, c cause) {
	specs := needs.Agent
	if needs.GradeLive {
		specs = append(slices.Clone(specs), needs.Grader...)
	}
	if err := a.acquire(ctx, specs); err != nil {
		return nil, nil, phaseFault(ctx, "start", err)
	}
	defer func() {
		if f := a.release(); f != nil && c.Fault == nil {
			a.Slog.Warn("closing a session's machines", "trial", a.job.Trial, "err", f)
		}
	}()
	var ep benchmarks.Episode
	err := a.phase(ctx, "start", a.Phases.Start, func(ctx context.Context) (err error) {
		defer a.since(func(t *record.Times) *time.Duration { return &t.Start })()
		ep, err = a.bench.Open(ctx, &host{a: a, role: "agent"}, a.task, a.bench.Options)
		return err
	})
	if err != nil {
		return nil, nil, phaseFault(ctx, "start", err)
	}
	defer func() {
		if err := a.closeEpisode(ctx, ep); err != nil {
			a.Slog.Warn("closing an episode", "trial", a.job.Trial, "err", err)
		}
	}()

	var ag agent.Agent
	var prev *benchmarks.Result
	for i := 0; ; i++ {
		var stage *benchmarks.Stage
		err := a.phase(ctx, "setup", a.Phases.Start, func(ctx context.Context) (err error) {
			stage, err = ep.Next(ctx, prev)
			return err
		})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, phaseFault(ctx, "setup", err)
		}
		if ag == nil { // after Open, so that an agent that cannot be made costs no more than that
			if ag, err = a.arm.Agent(a.bench.Benchmark, a.task); err != nil {
				return nil, nil, skip("agent", err.Error())
			}
		}
		rec, ev, c := a.stage(ctx, ep, ag, stage, i)
		if c.Fault != nil {
			return nil, nil, c
		}
		evs = append(evs, rec)
		ended := rec.End != record.Answered && rec.End != record.GaveUp
		if needs.GradeLive {
			res, c := a.grade(ctx, ev, ep)
			if c.Fault != nil {
				return nil, nil, c
			}
			results = append(results, res)
			prev = &res
		}
		if ended || stage.Last { // an agent that broke or passed a limit plays no further stage
			break
		}
	}
	return evs, results, cause{}
}

// stage lets the agent play one stage and makes its evidence durable.
func (a *attempt) stage(ctx context.Context, ep benchmarks.Episode, ag agent.Agent, stage *benchmarks.Stage, i int) (rec record.Evidence, ev benchmarks.Evidence, c cause) {
	keep := context.WithoutCancel(ctx)
	if err := a.write(keep, record.KindStage, record.Stage{Index: i, Name: stage.Name, Goal: cut(a.Mask.String(stage.Goal.Text()), 64<<10), Events: a.log.count()}); err != nil {
		return rec, ev, storage(err)
	}
	e := &env{a: a, stage: stage, ep: ep}
	a.setEnv(e)
	var env agent.Env = e
	m, hasMachine := ep.(benchmarks.Machiner)
	if hasMachine {
		env = &machineEnv{env: e, m: m}
	}
	ans, end := a.agent(ctx, ag, env, e, stage)
	e.close()
	if end.Fault != nil {
		return rec, ev, end
	}
	// The agent no longer runs; what it left in its machine ends now, unless the stage says that it is part of the answer.
	if hasMachine {
		if sb := m.Started(); sb != nil {
			err := a.phase(ctx, "collect", a.Phases.Collect, func(ctx context.Context) error { return a.settle(ctx, sb, stage.Leave) })
			if err != nil {
				return rec, ev, phaseFault(ctx, "collect", err)
			}
		}
	}
	err := a.phase(ctx, "collect", a.Phases.Collect, func(ctx context.Context) (err error) {
		ev, err = ep.Collect(ctx, ans)
		return err
	})
	if err != nil {
		return rec, ev, phaseFault(ctx, "collect", err)
	}
	ev.Stage = i
	data, err := json.Marshal(ev)
	if err != nil {
		return rec, ev, phaseFault(ctx, "collect", err)
	}
	rec = record.Evidence{Stage: i, End: end.End, Limit: end.Limit, Error: cut(a.Mask.String(end.Text), 16<<10), Data: a.Mask.Bytes(data), Left: a.left,
		Last: stage.Last || end.End == record.Broke || end.End == record.Limit}
	// The log's blobs first: evidence that is durable has all that it points to.
	if err := a.log.Sync(keep); err != nil {
		return rec, ev, storage(err)
	}
	if err := a.write(keep, record.KindEvidence, rec); err != nil {
		return rec, ev, storage(err)
	}
	if err := a.sync(keep); err != nil {
		return rec, ev, storage(err)
	}
	return rec, ev, cause{End: end.End}
}

// agent runs the agent's loop under its clock, and abandons it when it does not return.
func (a *attempt) agent(ctx context.Context, ag agent.Agent, env agent.Env, e *env, stage *benchmarks.Stage) (agent.Answer, cause) {
	limit, name := a.agentTime(stage)
	actx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ck := newClock(limit, func() { cancel(&agent.LimitError{Kind: agent.LimitTime, Max: name}) })
	a.mu.Lock()
	a.clock = ck
	a.mu.Unlock()
	s := &agent.Session{
		Env: env, Goal: stage.Goal, Log: a.log, Seed: a.seed, Left: a.budget, Slog: a.Slog.With("trial", a.job.Trial),
		Models: func(actor, role string) (model.Client, error) {
			if a.arm.Model == nil {
				return nil, fmt.Errorf("arm %s has no model; name one in its configuration", a.arm.Name)
			}
			return a.bind(a.arm.Model, actor, role, false)
		},
	}
	type result struct {
		ans agent.Answer
		err error
	}
	done := make(chan result, 1)
	began := time.Now()
	go func() {
		var res result
		defer func() {
			if p := recover(); p != nil {
				a.Slog.Error("panic in an agent", "trial", a.job.Trial, "panic", p, "stack", string(debug.Stack()))
				res.err = panicked(p)
			}
			done <- res
		}()
		res.ans, res.err = ag.Run(actx, s)
	}()
	var res result
	select {
	case res = <-done:
	case <-actx.Done():
		select {
		case res = <-done:
		case <-time.After(a.Phases.Grace):
			a.mu.Lock()
			a.abandoned = true
			a.mu.Unlock()
			res.err = context.Cause(actx)
		}
	}
	working := ck.stop()
	a.times(func(t *record.Times) { t.Agent += time.Since(began); t.Working += working })
	return res.ans, agentEnd(actx, res.ans, res.err, e.failure())
}

// agentTime is what the agent has for a stage, and how people call that limit.
func (a *attempt) agentTime(stage *benchmarks.Stage) (time.Duration, string) {
	a.mu.Lock()
	used := a.t.Working
	a.mu.Unlock()
	limit, name := a.arm.Limits.Time, a.arm.Limits.Time.String()
	if limit > 0 {
		limit = max(limit-used, time.Millisecond)
	}
	if stage.Time > 0 && (limit <= 0 || stage.Time < limit) {
		limit, name = stage.Time, stage.Time.String()
	}
	return limit, name
}

// settle ends or counts what the agent left running, and looks at what its machine used.
func (a *attempt) settle(ctx context.Context, sb sandbox.Sandbox, leave bool) error {
	st, ok := sandbox.As[sandbox.Stater](sb)
	var left *int
	if ok {
		s, err := st.Stats(ctx)
		if err != nil {
			return err
		}
		left = s.Pids
		a.mu.Lock()
		a.left, a.maxMemory = left, s.MaxMemory
		if s.OOMKills != nil {
			a.ooms = *s.OOMKills
		}
		a.mu.Unlock()
	}
	if leave || left != nil && *left == 0 {
		return nil
	}
	if err := sb.KillAll(ctx); err != nil {
		return err
	}
	zero := 0
	a.mu.Lock()
	a.left = &zero
	a.mu.Unlock()
	return nil
}

// gradeAll grades every stage from its evidence alone, the agent's machines being closed.
func (a *attempt) gradeAll(ctx context.Context, needs benchmarks.Needs, evs []record.Evidence) ([]benchmarks.Result, cause) {
	if err := a.acquire(ctx, needs.Grader); err != nil {
		return nil, phaseFault(ctx, "grade", err)
	}
	defer a.release()
	var out []benchmarks.Result
	for _, rec := range evs {
		var ev benchmarks.Evidence
		if err := json.Unmarshal(rec.Data, &ev); err != nil {
			return nil, phaseFault(ctx, "grade", fmt.Errorf("reading the evidence: %w", err))
		}
		if rec.Left != nil && a.left == nil {
			a.left = rec.Left
		}
		res, c := a.grade(ctx, ev, nil)
		if c.Fault != nil {
			return nil, c
		}
		out = append(out, res)
	}
	return out, cause{}
}

// grade grades one stage and records the result.
func (a *attempt) grade(ctx context.Context, ev benchmarks.Evidence, live benchmarks.Episode) (res benchmarks.Result, c cause) {
	if a.grading != nil {
		select {
		case a.grading <- struct{}{}:
			defer func() { <-a.grading }()
		case <-ctx.Done():
			return res, canceled("grade", context.Cause(ctx))
		}
	}
	err := a.phase(ctx, "grade", a.Phases.Grade, func(ctx context.Context) (err error) {
		defer a.since(func(t *record.Times) *time.Duration { return &t.Grade })()
		res, err = a.bench.Grade(ctx, &host{a: a, role: "grader"}, a.task, ev, live)
		return err
	})
	if errors.Is(err, benchmarks.ErrNeedsLive) {
		return res, cause{Fault: &record.Fault{Status: record.Grader, Phase: "grade", Class: "needs_live", Text: err.Error()}, Again: true}
	}
	if err != nil {
		return res, phaseFault(ctx, "grade", err)
	}
	if err := valid(res); err != nil {
		return res, phaseFault(ctx, "grade", err)
	}
	if err := a.write(context.WithoutCancel(ctx), record.KindResult, record.Result{Stage: ev.Stage, Scores: res.Scores, Tests: res.Tests, Flags: res.Flags}); err != nil {
		return res, storage(err)
	}
	return res, cause{}
}

// valid checks what a grader returned: exactly one primary score, and numbers.
func valid(r benchmarks.Result) error {
	primary := 0
	for _, s := range r.Scores {
		if s.Primary {
			primary++
		}
		if s.Value != nil && (*s.Value != *s.Value || *s.Value > 1e300 || *s.Value < -1e300) {
			return fmt.Errorf("the grader's score %q is not a number", s.Name)
		}
	}
	if primary != 1 {
		return fmt.Errorf("the grader gave %d primary scores, not one", primary)
	}
	return nil
}

// reduce makes the verdict of the stages' results.
func (a *attempt) reduce(evs []record.Evidence, results []benchmarks.Result) (record.Verdict, cause) {
	if len(evs) == 0 {
		c := cause{Fault: &record.Fault{Status: record.Infra, Phase: "session", Class: "internal", Text: "the episode had no stage"}}
		return record.Verdict{Status: record.Infra, Error: c.Fault}, c
	}
	res := results[0]
	if red, ok := a.bench.Benchmark.(benchmarks.Reducer); ok {
		var err error
		if res, err = red.Reduce(results); err != nil {
			c := cause{Fault: &record.Fault{Status: record.Grader, Phase: "grade", Class: "internal", Text: err.Error()}}
			return record.Verdict{Status: record.Grader, Error: c.Fault}, c
		}
	} else if len(results) > 1 {
		res = mean(results)
	}
	last := evs[len(evs)-1]
	v := record.Verdict{Status: record.Scored, End: last.End, Limit: last.Limit, Scores: res.Scores, Flags: res.Flags, Stages: len(evs)}
	if p := res.Primary(); p != nil {
		v.Reward = p.Value
	}
	if last.Error != "" {
		v.Error = &record.Fault{Status: record.Scored, Phase: "agent", Class: "broke", Text: last.Error}
	}
	var ev benchmarks.Evidence
	if err := json.Unmarshal(last.Data, &ev); err == nil {
		v.Answer = cut(ev.Answer.Text(), 4<<10)
	}
	return v, cause{End: last.End}
}

// mean is the mean of the primary scores; a stage without an opinion counts as 0.
func mean(results []benchmarks.Result) benchmarks.Result {
	var out benchmarks.Result
	sum := 0.0
	for i, r := range results {
		for _, s := range r.Scores {
			if s.Primary && s.Value != nil {
				sum += *s.Value
			}
			s.Primary = false
			s.Name = "stage" + strconv.Itoa(i+1) + "." + s.Name
			out.Scores = append(out.Scores, s)
		}
		out.Tests = append(out.Tests, r.Tests...)
		for _, f := range r.Flags {
			if !slices.Contains(out.Flags, f) {
				out.Flags = append(out.Flags, f)
			}
		}
	}
	m := sum / float64(len(results))
	out.Scores = append([]record.Score{{Name: "mean", Primary: true, Value: &m}}, out.Scores...)
	return out
}

// phase runs f under a limit of its own. A phase that neither ends nor heeds its context is left behind after the grace.
func (a *attempt) phase(ctx context.Context, name string, limit time.Duration, f func(context.Context) error) error {
	slow := &errTooSlow{name, limit.String()}
	pctx, cancel := context.WithTimeoutCause(ctx, limit, slow)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if p := recover(); p != nil {
				a.Slog.Error("panic in a benchmark", "trial", a.job.Trial, "phase", name, "panic", p, "stack", string(debug.Stack()))
				err = panicked(p)
			}
			done <- err
		}()
		err = f(pctx)
	}()
	select {
	case err := <-done:
		if err != nil && ctx.Err() == nil && pctx.Err() != nil {
			return fmt.Errorf("%w: %w", slow, err)
		}
		return err
	case <-pctx.Done():
	}
	select {
	case err := <-done:
		if err == nil {
			return nil
		}
	case <-time.After(a.Phases.Grace):
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return slow
}

func (a *attempt) acquire(ctx context.Context, specs []sandbox.Spec) error {
	if len(specs) == 0 {
		return nil
	}
	if a.Provider == nil {
		return &sandbox.Unsupported{Driver: "none at all", What: "a machine for this task"}
	}
	specs = slices.Clone(specs)
	for i := range specs {
		specs[i].Owner = a.owner("")
	}
	defer a.since(func(t *record.Times) *time.Duration { return &t.Queue })()
	l, err := a.Provider.Acquire(ctx, specs)
	if err != nil {
		return err
	}
	a.lease = l
	return nil
}

func (a *attempt) release() error {
	if a.lease == nil {
		return nil
	}
	defer a.since(func(t *record.Times) *time.Duration { return &t.Close })()
	l := a.lease
	a.lease = nil
	return l.Close()
}

func (a *attempt) closeEpisode(ctx context.Context, ep benchmarks.Episode) error {
	defer a.since(func(t *record.Times) *time.Duration { return &t.Close })()
	return a.phase(context.WithoutCancel(ctx), "close", a.Phases.Close, func(context.Context) error { return ep.Close() })
}

func (a *attempt) owner(role string) sandbox.Owner {
	o := a.Owner
	o.Trial, o.Attempt, o.Role = a.job.Trial, a.job.Attempt, role
	return o
}

// append writes one entry whose data is JSON already.
func (a *attempt) append(ctx context.Context, kind string, data []byte) error {
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

// waiting stops the agent's clock until the returned function is called.
func (a *attempt) waiting() func() {
	a.mu.Lock()
	c := a.clock
	a.mu.Unlock()
	if c == nil {
		return func() {}
	}
	return c.wait()
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

func (a *attempt) times(f func(*record.Times)) {
	a.mu.Lock()
	f(&a.t)
	a.mu.Unlock()
}

// since adds the time until the returned function is called to one of the times.
func (a *attempt) since(which func(*record.Times) *time.Duration) func() {
	began := time.Now()
	return func() { a.times(func(t *record.Times) { *which(t) += time.Since(began) }) }
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
