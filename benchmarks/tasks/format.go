package tasks

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/internal/yamldoc"
)

// A File is the content of a tasks.yaml. In a JSONL file each line is a Task.
type File struct {
	Name     string `json:"name,omitempty"`
	Defaults *Task  `json:"defaults,omitempty"` // values for keys that a task leaves out
	Tasks    []Task `json:"tasks"`
}

// A Task is a task as written in the file. Without Stages it has a single stage, made of its own
// keys.
type Task struct {
	ID      string            `json:"id"`
	Tags    []string          `json:"tags,omitempty"`
	Fields  map[string]string `json:"fields,omitempty"` // for filters
	Cluster string            `json:"cluster,omitempty"`

	Stage
	Stages []Stage `json:"stages,omitempty"`

	Browser *Browser `json:"browser,omitempty"` // the task is done in a browser and has no machine

	Image   string  `json:"image,omitempty"`
	Dir     string  `json:"dir,omitempty"` // working directory; default /workspace
	Network Network `json:"network,omitempty"`
	Limits  Limits  `json:"limits,omitzero"`
}

// A Stage has its own goal and grade.
type Stage struct {
	Name        string `json:"name,omitempty"`
	Instruction string `json:"instruction,omitempty"`
	// copied into the working directory when the stage starts
	Files map[string]Item `json:"files,omitempty"`
	Setup string          `json:"setup,omitempty"` // script that runs after Files were copied
	Time  Duration        `json:"time,omitempty"`  // time limit for the agent
	// leftover processes are part of the answer
	Leave  bool    `json:"leave,omitempty"`
	Answer Texts   `json:"answer,omitempty"`
	Grade  *Grade  `json:"grade,omitempty"`
	Oracle *Oracle `json:"oracle,omitempty"`
}

// A Grade says how a stage is graded: by exactly one of Answer, Function and Script. In a browser
// it is graded by Success, URL and Answer, and all that are given must hold.
type Grade struct {
	Answer Texts `json:"answer,omitempty"` // accepted answers; one match suffices
	// default: numeric if all answers are numbers, else exact, ignoring case
	Scorer            string  `json:"scorer,omitempty"`
	IgnoreCase        *bool   `json:"ignore_case,omitempty"`
	IgnorePunctuation bool    `json:"ignore_punctuation,omitempty"`
	IgnoreArticles    bool    `json:"ignore_articles,omitempty"`
	Tolerance         float64 `json:"tolerance,omitempty"`
	Relative          float64 `json:"relative_tolerance,omitempty"`

	Function *Function `json:"function,omitempty"`

	Script string          `json:"script,omitempty"`
	Files  map[string]Item `json:"files,omitempty"` // present only during grading
	// what the grader receives; default: the working directory
	Collect []string `json:"collect,omitzero"`
	// the script writes a number from 0 to 1 to $REWARD
	Partial bool     `json:"partial,omitempty"`
	Shared  bool     `json:"shared,omitempty"`  // grade in the agent's machine
	Timeout Duration `json:"timeout,omitempty"` // default: 1m, for a function 10s

	// JavaScript expressions: true, false, or a number from 0 to 1
	Success Success `json:"success,omitempty"`
	URL     string  `json:"url,omitempty"` // pattern (RE2) for the active page's address
}

// A Function is a Python function that check(candidate) tests.
type Function struct {
	Name string `json:"name"`
	// file that the agent writes; default solution.py; without it the answer text counts
	File   string `json:"file,omitempty"`
	Prompt string `json:"prompt,omitempty"` // trusted code that the tests may use
	// defines check(candidate), which raises an exception on failure
	Check string `json:"check"`
}

// An Oracle is a full solution: a script to run (or actions, in a browser), an answer to give, or
// both. A plain string is a script.
type Oracle struct {
	Script string `json:"script,omitempty"`
	Answer string `json:"answer,omitempty"`

	Actions Texts `json:"actions,omitempty"` // see moves.go for the placeholders
	// name → pattern (RE2) with one group: extracts a value from the goal or a page
	Take map[string]string `json:"take,omitempty"`
}

func (o Oracle) empty() bool { return o.Script == "" && o.Answer == "" && len(o.Actions) == 0 }

// An Item is the content of a file: a plain string, or one of Text, Base64 and From. A plain string
// is Text.
type Item struct {
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	From   string `json:"from,omitempty"` // a file or directory beside the task file
	Mode   Mode   `json:"mode,omitempty"` // default 0644
}

// Limits are the resource limits of the agent's machine. The grader's machine gets the same.
type Limits struct {
	CPUs   float64 `json:"cpus,omitempty"`
	Memory Size    `json:"memory,omitempty"`
	Disk   Size    `json:"disk,omitempty"`
	Pids   int     `json:"pids,omitempty"`
}

// Texts is one string or a list of strings.
type Texts []string

// Network is "none" (the default), "public" or a list of hosts.
type Network []string

// A Mode is a file mode, written as 0755 or "0755".
type Mode uint32

// A Size is a number of bytes, written as 512MB, 2GiB or a plain number.
type Size int64

// A Duration is written as 90s, 5m, or a plain number of seconds.
type Duration time.Duration

// The Set methods parse short forms and special notations.

func (t *Texts) Set(s string) error  { *t = Texts{s}; return nil }
func (i *Item) Set(s string) error   { i.Text = s; return nil }
func (o *Oracle) Set(s string) error { o.Script = s; return nil }

func (n *Network) Set(s string) error {
	if s != "none" && s != "public" {
		return fmt.Errorf("network %q; want none, public, or a list of hosts", s)
	}
	*n = Network{s}
	return nil
}

func (m *Mode) Set(s string) (err error)     { *m, err = parseMode(s); return err }
func (z *Size) Set(s string) (err error)     { *z, err = parseSize(s); return err }
func (d *Duration) Set(s string) (err error) { *d, err = parseDuration(s); return err }

func parseMode(s string) (Mode, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0o"), 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("mode %q; want permissions such as 0755", s)
	}
	return Mode(n), nil
}

var units = map[string]float64{"": 1, "b": 1, "k": 1e3, "kb": 1e3, "kib": 1 << 10, "m": 1e6, "mb": 1e6, "mib": 1 << 20,
	"g": 1e9, "gb": 1e9, "gib": 1 << 30, "t": 1e12, "tb": 1e12, "tib": 1 << 40}

func parseSize(s string) (Size, error) {
	i := strings.LastIndexAny(s, "0123456789.") + 1
	n, err := strconv.ParseFloat(s[:i], 64)
	unit, ok := units[strings.ToLower(strings.TrimSpace(s[i:]))]
	if err != nil || !ok || !(n*unit >= 0 && n*unit < 1<<60) {
		return 0, fmt.Errorf("size %q; want one such as 512MB or 2GiB", s)
	}
	return Size(n * unit), nil
}

func parseDuration(s string) (Duration, error) {
	if n, err := strconv.ParseFloat(s, 64); err == nil && n >= 0 && n < 1e8 {
		return Duration(n * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("duration %q; want one such as 90s or 5m", s)
	}
	return Duration(d), nil
}

// set unmarshals a JSON string and passes it to v.Set.
func set(b []byte, v yamldoc.Setter) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	return v.Set(s)
}

func (m *Mode) UnmarshalJSON(b []byte) error     { return set(b, m) }
func (d *Duration) UnmarshalJSON(b []byte) error { return set(b, d) }

func (m Mode) MarshalJSON() ([]byte, error)     { return json.Marshal(fmt.Sprintf("%04o", m)) }
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

func (n *Network) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return set(b, n)
	}
	return json.Unmarshal(b, (*[]string)(n))
}

// MarshalJSON encodes "none" and "public" as strings and anything else as a list of hosts.
func (n Network) MarshalJSON() ([]byte, error) {
	if len(n) == 1 && (n[0] == "none" || n[0] == "public") {
		return json.Marshal(n[0])
	}
	return json.Marshal([]string(n))
}

// spec returns the scorer settings for the answers.
func (g *Grade) spec() score.Spec {
	s := score.Spec{Scorer: g.Scorer, Right: g.Answer, IgnorePunctuation: g.IgnorePunctuation,
		IgnoreArticles: g.IgnoreArticles, Tolerance: g.Tolerance, Relative: g.Relative}
	if s.Scorer == "" {
		s.Scorer = score.Numeric
		for _, r := range g.Answer {
			if _, ok := score.ParseNumber(r); !ok {
				s.Scorer = score.Exact
			}
		}
		s.IgnoreCase = s.Scorer == score.Exact
	}
	if g.IgnoreCase != nil {
		s.IgnoreCase = *g.IgnoreCase
	}
	return s
}
