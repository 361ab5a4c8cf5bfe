// Package benchmarks is the contract of benchmarks: a source of tasks, and the way to open, play,
// grade and solve one.
//
// The harness asks [Benchmark.Needs] (no I/O), takes all that a session needs, opens an [Episode],
// lets the agent play its stages, collects [Evidence], makes it durable, and grades it. Grading
// must give the same result for the same evidence, however often. Each benchmark is a folder below
// this one; benchtest holds what every one must keep.
package benchmarks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Benchmark is safe for several goroutines.
type Benchmark interface {
	Name() string
	Source() datasets.Source

	// Needs says what a session of t will hold. It does no I/O: preflight, plan and admission ask
	// it.
	Needs(t datasets.Task, o Options) (Needs, error)

	// Open begins an episode. Its errors are ours (infra), unless they are a *[TaskError]. On error
	// nothing is left open.
	Open(ctx context.Context, h Host, t datasets.Task, o Options) (Episode, error)

	// Grade says the same for the same evidence, however often. ev is of one stage. live is nil
	// when the session is gone; ErrNeedsLive then means that the attempt has to be repeated. An
	// error is an infrastructure failure when it wraps a *sandbox.Error, the provider's when it
	// wraps a *model.Error, else the grader's. What the agent can cause (a broken file, a test that
	// hangs, no reward from a machine that still answers) is never an error but a score of 0, with
	// a flag.
	Grade(ctx context.Context, h Host, t datasets.Task, ev Evidence, live Episode) (Result, error)
}

// ErrNeedsLive: grading this evidence needs the live session.
var ErrNeedsLive = errors.New("it is graded in the agent's own machine, which is gone")

// A TaskError says that the task itself is at fault (its set-up script fails, say): its trials are
// skipped with the reason… once it is known; the fault is the grader's side, never the agent's.
type TaskError struct {
	Task string
	Err  error
}

func (e *TaskError) Error() string { return "task " + e.Task + ": " + e.Err.Error() }
func (e *TaskError) Unwrap() error { return e.Err }

// A Defect is an error of a known kind, one of package record's ([record.FaultNoTest] …), that says
// what a task lacks. `evalrun tasks check` asks for it.
type Defect struct {
	Kind string
	Err  error
}

func (e *Defect) Error() string { return e.Err.Error() }
func (e *Defect) Unwrap() error { return e.Err }

// NoSolution is the error of a task that has nothing for an oracle to play.
func NoSolution(format string, args ...any) error {
	return &Defect{record.FaultNoSolution, fmt.Errorf(format, args...)}
}

// A LeftError says that what an agent left behind cannot be collected or graded. It is the agent's
// doing: the stage scores 0, with [FlagNoReward].
type LeftError struct{ Err error }

func (e *LeftError) Error() string { return "what the agent left behind was refused: " + e.Err.Error() }
func (e *LeftError) Unwrap() error { return e.Err }

// Inside reports whether an operation failed by what is in a machine, which is well, or was until
// it took more memory than it may.
func Inside(e *sandbox.Error) bool { return e.Inside || errors.Is(e.Err, sandbox.ErrSandboxOOM) }

// Left marks the error of an operation on what an agent left behind, such as putting it into a
// grader's machine. Where that is what failed it is a [*LeftError]; any other error stays as it is.
func Left(err error) error {
	var file *sandbox.FileError
	var sb *sandbox.Error
	switch {
	case errors.As(err, &file):
		return &LeftError{file}
	case errors.As(err, &sb) && Inside(sb):
		return &LeftError{sb.Err} // without the machine's name, which differs from one grading to the next
	}
	return err
}

// A BrowserLost says that an episode's browser has ended or no longer answers. Any episode that
// used the browser may have caused it.
type BrowserLost struct{ Err error }

func (e *BrowserLost) Error() string { return e.Err.Error() }
func (e *BrowserLost) Unwrap() error { return e.Err }

// A Loner is a [Host] that may ask for a browser that no other episode uses. It does so after an
// earlier attempt of the trial has lost a shared one.
type Loner interface{ Alone() bool }

// Options of one trial, as the run's configuration gives them.
type Options struct {
	// Sandbox holds the run's wishes for machines (limits, image, network); zero fields are left to
	// the task.
	Sandbox sandbox.Spec
	// Raw holds the benchmark's own options.
	Raw json.RawMessage
	// Integrity says what becomes of a trial whose grader found that the agent tampered with it: ""
	// or "warn", a flag; "fail", a flag and the score 0. Evidence keeps it, so that a later grading
	// says the same.
	Integrity string
	// Repeat is which of its task's repeats the trial is, from 1, for benchmarks that play each
	// with a seed of its own; 0: it is not about a trial (Needs, before the run).
	Repeat int
	// Round is which round of the benchmark's the trial belongs to, from 1, where its tasks share a
	// state of the world (Task.After, Needs.Exclusive): no trial of a round begins before all of
	// the round before it are decided. 0: there are no rounds.
	Round int
}

// Merge lays the run's wishes over a task's own spec: what the run sets wins.
func (o Options) Merge(s sandbox.Spec) sandbox.Spec {
	w := o.Sandbox
	if !w.Image.IsZero() {
		s.Image = w.Image
	}
	if w.CPUs != 0 {
		s.CPUs = w.CPUs
	}
	if w.Memory != 0 {
		s.Memory = w.Memory
	}
	if w.Disk != 0 {
		s.Disk = w.Disk
	}
	if w.Pids != 0 {
		s.Pids = w.Pids
	}
	if w.User != "" {
		s.User = w.User
	}
	if w.Network.Mode != "" {
		s.Network = w.Network
	}
	if w.Reserve != (sandbox.Reserve{}) {
		s.Reserve = w.Reserve
	}
	return s
}

// Needs of a session.
type Needs struct {
	Agent, Grader []sandbox.Spec // alive together; room for them is taken whole before the session starts
	InTurn        bool           // of Grader one is open at a time: room for the largest is enough
	// GradeLive: each stage is graded at once, while the agent's machine lives and beside it, and
	// the next stage is told the grade. False: all stages are played (Next gets nil), the agent's
	// machines are closed, and then the grader's open.
	GradeLive bool
	Browser   bool
	Roles     []string // models beside the arm's: "grader", "user"; on accounts of their own
	Exclusive []string // "webarena/shopping": one holder at a time
	Skip      string   // why it cannot run here
	// What the task's own format allows for making a stage ready, for collecting and for grading
	// one. A phase that the run limits to less gets so much.
	Setup, Collect, Grade time.Duration
}

// A Host lends what Needs asked for; all of it ends with the attempt.
type Host interface {
	// Sandbox creates a machine as one of the specs of Needs. In Open and Step it is one of Agent,
	// in Grade one of Grader.
	Sandbox(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error)
	Model(role string) (model.Client, error)
	Secret(name string) (string, error) // only names that the run's configuration allows
	Log() event.Log
	Seed() uint64
}

// An Episode is one session of a task: Next, Step …, Collect; again until Next returns io.EOF.
type Episode interface {
	// Next begins the next stage. prev is the grade of the stage before; nil at the first. io.EOF:
	// there is none.
	Next(ctx context.Context, prev *Result) (*Stage, error)
	// Step executes one action. What goes wrong in the world is an observation; an error is ours.
	Step(ctx context.Context, a event.Event) (Turn, error)
	// Collect gathers what grading needs. It is called also after a limit; the agent no longer
	// runs.
	Collect(ctx context.Context, ans agent.Answer) (Evidence, error)
	// Close ends the episode. It may be called again.
	Close() error
}

// Machiner is an episode with a machine of the agent's own: the harness makes it an agent.Machine.
// It is also how the harness counts and ends what the agent left behind.
type Machiner interface {
	// Machine starts the machine when it is not there yet.
	Machine(ctx context.Context) (sandbox.Sandbox, error)
	// Started returns the machine if it was started, else nil.
	Started() sandbox.Sandbox
	// Dir is the working directory of the task.
	Dir() string
}

// A Stage is a part of an episode with its own goal and grade.
type Stage struct {
	Name  string
	Goal  agent.Goal
	Tools []agent.Tool
	Kinds []string      // kinds of actions that Step executes
	Time  time.Duration // for the agent; 0: the run's limit
	Leave bool          // processes left behind are part of the answer; else the harness calls KillAll before Collect
	Last  bool          // no stage follows, whatever the grade: after a crash the evidence alone decides the trial
	// Broken says why the stage cannot be played, and the agent before it may be the cause: no
	// agent plays it, its evidence is collected and graded, and no stage follows.
	Broken string
}

// A Turn is what a step brought. Reward and Info are kept, never handed on to the agent.
type Turn struct {
	Obs    event.Body
	Reward *float64
	Done   bool
	Info   json.RawMessage
}

// Evidence is what grading needs and nothing more. It is JSON, so that grading can be repeated
// later.
type Evidence struct {
	Stage  int          `json:"stage"`
	Answer agent.Answer `json:"answer"`
	// name → content (a single file, or a tar of a folder, as the benchmark says)
	Files   map[string]event.Blob `json:"files,omitempty"`
	Rewards []float64             `json:"rewards,omitempty"`
	Data    json.RawMessage       `json:"data,omitempty"`
}

// Bounds of a [Result]. A score beyond MaxScore is none: reports take sums of third powers of
// scores.
const (
	MaxScores = 1000
	MaxScore  = 1e50
)

// A Result is a stage's grade. Exactly one score is primary.
type Result struct {
	Scores []record.Score `json:"scores"`
	Tests  []record.Test  `json:"tests,omitempty"`
	Flags  []string       `json:"flags,omitempty"`
}

// Primary is the primary score, or nil.
func (r Result) Primary() *record.Score {
	for i := range r.Scores {
		if r.Scores[i].Primary {
			return &r.Scores[i]
		}
	}
	return nil
}

// FlagNoReward marks a score of 0 that stands for a grader without a verdict on a machine that
// still answers.
const FlagNoReward = "no_reward"

// FlagLeftOut marks a grade for which not all that the agent left behind could be collected:
// folders were nested too deep, paths too long, or a file could not be read. The rest was graded.
const FlagLeftOut = "left_out"

// FlagThrew marks a score that an expression of the task's had no part in, as it failed by itself.
const FlagThrew = "expression_threw"

// A Reducer makes one result of the stages'. Without it the mean of the primary scores is taken.
type Reducer interface {
	Reduce(t datasets.Task, stages []Result) (Result, error)
}

// An Oracle knows the solution of its tasks.
type Oracle interface {
	// Solve returns an agent that earns the full score, or an error when the task has no known
	// solution.
	Solve(t datasets.Task) (agent.Agent, error)
}

// A Preparer looks, once before a run begins, whether what its tasks share is there (sites, say),
// so that Needs can tell which of them cannot be played. The notes are for the user; an error keeps
// the run from beginning.
type Preparer interface {
	Prepare(ctx context.Context) (notes []string, err error)
}

// A Resumer takes up a live session again after a crash of ours.
type Resumer interface {
	Resume(ctx context.Context, h Host, t datasets.Task, o Options, log event.Log) (Episode, error)
}
