package qa

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/table"
	"github.com/evalrun/evalrun/harness/record"
)

// A question is the data of a task.
type question struct {
	Context  string   `json:"context,omitempty"`
	Question string   `json:"question"`
	Choices  []string `json:"choices,omitempty"`
	// an accepted answer as in the file, including its derivation
	Known string     `json:"known"`
	Spec  score.Spec `json:"spec"`
}

func decode(t datasets.Task) (question, error) {
	var q question
	if err := json.Unmarshal(t.Data, &q); err != nil {
		return q, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	return q, nil
}

// usual lists the usual column names, most likely first.
var usual = map[string][]string{
	"question": {"question", "prompt", "input", "problem", "query"},
	"answer":   {"answer", "answers", "target", "expected", "solution", "answerKey"},
	"id":       {"id", "task_id", "question_id", "qid"},
	"choices":  {"choices", "options", "choices.text"},
	"context":  {"context"},
	"tags":     {"tags"},
}

// column returns the name of a column: want if it is set, else the first usual name that is
// present, or "".
func column(f table.Fields, what, want string, needed bool) (string, error) {
	names := usual[what]
	if want != "" {
		names = []string{want}
	}
	for _, n := range names {
		if _, ok := f[n]; ok {
			return n, nil
		}
	}
	if !needed && want == "" {
		return "", nil
	}
	list := strings.Join(names, ", ")
	if want == "" {
		list += fmt.Sprintf(" (name it with the option %q)", what)
	}
	return "", f.Missing(list)
}

func (b *Benchmark) task(r table.Row) (datasets.Task, error) {
	f, err := r.Fields()
	if err != nil {
		return datasets.Task{}, err
	}
	o := b.opts
	names := map[string]string{}
	for _, c := range []struct {
		what, want string
		needed     bool
	}{{"question", o.Question, true}, {"answer", o.Answer, true}, {"id", o.ID, false}, {"choices", o.Choices, false},
		{"context", o.Context, false}, {"tags", o.Tags, false}, {"cluster", o.Cluster, false}} {
		if names[c.what], err = column(f, c.what, c.want, c.needed); err != nil {
			return datasets.Task{}, err
		}
	}
	t := datasets.Task{ID: strconv.FormatInt(r.Number+1, 10)}
	if names["id"] != "" {
		if t.ID, err = f.Text(names["id"]); err != nil {
			return t, err
		}
		if t.ID == "" || strings.ContainsRune(t.ID, 0) {
			return t, fmt.Errorf("column %q: %q is no task ID", names["id"], t.ID)
		}
	}
	var q question
	if q.Question, err = f.Text(names["question"]); err != nil {
		return t, err
	}
	if strings.TrimSpace(q.Question) == "" {
		return t, errors.New("the question is empty")
	}
	if q.Context, err = f.Text(names["context"]); err != nil {
		return t, err
	}
	if q.Choices, err = f.Texts(names["choices"]); err != nil {
		return t, err
	}
	right, err := f.Texts(names["answer"])
	if err != nil {
		return t, err
	}
	if err := o.grade(&q, right); err != nil {
		return t, err
	}
	if t.Cluster, err = f.Text(names["cluster"]); err != nil {
		return t, err
	}
	if t.Tags, err = f.Texts(names["tags"]); err != nil {
		return t, err
	}
	t.Fields = others(f, names)
	if t.Data, err = json.Marshal(q); err != nil {
		return t, err
	}
	t.Digest, err = record.TaskDigest("qa", t.ID, q)
	return t, err
}

// others returns the short scalar columns that are not part of the question. Filters can select by
// them.
func others(f table.Fields, names map[string]string) map[string]string {
	m := map[string]string{}
	for k, v := range f {
		if len(v) > 200 || slices.Contains([]string{names["question"], names["answer"], names["context"], names["id"]},
			k) {
			continue
		}
		if s, err := f.Text(k); err == nil && s != "" {
			m[k] = s
		}
	}
	return m
}

// grade determines how q is graded.
func (o Options) grade(q *question, right []string) error {
	right = slices.DeleteFunc(slices.Clone(right), func(s string) bool { return strings.TrimSpace(s) == "" })
	if len(right) == 0 {
		return errors.New("the answer is empty")
	}
	q.Known = right[0]
	s := score.Spec{Scorer: o.Scorer, IgnorePunctuation: o.IgnorePunctuation, IgnoreArticles: o.IgnoreArticles,
		Tolerance: o.Tolerance, Relative: o.Relative}
	if s.Scorer == "" {
		s.Scorer = guess(q, right)
		s.IgnoreCase = s.Scorer == score.Exact
	}
	if o.IgnoreCase != nil {
		s.IgnoreCase = *o.IgnoreCase
	}
	for _, r := range right {
		switch s.Scorer {
		case score.Numeric:
			r = afterHashes(r)
		case score.Choice:
			l, err := letterOf(q.Choices, r)
			if err != nil {
				return err
			}
			r = l
		}
		s.Right = append(s.Right, r)
	}
	if s.Scorer == score.Choice {
		q.Known = s.Right[0]
	}
	q.Spec = s
	_, err := s.Compile()
	return err
}

func guess(q *question, right []string) string {
	if len(q.Choices) > 0 {
		return score.Choice
	}
	for _, r := range right {
		if _, ok := score.ParseNumber(afterHashes(r)); !ok {
			return score.Exact
		}
	}
	return score.Numeric
}

// afterHashes returns the text after the last "####", as in GSM8K, or all of s.
func afterHashes(s string) string {
	if i := strings.LastIndex(s, "####"); i >= 0 {
		s = s[i+4:]
	}
	return strings.TrimSpace(s)
}

// letterOf returns the letter of the correct choice, which is given as a letter, an index from 0,
// or the text of the choice.
func letterOf(choices []string, right string) (string, error) {
	if len(choices) == 0 || len(choices) > 26 {
		return "", fmt.Errorf("there are %d choices; 1 to 26 can be lettered", len(choices))
	}
	i := slices.Index(choices, right)
	if i < 0 && len(right) == 1 {
		i = int(strings.ToUpper(right)[0]) - 'A'
	}
	if n, err := strconv.Atoi(right); i < 0 && err == nil {
		i = n
	}
	if i < 0 || i >= len(choices) {
		return "", fmt.Errorf("the answer %q is none of the %d choices", score.Clip(right, 100), len(choices))
	}
	return string(rune('A' + i)), nil
}

// goal returns the agent's instruction.
func (b *Benchmark) goal(q question) string {
	var s bytes.Buffer
	if q.Context != "" {
		fmt.Fprintf(&s, "%s\n\n", q.Context)
	}
	s.WriteString(q.Question)
	if len(q.Choices) > 0 {
		s.WriteString("\n")
		for i, c := range q.Choices {
			fmt.Fprintf(&s, "\n%c) %s", 'A'+i, c)
		}
	}
	instruction := b.opts.Instruction
	if instruction == "" {
		instruction = map[string]string{
			score.Numeric: "Give the result as a number, on a last line of its own: ANSWER: <number>",
			score.Choice:  "Give the letter of the right choice, on a last line of its own: ANSWER: <letter>",
		}[q.Spec.Scorer]
		if instruction == "" {
			instruction = "Give the answer, as short as possible, on a last line of its own: ANSWER: <answer>"
		}
	}
	fmt.Fprintf(&s, "\n\n%s", instruction)
	return s.String()
}
