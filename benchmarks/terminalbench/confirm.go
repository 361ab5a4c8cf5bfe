package terminalbench

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/harbor/verify"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
)

// Confirm implements [benchmarks.Confirmer].
func (b *Benchmark) Confirm(ctx context.Context, h benchmarks.Host, t datasets.Task, o benchmarks.Options,
	c benchmarks.Claim) (record.Confirmation, error) {
	claim, err := b.claim(h, t, o, c)
	if err != nil {
		return record.Confirmation{}, err
	}
	return verify.Opinion(ctx, claim)
}

// Regrade implements [benchmarks.Confirmer].
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
	claim := verify.Claim{Claim: c, Log: h.Log(), Mode: verify.ParseIntegrity(o.Integrity), Tampering: tampering,
		Key:  verify.ClaimKey(t.Digest, o.Sandbox.Image.Ref, b.o.Work),
		Was:  verify.ClaimKey(c.Task, o.Sandbox.Image.Ref, b.o.Work),
		Play: func(ctx context.Context, r verify.Replay) (verify.Played, error) { return b.replay(ctx, h, t, o, r) }}
	task, err := decodeTask(t)
	if err != nil {
		return claim, err
	}
	claim.Unsolved = task.Solution == ""
	for _, ev := range c.Evidence {
		d, err := readEvidence(ev)
		if err != nil {
			return claim, err
		}
		claim.Work = append(claim.Work, d.Work)
	}
	return claim, nil
}

func readEvidence(ev benchmarks.Evidence) (d evidence, err error) {
	if len(ev.Data) > 0 {
		if err = json.Unmarshal(ev.Data, &d); err != nil {
			err = fmt.Errorf("reading the evidence: %w", err)
		}
	}
	return d, err
}

// replay plays the tests in a fresh machine.
func (b *Benchmark) replay(ctx context.Context, h benchmarks.Host, t datasets.Task, o benchmarks.Options,
	r verify.Replay) (out verify.Played, err error) {
	e, err := b.open(ctx, h, t, o, &r)
	if err != nil {
		return out, err
	}
	defer e.Close()
	if _, err := e.Next(ctx, nil); err != nil {
		return out, err
	}
	var ev benchmarks.Evidence
	if r.Evidence != nil {
		ev = r.Evidence[0]
		d, err := readEvidence(ev)
		if err != nil {
			return out, err
		}
		why, err := e.guard.Restore(ctx, h.Log(), d.Work, ev.Files, r.Without)
		if why != "" || err != nil {
			return verify.Played{Why: why}, err
		}
	}
	res, err := b.Grade(ctx, h, t, ev, e)
	if err != nil {
		return out, err
	}
	out.Stages = []benchmarks.Result{res}
	if p := res.Primary(); p != nil && p.Value != nil {
		out.Reward, out.Why = *p.Value, p.Why
	}
	return out, nil
}
