package terminalbench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/compose"
)

// knownKeys are those of task.yaml, old ones included.
var knownKeys = []string{
	"instruction", "author_name", "author_email", "difficulty", "category", "tags", "parser_name", "max_agent_timeout_sec", "max_test_timeout_sec",
	"run_tests_in_same_shell", "disable_asciinema", "estimated_duration_sec", "expert_time_estimate_min", "junior_time_estimate_min",
	"descriptions", "test_scripts",
}

// A taskYAML is being read; what is wrong with it is noted with its place.
type taskYAML struct {
	t    *Task
	errs []error
}

// readYAML reads the text of a task.yaml. The error lists all that is wrong; the task is nil where
// the file cannot be parsed.
func readYAML(text []byte) (*Task, error) {
	root, err := compose.Document(taskFile, text)
	if err != nil {
		return nil, err
	}
	keys, ok := root.Keys()
	if !ok {
		return nil, fmt.Errorf("%s: want keys and values", root.Place())
	}
	r := &taskYAML{t: &Task{
		AuthorName: defaultAuthor, AuthorEmail: defaultAuthor, Category: defaultCategory, Parser: defaultParser,
		AgentTime: defaultAgentTime, TestTime: defaultTestTime,
	}}
	for _, k := range keys {
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

func (r *taskYAML) bad(place, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: %s", place, fmt.Sprintf(format, args...)))
}

func (r *taskYAML) warn(place, format string, args ...any) {
	r.t.Warnings = append(r.t.Warnings, place+": "+fmt.Sprintf(format, args...))
}

func (r *taskYAML) key(k compose.Key) {
	t, v := r.t, k.Value
	if !slices.Contains(knownKeys, k.Name) {
		r.warn(k.Place, "unknown key %s, ignored", k.Name)
		return
	}
	if v.Null() {
		return // an empty value is the default, as in "estimated_duration_sec:"
	}
	switch k.Name {
	case "instruction":
		t.Instruction = r.text(k)
	case "author_name":
		t.AuthorName = r.text(k)
	case "author_email":
		t.AuthorEmail = r.text(k)
	case "difficulty":
		t.Difficulty = strings.ToLower(r.text(k))
		if !slices.Contains([]string{"easy", "medium", "hard", "unknown"}, t.Difficulty) {
			r.warn(v.Place(), "difficulty %q; easy, medium, hard or unknown is expected", t.Difficulty)
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
func (r *taskYAML) descriptions(k compose.Key) {
	list, ok := k.Value.List()
	if !ok {
		r.bad(k.Value.Place(), "descriptions: want a list")
		return
	}
	for _, d := range list {
		keys, _ := d.Keys()
		name, text := "", ""
		for _, f := range keys {
			switch s, _ := f.Value.Text(); f.Name {
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
	r.bad(k.Value.Place(), `descriptions: none has the key "base" and a text`)
}

func (r *taskYAML) text(k compose.Key) string {
	s, ok := k.Value.Text()
	if !ok {
		r.bad(k.Value.Place(), "%s: want text", k.Name)
	} else if strings.ContainsRune(s, 0) {
		r.bad(k.Value.Place(), "%s: text with a NUL", k.Name)
	}
	return s
}

// texts is a list of texts; a single text is a list of one.
func (r *taskYAML) texts(k compose.Key) (out []string) {
	if s, ok := k.Value.Text(); ok {
		return []string{s}
	}
	list, ok := k.Value.List()
	if !ok {
		r.bad(k.Value.Place(), "%s: want a list of texts", k.Name)
	}
	for _, v := range list {
		s, ok := v.Text()
		if !ok {
			r.bad(v.Place(), "%s: want text", k.Name)
			continue
		}
		out = append(out, s)
	}
	return out
}

func (r *taskYAML) number(k compose.Key) float64 {
	s, ok := k.Value.Text()
	n, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if !ok || err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		r.bad(k.Value.Place(), "%s: want a number", k.Name)
		return 0
	}
	return n
}

// maxSeconds is a limit that nobody reaches and that every clock can hold.
const maxSeconds = 1e9

func (r *taskYAML) seconds(k compose.Key, otherwise time.Duration) time.Duration {
	before := len(r.errs)
	n := r.number(k)
	if len(r.errs) > before {
		return otherwise
	}
	if n <= 0 || n > maxSeconds {
		r.bad(k.Value.Place(), "%s: %v; want a number of seconds above 0", k.Name, n)
		return otherwise
	}
	return time.Duration(n * float64(time.Second))
}

func (r *taskYAML) truth(k compose.Key) bool {
	s, ok := k.Value.Text()
	switch strings.ToLower(s) {
	case "true", "yes", "on", "1":
		return ok
	case "false", "no", "off", "0":
		return false
	}
	r.bad(k.Value.Place(), "%s: want true or false", k.Name)
	return false
}
