// Package benchmarks defines the contract of a benchmark: a source of tasks, and the way to open,
// play, grade and solve a task.
//
// The harness calls [Benchmark.Needs] (no I/O), acquires everything the session needs, opens an
// [Episode], lets the agent play its stages, collects [Evidence], stores it durably, and grades it.
// Grading the same evidence must always give the same result. Each benchmark lives in a directory
// below this one; package benchtest holds the test suite that every benchmark must pass.
package benchmarks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Benchmark provides tasks and plays and grades them. Its methods may be called from several
// goroutines.
type Benchmark interface {
	Name() string
	Source() datasets.Source

	// Needs returns the resources that a session of t requires. It does no I/O; preflight, planning
	// and admission call it.
	Needs(t datasets.Task, o Options) (Needs, error)

	// Open starts an episode. An error is an infrastructure error, unless it is a *[TaskError].
	// After an error no resource is left open.
	Open(ctx context.Context, h Host, t datasets.Task, o Options) (Episode, error)

	// Grade grades the evidence of one stage. The same evidence always gets the same result. live
	// is nil when the session has ended; if grading needs the session, Grade then returns
	// ErrNeedsLive and the attempt is repeated. An error that wraps a *sandbox.Error is an
	// infrastructure failure, one that wraps a *model.Error is the provider's, any other is the
	// grader's. Whatever the agent can cause (a broken file, a test that hangs, no reward from a
	// machine that still responds) is not an error: Grade returns a score of 0 with a flag.
	Grade(ctx context.Context, h Host, t datasets.Task, ev Evidence, live Episode) (Result, error)
}

// ErrNeedsLive is returned by [Benchmark.Grade] when grading the evidence requires the live
// session.
var ErrNeedsLive = errors.New("it is graded in the agent's own machine, which is gone")

// A TaskError reports that the task itself is defective, for example because its setup script
// fails. Trials of the task are skipped with this reason once the defect is known. It counts as the
// grader's failure, never as the agent's.
type TaskError struct {
	Task string
	Err  error
}

func (e *TaskError) Error() string { return "task " + e.Task + ": " + e.Err.Error() }
func (e *TaskError) Unwrap() error { return e.Err }

// A Defect is an error that says what a task lacks. Kind is one of the fault constants of package
// record ([record.FaultNoTest] and others). `evalrun tasks check` looks for it.
type Defect struct {
	Kind string
	Err  error
}

func (e *Defect) Error() string { return e.Err.Error() }
func (e *Defect) Unwrap() error { return e.Err }

// NoSolution returns the error for a task that has no solution for an oracle to play.
func NoSolution(format string, args ...any) error {
	return &Defect{record.FaultNoSolution, fmt.Errorf(format, args...)}
}

// A LeftError reports that the files the agent left behind cannot be collected or graded. The agent
// caused this: the stage scores 0, with [FlagNoReward].
type LeftError struct{ Err error }

func (e *LeftError) Error() string { return "what the agent left behind was refused: " + e.Err.Error() }
func (e *LeftError) Unwrap() error { return e.Err }

// Inside reports whether an operation failed because of something inside a machine, while the
// machine itself was healthy or was killed for exceeding its memory limit.
func Inside(e *sandbox.Error) bool { return e.Inside || errors.Is(e.Err, sandbox.ErrSandboxOOM) }

// Left wraps the error of an operation on files that the agent left behind, such as copying them
// into a grader's machine. If those files caused the failure, Left returns a [*LeftError];
// otherwise it returns err unchanged.
func Left(err error) error {
	var file *sandbox.FileError
	var sb *sandbox.Error
	switch {
	case errors.As(err, &file):
		return &LeftError{file}
	case errors.As(err, &sb) && Inside(sb):
		return &LeftError{sb.Err} // drop the machine's name, which differs between gradings
	}
	return err
}

// A BrowserLost reports that an episode's browser has exited or no longer responds. Any episode
// that used the browser may have caused it.
type BrowserLost struct{ Err error }

func (e *BrowserLost) Error() string { return e.Err.Error() }
func (e *BrowserLost) Unwrap() error { return e.Err }

// A Loner is a [Host] that can require a browser that no other episode uses. Alone returns true
// after an earlier attempt of the trial has lost a shared browser.
type Loner interface{ Alone() bool }

// Options are the options of one trial, from the run's configuration.
type Options struct {
	// Sandbox holds the run's settings for machines (limits, image, network). For zero fields the
	// task's own values apply.
	Sandbox sandbox.Spec
	// Raw holds the benchmark's own options.
	Raw json.RawMessage
	// Integrity is the configuration's key of this name: what to do about agents that may have
	// deceived a grader in their own sandbox. It is stored with the evidence, so that grading again
	// gives the same result.
	Integrity string
	// Repeat is the trial's repeat number within its task, from 1, for benchmarks that use a
	// different seed for each repeat. It is 0 when no trial is concerned (Needs, before the run).
	Repeat int
	// Round is the trial's round, from 1, for benchmarks whose tasks share external state
	// (Task.After, Needs.Exclusive). No trial of a round starts before all trials of the previous
	// round are finished. 0 means that the benchmark has no rounds.
	Round int
}

// Merge overlays the run's settings on a task's own spec: values set by the run take precedence.
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

// Needs describes the resources of a session.
type Needs struct {
	// open at the same time; capacity for all is acquired before the session starts
	Agent, Grader []sandbox.Spec
	// the Grader machines are opened one at a time: capacity for the largest is enough
	InTurn bool
	// GradeLive means that each stage is graded as soon as it has been played, while the agent's
	// machine is still running, and that Next receives the grade. If false, all stages are played
	// first (Next gets nil), the agent's machines are closed, and only then are the grader's
	// opened.
	GradeLive bool
	Browser   bool
	// models in addition to the arm's: "grader", "user"; billed to separate accounts
	Roles     []string
	Exclusive []string // such as "webarena/shopping": one holder at a time
	Skip      string   // why the task cannot run here; "" if it can
	// Late means that the Agent machines will have variables whose values are not known yet, so that
	// none can be started ahead
	Late bool
	// Setup, Collect and Grade are the times that the task's format allows for preparing,
	// collecting and grading a stage. They raise a shorter limit set by the run.
	Setup, Collect, Grade time.Duration
}

// A Host provides what Needs asked for. Everything it provides is released when the attempt ends.
type Host interface {
	// Sandbox creates a machine from one of the specs in Needs: from Agent in Open and Step, from
	// Grader in Grade.
	Sandbox(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error)
	Model(role string) (model.Client, error)
	Secret(name string) (string, error) // only names that the run's configuration allows
	Log() event.Log
	Seed() uint64
}

// An Episode is one session of a task. The harness calls Next, then Step any number of times, then
// Collect, and repeats this until Next returns io.EOF.
type Episode interface {
	// Next starts the next stage. prev is the grade of the previous stage, nil for the first. Next
	// returns io.EOF when there are no more stages.
	Next(ctx context.Context, prev *Result) (*Stage, error)
	// Step executes one action. A failure in the environment is returned as an observation; an
	// error means an infrastructure failure.
	Step(ctx context.Context, a event.Event) (Turn, error)
	// Collect gathers what grading needs. It is also called after a limit was reached. The agent is
	// no longer running.
	Collect(ctx context.Context, ans agent.Answer) (Evidence, error)
	// Close ends the episode. It may be called more than once.
	Close() error
}

// A Machiner is an episode with a machine for the agent. The harness exposes it as an
// agent.Machine, and uses it to count and kill the processes that the agent left behind.
type Machiner interface {
	// Machine returns the machine, starting it if necessary.
	Machine(ctx context.Context) (sandbox.Sandbox, error)
	// Started returns the machine if it has been started, else nil.
	Started() sandbox.Sandbox
	// Dir returns the task's working directory.
	Dir() string
}

// A ShellLeaver is an episode in which the agent has persistent shells. They end with the agent,
// before the processes that it left behind are counted.
type ShellLeaver interface {
	LeaveShells(ctx context.Context) error
}

// A Stage is a part of an episode with its own goal and grade.
type Stage struct {
	Name  string
	Goal  agent.Goal
	Tools []agent.Tool
	// ToolSets are sets of further tools, by name. An agent takes one in the place of its own tools
	// (see [agent.ToolBox]). Step executes their calls.
	ToolSets map[string][]agent.Tool
	// Servers starts the task's tool servers and returns their tools; see [agent.ToolServers]. Nil: no
	// agent but one that is a program in the machine can use them. Step executes the tools' calls.
	Servers func(ctx context.Context) (tools []agent.Tool, notes []string, err error)
	Kinds   []string      // kinds of actions that Step executes
	Time    time.Duration // time limit for the agent; 0 means the run's limit
	// leftover processes are part of the answer; if false, KillAll runs before Collect
	Leave bool
	Last  bool // no stage follows; after a crash the evidence alone decides the trial
	// Broken says why the stage cannot be played when an agent may have caused it in an earlier
	// stage. No agent plays the stage; its evidence is collected and graded, and no stage follows.
	Broken string
}

// A Turn is the result of one step. Reward and Info are stored but never shown to the agent.
type Turn struct {
	Obs    event.Body
	Reward *float64
	Done   bool
	Info   json.RawMessage
}

// Evidence holds exactly what grading needs. It is stored as JSON, so that grading can be repeated
// later.
type Evidence struct {
	Stage  int          `json:"stage"`
	Answer agent.Answer `json:"answer"`
	// name → content (a single file, or a tar of a directory, depending on the benchmark)
	Files   map[string]event.Blob `json:"files,omitempty"`
	Rewards []float64             `json:"rewards,omitempty"`
	Data    json.RawMessage       `json:"data,omitempty"`
	// Changes and Work are for the record only; see [record.Evidence].
	Changes []record.FolderChanges `json:"-"`
	Work    []record.WorkPath      `json:"-"`
}

// Limits of a [Result]. A score above MaxScore is invalid, because reports sum third powers of
// scores.
const (
	MaxScores = 1000
	MaxScore  = 1e50
)

// A Result is the grade of a stage. Exactly one score is primary.
type Result struct {
	Scores []record.Score `json:"scores"`
	Tests  []record.Test  `json:"tests,omitempty"`
	Flags  []string       `json:"flags,omitempty"`
	// Confirmation says whether the grade needs a second opinion, which a [Confirmer] gives; nil if
	// it does not.
	Confirmation *record.Confirmation `json:"confirmation,omitempty"`
	// Uses are for the record only; see [record.Result].
	Uses []record.PathUse `json:"-"`
}

// Primary returns the primary score, or nil if there is none.
func (r Result) Primary() *record.Score {
	for i := range r.Scores {
		if r.Scores[i].Primary {
			return &r.Scores[i]
		}
	}
	return nil
}

// FlagNoReward marks a score of 0 that was given because the grader produced no verdict although
// its machine still responds.
const FlagNoReward = "no_reward"

// FlagLeftOut marks a grade for which some of the agent's files could not be collected: directories
// were nested too deep, paths were too long, or a file could not be read. The rest was graded.
const FlagLeftOut = "left_out"

// FlagThrew marks a grade in which one of the task's expressions threw an exception. The check of
// that expression counts as 0.
const FlagThrew = "expression_threw"

// A Reducer combines the results of the stages into one. Without it the mean of the primary scores
// is used.
type Reducer interface {
	Reduce(t datasets.Task, stages []Result) (Result, error)
}

// FlagFromWork marks a grade that was given again, in a fresh machine that has only the agent's work,
// because the agent's own machine is gone. A solution that needs more than its work earns less there.
const FlagFromWork = "from_work"

// A Confirmer can grade the agent's work in a fresh machine, of tasks that Grade grades in the
// agent's own machine.
type Confirmer interface {
	// Confirm gives a second opinion on a grade, as the agent may have deceived the grader. The
	// harness asks for it after the trial, if the result's Confirmation is pending. An error is an
	// infrastructure failure; the grade then stays pending.
	Confirm(ctx context.Context, h Host, t datasets.Task, o Options, c Claim) (record.Confirmation, error)
	// Regrade returns the results of all stages, graded again by the task as it is now, each with
	// the flag [FlagFromWork]. An error that is ErrNeedsLive says why that cannot be done.
	Regrade(ctx context.Context, h Host, t datasets.Task, o Options, c Claim) ([]Result, error)
}

// A WorkNamer tells which files of its tasks count as the agent's work.
type WorkNamer interface {
	// Work returns the paths of a task's work, as far as they are known without a machine. They may be
	// relative to the working directory. An entry without a path stands for that directory itself.
	Work(t datasets.Task, o Options) ([]record.WorkPath, error)
}

// A Claim is a grade of a trial whose machine is gone, and what the agent left.
type Claim struct {
	Reward float64 // of the trial
	// Confirmation is the trial's as it is. For Confirm it is pending; or not known, if it is asked for
	// once more, because what was missing may be known now. Then Confirm returns it as it is if
	// nothing is. Its Why and Slipped are those of the grade that was given in the agent's machine.
	Confirmation record.Confirmation
	Flags        []string   // of the grade that was given in the agent's machine
	Task         string     // digest of the task that the agent played
	Evidence     []Evidence // of all stages
	Oracle       bool       // the agent was the oracle
	// Last says that a failure of the infrastructure is not tried again. A machine that the work may
	// have lost is then no failure, but a reward of 0.
	Last bool
	// Reference returns what is stored under a key. If nothing is, it stores what make returns; nil
	// returns nil. Callers that ask for the same key at the same time wait for one call of make.
	Reference func(ctx context.Context, key string, make func(context.Context) ([]byte, error)) ([]byte, error)
}

// Confirmation combines the stages' confirmations into the trial's: it is that of the stage which
// says least for the grade. It is nil if no stage needs a second opinion.
func Confirmation(stages []Result) (out *record.Confirmation) {
	order := []string{record.Pending, record.Unknown, record.Inapplicable, record.Confirmed}
	for _, r := range stages {
		c := r.Confirmation
		if c == nil {
			continue
		}
		if out == nil {
			out = &record.Confirmation{State: record.Confirmed}
		}
		if slices.Index(order, c.State) <= slices.Index(order, out.State) {
			if c.State == out.State && out.Why != "" && c.Why != "" {
				out.Why += "; " + c.Why
			} else {
				out.Why = cmp.Or(c.Why, out.Why)
			}
			out.State = c.State
		}
		out.Zero = out.Zero || c.Zero
		out.Slipped = append(out.Slipped, c.Slipped...)
	}
	return out
}

// An Oracle knows the solutions of its tasks.
type Oracle interface {
	// Solve returns an agent that earns the full score, or an error if the task has no known
	// solution.
	Solve(t datasets.Task) (agent.Agent, error)
}

// A Preparer checks once before a run starts whether shared resources of its tasks, such as web
// sites, are available, so that Needs can report which tasks cannot be played. The notes are shown
// to the user. An error prevents the run from starting.
type Preparer interface {
	Prepare(ctx context.Context) (notes []string, err error)
}

// A Resumer can continue an episode in its first stage after a crash of evalrun.
type Resumer interface {
	// Resume is called in place of Open, with the log of the interrupted session. It must not change
	// the machine, and an error must leave nothing behind: then the task is played again from the
	// start. Step may be called for an action that was begun before, and must not execute it twice.
	Resume(ctx context.Context, h Keeper, t datasets.Task, o Options, log event.Log) (Episode, error)
}

// A Keeper is a Host whose machine can be found again after a crash of evalrun.
type Keeper interface {
	Host
	// Keep records that the agent's machine is set up, and its working directory, for Find.
	Keep(ctx context.Context, sb sandbox.Sandbox, dir string) error
	// Find returns the machine that the interrupted session has kept, with its working directory, or
	// nil if it has kept none. It is for [Resumer].
	Find(ctx context.Context, spec sandbox.Spec) (sb sandbox.Sandbox, dir string, err error)
}
