// Package harness runs a plan: workers take trials from a queue, play each in a session of its own, keep every event, grade
// the evidence, and write a verdict.
//
// It knows agents, benchmarks and the journal by their contracts only; drivers, vendors and file formats are brought in by
// the caller. Start with [Config] and [Run]; attempt.go, session.go and grading.go are the way of one attempt from lease to verdict; env.go, machine.go
// and model.go are what an agent touches, wrapped so that it is recorded, limited and masked; fault.go says whose fault an
// error is.
//
// What holds (the tests show each): the first cause of a failure is the one that is recorded; a model's reply is durable
// before anything acts on it, an action before it runs, evidence before it is graded, a verdict before its job is done; an
// agent that ignores the end of its context is abandoned and counted; a panic becomes a verdict.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Job is one attempt to be made.
type Job struct {
	Trial     string // trial ID
	Arm       int    // index into Config.Arms
	Benchmark int    // index into Config.Benchmarks
	Task      record.Task
	Repeat    int // from 1
	Attempt   int // from 1
	Fence     int64
	Why       string    // "", retry, resume, rerun
	Ready     time.Time // when it could have begun
	Failed    int       // attempts of this trial so far that count against Retry.Attempts

	// Interrupted is the attempt that a crash or a stop of ours left open, 0 if none. It is closed before the new one begins,
	// its durable evidence is graded, and replies that it paid for are not paid again.
	Interrupted int
	// Prior are attempts before Interrupted that were cut off likewise, the newest first.
	Prior []int
	// Evidence, when set, is all that is needed: the attempt only grades.
	Evidence []record.Evidence
	// Exclusive are names of what only one job at a time may use. The queue hands a job out when nobody else holds any of them, and takes
	// them back with Done or Again. They are held before a worker asks for machines, and whoever has machines asks for no name, so that
	// neither waits for the other in a circle.
	Exclusive []string
}

// A Queue hands out jobs. Its methods may be called from several goroutines.
type Queue interface {
	// Take waits for a job that is ready. io.EOF: the plan is through, or no more work is handed out.
	Take(ctx context.Context) (Job, error)
	// Keep says that the job is still being worked on; an error means that the lease is lost.
	Keep(ctx context.Context, j Job) error
	// Done ends a job whose trial is decided, or that nobody is to take up again in this process.
	Done(ctx context.Context, j Job) error
	// Again ends a job and makes a new one of its trial, ready after a wait.
	Again(ctx context.Context, j Job, after time.Duration) error
	// Drain hands out no more work; Take returns io.EOF.
	Drain()
	// Pause hands out no more work of an arm.
	Pause(arm int)
}

// An Arm is what is compared, ready to run.
type Arm struct {
	record.Arm
	// Agent makes the agent of one session. The oracle's arm asks the benchmark.
	Agent func(b benchmarks.Benchmark, t datasets.Task) (agent.Agent, error)
	// Model makes the clients of the arm's roles. Nil: the arm has no model.
	Model  model.Factory
	Limits Limits
}

// A Bench is a benchmark of the plan, with its options.
type Bench struct {
	benchmarks.Benchmark
	Options benchmarks.Options
	Roles   map[string]model.Factory // models beside the arm's: grader, user
}

// Limits of a trial. Zero means no limit, but for times, where it means the default.
type Limits struct {
	Time   time.Duration // of the agent, all stages; waiting for our machinery or a provider's back-off is not counted
	Turns  int64         // model replies
	Steps  int64         // actions
	Tokens int64         // in and out
	Cost   float64       // US dollars
	Output int64         // bytes of observations
}

// Phases bounds each phase of an attempt that is not the agent's.
type Phases struct {
	Start   time.Duration // machine and set-up; default 5 min
	Command time.Duration // one action, where neither it nor its task says otherwise; default 10 min
	Collect time.Duration // default 2 min
	Grade   time.Duration // default 10 min
	Close   time.Duration // default 1 min
	Grace   time.Duration // for an agent to return after its context has ended; default 10 s
}

// Retry of trials that are no evidence.
type Retry struct {
	Attempts int           // in all, for a trial; default 3
	Delay    time.Duration // before the second; doubled for each further one; default 2 s
	Budget   int           // retries of the whole run; 0: none
	Pause    int           // failures in a row after which an arm is paused; 0: never
}

// Whole are limits of the whole run. When one is reached no new work is handed out; what runs is finished, but at the
// deadline it is stopped, and can be resumed.
type Whole struct {
	Cost     float64
	Tokens   int64
	Deadline time.Time
	// Spent before this process took the run up.
	SpentCost   float64
	SpentTokens int64
}

// Config of a run.
type Config struct {
	Run        string
	Workers    int
	Graders    int // gradings at once; 0: no limit of their own
	Arms       []Arm
	Benchmarks []Bench
	Provider   sandbox.Provider // nil: no machines; a task that needs one is skipped
	Driver     string           // its name, for the record
	// DriverOf says which of several drivers makes a machine; nil: Driver does.
	DriverOf func(sandbox.Spec) string
	// Images makes the images of machines ready before room for them is taken; nil: the driver does when it makes one.
	Images   *Images
	Owner    sandbox.Owner
	Blobs    record.Blobs
	Codec    *event.Codec // nil: event.Default
	Seed     uint64
	Phases   Phases
	Retry    Retry
	Whole    Whole
	Mask     *Masker
	Secret   func(name string) (string, error) // what benchmarks may ask for; nil: nothing
	KeepSent bool                              // keep raw requests as blobs
	// Drain, when closed, means: finish what runs, hand out no more.
	Drain <-chan struct{}
	// Room says that no new work may begin (too little disk), by an error.
	Room func() error
	// Observe is told of what happens, in order; it must be quick.
	Observe func(Progress)
	Slog    *slog.Logger
}

// Progress of a run.
type Progress struct {
	Kind    string // started, verdict, canceled, paused, note
	Job     Job
	Arm     *Arm
	Verdict *record.Verdict // of "verdict"; a retry follows unless Verdict.Final
	Text    string
}

// A Summary counts what this process did; reports read the journal.
type Summary struct {
	Attempts, Final    int
	By                 map[record.Status]int // final verdicts
	Retries, Abandoned int
	Cost               float64
	Tokens             int64
	Reason             string // done, drained, stopped, budget, deadline, storage, disk
	Paused             []string
}

// Causes with which a run's context may be ended.
var (
	ErrStopped  = errors.New("stopped by the user")
	ErrDeadline = errors.New("the run's deadline has come")
	ErrBudget   = errors.New("the run's budget is used up")
)

// Run works until the queue is through, a drain is done, or ctx ends. Ending ctx (with a cause) cancels what runs; every
// session still ends in order. The error is a failure of the journal or the queue, after which nothing more was begun.
func Run(ctx context.Context, cfg Config, q Queue, j record.Journal) (Summary, error) {
	r, err := newRunner(cfg, j)
	if err != nil {
		return Summary{}, err
	}
	r.queue = q
	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
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

	var workers sync.WaitGroup
	for range cfg.Workers {
		workers.Go(func() { r.work(ctx) })
	}
	workers.Wait()
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
	r.sum.Cost, r.sum.Tokens = r.cost, r.tokens
	return r.sum, r.err
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
	r.cost, r.tokens = cfg.Whole.SpentCost, cfg.Whole.SpentTokens
	if cfg.Graders > 0 {
		r.grading = make(chan struct{}, cfg.Graders)
	}
	return r, nil
}

type runner struct {
	Config
	queue   Queue
	journal record.Journal
	stop    context.CancelCauseFunc
	grading chan struct{}

	mu     sync.Mutex
	sum    Summary
	err    error
	inRow  []int // failures of an arm in a row
	cost   float64
	tokens int64
}

func (r *runner) work(ctx context.Context) {
	for {
		if r.Room != nil {
			if err := r.Room(); err != nil {
				r.end("disk")
				r.note(err.Error())
				return
			}
		}
		job, err := r.queue.Take(ctx)
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				r.fail(fmt.Errorf("taking work: %w", err))
			}
			return
		}
		if ctx.Err() != nil { // a ready job and an ended context at once: the context wins
			r.queue.Done(context.WithoutCancel(ctx), job)
			return
		}
		if err := r.play(ctx, job); err != nil {
			r.fail(err)
			return
		}
	}
}

// play makes one attempt, writes its verdict, and says what becomes of the job.
func (r *runner) play(ctx context.Context, job Job) error {
	arm := &r.Arms[job.Arm]
	r.observe(Progress{Kind: "started", Job: job, Arm: arm})
	a := &attempt{runner: r, job: job, arm: arm, bench: &r.Benchmarks[job.Benchmark], began: time.Now()}
	v, again, err := a.run(ctx)
	if err != nil {
		return fmt.Errorf("trial %s: %w", job.Trial, err)
	}
	after := context.WithoutCancel(ctx)
	if v.Status == record.Canceled {
		// No verdict: a stop leaves an attempt open just as a crash does, and a resume takes both up in one way.
		if err := r.journal.Sync(after); err != nil {
			return err
		}
		r.observe(Progress{Kind: "canceled", Job: job, Arm: arm, Verdict: &v})
		return r.queue.Done(after, job)
	}
	next := job
	v.Final = !(again && r.mayRetry(job))
	if !v.Final {
		next.Failed++
		next.Why = "retry"
		next.Interrupted, next.Prior = 0, nil
		next.Evidence = a.regrade
		next.Attempt++
	}
	if err := a.write(after, record.KindVerdict, v); err != nil {
		return err
	}
	if err := r.journal.Sync(after); err != nil {
		return err
	}
	r.count(job, v, a.lasting)
	r.observe(Progress{Kind: "verdict", Job: job, Arm: arm, Verdict: &v})
	if !v.Final {
		delay := r.Retry.Delay << min(next.Failed-1, 10)
		return r.queue.Again(after, next, delay)
	}
	return r.queue.Done(after, job)
}

// mayRetry takes one retry out of the run's budget.
func (r *runner) mayRetry(job Job) bool {
	if job.Failed+1 >= r.Retry.Attempts {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sum.Retries >= r.Retry.Budget {
		return false
	}
	if r.sum.Reason != "" { // the run is ending: a resume will try again
		return false
	}
	r.sum.Retries++
	return true
}

func (r *runner) count(job Job, v record.Verdict, lasting bool) {
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
		if lasting || v.Error != nil && v.Error.Class == "task" { // the task's own trouble, which says nothing about the arm's next trial
			break
		}
		r.inRow[job.Arm]++
		pause = r.Retry.Pause > 0 && r.inRow[job.Arm] == r.Retry.Pause
	case record.Scored:
		r.inRow[job.Arm] = 0
	}
	if pause {
		r.sum.Paused = append(r.sum.Paused, r.Arms[job.Arm].Name)
	}
	r.mu.Unlock()
	if pause {
		r.queue.Pause(job.Arm)
		r.observe(Progress{Kind: "paused", Job: job, Arm: &r.Arms[job.Arm], Verdict: &v,
			Text: fmt.Sprintf("%d failures in a row that were not the agent's; no more trials of this arm are begun", r.Retry.Pause)})
	}
}

// spend counts what was paid for and ends the run when its budget is used up.
func (r *runner) spend(u event.Usage) {
	r.mu.Lock()
	r.tokens += u.In + u.Out
	if u.Cost != nil {
		r.cost += *u.Cost
	}
	over := r.Whole.Cost > 0 && r.cost >= r.Whole.Cost || r.Whole.Tokens > 0 && r.tokens >= r.Whole.Tokens
	r.mu.Unlock()
	if over {
		r.end("budget")
	}
}

// end hands out no more work; the first reason stays.
func (r *runner) end(reason string) {
	r.mu.Lock()
	first := r.sum.Reason == ""
	if first {
		r.sum.Reason = reason
	}
	r.mu.Unlock()
	if first && r.queue != nil {
		r.queue.Drain()
	}
}

// fail ends the run for a failure of its own storage.
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
	r.stop(err)
}

func (r *runner) observe(p Progress) {
	if r.Observe != nil {
		r.Observe(p)
	}
}

func (r *runner) note(text string) { r.observe(Progress{Kind: "note", Text: text}) }

func (p Phases) defaults() Phases {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&p.Start, 5*time.Minute)
	set(&p.Command, 10*time.Minute)
	set(&p.Collect, 2*time.Minute)
	set(&p.Grade, 10*time.Minute)
	set(&p.Close, time.Minute)
	set(&p.Grace, 10*time.Second)
	return p
}

func (r Retry) defaults() Retry {
	if r.Attempts == 0 {
		r.Attempts = 3
	}
	if r.Delay == 0 {
		r.Delay = 2 * time.Second
	}
	return r
}
