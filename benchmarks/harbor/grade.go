package harbor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Grade verifies one step: on the agent's machine where the task shares it, for which the session
// has to live, else on a fresh one that gets the artifacts.
func (b *Benchmark) Grade(ctx context.Context, h benchmarks.Host, t datasets.Task, ev benchmarks.Evidence,
	live benchmarks.Episode) (benchmarks.Result, error) {
	task, err := Decode(t)
	if err != nil {
		return benchmarks.Result{}, err
	}
	if ev.Stage < 0 || ev.Stage >= len(task.Steps) {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: t.ID,
			Err: fmt.Errorf("there is no step %d", ev.Stage+1)}
	}
	var d data
	if len(ev.Data) > 0 {
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return benchmarks.Result{}, fmt.Errorf("reading the evidence: %w", err)
		}
	}
	if d.Broken != "" {
		return noReward(d.Broken), nil
	}
	o, err := sandboxed.Kept(d.Wishes)
	if err != nil {
		return benchmarks.Result{}, fmt.Errorf("reading the evidence: %w", err)
	}
	v := &verification{b: b, h: h, task: task, id: t.ID, i: ev.Stage, step: &task.Steps[ev.Stage], files: t.Files,
		get: b.Variables(h)}
	var res benchmarks.Result
	if v.step.Verifier.Separate {
		res, err = v.separate(ctx, o, ev, d.Artifacts)
		if slices.ContainsFunc(d.Artifacts, func(k Kept) bool { return k.Out }) {
			res.Flags = addFlags(res.Flags, benchmarks.FlagLeftOut)
		}
	} else {
		g, ok := live.(*episode)
		if !ok || g == nil || g.sb == nil {
			return res, benchmarks.ErrNeedsLive
		}
		res, err = v.shared(ctx, g)
	}
	if err != nil {
		return res, err
	}
	integrity := b.o.Integrity
	if integrity == "" {
		integrity = o.Integrity
	}
	return v.found.apply(res, integrity == "fail"), nil
}

// apply writes what was found into a result. With fail, tampering makes the score 0.
func (f *findings) apply(res benchmarks.Result, fail bool) benchmarks.Result {
	return f.applied(res, fail, tampering)
}

// applied takes some flags for tampering.
func (f *findings) applied(res benchmarks.Result, fail bool, tampering []string) benchmarks.Result {
	res.Flags = addFlags(res.Flags, f.flags...)
	p := res.Primary()
	if p == nil || len(f.notes) == 0 {
		return res
	}
	why := f.why()
	if fail && slices.ContainsFunc(res.Flags, func(s string) bool { return slices.Contains(tampering, s) }) {
		zero := 0.0
		if p.Value != nil && *p.Value != 0 {
			why = fmt.Sprintf("0 for what was found (integrity: fail); the verifier said %v: %s", *p.Value, why)
		}
		p.Value = &zero
	}
	switch {
	case p.Why != "":
		why = p.Why + "; " + why
	case p.Value != nil && *p.Value != 0: // what was found is not why it is more than 0
		why = "the verifier said so; beside it: " + why
	}
	p.Why = score.Clip(clean(why), 2500)
	return res
}

// separate verifies on a machine of its own.
func (v *verification) separate(ctx context.Context, o benchmarks.Options, ev benchmarks.Evidence,
	list []Kept) (benchmarks.Result, error) {
	m, err := v.b.Grader(v.task, v.i, v.files, o, v.get)
	if err != nil {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: v.id, Err: err}
	}
	if v.sb, err = v.h.Sandbox(ctx, m.Spec); err != nil {
		return benchmarks.Result{}, sickness(ctx, v.id, "the verifier's machine", err)
	}
	defer v.sb.Close()
	v.last = true
	if v.dir = m.Spec.Dir; v.dir == "" {
		if v.dir, err = workingDir(ctx, v.sb); err != nil {
			return benchmarks.Result{}, err
		}
	}
	if err := open777(ctx, v.sb, m.Dirs...); err != nil {
		return benchmarks.Result{}, err
	}
	if err := upload(ctx, v.sb, m, v.files, v.dir); err != nil {
		return benchmarks.Result{}, err
	}
	if err := healthy(ctx, v.b, v.sb, v.id, "verifier.environment.healthcheck", m.Env.Health); err != nil {
		return benchmarks.Result{}, err
	}
	why, err := restore(ctx, v.sb, v.h.Log(), ev.Files, list)
	if err != nil {
		return benchmarks.Result{}, err
	}
	if why != "" {
		return noReward(why), nil
	}
	if _, err := clearDirs(ctx, v.sb, v.step.Verifier.User, format.VerifierLogs); err != nil {
		return benchmarks.Result{}, err
	}
	if err := open777(ctx, v.sb, format.VerifierLogs); err != nil {
		return benchmarks.Result{}, err
	}
	if p := v.b.Policies(v.task, v.i, o).Verifier; !samePolicy(p, m.Spec.Network) {
		r, ok := sandbox.As[sandbox.Rewirer](v.sb)
		if !ok {
			return benchmarks.Result{}, &sandbox.Unsupported{Driver: "of this run",
				What: "another network policy for the verifier"}
		}
		if err := r.Rewire(ctx, p); err != nil {
			return benchmarks.Result{}, err
		}
	}
	script := format.TestsDir + "/test.sh"
	// an image may hold it as it was checked out
	if _, err := v.sb.Exec(ctx, sandbox.Command{Args: []string{"chmod", "+x", script}, User: "root"}); err != nil {
		return benchmarks.Result{}, err
	}
	return v.run(ctx, []string{script})
}

// Reduce makes a trial's result of its steps', by the task's strategy.
func (b *Benchmark) Reduce(t datasets.Task, stages []benchmarks.Result) (benchmarks.Result, error) {
	task, err := Decode(t)
	if err != nil {
		return benchmarks.Result{}, err
	}
	return reduce(task.Strategy, stages)
}
