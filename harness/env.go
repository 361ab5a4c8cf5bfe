package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
)

// An env is the environment of one stage's agent: the episode, with recording and limits.
type env struct {
	a     *attempt
	stage *benchmarks.Stage
	ep    benchmarks.Episode

	mu     sync.Mutex
	sticky error // first failure that the environment itself did not cause; returned by all later calls
	closed bool
	out    int64        // bytes of observations shown so far
	served []agent.Tool // of the task's tool servers

	open     []event.Event // actions of before a crash that have no observation yet
	finished *event.Finish // with which the agent ended before a crash; nil: it did not
}

func (e *env) Tools() []agent.Tool { return e.stage.Tools }

// ToolSet implements [agent.ToolBox].
func (e *env) ToolSet(name string) []agent.Tool { return e.stage.ToolSets[name] }

// ServerTools implements [agent.ToolServers].
func (e *env) ServerTools(ctx context.Context) ([]agent.Tool, []string, error) {
	if err := e.check(); err != nil || e.stage.Servers == nil {
		return nil, nil, err
	}
	tools, notes, err := e.stage.Servers(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if err != nil {
		if _, known := ours("agent", err); !known {
			err = &errEnv{err}
		}
		return nil, nil, e.keepError(err)
	}
	e.mu.Lock()
	e.served = tools
	e.mu.Unlock()
	return tools, notes, nil
}

// offers reports whether the stage has a tool, also one of a set or of a tool server.
func (e *env) offers(name string) bool {
	has := func(t agent.Tool) bool { return t.Name == name }
	for _, set := range e.stage.ToolSets {
		if slices.ContainsFunc(set, has) {
			return true
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.stage.Tools, has) || slices.ContainsFunc(e.served, has)
}

func (e *env) Can(kind string) bool {
	switch kind {
	case "think", "finish", "invalid":
		return true
	}
	return slices.Contains(e.stage.Kinds, kind)
}

// check returns the error that keeps the env from acting, or nil.
func (e *env) check() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sticky != nil {
		return e.sticky
	}
	if e.closed {
		return event.ErrClosed
	}
	return nil
}

// keepError stores err if it is the first failure, and returns the stored failure.
func (e *env) keepError(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sticky == nil {
		e.sticky = err
	}
	return e.sticky
}

func (e *env) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sticky
}

func (e *env) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
}

// begin records an action and makes it durable.
func (e *env) begin(ctx context.Context, ev event.Event) (event.Event, error) {
	if err := e.check(); err != nil {
		return ev, err
	}
	if ctx.Err() != nil {
		return ev, context.Cause(ctx)
	}
	if err := e.a.step(); err != nil {
		return ev, e.keepError(err)
	}
	ev.ID, ev.Cause = -1, -1
	if ev.Source == "" {
		ev.Source = event.FromAgent
	}
	e.a.entered(true)
	ev, err := e.a.log.Append(ctx, ev)
	if err != nil {
		return ev, e.keepError(err)
	}
	if err := e.a.log.Sync(ctx); err != nil {
		return ev, e.keepError(err)
	}
	return ev, nil
}

// end records the observation for act.
func (e *env) end(ctx context.Context, act event.Event, body event.Body) (event.Event, error) {
	obs := event.Event{ID: -1, Source: event.FromEnvironment, Actor: act.Actor, Cause: act.ID, Call: act.Call,
		Body: body}
	out, err := e.a.log.Append(ctx, obs)
	if err != nil {
		return out, e.keepError(err)
	}
	return out, nil
}

func (e *env) Step(ctx context.Context, ev event.Event) (event.Event, error) {
	if ev.Body == nil || ev.Body.Class() != event.Action {
		return ev, fmt.Errorf("step: not an action")
	}
	act, err := e.begin(ctx, ev)
	if err != nil {
		return event.Event{}, err
	}
	return e.answer(ctx, act)
}

// reopen answers the actions that were open at a crash. The environment knows them by their IDs, so
// that those which it has executed are not executed again.
func (e *env) reopen(ctx context.Context) error {
	for _, act := range e.open {
		if _, err := e.answer(ctx, act); err != nil {
			return err
		}
	}
	e.open = nil
	return nil
}

// answer executes a recorded action.
func (e *env) answer(ctx context.Context, act event.Event) (event.Event, error) {
	switch b := act.Body.(type) {
	case event.Think:
		return e.end(ctx, act, event.Ack{Of: "think"})
	case event.Finish:
		return e.end(ctx, act, event.Ack{Of: "finish"})
	case event.Invalid:
		e.a.badCall()
		return e.end(ctx, act, event.Error{Code: "invalid_call", Text: b.Why})
	case event.ToolCall:
		if !e.offers(b.Name) {
			e.a.badCall()
			return e.end(ctx, act, event.Error{Code: "unknown_tool",
				Text: fmt.Sprintf("there is no tool named %q", b.Name)})
		}
	default:
		if !e.Can(act.Body.Kind()) {
			return e.end(ctx, act, event.Error{Code: "unsupported",
				Text: fmt.Sprintf("this environment executes no actions of kind %q", act.Body.Kind())})
		}
	}
	return e.execute(ctx, act)
}

// execute lets the episode execute act and records the result. It leaves exactly one observation on
// every return path.
func (e *env) execute(ctx context.Context, act event.Event) (event.Event, error) {
	turn, err := e.perform(ctx, act)
	e.a.ran(err)
	if err == nil && turn.Obs == nil {
		err = fmt.Errorf("the environment gave no observation")
	}
	if err != nil {
		return event.Event{}, e.unplayed(ctx, act, err)
	}
	keep := context.WithoutCancel(ctx)
	if turn.Reward != nil || len(turn.Info) > 0 {
		if err := e.reward(keep, act.ID, &turn); err != nil {
			return event.Event{}, e.keepError(&errStorage{err})
		}
	}
	obs, err := e.end(keep, act, turn.Obs)
	if err != nil {
		return obs, err
	}
	if err := e.output(obs.Body); err != nil {
		return obs, e.keepError(err)
	}
	if turn.Done {
		return obs, e.keepError(agent.ErrDone)
	}
	return obs, nil
}

// perform lets the episode execute act under a watchdog.
func (e *env) perform(ctx context.Context, act event.Event) (benchmarks.Turn, error) {
	limit := act.Timeout
	if limit <= 0 || limit > e.a.Phases.Command {
		limit = e.a.Phases.Command
	}
	act.Timeout = limit
	// The episode gets the limit and should enforce it; the watchdog is for an episode that does
	// not.
	slow := &errTooSlow{"an action that was to take at most " + limit.String(), (limit + e.a.Phases.Grace).String()}
	sctx, cancel := context.WithTimeoutCause(ctx, limit+e.a.Phases.Grace, slow)
	defer cancel()

	type result struct {
		turn benchmarks.Turn
		err  error
	}
	done := make(chan result, 1)
	began := time.Now()
	go func() {
		var res result
		defer func() {
			if p := recover(); p != nil {
				res.err = panicked(p)
			}
			done <- res
		}()
		res.turn, res.err = e.ep.Step(sctx, act)
	}()
	var res result
	select {
	case res = <-done:
	case <-sctx.Done():
		select { // the context has ended, but the episode may be about to return
		case res = <-done:
		case <-time.After(e.a.Phases.Grace):
			go func() { e.late(act, (<-done).turn.Obs) }()
			res.err = slow
		}
	}
	e.a.times(func(t *record.Times) { t.Tool += time.Since(began) })
	return res.turn, res.err
}

// unplayed records that act was not executed and returns the error to report to the agent.
func (e *env) unplayed(ctx context.Context, act event.Event, err error) error {
	keep := context.WithoutCancel(ctx)
	if ctx.Err() != nil {
		if _, err := e.end(keep, act, event.Error{Code: "stopped", Text: context.Cause(ctx).Error()}); err != nil {
			return err
		}
		return context.Cause(ctx)
	}
	if _, err := e.end(keep, act, event.Error{Code: "internal", Text: err.Error()}); err != nil {
		return err
	}
	if _, known := ours("agent", err); !known {
		err = &errEnv{err}
	}
	return e.keepError(err)
}

// reward records the reward of an action.
func (e *env) reward(ctx context.Context, action int64, turn *benchmarks.Turn) error {
	r := record.Reward{Action: action, Reward: turn.Reward, Info: e.a.Mask.JSON(turn.Info)}
	if r.Reward != nil && (math.IsNaN(*r.Reward) || math.IsInf(*r.Reward, 0)) {
		r.Reward = nil // JSON cannot hold NaN or infinity; nil means no reward
	}
	if !json.Valid(r.Info) {
		r.Info = nil
	}
	return e.a.write(ctx, record.KindReward, r)
}

// late records a result that arrived after its action had been answered.
func (e *env) late(act event.Event, body event.Body) {
	if body == nil {
		return
	}
	raw, err := e.a.Codec.Append(nil, event.New(event.FromEnvironment, body))
	if err != nil {
		return
	}
	n := event.New(event.FromEnvironment, event.Late{Action: act.ID, Was: body.Kind(), Body: raw})
	if _, err := e.a.log.Append(context.Background(), n); err != nil && !errors.Is(err, event.ErrClosed) {
		e.a.Slog.Warn("a late result could not be kept", "trial", e.a.job.Trial, "err", err)
	}
}

// output counts the bytes shown to the agent. It returns a LimitError above the limit.
func (e *env) output(b event.Body) error {
	limit := e.a.arm.Limits.Output
	if limit <= 0 {
		return nil
	}
	n := shown(b)
	e.mu.Lock()
	e.out += n
	out := e.out
	e.mu.Unlock()
	if out > limit {
		return &agent.LimitError{Kind: agent.LimitOutput, Max: fmt.Sprintf("%d bytes", limit)}
	}
	return nil
}

// shown returns the number of bytes of an observation.
func shown(b event.Body) (n int64) {
	switch b := b.(type) {
	case event.RunResult:
		n = b.OutBytes + b.ErrBytes
	case event.Viewed:
		n = int64(len(b.Text))
	case event.Edited:
		n = int64(len(b.Text))
	case event.Found:
		n = int64(len(b.Text))
	case event.CellResult:
		n = b.OutBytes
	case event.ToolResult:
		for _, p := range b.Parts {
			n += int64(len(p.Text))
		}
		if len(b.Parts) == 0 { // else it is not shown
			n = int64(len(b.Data))
		}
	case event.Unknown:
		n = int64(len(b.Raw))
	}
	return n
}

// errEnv wraps an episode's error of unknown origin. It counts as an infrastructure failure.
type errEnv struct{ err error }

func (e *errEnv) Error() string { return "the environment failed: " + e.err.Error() }
func (e *errEnv) Unwrap() error { return e.err }
