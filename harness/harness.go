// Package harness runs a plan. Workers take trials from a queue, run each in its own session,
// record every event, grade the evidence, and write a verdict.
//
// The package uses agents, benchmarks and the journal only through their interfaces; the caller
// supplies drivers, model providers and file formats. Start with [Config] and [Run]. The files
// attempt.go, session.go and grading.go follow one attempt from lease to verdict. The files env.go,
// machine.go and model.go wrap what an agent uses with recording, limits and masking. The file
// fault.go separates agent failures from infrastructure failures.
//
// Tests cover these guarantees: the first cause of a failure is the one recorded; a model reply is
// durable before anything acts on it, an action before it runs, evidence before it is graded, and a
// verdict before its job is done; an agent that ignores cancellation is abandoned and counted; a
// panic becomes a verdict.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// Run works until the queue is finished, a drain completes, or ctx ends. Cancelling ctx (with a
// cause) cancels running sessions, which still shut down in order. A non-nil error is a failure of
// the journal or the queue, after which no new work was started.
func Run(ctx context.Context, cfg Config, q Queue, j record.Journal) (Summary, error) {
	r, err := newRunner(cfg, j)
	if err != nil {
		return Summary{}, err
	}
	r.queue = q
	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	r.stopped = func() bool { return ctx.Err() != nil }
	if !cfg.Whole.Deadline.IsZero() {
		t := time.AfterFunc(time.Until(cfg.Whole.Deadline), func() { r.end("deadline"); r.stop(ErrDeadline) })
		defer t.Stop()
	}
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-cfg.Drain:
			r.end("drained")
		case <-over:
		}
	})

	_ = r.may() // an earlier process may have used up the budget; then this drains the queue

	var sessions sync.WaitGroup
	for {
		job := r.take(ctx)
		if job == nil {
			break
		}
		sessions.Go(func() {
			if err := r.play(ctx, job); err != nil {
				r.fail(err)
			}
		})
	}
	sessions.Wait()
	close(over)
	watch.Wait()

	if err := j.Sync(context.WithoutCancel(ctx)); err != nil {
		r.fail(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.sum.Reason != "":
	case ctx.Err() != nil:
		r.sum.Reason = "stopped"
	default:
		r.sum.Reason = "done"
	}
	return r.total(), r.err
}

// total returns the summary including what was spent. The caller holds the lock.
func (r *runner) total() Summary {
	r.sum.Cost, r.sum.Estimated, r.sum.Tokens = r.cost, r.estimated, r.tokens
	return r.sum
}

func newRunner(cfg Config, j record.Journal) (*runner, error) {
	if cfg.Workers <= 0 {
		return nil, fmt.Errorf("harness: %d workers", cfg.Workers)
	}
	if cfg.Codec == nil {
		cfg.Codec = event.Default
	}
	if cfg.Slog == nil {
		cfg.Slog = slog.New(slog.DiscardHandler)
	}
	cfg.Phases = cfg.Phases.defaults()
	cfg.Retry = cfg.Retry.defaults()
	r := &runner{Config: cfg, journal: j, sum: Summary{By: map[record.Status]int{}}, inRow: make([]int, len(cfg.Arms))}
	r.cost, r.estimated, r.tokens = cfg.Whole.SpentCost, cfg.Whole.SpentEstimated, cfg.Whole.SpentTokens
	if cfg.Graders > 0 {
		r.grading = make(chan struct{}, cfg.Graders)
	}
	if cfg.Browsers > 0 {
		r.browsing = make(chan struct{}, cfg.Browsers)
	}
	r.ending, r.drained = context.WithCancel(context.Background())
	return r, nil
}

type runner struct {
	Config
	queue   Queue
	journal record.Journal
	stop    context.CancelCauseFunc
	stopped func() bool // reports whether the run's context has ended
	grading chan struct{}
	// browsing is a semaphore for sessions that hold a browser. It is nil if there is no limit.
	browsing chan struct{}
	// ending is canceled, by drained, when no more work is handed out.
	ending  context.Context
	drained context.CancelFunc

	mu    sync.Mutex
	open  int // sessions that hold a browser
	sum   Summary
	err   error
	inRow []int // consecutive failures by arm
	cost  float64

	estimated float64 // part of cost that is an upper estimate because the exact cost is unknown
	tokens    int64
}

// take waits for a job. It returns nil if there is none left.
func (r *runner) take(ctx context.Context) *Job {
	if r.Room != nil {
		if err := r.Room(); err != nil {
			if r.end("disk") {
				r.note(err.Error())
			}
			return nil
		}
	}
	job, err := r.queue.Take(ctx)
	switch {
	case err == nil && ctx.Err() != nil: // if a job is ready and the context has ended, the context wins
		_ = r.queue.Done(context.WithoutCancel(ctx), job)
	case err == nil:
		return &job
	case !errors.Is(err, io.EOF) && ctx.Err() == nil:
		r.fail(fmt.Errorf("taking work: %w", err))
	}
	return nil
}

// play makes one attempt, writes its verdict, and finishes or requeues the job. Its stack frames
// stay alive for the whole session, so work that needs large locals is kept in separate functions.
func (r *runner) play(ctx context.Context, job *Job) error {
	a := r.attempt(job)
	a.notify("started", nil)
	again, err := a.run(ctx)
	if err == nil {
		err = a.decide(context.WithoutCancel(ctx), again)
	}
	if errors.Is(err, record.ErrFenced) {
		// Another process holds the trial, or it is already decided: drop this attempt.
		a.Slog.Warn("the lease on a trial was lost", "trial", job.Trial, "attempt", job.Attempt, "err", err)
		a.notify("canceled", &record.Verdict{Status: record.Canceled})
		return a.queue.Done(context.WithoutCancel(ctx), *job)
	}
	if err != nil {
		return fmt.Errorf("trial %s: %w", a.job.Trial, err)
	}
	return nil
}

func (r *runner) attempt(job *Job) *attempt {
	return &attempt{runner: r, job: job, arm: &r.Arms[job.Arm], bench: &r.Benchmarks[job.Benchmark], began: time.Now()}
}

// notify reports the progress of the attempt.
func (a *attempt) notify(kind string, v *record.Verdict) {
	a.observe(Progress{Kind: kind, Job: *a.job, Arm: a.arm, Verdict: v, Open: v != nil && a.undecided})
}

// decide writes the verdict and finishes the job or requeues it for a retry.
func (a *attempt) decide(ctx context.Context, again bool) error {
	v := a.verdict
	if v.Status == record.Canceled {
		// Write no verdict: a stop leaves an attempt open just as a crash does, and a resume
		// handles both in the same way.
		if err := a.leave(ctx); err != nil {
			return err
		}
		if err := a.journal.Sync(ctx); err != nil {
			return err
		}
		a.notify("canceled", &v)
		return a.queue.Done(ctx, *a.job)
	}
	a.lostBrowser(&v)
	shared := a.sharedBrowser(&v)
	next := a.next(again && v.Status != record.Scored, shared)
	v.Final, a.undecided = next == final, next == open
	if v.Final {
		a.lostMachine(&v)
	}
	// Everything that the verdict refers to must be durable before the verdict is.
	if err := a.log.Sync(ctx); err != nil {
		return err
	}
	if err := a.write(ctx, record.KindVerdict, v); err != nil {
		return err
	}
	if err := a.journal.Sync(ctx); err != nil {
		return err
	}
	a.count(a.job, &v, a.lasting, a.pausing)
	a.notify("verdict", &v)
	if next != retry {
		return a.queue.Done(ctx, *a.job)
	}
	job := *a.job
	job.Why, job.Alone = "retry", job.Alone || shared
	if shared {
		job.Why = "browser"
	} else {
		job.Failed++
	}
	if job.Interrupted > 0 {
		job.Prior = append([]int{job.Interrupted}, job.Prior...)
	}
	job.Interrupted, job.Prior = 0, append([]int{job.Attempt}, job.Prior...)
	job.Evidence = a.regrade
	job.Attempt++
	return a.queue.Again(ctx, job, a.Retry.Delay<<min(max(job.Failed-1, 0), 10))
}

// A fate says what happens to a trial after an attempt's verdict.
type fate uint8

const (
	final fate = iota // this verdict decides the trial
	retry             // another attempt follows
	open              // the trial stays undecided and a resume continues it
)

// next returns what follows an attempt. A retry is charged to the run's retry budget. A trial that
// would be retried if the run were not ending is left open. The one retry of a trial that lost a
// shared browser is not charged.
func (a *attempt) next(again, shared bool) fate {
	switch {
	case a.undecided:
		return open
	case shared:
	case !again, a.job.Failed+1 >= a.Retry.Attempts:
		return final
	}
	r := a.runner
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.sum.Reason != "":
		return open
	case shared:
		return retry
	case r.Retry.Used+r.sum.Retries >= r.Retry.Budget:
		return final
	}
	r.sum.Retries++
	return retry
}

func (r *runner) count(job *Job, v *record.Verdict, lasting, pausing bool) {
	r.mu.Lock()
	r.sum.Attempts++
	if v.Abandoned {
		r.sum.Abandoned++
	}
	if v.Final {
		r.sum.Final++
		r.sum.By[v.Status]++
	}
	pause := false
	switch v.Status {
	case record.Infra, record.Provider:
		// A fault of the task, or of a browser shared with other trials, says nothing about the
		// arm's next trial.
		if lasting || v.Error != nil && (v.Error.Class == "task" || v.Error.Class == record.ClassBrowser &&
			!job.Alone) {
			break
		}
		r.inRow[job.Arm]++
		pause = pausing || r.Retry.Pause > 0 && r.inRow[job.Arm] == r.Retry.Pause
	case record.Scored:
		r.inRow[job.Arm] = 0
	}
	name := r.Arms[job.Arm].Name
	pause = pause && !slices.Contains(r.sum.Paused, name)
	if pause {
		r.sum.Paused = append(r.sum.Paused, name)
	}
	r.mu.Unlock()
	if pause {
		why := fmt.Sprintf("%d failures in a row that were not the agent's", r.Retry.Pause)
		if pausing {
			why = "its model cannot be called: " + v.Error.Text
		}
		r.queue.Pause(job.Arm)
		r.observe(Progress{Kind: "paused", Job: *job, Arm: &r.Arms[job.Arm], Verdict: v,
			Text: why + "; no more trials of this arm are begun"})
	}
}

// end stops handing out work. Only the first reason is kept; first reports whether this was it.
func (r *runner) end(reason string) (first bool) {
	r.mu.Lock()
	first = r.sum.Reason == ""
	if first {
		r.sum.Reason = reason
	}
	r.mu.Unlock()
	if first && r.queue != nil {
		r.queue.Drain()
	}
	r.drained()
	return first
}

// fail ends the run because of a storage failure.
func (r *runner) fail(err error) {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
		r.sum.Reason = "storage"
	}
	r.mu.Unlock()
	if r.queue != nil {
		r.queue.Drain()
	}
	r.drained()
	r.stop(err)
}

func (r *runner) observe(p Progress) {
	if r.Observe != nil {
		r.Observe(p)
	}
}

func (r *runner) note(text string) { r.observe(Progress{Kind: "note", Text: text}) }
