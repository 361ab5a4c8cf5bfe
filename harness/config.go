package harness

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Job describes one attempt to make.
type Job struct {
	Trial     string
	Arm       int // index into Config.Arms
	Benchmark int // index into Config.Benchmarks
	Task      record.Task
	Repeat    int // from 1
	Attempt   int // from 1
	Fence     int64
	Why       string    // "", retry, browser, resume, rerun, reattached
	Ready     time.Time // when the job became ready to start
	Failed    int       // attempts of this trial so far that count against Retry.Attempts
	// Alone means that an attempt lost a browser that it shared with others. The trial gets a
	// browser of its own from now on.
	Alone bool

	// Interrupted is the attempt that a crash or a stop left open, or 0. It goes on if its agent can
	// be restored and its sandbox is found. Otherwise it is closed before the new attempt starts, its
	// durable evidence is graded, and model replies it paid for are reused.
	Interrupted int
	// Prior lists earlier attempts that did not decide the trial, newest first. Model replies they
	// paid for are reused.
	Prior []int
	// Evidence, if not empty, makes the attempt skip the agent and only grade.
	Evidence []record.Evidence
	// Exclusive names resources that only one job may use at a time. The queue hands out a job when
	// no other job holds any of them, and releases them on Done or Again. To prevent deadlock, they
	// are held before a worker asks for sandboxes, and a job that has sandboxes asks for no names.
	Exclusive []string
	// World groups trials that share state. The queue hands out a trial when the world's trials of
	// earlier rounds are decided, and those of its own round that are listed in After. A plan lists
	// each trial behind the trials it waits for. If World is "", the trial waits for no other.
	World string
	Round int // from 1
	After []string
}

// A Queue hands out jobs and decides how many are in flight at once. Its methods are safe for
// concurrent use.
type Queue interface {
	// Take waits for a job that is ready and may start. It returns io.EOF when the plan is finished
	// or the queue is drained.
	Take(ctx context.Context) (Job, error)
	// Waits says that the job's session is waiting for a model provider, for a rate limit or before
	// a retry, and needs no worker until done is called. Neither Waits nor done blocks. Waits of
	// one job may overlap.
	Waits(j Job) (done func())
	// Keep renews the job's lease. An error means that the lease is lost.
	Keep(ctx context.Context, j Job) error
	// Done ends a job. Its trial is decided, or this process does not retry it.
	Done(ctx context.Context, j Job) error
	// Again ends a job and adds a new job for the same trial, ready after the given delay.
	Again(ctx context.Context, j Job, after time.Duration) error
	// Drain stops handing out work; Take then returns io.EOF.
	Drain()
	// Pause stops handing out work of an arm.
	Pause(arm int)
}

// An Arm is one of the compared configurations (agent, model, prompt), ready to run.
type Arm struct {
	record.Arm
	// Agent creates the agent of one session. The oracle's arm asks the benchmark for it.
	Agent func(b benchmarks.Benchmark, t datasets.Task) (agent.Agent, error)
	// Model creates the clients for the arm's roles. It is nil if the arm has no model.
	Model  model.Factory
	Limits Limits
}

// A Bench is a benchmark of the plan with its options.
type Bench struct {
	benchmarks.Benchmark
	Options benchmarks.Options
	Roles   map[string]model.Factory // models other than the arm's: grader, user
}

// Limits bounds a trial. Zero means no limit, except for Time, where it means the default.
type Limits struct {
	// Time bounds the agent's working time over all stages. Waiting for the harness or for a
	// provider's backoff is not counted. If 0, the task's own limit applies, else [DefaultTime]; if
	// negative, the task's own limit applies, else none.
	Time   time.Duration
	Turns  int64   // model replies
	Steps  int64   // actions
	Tokens int64   // input and output tokens
	Cost   float64 // US dollars
	Output int64   // bytes of observations shown to the agent
}

// DefaultTime is the agent's time limit if neither the arm nor the task sets one.
const DefaultTime = 30 * time.Minute

// Phases sets the timeout of each phase of an attempt other than the agent's own run.
type Phases struct {
	Start   time.Duration // creating sandboxes and set-up; default 5 min
	Command time.Duration // one action, unless the action or its task sets a limit; default 10 min
	Collect time.Duration // default 2 min
	Grade   time.Duration // default 10 min
	Close   time.Duration // default 1 min
	Grace   time.Duration // for the agent to return after its context has ended; default 10 s
}

// Retry configures how trials that failed for reasons other than the agent are retried.
type Retry struct {
	Attempts int           // attempts of a trial in total; default 3
	Delay    time.Duration // delay before the second attempt, doubled for each further one; default 2 s
	Budget   int           // retries of the whole run; 0 means none
	Used     int           // part of Budget used by earlier processes of the run
	Pause    int           // consecutive failures after which an arm is paused; 0 means never
}

// Whole sets limits of the whole run. When one is reached, no new work is handed out. At the
// deadline, running trials are stopped. When money or tokens are used up, running trials may
// continue but may not make another model call. A trial that is cut off has no verdict and can be
// resumed.
type Whole struct {
	Cost     float64
	Tokens   int64
	Deadline time.Time
	// Amounts spent by earlier processes of the run.
	SpentCost      float64
	SpentEstimated float64 // part of SpentCost that is an upper estimate
	SpentTokens    int64
}

// Config configures a run.
type Config struct {
	Run        string
	Workers    int // concurrent gradings of Regrade; for Run, the queue limits the concurrent trials
	Graders    int // concurrent gradings that use a sandbox or the live session; 0 means no separate limit
	Browsers   int // concurrent sessions with a browser; 0 means no separate limit
	Arms       []Arm
	Benchmarks []Bench
	Provider   sandbox.Provider // nil means no sandboxes; a task that needs one is skipped
	Driver     string           // name of the driver, for the record
	// DriverOf returns the name of the driver that creates a sandbox; nil means Driver does.
	DriverOf func(sandbox.Spec) string
	// Images prepares images before sandbox capacity is acquired. If nil, the driver prepares an
	// image when it creates a sandbox.
	Images *Images
	// References keeps what second opinions are judged by, over runs; nil means that nothing is kept.
	References References
	Owner      sandbox.Owner
	Blobs      record.Blobs
	Codec      *event.Codec // nil means event.Default
	Seed       uint64
	Phases     Phases
	Retry      Retry
	Whole      Whole
	Mask       *Masker
	Secret     func(name string) (string, error) // looks up secrets for benchmarks; nil means none
	// Discard removes the sandboxes of an interrupted attempt that will not go on; nil does nothing.
	Discard func(ctx context.Context, trial string, attempt int)
	// Live lends the sandboxes of running trials to people; nil: nobody can enter them.
	Live *Live
	// AcceptLoss continues where a paid reply can no longer be read, by calling the model again.
	AcceptLoss bool
	KeepSent   bool // store raw requests as blobs
	// Drain, when closed, stops handing out work; running trials finish.
	Drain <-chan struct{}
	// Room returns an error if no new work may start, because disk space is low.
	Room func() error
	// Observe is called for each progress report, in order. It must return quickly.
	Observe func(Progress)
	Slog    *slog.Logger
}

// References keeps content by key. It is safe for concurrent use.
type References interface {
	// Get returns the content stored under key. If there is none, it calls make and stores the
	// result, or returns nil if make is nil. Callers that ask for the same key at the same time
	// wait for one call.
	Get(ctx context.Context, key string, make func(context.Context) ([]byte, error)) ([]byte, error)
}

// Progress is one progress report of a run.
type Progress struct {
	Kind    string // started, verdict, canceled, paused, note
	Job     Job
	Arm     *Arm
	Verdict *record.Verdict // set for "verdict"; a retry follows unless Verdict.Final or Open
	Open    bool            // for "verdict": the trial is left undecided
	Text    string
}

// A Summary counts what this process did. Reports read the journal instead.
type Summary struct {
	Attempts, Final    int
	By                 map[record.Status]int // final verdicts
	Retries, Abandoned int
	Browsers           int // highest number of concurrent sessions with a browser
	// Cost is the amount counted against budgets by this process and earlier ones. It includes
	// upper estimates where a price is unknown.
	Cost      float64
	Estimated float64 // part of Cost that is estimated
	Tokens    int64
	Reason    string // done, drained, stopped, budget, usage, deadline, storage, disk
	Why       string // details of Reason, if any
	Paused    []string
}

// Causes for cancelling a run's context.
var (
	ErrStopped  = errors.New("stopped by the user")
	ErrDeadline = errors.New("the run's deadline has come")
)

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
