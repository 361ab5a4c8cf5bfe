package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// A Claimed is a decided trial, to be graded again or to be given a second opinion.
type Claimed struct {
	Job                // with the evidence that was graded
	Grade ledger.Grade // as it is; has a pending Confirmation if it waits for a second opinion
	Own   ledger.Grade // of the verdict
}

// claim is what a second opinion, or a new grade, is asked about.
func (c *Claimed) claim() benchmarks.Claim {
	out := benchmarks.Claim{Flags: c.Own.Flags, Task: c.Task.Digest}
	was := c.Grade
	if was.Confirmation != nil {
		out.Confirmation = *was.Confirmation
		if was.Confirmation.State == record.Unconfirmed { // the reward may be 0 for that
			was = c.Own
		}
	}
	if own := c.Own.Reward; own != nil && was.Reward != nil && *own < *was.Reward { // by a task that was changed
		was = c.Own
	}
	if was.Reward != nil {
		out.Reward = *was.Reward
	}
	return out
}

// A Confirmed is what became of a second opinion.
type Confirmed struct {
	Job Job
	// Confirmation is nil if there is none: the run was stopped, or the infrastructure failed. The
	// grade then stays pending.
	Confirmation *record.Confirmation
	Fault        *record.Fault // why there is none
}

// Confirm asks for second opinions on grades of decided trials; see [benchmarks.Confirmer]. Each is
// one amendment in the journal, durable before report is called. Failures of the infrastructure are
// tried again, as in [Run]. Confirm works until jobs is exhausted, Config.Drain is closed or ctx
// ends. Calls of report never overlap. A non-nil error is a journal failure.
func Confirm(ctx context.Context, cfg Config, jobs iter.Seq[Claimed], j record.Journal,
	report func(Confirmed)) (Summary, error) {
	return decided(ctx, cfg, cfg.Whole.Deadline, j, jobs,
		func(ctx context.Context, r *runner, c Claimed) (Confirmed, error) { return r.confirm(ctx, c) }, report)
}

// confirm asks for one second opinion.
func (r *runner) confirm(ctx context.Context, claimed Claimed) (Confirmed, error) {
	job := claimed.Job
	res := Confirmed{Job: job}
	for n := 1; ; n++ {
		a := r.attempt(&job)
		a.regrading = &Regrading{}
		a.seed = seed(a.Seed, job.Trial, job.Attempt)
		a.log = newLog(a)
		c := a.second(ctx, claimed, n >= r.Retry.Attempts, &res)
		if errors.Is(c.Storage, record.ErrDamaged) || errors.Is(c.Storage, record.ErrMissing) { // of this trial alone
			res.Fault = &record.Fault{Status: record.Grader, Phase: "grade", Class: "record", Text: c.Storage.Error()}
			return res, nil
		}
		if c.Storage != nil {
			return res, c.Storage
		}
		if res.Fault = c.Fault; c.Fault == nil {
			if claimed.settled(res.Confirmation) {
				return res, nil
			}
			return res, a.amend(context.WithoutCancel(ctx), claimed, res.Confirmation)
		}
		res.Fault.Text = a.Mask.String(res.Fault.Text)
		if !c.Again || n >= r.Retry.Attempts || ctx.Err() != nil {
			return res, nil
		}
		select {
		case <-time.After(r.Retry.Delay << min(n-1, 10)):
		case <-ctx.Done():
			return res, nil
		}
	}
}

// settled reports whether a second opinion, asked for once more, says what is known.
func (c *Claimed) settled(now *record.Confirmation) bool {
	was := c.Grade.Confirmation
	if was.State == record.Pending || was.State != now.State {
		return false
	}
	return was.Reward == now.Reward || was.Reward != nil && now.Reward != nil && *was.Reward == *now.Reward
}

// second plays the second opinion.
func (a *attempt) second(ctx context.Context, claimed Claimed, last bool, res *Confirmed) (c cause) {
	defer func() {
		if err := a.damage(); err != nil && c.Storage == nil {
			c = storage(err)
		}
	}()
	ctx, done := a.live(ctx)
	defer done()
	if c = a.prepare(ctx); c.Fault != nil {
		return c
	}
	claim := claimed.claim()
	claim.Last = last
	if own := claimed.Own.Confirmation; own != nil {
		claim.Confirmation.Why, claim.Confirmation.Slipped = own.Why, own.Slipped
	}
	return a.afresh(ctx, claim, func(ctx context.Context, b benchmarks.Confirmer, h benchmarks.Host,
		o benchmarks.Options, claim benchmarks.Claim) (func(), error) {
		given, err := b.Confirm(ctx, h, a.task, o, claim)
		return func() { res.Confirmation = &given }, err
	})
}

// afresh calls f where a Confirmer may start the agent's machine again, with the rest of the claim.
// What f returns is called if f succeeded in time.
func (a *attempt) afresh(ctx context.Context, claim benchmarks.Claim, f func(ctx context.Context,
	b benchmarks.Confirmer, h benchmarks.Host, o benchmarks.Options, claim benchmarks.Claim) (func(), error)) cause {
	confirmer, ok := a.bench.Benchmark.(benchmarks.Confirmer)
	if !ok {
		return cause{Fault: &record.Fault{Status: record.Grader, Phase: "grade", Class: "internal",
			Text: "benchmark " + a.bench.Name() + " cannot grade the agent's work in a fresh machine"}}
	}
	if err := a.images(ctx, "agent", a.needs.Agent); err != nil {
		return a.imageFault(ctx, err)
	}
	if err := a.acquire(ctx, "agent", append(a.needs.Agent[:len(a.needs.Agent):len(a.needs.Agent)],
		a.needs.GraderRoom()...)); err != nil {
		return phaseFault(ctx, "grade", err)
	}
	defer a.release()
	claim.Reference, claim.Oracle = a.reference, a.arm.Arm.Agent == "oracle"
	for i := range a.job.Evidence {
		ev, err := a.evidence(ctx, &a.job.Evidence[i])
		if errors.Is(err, fs.ErrNotExist) {
			return storage(fmt.Errorf("%w: evidence of trial %s: %w", record.ErrMissing, a.job.Trial, err))
		}
		if err != nil {
			return phaseFault(ctx, "grade", err)
		}
		if err := a.kept(ctx, ev); err != nil {
			return storage(err)
		}
		claim.Evidence = append(claim.Evidence, ev)
	}
	a.beginWork()
	o := a.bench.Options
	o.Repeat, o.Round = a.job.Repeat, a.job.Round
	// A reference, which is slow, and the work's grade twice.
	limit := 3*max(a.Phases.Start, a.needs.Setup) + 8*max(a.Phases.Grade, a.needs.Grade)
	var keep func() // a late result is ignored
	err := a.phase(ctx, "grade", limit, func(ctx context.Context) (err error) {
		h := &host{a: a, role: "grader"}
		defer h.within(func(t *record.Times) *time.Duration { return &t.Grade })()
		keep, err = f(ctx, confirmer, h, o, claim)
		return err
	})
	if errors.Is(err, benchmarks.ErrNeedsLive) {
		return needsLive(err)
	}
	if err != nil {
		return phaseFault(ctx, "grade", err)
	}
	keep()
	return cause{}
}

// reference implements [benchmarks.Claim] Reference. The images are part of the key, as a name such
// as "python:3" does not say what it stands for.
func (a *attempt) reference(ctx context.Context, key string, make func(context.Context) ([]byte, error)) ([]byte,
	error) {
	if a.References == nil {
		if make == nil {
			return nil, nil
		}
		return make(ctx)
	}
	var digests []string
	for _, x := range a.made {
		digests = append(digests, x.Digest)
	}
	slices.Sort(digests)
	return a.References.Get(ctx, strings.Join(append([]string{key}, digests...), "\x00"), make)
}

// maskOpinion masks secrets in the texts of c, and shortens them.
func (a *attempt) maskOpinion(c *record.Confirmation) *record.Confirmation {
	if c == nil {
		return nil
	}
	c.Why = cut(a.Mask.String(c.Why), maxText)
	slices.Sort(c.Slipped)
	c.Slipped = slices.Compact(c.Slipped)
	c.Slipped = c.Slipped[:min(len(c.Slipped), 20)]
	for i := range c.Slipped {
		c.Slipped[i] = a.maskPath(c.Slipped[i])
	}
	c.Uses = a.maskUses(c.Uses)
	return c
}

// maskPath masks secrets in a path, and shortens it.
func (a *attempt) maskPath(name string) string { return cut(a.Mask.String(name), 1<<10) }

// maskUses is maskPath for a list of uses, which it limits.
func (a *attempt) maskUses(list []record.PathUse) []record.PathUse {
	list = slices.Clone(list[:min(len(list), record.MaxUses)])
	for i := range list {
		list[i].Path = a.maskPath(list[i].Path)
	}
	return list
}

// maskWork is maskPath for the paths of the work, which it limits.
func (a *attempt) maskWork(list []record.WorkPath) []record.WorkPath {
	list = slices.Clone(list[:min(len(list), record.MaxWork)])
	for i := range list {
		list[i].Path = a.maskPath(list[i].Path)
	}
	return list
}

// maskChanges is maskPath for a list of changes, which it limits.
func (a *attempt) maskChanges(list []record.FolderChanges) []record.FolderChanges {
	list = slices.Clone(list[:min(len(list), record.MaxFolders+1)])
	for i := range list {
		list[i].Folder = a.maskPath(list[i].Folder)
	}
	return list
}

// amend writes the amendment with a second opinion.
func (a *attempt) amend(ctx context.Context, claimed Claimed, c *record.Confirmation) error {
	a.maskOpinion(c)
	g := claimed.Grade
	amend := record.Amend{Why: "second opinion", Reward: g.Reward, Scores: g.Scores, Flags: g.Flags, Confirmation: c}
	if c.Zero = g.Confirmation.Zero; c.Zero && c.State == record.Unconfirmed {
		amend.Reward, amend.Scores = new(float64), slices.Clone(g.Scores)
		for i := range amend.Scores {
			if s := &amend.Scores[i]; s.Primary && s.Value != nil {
				s.Why = fmt.Sprintf("0 because it is unconfirmed (integrity: require); the verifier said %v", *s.Value)
				s.Value = new(float64)
			}
		}
	}
	if u := a.othersUsage(); u != nil {
		amend.Other, amend.Spent = u, &a.paidFor
	}
	data, err := encode(amend)
	if err != nil {
		return fmt.Errorf("amendment of trial %s: %w", a.job.Trial, err)
	}
	if err := a.log.Sync(ctx); err != nil { // the verifier's output
		return err
	}
	entry := record.Entry{Trial: a.job.Trial, Attempt: a.job.Attempt, Fence: a.job.Fence, Kind: record.KindAmend,
		Data: data}
	if err := a.journal.Append(ctx, entry); err != nil {
		return fmt.Errorf("trial %s: %w", a.job.Trial, err)
	}
	return a.journal.Sync(ctx)
}
