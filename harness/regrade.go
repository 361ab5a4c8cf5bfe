package harness

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
)

// TaskChanged is the reason given if a trial is not regraded because its task has changed.
// [Regrading.Changed] allows it.
const TaskChanged = "the task's content is no longer what was played"

// A Regrading configures how stored evidence is graded again.
type Regrading struct {
	// Why is the reason written to the amendments.
	Why string
	// Changed also regrades trials whose task has changed since they ran, using the current task.
	Changed bool
}

// A Regraded is the result of grading a trial's evidence again.
type Regraded struct {
	Job Job
	// Verdict is the trial's new grade if its status is "scored". Otherwise it says why there is no
	// new grade, and the old one stays.
	Verdict record.Verdict
	Live    bool  // the grading cannot be repeated without the live session
	Lost    error // not nil if evidence is damaged or missing; names the file
}

// Regrade grades the evidence of decided trials again, without their agents. Each grade is one
// amendment in the journal, durable before report is called. A killed run therefore leaves some
// trials regraded and none in part. If a grading fails or the evidence is damaged, the old grade
// stays. Regrade works until jobs is exhausted, Config.Drain is closed or ctx ends. Calls of report
// never overlap. What graders cost counts towards the run's budget; once that is used up, no
// further job is started, and gradings that need a model are canceled. A non-nil error is a journal
// failure.
func Regrade(ctx context.Context, cfg Config, o Regrading, jobs iter.Seq[Claimed], j record.Journal,
	report func(Regraded)) (Summary, error) {
	return decided(ctx, cfg, time.Time{}, j, jobs, func(ctx context.Context, r *runner, c Claimed) (Regraded, error) {
		return r.regrade(ctx, c, o)
	}, report)
}

// decided does one job for each of many decided trials, until deadline if there is one, and reports
// the results one after the other. An error of f is a journal failure.
func decided[J, R any](ctx context.Context, cfg Config, deadline time.Time, j record.Journal, jobs iter.Seq[J],
	f func(context.Context, *runner, J) (R, error), report func(R)) (Summary, error) {
	r, err := newRunner(cfg, j)
	if err != nil {
		return Summary{}, err
	}
	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	r.stopped = func() bool { return ctx.Err() != nil }
	if !deadline.IsZero() {
		t := time.AfterFunc(time.Until(deadline), func() { r.end("deadline"); r.stop(ErrDeadline) })
		defer t.Stop()
	}
	var mu sync.Mutex
	each(ctx, r, jobs, func(job J) error {
		res, err := f(ctx, r, job)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			report(res)
		}
		return err
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total(), r.err
}

// each calls f for the jobs, in Config.Workers goroutines, until they are exhausted or no more work
// may start. An error of f is a journal failure, which ends the run.
func each[T any](ctx context.Context, r *runner, jobs iter.Seq[T], f func(T) error) {
	feed := make(chan T)
	var workers sync.WaitGroup
	for range r.Workers {
		workers.Go(func() {
			for job := range feed {
				if ctx.Err() != nil {
					continue
				}
				if err := f(job); err != nil {
					r.fail(err)
				}
			}
		})
	}
	send := func(job T) bool {
		if r.ended() {
			return false
		}
		select { // if both are ready, hand out no more work
		case <-r.Drain:
			return false
		case <-ctx.Done():
			return false
		default:
		}
		select {
		case feed <- job:
			return true
		case <-r.Drain:
		case <-ctx.Done():
		}
		return false
	}
	for job := range jobs {
		if !send(job) {
			break
		}
	}
	close(feed)
	workers.Wait()
}

// ended reports whether the run must not start more work.
func (r *runner) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum.Reason != ""
}

// regrade grades one trial again.
func (r *runner) regrade(ctx context.Context, claimed Claimed, o Regrading) (Regraded, error) {
	job := claimed.Job
	res := Regraded{Job: job}
	var a *attempt
	var c cause
	var took record.Spent // total of all tries
	for n := 1; ; n++ {
		a = r.attempt(&job)
		a.regrading, a.claimed, a.last = &o, &claimed, n >= r.Retry.Attempts
		a.seed = seed(a.Seed, job.Trial, job.Attempt)
		a.log = newLog(a)
		c = a.play(ctx)
		res.Verdict = a.verdict
		a.mu.Lock()
		if o := a.othersUsage(); o != nil {
			if took.Other == nil {
				took.Other = new(record.Usage)
			}
			took.Other.Add(*o)
		}
		took.Spent.Add(a.paidFor)
		a.mu.Unlock()
		if errors.Is(c.Storage, record.ErrDamaged) || errors.Is(c.Storage, record.ErrMissing) {
			res.Lost = c.Storage
			break
		}
		if c.Storage != nil {
			return res, c.Storage
		}
		if !c.Again || n >= r.Retry.Attempts || c.Fault.Class == classNeedsLive {
			break
		}
		select {
		case <-time.After(r.Retry.Delay << min(n-1, 10)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	if e := res.Verdict.Error; e != nil && res.Lost == nil {
		e.Text = a.Mask.String(e.Text)
		res.Live = e.Class == classNeedsLive
	}
	after := context.WithoutCancel(ctx)
	entry := record.Entry{Trial: job.Trial, Attempt: job.Attempt, Fence: job.Fence}
	if res.Verdict.Status != record.Scored || res.Lost != nil {
		if err := appendSpent(after, r.journal, entry, took); err != nil {
			return res, fmt.Errorf("trial %s: %w", job.Trial, err)
		}
		return res, r.journal.Sync(after)
	}
	v := res.Verdict
	amend := record.Amend{Why: o.Why, Reward: v.Reward, Scores: v.Scores, Flags: v.Flags, Status: v.Status, End: v.End,
		Limit: v.Limit, Results: a.results, Confirmation: v.Confirmation}
	if a.task.Digest != job.Task.Digest {
		amend.Task = a.task.Digest
	}
	if amend.Other = took.Other; !took.Spent.None() {
		amend.Spent = &took.Spent
	}
	data, err := encode(amend)
	if err == nil && len(data) > maxEntry {
		abridge(amend.Results)
		data, err = encode(amend)
	}
	if err != nil {
		return res, fmt.Errorf("amendment of trial %s: %w", job.Trial, err)
	}
	if err := a.log.Sync(after); err != nil { // replies of the grader's models must be durable before the grade
		return res, err
	}
	entry.Kind, entry.Data = record.KindAmend, data
	if err := r.journal.Append(after, entry); err != nil {
		return res, fmt.Errorf("trial %s: %w", job.Trial, err)
	}
	if err := r.journal.Sync(after); err != nil {
		return res, err
	}
	return res, nil
}

// regradeWork grades all stages in a fresh machine that has only the agent's work.
func (a *attempt) regradeWork(ctx context.Context) cause {
	a.results = nil
	claim := a.claimed.claim()
	claim.Last = a.last
	var given []benchmarks.Result
	c := a.afresh(ctx, claim, func(ctx context.Context, b benchmarks.Confirmer, h benchmarks.Host,
		o benchmarks.Options, claim benchmarks.Claim) (func(), error) {
		results, err := b.Regrade(ctx, h, a.task, o, claim)
		return func() { given = results }, err
	})
	for i := range given {
		if c.Fault == nil {
			given[i], c = a.graded(ctx, i, given[i])
		}
	}
	if c.Fault == nil {
		c = a.reduce(ctx, a.job.Evidence, given)
	}
	if c.Fault != nil {
		return c
	}
	// The task has not changed, so what lowers the reward is what the fresh machine lacks.
	if is := a.verdict.Reward; a.task.Digest == a.job.Task.Digest && is != nil && *is < claim.Reward {
		return needsLive(fmt.Errorf("%w: it had %v, and %v in a fresh machine that has only the agent's work",
			benchmarks.ErrNeedsLive, claim.Reward, *is))
	}
	return c
}

// abridge shortens results that are too large for one entry. An amendment must be a single entry,
// so that it is written completely or not at all.
func abridge(results []record.Result) {
	const most = 10_000
	for i := range results {
		r := &results[i]
		if n := len(r.Tests) - most; n > 0 {
			r.Tests = append(r.Tests[:most:most],
				record.Test{Name: "…", Status: "skipped", Message: fmt.Sprintf("%d more tests are not kept", n)})
		}
		for j := range r.Tests {
			r.Tests[j].Name, r.Tests[j].Message = cut(r.Tests[j].Name, 512), cut(r.Tests[j].Message, 512)
		}
	}
}

// keepResult stores a stage's result for the amendment.
func (a *attempt) keepResult(res record.Result) {
	a.results = append(slices.DeleteFunc(a.results, func(r record.Result) bool { return r.Stage == res.Stage }), res)
}
