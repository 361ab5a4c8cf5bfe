package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// A Plan is what a run set out to do: plan.json. Trials are arms × tasks × repeats, in the order
// that Seed gives.
type Plan struct {
	V          int         `json:"v"`
	Run        string      `json:"run"`
	Name       string      `json:"name,omitempty"`
	Created    time.Time   `json:"created"`
	Seed       uint64      `json:"seed"`
	Repeats    int         `json:"repeats"`
	Arms       []Arm       `json:"arms"`
	Benchmarks []Benchmark `json:"benchmarks"`
	Tasks      []Task      `json:"tasks"`
	Shard      string      `json:"shard,omitempty"` // "2/8"
	// Config is the effective configuration, without any secret.
	Config json.RawMessage `json:"config,omitempty"`
}

// An Arm is what is compared. ID is a function of Def.
type Arm struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Agent  string            `json:"agent"`
	Model  string            `json:"model,omitempty"`
	Prompt string            `json:"prompt,omitempty"`
	Axes   map[string]string `json:"axes,omitempty"`
	// Def is everything that defines the arm, prompts by digest.
	Def json.RawMessage `json:"def,omitempty"`
}

// A Benchmark of a plan.
type Benchmark struct {
	Name   string          `json:"name"` // "humaneval"
	Spec   string          `json:"spec"` // as it was asked for: "humaneval:data/HumanEval.jsonl.gz"
	Digest string          `json:"digest"`
	Opts   json.RawMessage `json:"options,omitempty"`
	// Rounds says, of tasks that share a state of the world, what may not overlap: "repeats" (of an
	// arm), or "arms", where arms share it too and play one after another; "": the tasks are
	// independent.
	Rounds string `json:"rounds,omitempty"`
}

// Values of Benchmark.Rounds.
const (
	RoundsOfRepeats = "repeats"
	RoundsOfArms    = "arms"
)

// A Task of a plan.
type Task struct {
	Benchmark string   `json:"benchmark"`
	ID        string   `json:"id"`
	Digest    string   `json:"digest"`
	Cluster   string   `json:"cluster,omitempty"`
	Tags      []string `json:"tags,omitempty"`
	// Fields are what selections filter by, such as difficulty. A text above [MaxField] bytes is
	// left out.
	Fields   map[string]string `json:"fields,omitempty"`
	Bad      string            `json:"bad,omitempty"`      // why the task cannot be read; its trials are skipped
	BadKind  string            `json:"bad_kind,omitempty"` // FaultNoTest …, if it is known
	Warnings []string          `json:"warnings,omitempty"`
	// After are tasks of its benchmark in this plan that have to be decided before it, in the same
	// arm and repeat.
	After []string `json:"after,omitempty"`
}

// MaxField bounds the text of a task's field in a plan: a column of a data set may hold a whole
// document.
const MaxField = 1 << 10

// A Run is what is found out while running: run.json.
type Run struct {
	V       int        `json:"v"`
	Run     string     `json:"run"`
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended,omitempty"`
	Resumed int        `json:"resumed,omitempty"` // how often
	Work    []Span     `json:"work,omitempty"`    // of each process that has worked on the run
	Plan    string     `json:"plan,omitempty"`    // SHA-256 of plan.json, which never changes
	Seq     int64      `json:"seq,omitempty"`     // last entry of the journal when a process ended in order
	Exit    *int       `json:"exit,omitempty"`
	Reason  string     `json:"reason,omitempty"` // done, stopped, budget, deadline, storage …
	// of the last process, like the next ones; Work has those before
	Version string            `json:"version"`
	Binary  string            `json:"binary,omitempty"` // SHA-256
	Host    map[string]string `json:"host,omitempty"`   // os, kernel, cpus, memory; no name of the machine
	Driver  string            `json:"driver,omitempty"`
	Limits  map[string]string `json:"limits,omitempty"` // effective
	// US dollars, in place of the configuration's budget.cost; 0: no limit
	Budget *float64 `json:"budget,omitempty"`
	// Deadline is in place of the configuration's budget.deadline: a moment, a time of day, or
	// none.
	Deadline string `json:"deadline,omitempty"`
	// Changed are tasks ("benchmark/task") whose trials the last process left undecided, as their
	// content had changed.
	Changed []string          `json:"changed,omitempty"`
	Digests map[string]string `json:"digests,omitempty"` // images, prices …
	Losses  []Loss            `json:"losses,omitempty"`  // records that the run has gone on without
}

// A Loss is what a run has gone on without: records that were damaged or missing (resume
// --accept-loss).
type Loss struct {
	Time  time.Time `json:"time"`
	Files []string  `json:"files"` // of the run's folder
	// Verdicts is how many are lost, as far as other files of the folder tell.
	Verdicts int `json:"verdicts"`
	// Known is what the run had spent by then, as far as any of its files told.
	Known Paid `json:"known"`
	// Spent is the part of it that is in no record any more; budgets count it. It is absent until
	// the records that are left have been summed up.
	Spent *Paid `json:"spent,omitempty"`
}

// Paid is what models took and what it cost.
type Paid struct {
	Tokens    int64   `json:"tokens"`
	USD       float64 `json:"usd"`
	Estimated float64 `json:"estimated_usd,omitempty"` // the part of USD whose price is not known: an upper estimate
}

// A Span is one process's time at work. Ended is absent while it works, and for ever when it was
// killed.
type Span struct {
	Began   time.Time         `json:"began"`
	Ended   *time.Time        `json:"ended,omitempty"`
	Version string            `json:"version,omitempty"`
	Binary  string            `json:"binary,omitempty"`
	Host    map[string]string `json:"host,omitempty"`
}

// ArmID is the identity of an arm: a hash of its canonical definition.
func ArmID(def any) (string, error) {
	b, err := Canonical(def)
	if err != nil {
		return "", fmt.Errorf("arm: %w", err)
	}
	return hash("arm", b), nil
}

// TaskDigest is the identity of a task's content within its benchmark.
func TaskDigest(benchmark, id string, content any) (string, error) {
	b, err := Canonical(content)
	if err != nil {
		return "", fmt.Errorf("task %s/%s: %w", benchmark, id, err)
	}
	return hash("task", []byte(benchmark), []byte(id), b), nil
}

// TrialID is the identity of a trial.
func TrialID(arm, taskDigest string, repeat int) string {
	return hash("trial", []byte(arm), []byte(taskDigest), fmt.Appendf(nil, "%d", repeat))
}

// hash is 20 hexadecimal digits of SHA-256 over length-prefixed parts: 80 bits, so that among a
// million trials a collision has a chance of about 10⁻¹².
func hash(kind string, parts ...[]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "evalrun/%s/1\n", kind)
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}
