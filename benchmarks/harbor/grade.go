package harbor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/benchmarks/harbor/verify"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/datasets"
)

// Grade verifies one step: on the agent's machine where the task shares it, for which the session
// has to live, else on a fresh one that gets the artifacts.
func (b *Benchmark) Grade(ctx context.Context, h benchmarks.Host, t datasets.Task, ev benchmarks.Evidence,
	live benchmarks.Episode) (benchmarks.Result, error) {
	task, err := decode(t)
	if err != nil {
		return benchmarks.Result{}, err
	}
	if ev.Stage < 0 || ev.Stage >= len(task.Steps) {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: t.ID,
			Err: fmt.Errorf("there is no step %d", ev.Stage+1)}
	}
	var d evidence
	if len(ev.Data) > 0 {
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return benchmarks.Result{}, fmt.Errorf("reading the evidence: %w", err)
		}
	}
	if d.Broken != "" {
		return verify.NoReward(d.Broken), nil
	}
	o, err := sandboxed.LoadOptions(d.Options)
	if err != nil {
		return benchmarks.Result{}, fmt.Errorf("reading the evidence: %w", err)
	}
	get, step := b.variables(h), &task.Steps[ev.Stage].Verifier
	env, err := step.Env.Merge(b.o.VerifierEnv).Resolve("verifier.env", get)
	if err != nil {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	v := &verify.Verifier{Task: t.ID, User: step.User, Env: env, Limit: b.o.times().Verifier(step.Timeout),
		Log: h.Log()}
	if step.Separate {
		res, err := b.gradeSeparate(ctx, h, t, task, o, ev, d.Artifacts, v)
		if slices.ContainsFunc(d.Artifacts, func(a verify.Artifact) bool { return a.LeftOut }) &&
			!slices.Contains(res.Flags, benchmarks.FlagLeftOut) {
			res.Flags = append(res.Flags, benchmarks.FlagLeftOut)
		}
		return res, err
	}
	e, ok := live.(*episode)
	if !ok || e == nil || e.guard == nil {
		return benchmarks.Result{}, benchmarks.ErrNeedsLive
	}
	v.Command, err = format.ScriptCommand(t.Files, step.Script(t.Files), format.TestsDir+"/test.sh")
	if err != nil {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	v.Last = ev.Stage == len(task.Steps)-1
	v.SetNetwork = func(ctx context.Context) error {
		return e.setNetwork(ctx, b.policies(task, ev.Stage, e.o).Verifier)
	}
	return v.Shared(ctx, e.guard)
}

// gradeSeparate verifies on a machine of its own.
func (b *Benchmark) gradeSeparate(ctx context.Context, h benchmarks.Host, t datasets.Task, task *format.Task,
	o benchmarks.Options, ev benchmarks.Evidence, list []verify.Artifact, v *verify.Verifier) (res benchmarks.Result,
	err error) {
	m, err := b.verifierMachine(task, ev.Stage, t.Files, o, b.variables(h))
	if err != nil {
		return res, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	sb, err := h.Sandbox(ctx, m.Spec)
	if err != nil {
		return res, unhealthy(ctx, t.ID, "the verifier's machine", err)
	}
	defer sb.Close()
	if _, err := b.prepare(ctx, sb, m, t, "verifier.environment.healthcheck"); err != nil {
		return res, err
	}
	v.SetNetwork = func(ctx context.Context) error {
		return setNetwork(ctx, sb, m.Spec.Network, b.policies(task, ev.Stage, o).Verifier,
			"another network policy for the verifier")
	}
	return v.Separate(ctx, sb, ev.Files, list)
}

// Reduce makes a trial's result of its steps', by the task's strategy.
func (b *Benchmark) Reduce(t datasets.Task, stages []benchmarks.Result) (benchmarks.Result, error) {
	task, err := decode(t)
	if err != nil {
		return benchmarks.Result{}, err
	}
	return verify.Reduce(task.Strategy, stages)
}
