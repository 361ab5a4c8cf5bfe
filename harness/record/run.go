package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// A Plan says what a run will do; it is stored as plan.json. The trials are arms × tasks × repeats,
// in the order given by Seed.
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
	// Config is the effective configuration without secrets.
	Config json.RawMessage `json:"config,omitempty"`
}

// An Arm is one of the compared configurations. ID is derived from Def.
type Arm struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Agent  string            `json:"agent"`
	Model  string            `json:"model,omitempty"`
	Prompt string            `json:"prompt,omitempty"`
	Axes   map[string]string `json:"axes,omitempty"`
	// Def is everything that defines the arm, with prompts as digests.
	Def json.RawMessage `json:"def,omitempty"`
}

// A Benchmark is a benchmark of a plan.
type Benchmark struct {
	Name   string          `json:"name"` // "humaneval"
	Spec   string          `json:"spec"` // as given by the user: "humaneval:data/HumanEval.jsonl.gz"
	Digest string          `json:"digest"`
	Opts   json.RawMessage `json:"options,omitempty"`
	// Rounds says which trials of tasks that share a world must not overlap: "repeats" (of one
	// arm), or "arms" if the arms share the world, too, and run one after another. "" means that
	// the tasks are independent.
	Rounds string `json:"rounds,omitempty"`
}

// Values of Benchmark.Rounds.
const (
	RoundsOfRepeats = "repeats"
	RoundsOfArms    = "arms"
)

// A Task is a task of a plan.
type Task struct {
	Benchmark string   `json:"benchmark"`
	ID        string   `json:"id"`
	Digest    string   `json:"digest"`
	Cluster   string   `json:"cluster,omitempty"`
	Tags      []string `json:"tags,omitempty"`
	// Fields can be used in selections, such as difficulty. A text above [MaxField] bytes is
	// omitted.
	Fields map[string]string `json:"fields,omitempty"`
	// Why the task cannot be read; its trials are skipped.
	Bad      string   `json:"bad,omitempty"`
	BadKind  string   `json:"bad_kind,omitempty"` // FaultNoTest …, if known
	Warnings []string `json:"warnings,omitempty"`
	// After lists tasks of the same benchmark in this plan that must be decided before this one, in
	// the same arm and repeat.
	After []string `json:"after,omitempty"`
}

// MaxField is the longest text of a field in a plan, in bytes. A column of a data set may hold
// whole documents.
const MaxField = 1 << 10

// A Run is what is learned while running; it is stored as run.json.
type Run struct {
	V       int        `json:"v"`
	Run     string     `json:"run"`
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended,omitempty"`
	Resumed int        `json:"resumed,omitempty"` // number of resumes
	Work    []Span     `json:"work,omitempty"`    // one span for each process that worked on the run
	Plan    string     `json:"plan,omitempty"`    // SHA-256 of plan.json, which never changes
	// Number of the journal's last entry when a process last shut down in order.
	Seq    int64  `json:"seq,omitempty"`
	Exit   *int   `json:"exit,omitempty"`
	Reason string `json:"reason,omitempty"` // done, stopped, budget, deadline, storage …
	// Version and the following fields are of the last process; Work has the earlier ones.
	Version string            `json:"version"`
	Binary  string            `json:"binary,omitempty"` // SHA-256
	Host    map[string]string `json:"host,omitempty"`   // os, kernel, cpus, memory; no host name
	Driver  string            `json:"driver,omitempty"`
	Limits  map[string]string `json:"limits,omitempty"` // effective limits
	// Budget replaces the configuration's budget.cost, in US dollars; 0 means no limit.
	Budget *float64 `json:"budget,omitempty"`
	// Deadline replaces the configuration's budget.deadline: a moment, a time of day, or "none".
	Deadline string `json:"deadline,omitempty"`
	// Changed lists tasks ("benchmark/task") whose trials the last process left undecided, because
	// their content had changed.
	Changed []string          `json:"changed,omitempty"`
	Digests map[string]string `json:"digests,omitempty"` // of images, prices …
	Losses  []Loss            `json:"losses,omitempty"`  // records that the run continued without
}

// A Loss describes damaged or missing records that a run continued without (resume --accept-loss).
type Loss struct {
	Time  time.Time `json:"time"`
	Files []string  `json:"files"` // paths in the run's folder
	// Verdicts is the number of lost verdicts, as far as other files of the folder tell.
	Verdicts int `json:"verdicts"`
	// Known is what the run had spent by then, as far as its files tell.
	Known Paid `json:"known"`
	// Spent is the part of Known that is in no record any more; budgets count it. It is absent
	// until the remaining records have been added up.
	Spent *Paid `json:"spent,omitempty"`
}

// Paid is model usage and its cost.
type Paid struct {
	Tokens int64   `json:"tokens"`
	USD    float64 `json:"usd"`
	// Part of USD that is an upper estimate, because the price is unknown.
	Estimated float64 `json:"estimated_usd,omitempty"`
}

// A Span is the time that one process worked on the run. Ended is absent while it works, and stays
// absent if it was killed.
type Span struct {
	Began   time.Time         `json:"began"`
	Ended   *time.Time        `json:"ended,omitempty"`
	Version string            `json:"version,omitempty"`
	Binary  string            `json:"binary,omitempty"`
	Host    map[string]string `json:"host,omitempty"`
}

// ArmID returns the ID of an arm: a hash of its canonical definition.
func ArmID(def any) (string, error) {
	b, err := Canonical(def)
	if err != nil {
		return "", fmt.Errorf("arm: %w", err)
	}
	return hash("arm", b), nil
}

// TaskDigest returns the digest of a task's content within its benchmark.
func TaskDigest(benchmark, id string, content any) (string, error) {
	b, err := Canonical(content)
	if err != nil {
		return "", fmt.Errorf("task %s/%s: %w", benchmark, id, err)
	}
	return hash("task", []byte(benchmark), []byte(id), b), nil
}

// TrialID returns the ID of a trial.
func TrialID(arm, taskDigest string, repeat int) string {
	return hash("trial", []byte(arm), []byte(taskDigest), fmt.Appendf(nil, "%d", repeat))
}

// hash returns 20 hexadecimal digits of the SHA-256 over length-prefixed parts. With 80 bits, the
// chance of a collision among a million trials is about 10⁻¹².
func hash(kind string, parts ...[]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "evalrun/%s/1\n", kind)
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}
