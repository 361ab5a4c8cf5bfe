package record

import (
	"encoding/json"
	"time"
)

// A Status says whether a trial is evidence, and if not, whose fault that is.
type Status string

const (
	Scored   Status = "scored"   // evidence
	Infra    Status = "infra"    // our machinery failed
	Provider Status = "provider" // the model's service failed
	Grader   Status = "grader"   // the grader failed, and the agent cannot have caused it
	Canceled Status = "canceled" // stopped before it was decided
	Skipped  Status = "skipped"  // cannot run here
)

// An End says how a scored trial ended.
type End string

const (
	Answered End = "answered"
	GaveUp   End = "gave_up"
	Limit    End = "limit" // steps, time, tokens, money, output; graded with what is there
	Broke    End = "broke" // the agent's own failure; graded
)

// Attempt begins an attempt. It repeats what identifies the trial, so that a journal can be read by
// itself.
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
	Cluster   string            `json:"cluster,omitempty"` // tasks that are not independent share one
	Repeat    int               `json:"repeat"`            // from 1
	Attempt   int               `json:"attempt"`           // from 1
	Seed      uint64            `json:"seed"`
	Why       string            `json:"why,omitempty"`       // "", "retry", "browser", "resume", "rerun"
	Driver    string            `json:"driver,omitempty"`    // the run's; the verdict says which one the machines had
	Regrade   bool              `json:"regrade,omitempty"`   // only grades evidence that an earlier attempt left
	Queued    time.Duration     `json:"queued_ns,omitempty"` // from ready to begun
}

// Longer texts stand in blobs, so that control.jsonl stays small.
const (
	MaxGoal     = 4 << 10
	MaxEvidence = 64 << 10
)

// Stage begins a stage.
type Stage struct {
	Index int    `json:"index"` // from 0
	Name  string `json:"name,omitempty"`
	// Goal is the goal's text, cut at [MaxGoal]; GoalBlob is the SHA-256 in blobs of a longer one.
	Goal     string `json:"goal,omitempty"`
	GoalBlob string `json:"goal_blob,omitempty"`
	Events   int64  `json:"events"` // ID of the first event of the stage
}

// Reward is what one action brought. It never reaches the agent, so it is kept beside the log,
// right before the action's observation: who reads the journal in order can put both into one row.
type Reward struct {
	Action int64 `json:"action"` // ID of the action, which the observation has as its cause
	// above 0: in its place, of an older run, the observation, which came before this
	Event  int64           `json:"event,omitempty"`
	Reward *float64        `json:"reward"`
	Info   json.RawMessage `json:"info,omitempty"`
}

// Evidence is benchmarks.Evidence as JSON, kept so that grading can be repeated, with how the agent
// ended.
type Evidence struct {
	Stage int             `json:"stage"`
	End   End             `json:"end"`
	Limit string          `json:"limit,omitempty"` // which one
	Error string          `json:"error,omitempty"` // of an agent that broke
	Data  json.RawMessage `json:"data,omitempty"`
	// Blob is the SHA-256 in blobs of data above [MaxEvidence]; Data is then absent.
	Blob string `json:"blob,omitempty"`
	Last bool   `json:"last,omitempty"` // no stage follows, whatever the grade
	// Left counts processes that the agent left running; nil: not known.
	Left *int `json:"left,omitempty"`
	// Refused says why what the agent left behind could not be collected; the stage scores 0.
	Refused string `json:"refused,omitempty"`
}

// A Score is a grade. Value nil means no opinion.
type Score struct {
	Name    string   `json:"name"`
	Primary bool     `json:"primary,omitempty"`
	Value   *float64 `json:"value"`
	Text    string   `json:"text,omitempty"` // the answer as the grader read it
	Why     string   `json:"why,omitempty"`
	// TimedOut: there is no reward, because the grader ran into the task's limit.
	TimedOut bool `json:"timed_out,omitempty"`
}

// A Test is one named test of a grader.
type Test struct {
	Name    string `json:"name"`
	Status  string `json:"status"` // passed, failed, error, skipped
	Message string `json:"message,omitempty"`
}

// Result is a stage's grade. One with many tests comes as several entries: the tests of all belong
// to the stage, and the last entry has the scores.
type Result struct {
	Stage  int      `json:"stage"`
	Scores []Score  `json:"scores"`
	Tests  []Test   `json:"tests,omitempty"`
	Flags  []string `json:"flags,omitempty"` // no_reward …
}

// ClassBrowser is the class of a fault in which the attempt lost its browser. If the browser was
// shared, the attempt does not count as a try, since another trial may have caused the loss.
const ClassBrowser = "browser"

// A Fault names what went wrong, where, and whose it was.
type Fault struct {
	Status Status `json:"status"`
	Phase  string `json:"phase"`          // image, start, setup, agent, collect, grade, close
	Class  string `json:"class"`          // "sandbox", "rate", "auth", "timeout", "panic", "canceled" …
	Kind   string `json:"kind,omitempty"` // FaultNoTest …: of a task's own faults, if it is known
	Text   string `json:"text"`
	Detail string `json:"detail,omitempty"` // SHA-256 of a longer text in blobs: a build's output
}

// Kinds of a task's own faults.
const (
	FaultNoTest     = "no_test"     // nothing to grade it with
	FaultNoSolution = "no_solution" // nothing for the oracle to play
	FaultBuild      = "build"       // an image cannot be built
	FaultPage       = "page"        // its first page cannot be loaded
)

// Verdict is what became of an attempt. With Final it decides the trial; without, another attempt
// follows.
type Verdict struct {
	Final  bool     `json:"final"`
	Status Status   `json:"status"`
	End    End      `json:"end,omitempty"`   // only of scored
	Limit  string   `json:"limit,omitempty"` // turns, tokens, cost, time, output
	Reward *float64 `json:"reward"`          // the primary score; nil unless scored
	Scores []Score  `json:"scores,omitempty"`
	Flags  []string `json:"flags,omitempty"`
	Answer string   `json:"answer,omitempty"` // cut at 4 KiB; whole in the evidence
	Error  *Fault   `json:"error,omitempty"`

	Stages   int   `json:"stages"`    // that are graded, or can be: all of them have their evidence
	Steps    int64 `json:"steps"`     // actions of all actors
	Turns    int64 `json:"turns"`     // model replies
	BadCalls int64 `json:"bad_calls"` // calls that named no tool or did not parse
	Usage    Usage `json:"usage"`     // of the arm's own models, without what was taken over
	// of replies that an earlier attempt got and this one took over; in its record they are Usage
	Taken *Usage `json:"taken,omitempty"`
	Other *Usage `json:"other,omitempty"` // of the benchmark's models (grader, user)
	// what was paid for, by all models: no replies of a tape or of an earlier attempt
	Spent     Usage  `json:"spent"`
	Times     Times  `json:"times"`
	Left      *int   `json:"left_processes,omitempty"`
	MaxMemory *int64 `json:"max_memory,omitempty"` // bytes, of the agent's machine
	OOMs      int64  `json:"ooms,omitempty"`
	Abandoned bool   `json:"abandoned,omitempty"` // the agent ignored the end of its context

	Driver string  `json:"driver,omitempty"` // of its machines; "docker+local" where they had several
	Images []Image `json:"images,omitempty"` // of its machines, without those that have the driver's default
	// policy of the agent's machine; several, in order, where it was changed between phases
	Network string `json:"network,omitempty"`
	// what network policies refused: connections, and names that were not resolved
	Refused int64 `json:"refused,omitempty"`
}

// Used is what the arm's models gave for this verdict, replies that were taken over from earlier
// attempts included.
func (v *Verdict) Used() Usage {
	u := v.Usage
	if v.Taken != nil {
		u.Add(*v.Taken)
	}
	return u
}

// Spent is what models took without a verdict or an amendment to say so: in an attempt whose
// process ended first, or in grading again without a grade. What a run has used and paid for is the
// sum over its verdicts, amendments and these; none repeats another.
type Spent struct {
	Usage Usage  `json:"usage"`           // as in Verdict, as are the others
	Other *Usage `json:"other,omitempty"` //
	Spent Usage  `json:"spent"`
}

// An Image is what a machine was made of.
type Image struct {
	Role   string `json:"role"`             // agent, grader
	Name   string `json:"name"`             // as the task or the configuration calls it
	Digest string `json:"digest,omitempty"` // as the driver found it
	Log    string `json:"log,omitempty"`    // SHA-256 in blobs: what its build printed, where this run has built it
}

// Usage counts tokens as agent/event.Usage does, and the calls. In a sum of calls Cost is nil when
// that of one of them is not known. Then Counted is what limits and budgets count for all of them
// together, and Unpriced says why the first cost is not known. Tokens and cost include those of
// tries that brought no reply; Calls does not.
type Usage struct {
	Calls int64 `json:"calls,omitempty"`
	// calls whose service did not say what they took: the counts lack them
	Silent     int64    `json:"silent,omitempty"`
	In         int64    `json:"in,omitempty"`
	Out        int64    `json:"out,omitempty"`
	Cached     int64    `json:"cached,omitempty"`
	CacheWrite int64    `json:"cache_write,omitempty"`
	Reasoning  int64    `json:"reasoning,omitempty"`
	Cost       *float64 `json:"cost"` // US dollars; nil when some price is not known
	Counted    *float64 `json:"counted,omitempty"`
	Unpriced   string   `json:"unpriced,omitempty"`
	Lost       *Lost    `json:"lost,omitempty"`
}

// Lost is what tries can have taken at most that were sent, and of which the service has not said
// what it bills: it did not answer in time, or the connection broke. Limits and budgets count it;
// costs and counts of tokens do not.
type Lost struct {
	Tries  int64   `json:"tries"`
	Tokens int64   `json:"tokens"`
	USD    float64 `json:"usd"`
}

// USD is what limits and budgets count. Calls of which nothing is known count nothing.
func (u Usage) USD() float64 {
	if u.Lost != nil {
		return u.known() + u.Lost.USD
	}
	return u.known()
}

// Estimated is the part of USD that is an upper estimate.
func (u Usage) Estimated() float64 {
	switch {
	case u.Cost == nil:
		return u.USD()
	case u.Lost != nil:
		return u.Lost.USD
	}
	return 0
}

// Tokens is what limits and budgets count.
func (u Usage) Tokens() int64 {
	if u.Lost != nil {
		return u.In + u.Out + u.Lost.Tokens
	}
	return u.In + u.Out
}

// Told reports whether the counts of tokens are those of all calls. Journals of older versions do
// not count silent calls, but a call without any input was one.
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

// None reports that u counts nothing.
func (u Usage) None() bool { return u.empty() && u.Lost == nil }

func (u Usage) empty() bool { return u.Calls == 0 && u.In == 0 && u.Out == 0 && u.Cost == nil }

// Add adds v to the sum u.
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

// Times of an attempt. Working is Agent less waiting for the journal, for a provider's back-off and
// for machines.
type Times struct {
	Wall    time.Duration `json:"wall_ns"`
	Image   time.Duration `json:"image_ns,omitempty"` // getting images ready, or waiting for who does
	Queue   time.Duration `json:"queue_ns,omitempty"` // waiting for room
	Start   time.Duration `json:"start_ns,omitempty"` // making machines, setting up
	Agent   time.Duration `json:"agent_ns,omitempty"`
	Working time.Duration `json:"working_ns,omitempty"`
	Model   time.Duration `json:"model_ns,omitempty"` // in model calls, apart from Backoff
	// waiting for a model's service: in a queue, in back-offs, and in tries that the service failed
	Backoff time.Duration `json:"backoff_ns,omitempty"`
	Tool    time.Duration `json:"tool_ns,omitempty"` // in the environment's steps
	Grade   time.Duration `json:"grade_ns,omitempty"`
	Close   time.Duration `json:"close_ns,omitempty"`
}

// A Call is one try of one model call. The last try of a call holds the reply, or the error that
// was given up on. The usage of a try that failed is what the service bills for it.
type Call struct {
	Actor   string `json:"actor,omitempty"`
	Role    string `json:"role"`            // main, condenser, grader …
	Other   bool   `json:"other,omitempty"` // of the benchmark's models
	N       int    `json:"n"`               // which call of this actor and role in the attempt, from 0
	Try     int    `json:"try"`             // from 1
	Model   string `json:"model"`
	Request string `json:"request"`         // SHA-256 of the canonical request
	Reply   string `json:"reply,omitempty"` // Reply.ID of the note in the log
	// "": the provider; "tape"; "attempt N": taken over, not paid again
	From    string        `json:"from,omitempty"`
	Stop    string        `json:"stop,omitempty"`
	Usage   Usage         `json:"usage"`
	Start   time.Time     `json:"start"` // the request went out
	Latency time.Duration `json:"latency_ns"`
	// back-off and queue before this try, and its Latency where the provider failed it
	Waited time.Duration `json:"waited_ns,omitempty"`
	HTTP   int           `json:"http,omitempty"`  // status code
	Error  string        `json:"error,omitempty"` // masked
	// of the error: rate, overload, network, auth, quota, missing, refused, context, request
	Class string `json:"class,omitempty"`
	ID    string `json:"id,omitempty"` // the provider's request id
	// the provider's reply as it came, when it is JSON of at most 256 KiB
	Raw     json.RawMessage `json:"raw,omitempty"`
	RawBlob string          `json:"raw_blob,omitempty"` // SHA-256 of a larger one, in blobs
	// SHA-256 of the raw request, in blobs, where the run keeps them
	Sent string `json:"sent,omitempty"`
}

// Amend corrects a trial's decided verdict: the newest grade is the one that counts, and all are
// kept.
type Amend struct {
	Why    string   `json:"why"`
	Reward *float64 `json:"reward"`
	Scores []Score  `json:"scores,omitempty"`
	Flags  []string `json:"flags,omitempty"`
	// Status, when set, takes the place of the verdict's: of a trial whose grading had failed,
	// "scored" with its end and limit.
	Status Status `json:"status,omitempty"`
	End    End    `json:"end,omitempty"`
	Limit  string `json:"limit,omitempty"`
	// Results are those of the stages, where all was graded again.
	Results []Result `json:"results,omitempty"`
	// Task is the digest of the task as it was graded, where that is no longer what was played.
	Task  string `json:"task_digest,omitempty"`
	Other *Usage `json:"other,omitempty"` // of the grader's models
	Spent *Usage `json:"spent,omitempty"` // what of it was paid for
}
