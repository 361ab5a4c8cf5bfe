package terminalbench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/yamldoc"
)

// knownKeys are those of task.yaml, old ones included.
var knownKeys = []string{
	"instruction", "author_name", "author_email", "difficulty", "category", "tags", "parser_name",
	"max_agent_timeout_sec", "max_test_timeout_sec",
	"run_tests_in_same_shell", "disable_asciinema", "estimated_duration_sec", "expert_time_estimate_min",
	"junior_time_estimate_min",
	"descriptions", "test_scripts",
}

// bounds of task.yaml and solution.yaml.
var bounds = yamldoc.Bounds{Size: 256 << 10, Values: 50_000}

// A taskYAML is being read; what is wrong with it is noted with its place.
type taskYAML struct {
	t    *Task
	errs []error
}

// readYAML reads the text of a task.yaml. The error lists all that is wrong; the task is nil where
// the file cannot be parsed.
func readYAML(text []byte) (*Task, error) {
	root, err := yamldoc.Parse(taskFile, text, bounds)
	if err != nil {
		return nil, err
	}
	if root.Kind == yamldoc.Null {
		return nil, root.Errorf("the file is empty")
	}
	if root.Kind != yamldoc.Map {
		return nil, root.Errorf("want keys and values")
	}
	r := &taskYAML{t: &Task{
		AuthorName: defaultAuthor, AuthorEmail: defaultAuthor, Category: defaultCategory, Parser: defaultParser,
		AgentTime: defaultAgentTime, TestTime: defaultTestTime,
	}}
	for _, k := range root.Entries {
		r.key(k)
	}
	t := r.t
	if strings.TrimSpace(t.Instruction) == "" {
		r.errs = append(r.errs, fmt.Errorf("%s: no instruction", taskFile))
	}
	if t.Difficulty == "" {
		t.Difficulty = "unknown"
		t.Warnings = append(t.Warnings, taskFile+": no difficulty; easy, medium, hard or unknown is expected")
	}
	return t, errors.Join(r.errs...)
}

func (r *taskYAML) bad(n *yamldoc.Node, format string, args ...any) {
	r.errs = append(r.errs, n.Errorf(format, args...))
}

func (r *taskYAML) warn(at interface {
	Errorf(format string, args ...any) *yamldoc.Error
}, format string, args ...any) {
	r.t.Warnings = append(r.t.Warnings, at.Errorf(format, args...).Error())
}

func (r *taskYAML) key(k yamldoc.Entry) {
	t, v := r.t, k.Value
	if !slices.Contains(knownKeys, k.Key) {
		r.warn(k, "unknown key, ignored")
		return
	}
	if v.Kind == yamldoc.Null {
		return // an empty value is the default, as in "estimated_duration_sec:"
	}
	switch k.Key {
	case "instruction":
		t.Instruction = r.text(k)
	case "author_name":
		t.AuthorName = r.text(k)
	case "author_email":
		t.AuthorEmail = r.text(k)
	case "difficulty":
		t.Difficulty = strings.ToLower(r.text(k))
		if !slices.Contains([]string{"easy", "medium", "hard", "unknown"}, t.Difficulty) {
			r.warn(v, "%q; easy, medium, hard or unknown is expected", t.Difficulty)
		}
	case "category":
		t.Category = r.text(k)
	case "tags":
		t.Tags = r.texts(k)
	case "parser_name":
		t.Parser = r.text(k)
	case "max_agent_timeout_sec":
		t.AgentTime = r.seconds(k, t.AgentTime)
	case "max_test_timeout_sec":
		t.TestTime = r.seconds(k, t.TestTime)
	case "run_tests_in_same_shell":
		t.SameShell = r.truth(k)
	case "disable_asciinema":
		t.NoRecording = r.truth(k)
	case "estimated_duration_sec":
		t.Duration = r.number(k)
	case "expert_time_estimate_min":
		t.ExpertMinutes = r.number(k)
	case "junior_time_estimate_min":
		t.JuniorMinutes = r.number(k)
	case "descriptions":
		r.descriptions(k)
	case "test_scripts":
		t.TestScripts = r.texts(k)
	}
}

// descriptions is the form of early files: a list of which the entry "base" holds the instruction.
func (r *taskYAML) descriptions(k yamldoc.Entry) {
	if k.Value.Kind != yamldoc.List {
		r.bad(k.Value, "want a list")
		return
	}
	for _, d := range k.Value.Items {
		name, text := "", ""
		for _, f := range d.Entries {
			switch s := f.Value.Text; f.Key {
			case "key":
				name = s
			case "description", "instruction":
				text = s
			}
		}
		if name == "base" && text != "" {
			if r.t.Instruction == "" {
				r.t.Instruction = text
			}
			return
		}
	}
	r.bad(k.Value, `none has the key "base" and a text`)
}

func (r *taskYAML) text(k yamldoc.Entry) string {
	if !k.Value.Scalar() {
		r.bad(k.Value, "want text")
	} else if strings.ContainsRune(k.Value.Text, 0) {
		r.bad(k.Value, "text with a NUL")
	}
	return k.Value.Text
}

// texts is a list of texts; a single text is a list of one.
func (r *taskYAML) texts(k yamldoc.Entry) (out []string) {
	if k.Value.Scalar() {
		return []string{k.Value.Text}
	}
	if k.Value.Kind != yamldoc.List {
		r.bad(k.Value, "want a list of texts")
	}
	for _, v := range k.Value.Items {
		if !v.Scalar() {
			r.bad(v, "want text")
			continue
		}
		out = append(out, v.Text)
	}
	return out
}

func (r *taskYAML) number(k yamldoc.Entry) float64 {
	n, err := strconv.ParseFloat(strings.ReplaceAll(k.Value.Text, "_", ""), 64)
	if !k.Value.Scalar() || err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		r.bad(k.Value, "want a number")
		return 0
	}
	return n
}

// maxSeconds is a limit that nobody reaches and that every clock can hold.
const maxSeconds = 1e9

func (r *taskYAML) seconds(k yamldoc.Entry, otherwise time.Duration) time.Duration {
	before := len(r.errs)
	n := r.number(k)
	if len(r.errs) > before {
		return otherwise
	}
	if n <= 0 || n > maxSeconds {
		r.bad(k.Value, "%v; want a number of seconds above 0", n)
		return otherwise
	}
	return time.Duration(n * float64(time.Second))
}

func (r *taskYAML) truth(k yamldoc.Entry) bool {
	switch strings.ToLower(k.Value.Text) {
	case "true", "yes", "on", "1":
		return true
	case "false", "no", "off", "0":
		return false
	}
	r.bad(k.Value, "want true or false")
	return false
}
