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

// A Job is one attempt to be made.
type Job struct {
	Trial     string // trial ID
	Arm       int    // index into Config.Arms
	Benchmark int    // index into Config.Benchmarks
	Task      record.Task
	Repeat    int // from 1
	Attempt   int // from 1
	Fence     int64
	Why       string    // "", retry, browser, resume, rerun
	Ready     time.Time // when it could have begun
	Failed    int       // attempts of this trial so far that count against Retry.Attempts
	Alone     bool      // an attempt has lost its browser, which others had, too: from now on it has one of its own

	// Interrupted is the attempt that a crash or a stop of ours left open, 0 if none. It is closed
	// before the new one begins, its durable evidence is graded, and replies that it paid for are
	// not paid again.
	Interrupted int
	// Prior are earlier attempts that did not decide the trial, the newest first. The replies that
	// they paid for are not paid again.
	Prior []int
	// Evidence, when set, is all that is needed: the attempt only grades.
	Evidence []record.Evidence
	// Exclusive are names of what only one job at a time may use. The queue hands a job out when
	// nobody else holds any of them, and takes them back with Done or Again. They are held before a
	// worker asks for machines, and whoever has machines asks for no name, so that neither waits
	// for the other in a circle.
	Exclusive []string
	// Trials of one World share a state of it. The queue hands one out when those of earlier rounds
	// are decided, and of its own round the trials in After. A plan names each trial behind those
	// that it waits for. "": the trial waits for no other.
	World string
	Round int // from 1
	After []string
}

// A Queue hands out jobs, and says how many are in flight at once. Its methods may be called from
// several goroutines.
type Queue interface {
	// Take waits for a job that is ready and may begin. io.EOF: the plan is through, or no more
	// work is handed out.
	Take(ctx context.Context) (Job, error)
	// Waits says that the session of a job waits for a model's service, for its turn or to ask
	// again, until done is called: it needs no worker meanwhile. Neither blocks. Waits of one job
	// may overlap.
	Waits(j Job) (done func())
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
	// Time of the agent, all stages; waiting for our machinery or a provider's back-off is not
	// counted. 0: the task's own, else [DefaultTime]; negative: the task's own, else none.
	Time   time.Duration
	Turns  int64   // model replies
	Steps  int64   // actions
	Tokens int64   // in and out
	Cost   float64 // US dollars
	Output int64   // bytes of observations
}

// DefaultTime is the agent's where nobody says something.
const DefaultTime = 30 * time.Minute

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
	Used     int           // of Budget, by earlier processes of the run
	Pause    int           // failures in a row after which an arm is paused; 0: never
}

// Whole are limits of the whole run. When one is reached no new work is handed out. At the deadline
// what runs is stopped; when money or tokens are used up it may go on, but not to another model
// call. What is cut off has no verdict, and can be resumed.
type Whole struct {
	Cost     float64
	Tokens   int64
	Deadline time.Time
	// Spent before this process took the run up.
	SpentCost      float64
	SpentEstimated float64 // part of SpentCost that is an upper estimate
	SpentTokens    int64
}

// Config of a run.
type Config struct {
	Run        string
	Workers    int // gradings of Regrade at once; how many trials Run plays at once is up to its queue
	Graders    int // gradings at once that use a machine or the live session; 0: no limit of their own
	Browsers   int // sessions with a browser at once; 0: no limit of their own
	Arms       []Arm
	Benchmarks []Bench
	Provider   sandbox.Provider // nil: no machines; a task that needs one is skipped
	Driver     string           // its name, for the record
	// DriverOf says which of several drivers makes a machine; nil: Driver does.
	DriverOf func(sandbox.Spec) string
	// Images makes the images of machines ready before room for them is taken; nil: the driver does
	// when it makes one.
	Images *Images
	Owner  sandbox.Owner
	Blobs  record.Blobs
	Codec  *event.Codec // nil: event.Default
	Seed   uint64
	Phases Phases
	Retry  Retry
	Whole  Whole
	Mask   *Masker
	Secret func(name string) (string, error) // what benchmarks may ask for; nil: nothing
	// AcceptLoss goes on where a paid reply can no longer be read: the model is asked again.
	AcceptLoss bool
	KeepSent   bool // keep raw requests as blobs
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
	Verdict *record.Verdict // of "verdict"; a retry follows unless Verdict.Final or Open
	Open    bool            // of "verdict": the trial is left undecided
	Text    string
}

// A Summary counts what this process did; reports read the journal.
type Summary struct {
	Attempts, Final    int
	By                 map[record.Status]int // final verdicts
	Retries, Abandoned int
	Browsers           int // sessions that had a browser at the same time, at most
	// Cost is what budgets count of this process and those before it, upper estimates included
	// where a price is not known.
	Cost      float64
	Estimated float64 // part of Cost
	Tokens    int64
	Reason    string // done, drained, stopped, budget, usage, deadline, storage, disk
	Why       string // more about the reason, if there is more
	Paused    []string
}

// Causes with which a run's context may be ended.
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
