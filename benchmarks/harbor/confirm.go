package harbor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/benchmarks/harbor/verify"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
)

// integrity says what is done about agents that may have deceived a shared verifier.
func (b *Benchmark) integrity(o benchmarks.Options) verify.Integrity {
	return verify.ParseIntegrity(cmp.Or(b.o.Integrity, o.Integrity))
}

// Confirm implements [benchmarks.Confirmer]: all steps are played again with what the agent left as
// its work.
func (b *Benchmark) Confirm(ctx context.Context, h benchmarks.Host, t datasets.Task, o benchmarks.Options,
	c benchmarks.Claim) (record.Confirmation, error) {
	claim, err := b.claim(h, t, o, c)
	if err != nil {
		return record.Confirmation{}, err
	}
	return verify.Opinion(ctx, claim)
}

// Regrade implements [benchmarks.Confirmer]: all steps are played again, as Confirm does.
func (b *Benchmark) Regrade(ctx context.Context, h benchmarks.Host, t datasets.Task, o benchmarks.Options,
	c benchmarks.Claim) ([]benchmarks.Result, error) {
	claim, err := b.claim(h, t, o, c)
	if err != nil {
		return nil, err
	}
	return verify.Regrade(ctx, claim)
}

func (b *Benchmark) claim(h benchmarks.Host, t datasets.Task, o benchmarks.Options, c benchmarks.Claim) (
	verify.Claim, error) {
	claim := verify.Claim{Claim: c, Log: h.Log(), Mode: b.integrity(o),
		Key:  verify.ClaimKey(t.Digest, o.Sandbox.Image.Ref, b.o.Work),
		Was:  verify.ClaimKey(c.Task, o.Sandbox.Image.Ref, b.o.Work),
		Play: func(ctx context.Context, r verify.Replay) (verify.Played, error) { return b.replay(ctx, h, t, o, r) }}
	task, err := decode(t)
	if err != nil {
		return claim, err
	}
	claim.Unsolved = slices.ContainsFunc(task.Steps, func(s format.Step) bool { return s.Solution == "" })
	for _, ev := range c.Evidence {
		if ev.Stage < 0 || ev.Stage >= len(task.Steps) {
			return claim, fmt.Errorf("reading the evidence: there is no step %d", ev.Stage+1)
		}
		var d evidence
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return claim, fmt.Errorf("reading the evidence: %w", err)
		}
		if task.Steps[ev.Stage].Verifier.Separate { // it meets nothing of the agent's but the artifacts
			d.Work = new(verify.Work)
		}
		claim.Work = append(claim.Work, d.Work)
	}
	return claim, nil
}

// replay plays the verifiers of a task in a fresh machine.
func (b *Benchmark) replay(ctx context.Context, h benchmarks.Host, t datasets.Task, o benchmarks.Options,
	r verify.Replay) (out verify.Played, err error) {
	e, err := b.open(ctx, h, t, o, &r)
	if err != nil {
		return out, err
	}
	defer e.Close()
	var results []benchmarks.Result
	for r.Evidence == nil || len(results) < len(r.Evidence) {
		var prev *benchmarks.Result
		if n := len(results); n > 0 {
			prev = &results[n-1]
		}
		stage, err := e.Next(ctx, prev)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return out, err
		}
		res, err := e.replayStage(ctx, t, stage, len(results))
		if err != nil {
			return out, err
		}
		if results = append(results, res); stage.Last || stage.Broken != "" {
			break
		}
	}
	res, err := b.Reduce(t, results)
	if err != nil {
		return out, err
	}
	out.Stages = results
	if n := len(results); n > 0 && n == len(r.Evidence) && n < len(e.task.Steps) {
		out.Unplayed = e.broken == "" && reached(e.task.Steps[n-1].MinReward, results[n-1])
	}
	if p := res.Primary(); p != nil && p.Value != nil {
		out.Reward, out.Why = *p.Value, p.Why
	}
	return out, nil
}

// replayStage puts the work of a stage in place and grades it.
func (e *episode) replayStage(ctx context.Context, t datasets.Task, stage *benchmarks.Stage, i int) (
	res benchmarks.Result, err error) {
	if stage.Broken != "" {
		return verify.NoReward(stage.Broken), nil
	}
	s := &e.task.Steps[i]
	ev := benchmarks.Evidence{Stage: i}
	if e.replay.Evidence != nil {
		ev = e.replay.Evidence[i]
	}
	if err := e.setNetwork(ctx, e.b.policies(e.task, i, e.o).Start); err != nil {
		return res, err
	}
	if !s.Verifier.Separate && e.replay.Evidence != nil {
		var d evidence
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return res, fmt.Errorf("reading the evidence: %w", err)
		}
		why, err := e.guard.Restore(ctx, e.h.Log(), d.Work, ev.Files, e.replay.Without)
		if err != nil {
			return res, err
		}
		if why != "" {
			return verify.NoReward(why), nil
		}
	}
	if err := e.hooks(ctx, s, e.Started(), format.MainService); err != nil {
		return res, err
	}
	return e.b.Grade(ctx, e.h, t, ev, e)
}
