package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// session runs all stages and returns their evidence and, if grading is live, their results.
func (a *attempt) session(ctx context.Context) (evs []record.Evidence, results []benchmarks.Result, c cause) {
	h := &host{a: a, role: "agent"}
	var held undo
	defer held.all()
	var ep benchmarks.Episode
	var ag agent.Agent
	var err error
	if r := a.back; r != nil {
		h, ep, ag, held, r.held = r.h, r.ep, r.agent, r.held, nil
	} else if ep, err = a.enter(ctx, h, &held); err != nil {
		return nil, nil, phaseFault(ctx, "start", err)
	}
	var prev *benchmarks.Result
	for i := 0; ; i++ {
		var stage *benchmarks.Stage
		err := a.phase(ctx, "setup", max(a.Phases.Start, a.needs.Setup), func(ctx context.Context) (err error) {
			defer h.within(starting)()
			stage, err = ep.Next(ctx, prev)
			return err
		})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, phaseFault(ctx, "setup", err)
		}
		if ag == nil { // created after Open, so that a failure here still has a cheap, regular cleanup
			if ag, err = a.arm.Agent(a.bench.Benchmark, a.task); err != nil {
				return nil, nil, phaseFault(ctx, "setup", &errSkip{"agent", err.Error(), faultKind(err)})
			}
		}
		a.beginWork()
		rec, ev, c := a.stage(ctx, ep, ag, stage, i)
		if c.Fault != nil {
			return nil, nil, c
		}
		a.stagePlayed()
		evs = append(evs, rec)
		ended := rec.End != record.Answered && rec.End != record.GaveUp || rec.Refused != ""
		if a.needs.GradeLive {
			res, c := a.grade(ctx, rec.Refused, ev, ep)
			if c.Fault != nil {
				return nil, nil, c
			}
			results = append(results, res)
			prev = &res
		}
		if ended || stage.Last { // an agent that broke or reached a limit runs no further stage
			break
		}
	}
	return evs, results, cause{}
}

// starting selects the time that a session needs to become ready.
func starting(t *record.Times) *time.Duration { return &t.Start }

// An undo is a list of cleanup functions, called in reverse order.
type undo []func()

func (u *undo) add(f func()) { *u = append(*u, f) }

// all calls the functions, even if one of them panics.
func (u *undo) all() {
	for _, f := range *u {
		defer f()
	}
}

// enter acquires what a session needs and opens its episode. It adds the cleanup to held.
func (a *attempt) enter(ctx context.Context, h *host, held *undo) (ep benchmarks.Episode, err error) {
	specs := a.needs.Agent
	if a.needs.GradeLive {
		specs = append(slices.Clone(specs), a.needs.GraderRoom()...)
	}
	if a.needs.Browser {
		done, err := a.browser(ctx)
		if err != nil {
			return nil, err
		}
		held.add(done)
	}
	if err := a.acquire(ctx, specs); err != nil {
		return nil, err
	}
	held.add(func() {
		if err := a.release(); err != nil {
			a.Slog.Warn("closing a session's machines", "trial", a.job.Trial, "err", err)
		}
	})
	if ep, err = a.openEpisode(ctx, h); err != nil {
		return nil, err
	}
	held.add(func() {
		if err := a.closeEpisode(ctx, ep); err != nil {
			a.Slog.Warn("closing an episode", "trial", a.job.Trial, "err", err)
		}
	})
	return ep, nil
}

// openEpisode opens the session's episode. If Open returns after the caller has stopped waiting,
// the episode is closed right there.
func (a *attempt) openEpisode(ctx context.Context, h *host) (benchmarks.Episode, error) {
	var ep benchmarks.Episode
	var settled atomic.Bool // set by whichever comes first: the episode is open, or the caller has given up
	err := a.phase(ctx, "start", max(a.Phases.Start, a.needs.Setup), func(ctx context.Context) (err error) {
		defer h.within(starting)()
		o := a.bench.Options
		o.Repeat, o.Round = a.job.Repeat, a.job.Round
		if ep, err = a.bench.Open(ctx, h, a.task, o); err == nil && settled.Swap(true) {
			err = ep.Close()
		}
		return err
	})
	if err == nil {
		return ep, nil
	}
	if settled.Swap(true) { // opened at the last moment
		a.closeEpisode(ctx, ep)
	}
	return nil, err
}

// stage lets the agent work on one stage and makes its evidence durable.
func (a *attempt) stage(ctx context.Context, ep benchmarks.Episode, ag agent.Agent, stage *benchmarks.Stage,
	i int) (rec record.Evidence, ev benchmarks.Evidence, c cause) {
	keep := context.WithoutCancel(ctx)
	e := &env{a: a, stage: stage, ep: ep}
	if r := a.back; r != nil {
		a.back, e.open, e.out = nil, r.open, r.out
	} else if err := a.beginStage(keep, stage, i); err != nil {
		return rec, ev, phaseFault(ctx, "setup", err)
	}
	a.setEnv(e)
	var env agent.Env = e
	m, hasMachine := ep.(benchmarks.Machiner)
	if hasMachine {
		env = &machineEnv{env: e, m: m}
	}
	ans, end := agent.Answer{}, cause{End: record.Broke, Text: stage.Broken}
	if stage.Broken == "" {
		closed := func() {}
		if hasMachine {
			closed = a.receive(m)
		}
		ans, end = a.agent(ctx, ag, env, e, stage)
		closed()
	}
	if why := invalidOutputs(ans.Outputs); why != "" {
		ans.Outputs = nil
		if end.Fault == nil {
			end = cause{End: record.Broke, Text: "the outputs of the agent's answer are " + why}
		}
	}
	e.close()
	a.refusals(ep)
	if end.Fault != nil {
		return rec, ev, end
	}
	// The agent has ended. Kill the processes it left in its sandbox, unless the stage says that
	// they are part of the answer.
	var err error
	if hasMachine {
		if sb := m.Started(); sb != nil {
			err = a.phase(ctx, "collect", a.Phases.Collect, func(ctx context.Context) error {
				if l, ok := ep.(benchmarks.ShellLeaver); ok {
					if err := l.LeaveShells(ctx); err != nil {
						return err
					}
				}
				return a.settle(ctx, sb, stage.Leave)
			})
		}
	}
	if err == nil {
		ev, err = a.collect(ctx, ep, ans)
	}
	refused := a.leavings(err)
	switch {
	case refused != "":
		ev = benchmarks.Evidence{Answer: ans}
	case err != nil:
		return rec, ev, phaseFault(ctx, "collect", err)
	}
	ev.Stage = i
	rec = record.Evidence{Stage: i, End: end.End, Limit: end.Limit, Error: cut(a.Mask.String(end.Text), maxText),
		Left:    a.left,
		Touched: a.isTouched(),
		Refused: cut(a.Mask.String(refused), maxText), Changes: a.maskChanges(ev.Changes), Work: a.maskWork(ev.Work),
		Last: stage.Last || refused != "" || end.End == record.Broke || end.End == record.Limit}
	if rec.Data, rec.Blob, err = a.keepEvidence(keep, ev); err != nil {
		return rec, ev, phaseFault(ctx, "collect", err)
	}
	// Sync the log first, so that durable evidence never points to a missing blob.
	if err := a.log.Sync(keep); err != nil {
		return rec, ev, storage(err)
	}
	if err := a.write(keep, record.KindEvidence, rec); err != nil {
		return rec, ev, phaseFault(ctx, "collect", err)
	}
	if err := a.sync(keep); err != nil {
		return rec, ev, storage(err)
	}
	return rec, ev, cause{End: end.End}
}

// invalidOutputs returns why an answer's outputs cannot be recorded, or "".
func invalidOutputs(outputs json.RawMessage) string {
	switch {
	case len(outputs) == 0:
	case !json.Valid(outputs):
		return "not JSON"
	case depth(outputs) > maxDepth:
		return fmt.Sprintf("nested deeper than %d levels", maxDepth)
	}
	return ""
}

// collect asks the episode for a stage's evidence. Evidence that arrives too late is ignored.
func (a *attempt) collect(ctx context.Context, ep benchmarks.Episode, ans agent.Answer) (benchmarks.Evidence, error) {
	var ev benchmarks.Evidence
	err := a.phase(ctx, "collect", max(a.Phases.Collect, a.needs.Collect), func(ctx context.Context) (err error) {
		ev, err = ep.Collect(ctx, ans)
		return err
	})
	if err != nil {
		return benchmarks.Evidence{}, err
	}
	return ev, nil
}

// agent runs the agent's loop under its clock. It abandons an agent that does not return within the
// grace period.
func (a *attempt) agent(ctx context.Context, ag agent.Agent, env agent.Env, e *env,
	stage *benchmarks.Stage) (agent.Answer, cause) {
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
			return a.client(a.arm.Model, actor, role, false)
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
				// logged at debug level, because the verdict reports the panic
				a.Slog.Debug("panic in an agent", "trial", a.job.Trial, "panic", p, "stack", string(debug.Stack()))
				res.err = panicked(p)
			}
			done <- res
		}()
		if res.err = e.reopen(actx); res.err == nil {
			res.ans, res.err = ag.Run(actx, s)
		}
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
	return res.ans, a.agentEnd(actx, res.ans, res.err, e.failure())
}

// agentTime returns the agent's time limit for a stage and the limit's name for messages.
func (a *attempt) agentTime(stage *benchmarks.Stage) (time.Duration, string) {
	a.mu.Lock()
	used := a.t.Working
	a.mu.Unlock()
	limit := a.arm.Limits.Time
	if limit == 0 && stage.Time <= 0 {
		limit = DefaultTime
	}
	name := limit.String()
	if limit > 0 {
		limit = max(limit-used, time.Millisecond)
	}
	if stage.Time > 0 && (limit <= 0 || stage.Time < limit) {
		limit, name = stage.Time, stage.Time.String()
	}
	return limit, name
}

// settle kills or counts the processes that the agent left running, and records the sandbox's
// resource usage.
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
	if left != nil && *left == 0 {
		a.entered(false)
		return nil
	}
	if leave {
		return nil
	}
	if err := sb.KillAll(ctx); err != nil {
		return err
	}
	a.entered(false)
	zero := 0
	a.mu.Lock()
	a.left = &zero
	a.mu.Unlock()
	return nil
}
