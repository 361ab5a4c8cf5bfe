package record

import (
	"encoding/json"
	"time"
)

// A Status says whether a trial is evidence about the agent and, if not, what failed.
type Status string

const (
	Scored   Status = "scored"   // evidence about the agent
	Infra    Status = "infra"    // the harness or a sandbox failed
	Provider Status = "provider" // the model provider failed
	Grader   Status = "grader"   // the grader failed, and the agent cannot have caused it
	Canceled Status = "canceled" // stopped before it was decided
	Skipped  Status = "skipped"  // cannot run here
)

// An End says how a scored trial ended.
type End string

const (
	Answered End = "answered"
	GaveUp   End = "gave_up"
	Limit    End = "limit" // reached a limit on turns, steps, time, tokens, money or output; graded as it is
	Broke    End = "broke" // the agent failed by itself; graded
)

// Attempt starts an attempt. It repeats what identifies the trial, so that a journal can be read on
// its own.
type Attempt struct {
	Arm       string            `json:"arm"` // arm ID
	ArmName   string            `json:"arm_name"`
	Agent     string            `json:"agent"`
	Model     string            `json:"model,omitempty"`
	Prompt    string            `json:"prompt,omitempty"` // name of the prompt
	Axes      map[string]string `json:"axes,omitempty"`
	Benchmark string            `json:"benchmark"`
	Task      string            `json:"task"`
	Digest    string            `json:"task_digest"`
	Cluster   string            `json:"cluster,omitempty"` // shared by tasks that are not independent
	Repeat    int               `json:"repeat"`            // from 1
	Attempt   int               `json:"attempt"`           // from 1
	Seed      uint64            `json:"seed"`
	// "", "retry", "browser", "resume", "rerun"; Reattached in a second entry of the same attempt
	Why string `json:"why,omitempty"`
	// The run's driver; the verdict names the driver of the sandboxes.
	Driver  string        `json:"driver,omitempty"`
	Regrade bool          `json:"regrade,omitempty"`   // only grades evidence of an earlier attempt
	Queued  time.Duration `json:"queued_ns,omitempty"` // time from ready to started
}

// Longer texts are stored in blobs, so that control.jsonl stays small.
const (
	MaxGoal     = 4 << 10
	MaxEvidence = 64 << 10
)

// Reattached is the Attempt.Why of an attempt that goes on after a crash, and what its note is called.
const Reattached = "reattached"

// Touched is the flag of a trial in whose sandbox a person was, and what the notes about it are called.
const Touched = "touched"

// Machine names a sandbox of the agent.
type Machine struct {
	ID string `json:"id"`
}

// Stage starts a stage.
type Stage struct {
	Index int    `json:"index"` // from 0
	Name  string `json:"name,omitempty"`
	// Goal is the goal's text, shortened to [MaxGoal] bytes. GoalBlob is the SHA-256 of the blob
	// that holds a longer one.
	Goal     string `json:"goal,omitempty"`
	GoalBlob string `json:"goal_blob,omitempty"`
	Events   int64  `json:"events"` // ID of the first event of the stage
}

// Reward is the reward of one action. It never reaches the agent, so it is stored outside the log,
// right before the action's observation. A reader of the journal in order can thus put both into
// one row.
type Reward struct {
	Action int64 `json:"action"` // ID of the action, which is the Cause of the observation
	// Event is set instead of Action in older runs, if above 0: the ID of the observation, which
	// precedes this entry.
	Event  int64           `json:"event,omitempty"`
	Reward *float64        `json:"reward"`
	Info   json.RawMessage `json:"info,omitempty"`
}

// Evidence is the JSON form of benchmarks.Evidence, stored so that grading can be repeated,
// together with how the agent ended.
type Evidence struct {
	Stage int             `json:"stage"`
	End   End             `json:"end"`
	Limit string          `json:"limit,omitempty"` // kind of the limit that was reached
	Error string          `json:"error,omitempty"` // error of an agent that broke
	Data  json.RawMessage `json:"data,omitempty"`
	// Blob is the SHA-256 of the blob that holds data above [MaxEvidence]; Data is then absent.
	Blob string `json:"blob,omitempty"`
	Last bool   `json:"last,omitempty"` // no stage follows, whatever the grade
	// Touched means that a person was in the agent's sandbox.
	Touched bool `json:"touched,omitempty"`
	// Left is the number of processes the agent left running; nil if unknown.
	Left *int `json:"left,omitempty"`
	// Refused says why the agent's leftovers could not be collected; the stage then scores 0.
	Refused string `json:"refused,omitempty"`
	// Changes are the files that the agent changed in the stage, by folder. They are missing where
	// nothing looks at them.
	Changes []FolderChanges `json:"changes,omitempty"`
	// Work are the paths that count as the agent's work there.
	Work []WorkPath `json:"work,omitempty"`
}

// A WorkPath is a file or folder that counts as the agent's work, and where this is from.
type WorkPath struct {
	Path string `json:"path"`
	From string `json:"from"` // such as "instruction"
}

// Limits of [Evidence] Changes and Work, and of the lists of a [PathUse].
const (
	MaxFolders = 50
	MaxWork    = 200
	MaxUses    = 100
)

// FolderChanges counts the changed paths whose parent is Folder. An entry without Folder sums up
// the folders with the fewest changes, which have no entry of their own.
type FolderChanges struct {
	Folder  string `json:"folder,omitempty"`
	Work    bool   `json:"work,omitempty"` // the paths are the agent's work; not set for a sum
	Created int64  `json:"created,omitempty"`
	Changed int64  `json:"changed,omitempty"`
	Removed int64  `json:"removed,omitempty"`
}

// A PathUse is a path that the agent changed and that a grader uses, although it is not the agent's
// work, or may only be there to deceive the grader.
type PathUse struct {
	Path string `json:"path"`
	Use  string `json:"use"`            // see the constants
	Work bool   `json:"work,omitempty"` // it is among the agent's work
}

// Values of [PathUse] Use.
const (
	Opened   = "opened"    // the grader opened, read, executed or mapped it
	LookedUp = "looked_up" // it stands at a name that the grader looks up
	Odd      = "odd"       // such as a hidden file or a link; the task's solution made nothing like it
)

// A Score is a named grade. A nil Value means that there is none.
type Score struct {
	Name    string   `json:"name"`
	Primary bool     `json:"primary,omitempty"`
	Value   *float64 `json:"value"`
	Text    string   `json:"text,omitempty"` // the answer as the grader read it
	Why     string   `json:"why,omitempty"`
	// TimedOut means that there is no reward because the grader reached the task's time limit.
	TimedOut bool `json:"timed_out,omitempty"`
}

// A Test is one named test of a grader.
type Test struct {
	Name    string `json:"name"`
	Status  string `json:"status"` // passed, failed, error, skipped
	Message string `json:"message,omitempty"`
}

// Result is a stage's grade. A result with many tests is split into several entries: all tests
// belong to the stage, and the last entry has the scores.
type Result struct {
	Stage  int      `json:"stage"`
	Scores []Score  `json:"scores"`
	Tests  []Test   `json:"tests,omitempty"`
	Flags  []string `json:"flags,omitempty"` // no_reward …
	// Uses are the paths that the grader opened.
	Uses []PathUse `json:"uses,omitempty"`
}

// ClassBrowser is the class of a fault in which the attempt lost its browser. If the browser was
// shared, the attempt does not count as a try, because another trial may have caused the loss.
const ClassBrowser = "browser"

// A Fault says what went wrong, where, and who is responsible.
type Fault struct {
	Status Status `json:"status"`
	Phase  string `json:"phase"`          // image, start, setup, agent, collect, grade, close
	Class  string `json:"class"`          // "sandbox", "rate", "auth", "timeout", "panic", "canceled" …
	Kind   string `json:"kind,omitempty"` // FaultNoTest …, for a fault of the task, if known
	Text   string `json:"text"`
	Detail string `json:"detail,omitempty"` // SHA-256 of a blob with more text, such as a build log
}

// Kinds of faults of a task.
const (
	FaultNoTest     = "no_test"     // there is nothing to grade it with
	FaultNoSolution = "no_solution" // there is no solution for the oracle
	FaultBuild      = "build"       // an image cannot be built
	FaultPage       = "page"        // its first page cannot be loaded
)

// A Confirmation says whether a second opinion agrees with a grade that was given in the agent's own
// sandbox. The second opinion is that of the same grader in a fresh sandbox, which has only the
// agent's work.
type Confirmation struct {
	State string `json:"state"`         // see the constants
	Why   string `json:"why,omitempty"` // why it is needed, or what it said
	// Slipped are paths that are not the agent's work and that the grader used, or would load in
	// place of its own files; at most 20.
	Slipped []string `json:"slipped,omitempty"`
	// Uses are paths of Slipped and further ones, with the reason. Those that the grader opened are
	// in its [Result] instead, and not here.
	Uses   []PathUse `json:"uses,omitempty"`
	Reward *float64  `json:"reward,omitempty"` // of the second opinion, if there was one
	Zero   bool      `json:"zero,omitempty"`   // if it is unconfirmed, the trial's reward is 0
}

// States of a [Confirmation].
const (
	Confirmed    = "confirmed"
	Unconfirmed  = "unconfirmed"    // the second opinion is lower
	Pending      = "pending"        // the run has not come to it
	Unknown      = "not_known"      // there can be a second opinion, but nothing to judge it by
	Inapplicable = "not_applicable" // there is no second opinion on such a grade
)

// Verdict is the result of an attempt. If Final is set, it decides the trial; otherwise another
// attempt follows.
type Verdict struct {
	Final  bool     `json:"final"`
	Status Status   `json:"status"`
	End    End      `json:"end,omitempty"`   // only if scored
	Limit  string   `json:"limit,omitempty"` // kind of limit: turns, steps, tokens, cost, time, output
	Reward *float64 `json:"reward"`          // the primary score; nil unless scored
	Scores []Score  `json:"scores,omitempty"`
	Flags  []string `json:"flags,omitempty"`
	// Confirmation is nil if the grade needs no second opinion.
	Confirmation *Confirmation `json:"confirmation,omitempty"`
	Answer       string        `json:"answer,omitempty"` // shortened to 4 KiB; complete in the evidence
	Error        *Fault        `json:"error,omitempty"`

	Stages   int   `json:"stages"`    // stages that are graded or can be, since their evidence is complete
	Steps    int64 `json:"steps"`     // actions of all actors
	Turns    int64 `json:"turns"`     // model replies
	BadCalls int64 `json:"bad_calls"` // calls that named no tool or did not parse
	Usage    Usage `json:"usage"`     // usage of the arm's own models, without reused replies
	// Taken is the usage of replies reused from an earlier attempt, whose record counts them as
	// Usage.
	Taken *Usage `json:"taken,omitempty"`
	Other *Usage `json:"other,omitempty"` // usage of the benchmark's models (grader, user)
	// Spent is what was paid for, by all models, without replies from a tape or an earlier attempt.
	Spent     Usage  `json:"spent"`
	Times     Times  `json:"times"`
	Left      *int   `json:"left_processes,omitempty"`
	MaxMemory *int64 `json:"max_memory,omitempty"` // bytes used by the agent's sandbox
	OOMs      int64  `json:"ooms,omitempty"`
	Abandoned bool   `json:"abandoned,omitempty"` // the agent ignored cancellation

	Driver string  `json:"driver,omitempty"` // driver of its sandboxes; "docker+local" if there were several
	Images []Image `json:"images,omitempty"` // images of its sandboxes, except the driver's default image
	// Network is the network policy of the agent's sandbox; several, in order, if it changed
	// between phases.
	Network string `json:"network,omitempty"`
	// Refused counts what network policies refused: connections, and names that were not resolved.
	Refused int64 `json:"refused,omitempty"`
}

// Used returns the usage of the arm's models for this verdict, including reused replies.
func (v *Verdict) Used() Usage {
	u := v.Usage
	if v.Taken != nil {
		u.Add(*v.Taken)
	}
	return u
}

// Spent is model usage that no verdict or amendment reports: of an attempt whose process was
// killed, or of a regrading without a new grade. The total usage and cost of a run is the sum over
// its verdicts, amendments and Spent entries; none repeats another.
type Spent struct {
	Usage Usage  `json:"usage"`           // this and the other fields are as in Verdict
	Other *Usage `json:"other,omitempty"` //
	Spent Usage  `json:"spent"`
}

// An Image is the image of a sandbox.
type Image struct {
	Role   string `json:"role"`             // agent, grader
	Name   string `json:"name"`             // as named in the task or the configuration
	Digest string `json:"digest,omitempty"` // as found by the driver
	Log    string `json:"log,omitempty"`    // SHA-256 of a blob with the build log, if this run built the image
}

// Usage counts calls, and tokens as in agent/event.Usage. In a sum of calls, Cost is nil if the
// cost of one call is unknown. Counted is then the amount that limits and budgets assume for all of
// them, and Unpriced says why the first cost is unknown. Tokens and cost include failed tries;
// Calls does not.
type Usage struct {
	Calls int64 `json:"calls,omitempty"`
	// Silent counts calls whose provider did not report their usage, which is missing from the
	// token counts.
	Silent     int64    `json:"silent,omitempty"`
	In         int64    `json:"in,omitempty"`
	Out        int64    `json:"out,omitempty"`
	Cached     int64    `json:"cached,omitempty"`
	CacheWrite int64    `json:"cache_write,omitempty"`
	Reasoning  int64    `json:"reasoning,omitempty"`
	Cost       *float64 `json:"cost"` // US dollars; nil if some price is unknown
	Counted    *float64 `json:"counted,omitempty"`
	Unpriced   string   `json:"unpriced,omitempty"`
	Lost       *Lost    `json:"lost,omitempty"`
}

// Lost is an upper bound on the usage of tries that were sent but whose usage the provider did not
// report, because it timed out or the connection broke. Limits and budgets count it; costs and
// token counts do not.
type Lost struct {
	Tries  int64   `json:"tries"`
	Tokens int64   `json:"tokens"`
	USD    float64 `json:"usd"`
}

// USD returns the amount that limits and budgets count. Calls of unknown cost count 0.
func (u Usage) USD() float64 {
	if u.Lost != nil {
		return u.known() + u.Lost.USD
	}
	return u.known()
}

// Estimated returns the part of USD that is an upper estimate.
func (u Usage) Estimated() float64 {
	switch {
	case u.Cost == nil:
		return u.USD()
	case u.Lost != nil:
		return u.Lost.USD
	}
	return 0
}

// Tokens returns the number of tokens that limits and budgets count.
func (u Usage) Tokens() int64 {
	if u.Lost != nil {
		return u.In + u.Out + u.Lost.Tokens
	}
	return u.In + u.Out
}

// Told reports whether the token counts include all calls. Journals of older versions do not count
// silent calls, but a call without any input was one.
func (u Usage) Told() bool { return u.Silent == 0 && (u.Calls == 0 || u.In > 0) }

func (u Usage) known() float64 {
	switch {
	case u.Cost != nil:
		return *u.Cost
	case u.Counted != nil:
		return *u.Counted
	}
	return 0
}

// None reports whether u counts nothing.
func (u Usage) None() bool { return u.empty() && u.Lost == nil }

func (u Usage) empty() bool { return u.Calls == 0 && u.In == 0 && u.Out == 0 && u.Cost == nil }

// Add adds v to u.
func (u *Usage) Add(v Usage) {
	if l := v.Lost; l != nil {
		sum := *l
		if u.Lost != nil {
			sum = Lost{sum.Tries + u.Lost.Tries, sum.Tokens + u.Lost.Tokens, sum.USD + u.Lost.USD}
		}
		u.Lost = &sum
	}
	if v.empty() {
		return
	}
	usd := u.known() + v.known()
	known := (u.empty() || u.Cost != nil) && v.Cost != nil
	u.Calls += v.Calls
	u.Silent += v.Silent
	u.In += v.In
	u.Out += v.Out
	u.Cached += v.Cached
	u.CacheWrite += v.CacheWrite
	u.Reasoning += v.Reasoning
	if u.Unpriced == "" {
		u.Unpriced = v.Unpriced
	}
	u.Cost, u.Counted = &usd, nil
	if !known {
		u.Cost, u.Counted = nil, &usd
	}
}

// Times are the durations of an attempt's parts. Working is Agent without waiting for the journal,
// for a provider's backoff and for sandboxes.
type Times struct {
	Wall time.Duration `json:"wall_ns"`
	// Preparing images, or waiting for another trial that does.
	Image   time.Duration `json:"image_ns,omitempty"`
	Queue   time.Duration `json:"queue_ns,omitempty"` // waiting for capacity
	Start   time.Duration `json:"start_ns,omitempty"` // creating sandboxes and set-up
	Agent   time.Duration `json:"agent_ns,omitempty"`
	Working time.Duration `json:"working_ns,omitempty"`
	Model   time.Duration `json:"model_ns,omitempty"` // in model calls, without Backoff
	// Backoff is the time spent waiting for a model provider: in a queue, in backoff, and in tries
	// that the provider failed.
	Backoff time.Duration `json:"backoff_ns,omitempty"`
	Tool    time.Duration `json:"tool_ns,omitempty"` // in the environment's steps
	Grade   time.Duration `json:"grade_ns,omitempty"`
	Close   time.Duration `json:"close_ns,omitempty"`
}

// A Call is one try of a model call. The last try of a call has the reply or the final error. The
// usage of a failed try is what the provider bills for it.
type Call struct {
	Actor   string `json:"actor,omitempty"`
	Role    string `json:"role"`            // main, condenser, grader …
	Other   bool   `json:"other,omitempty"` // a model of the benchmark
	N       int    `json:"n"`               // number of the call of this actor and role in the attempt, from 0
	Try     int    `json:"try"`             // from 1
	Model   string `json:"model"`
	Request string `json:"request"`         // SHA-256 of the canonical request
	Reply   string `json:"reply,omitempty"` // Reply.ID of the event in the log
	// From is the source of the reply: "" for the provider, "tape", or "attempt" if it was reused
	// from an earlier attempt and not paid for again.
	From    string        `json:"from,omitempty"`
	Stop    string        `json:"stop,omitempty"`
	Usage   Usage         `json:"usage"`
	Start   time.Time     `json:"start"` // when the request was sent
	Latency time.Duration `json:"latency_ns"`
	// Waited is the time in backoff and queue before this try, plus its Latency if the provider
	// failed it.
	Waited time.Duration `json:"waited_ns,omitempty"`
	HTTP   int           `json:"http,omitempty"`  // status code
	Error  string        `json:"error,omitempty"` // with secrets masked
	// Class is the class of the error: rate, overload, network, auth, quota, missing, refused,
	// context, request.
	Class string `json:"class,omitempty"`
	ID    string `json:"id,omitempty"` // the provider's request ID
	// Raw is the provider's raw reply if it is JSON of at most 256 KiB.
	Raw     json.RawMessage `json:"raw,omitempty"`
	RawBlob string          `json:"raw_blob,omitempty"` // SHA-256 of a blob with a larger raw reply
	// Sent is the SHA-256 of a blob with the raw request, if the run stores them.
	Sent string `json:"sent,omitempty"`
}

// Amend corrects the verdict of a decided trial. The newest amendment counts, and all are kept.
type Amend struct {
	Why          string        `json:"why"`
	Reward       *float64      `json:"reward"`
	Scores       []Score       `json:"scores,omitempty"`
	Flags        []string      `json:"flags,omitempty"`
	Confirmation *Confirmation `json:"confirmation,omitempty"` // as in Verdict
	// Status, if set, replaces the verdict's. For a trial whose grading had failed it is "scored",
	// with End and Limit.
	Status Status `json:"status,omitempty"`
	End    End    `json:"end,omitempty"`
	Limit  string `json:"limit,omitempty"`
	// Results are the stages' new results, if everything was graded again.
	Results []Result `json:"results,omitempty"`
	// Task is the digest of the task used for grading, if it has changed since the trial ran.
	Task  string `json:"task_digest,omitempty"`
	Other *Usage `json:"other,omitempty"` // usage of the grader's models
	Spent *Usage `json:"spent,omitempty"` // the part of it that was paid for
}
