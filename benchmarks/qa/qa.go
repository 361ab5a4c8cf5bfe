// Package qa is the benchmark of questions and answers: one question a row of a JSONL, CSV or
// Parquet file, graded by comparing texts. No machine is needed for that; the agent is offered one,
// which starts when it first acts.
package qa

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/formats"
	"github.com/evalrun/evalrun/datasets/table"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options of the benchmark. All may be left out: columns are then found by their usual names.
type Options struct {
	Name string `json:"name,omitempty"` // of the benchmark; default "qa"

	// Names of columns.
	Question string `json:"question,omitempty"` // default: question, prompt, input, problem or query
	// default: answer, answers, target, expected or solution; a list: several right answers
	Answer string `json:"answer,omitempty"`
	// default: id, task_id, question_id or qid, else the row's number from 1
	ID string `json:"id,omitempty"`
	// default: choices, options or choices.text; the answer is then a letter, an index from 0, or
	// one of the texts
	Choices string `json:"choices,omitempty"`
	Context string `json:"context,omitempty"` // put before the question; default: context, if there is such a column
	Cluster string `json:"cluster,omitempty"` // rows with the same text here are not independent; default: none
	Tags    string `json:"tags,omitempty"`    // default: tags, if there is such a column

	// Instruction follows the question; the default asks for a last line "ANSWER: …".
	Instruction string `json:"instruction,omitempty"`
	// Scorer of all rows. Default: choice where there are choices, numeric where the right answers
	// are numbers (or end in "#### 42"), else exact without regard to case.
	Scorer            string  `json:"scorer,omitempty"`
	IgnoreCase        *bool   `json:"ignore_case,omitempty"`
	IgnorePunctuation bool    `json:"ignore_punctuation,omitempty"`
	IgnoreArticles    bool    `json:"ignore_articles,omitempty"`
	Tolerance         float64 `json:"tolerance,omitempty"`
	Relative          float64 `json:"relative_tolerance,omitempty"`
	// Machine offers the agent a machine; default true.
	Machine *bool `json:"machine,omitempty"`
}

// Benchmark of questions.
type Benchmark struct {
	opts   Options
	source datasets.Source
}

// New makes the benchmark of a file. Nothing is read before its tasks are asked for.
func New(path string, raw json.RawMessage) (*Benchmark, error) {
	b := &Benchmark{opts: Options{Name: "qa"}}
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&b.opts); err != nil {
			return nil, fmt.Errorf("options of qa: %w", err)
		}
	}
	if s := b.opts.Scorer; s != "" && !slices.Contains(score.Names, s) {
		return nil, fmt.Errorf("options of qa: unknown scorer %q; known are %s", s, strings.Join(score.Names, ", "))
	}
	f, err := formats.Open(path)
	if err != nil {
		return nil, fmt.Errorf("qa: %w", err)
	}
	b.source = table.New(f, b.task)
	return b, nil
}

func (b *Benchmark) Name() string            { return b.opts.Name }
func (b *Benchmark) Source() datasets.Source { return b.source }

// The agent's machine is small, and counted smaller: most agents never start it.
var machine = sandbox.Spec{Dir: sandboxed.Dir, Memory: 256 << 20, Reserve: sandbox.Reserve{Memory: 64 << 20, CPUs: 0.1}}

func (b *Benchmark) Needs(_ datasets.Task, o benchmarks.Options) (benchmarks.Needs, error) {
	if b.opts.Machine != nil && !*b.opts.Machine {
		return benchmarks.Needs{}, nil
	}
	return benchmarks.Needs{Agent: []sandbox.Spec{o.Merge(machine)}}, nil
}

type episode struct{ sandboxed.Base }

func (b *Benchmark) Open(_ context.Context, h benchmarks.Host, t datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	q, err := decode(t)
	if err != nil {
		return nil, err
	}
	needs, err := b.Needs(t, o)
	if err != nil {
		return nil, err
	}
	g := &episode{sandboxed.Base{Host: h, Stages: []benchmarks.Stage{{Goal: sandboxed.TextGoal(b.goal(q))}}}}
	if len(needs.Agent) > 0 {
		g.Spec = &needs.Agent[0]
	}
	return g, nil
}

// Collect keeps the answer; what the agent did on its machine does not count.
func (e *episode) Collect(_ context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	return benchmarks.Evidence{Stage: e.Index(), Answer: ans}, nil
}

func (b *Benchmark) Grade(_ context.Context, _ benchmarks.Host, t datasets.Task, ev benchmarks.Evidence,
	_ benchmarks.Episode) (benchmarks.Result, error) {
	q, err := decode(t)
	if err != nil {
		return benchmarks.Result{}, err
	}
	grade, err := q.Spec.Compile()
	if err != nil {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	return Correct(grade, ev.Answer), nil
}

// Correct grades an answer's text; no text is never right.
func Correct(grade score.Scorer, ans agent.Answer) benchmarks.Result {
	m := score.Mark{Why: "no answer"}
	if text := ans.Text(); text != "" {
		m = grade(text)
	}
	return benchmarks.Result{Scores: []record.Score{
		{Name: "correct", Primary: true, Value: &m.Value, Text: m.Text, Why: m.Why}}}
}

// Solve answers with the right answer as the file has it.
func (b *Benchmark) Solve(t datasets.Task) (agent.Agent, error) {
	q, err := decode(t)
	if err != nil {
		return nil, err
	}
	if q.Spec.Scorer == score.Regex {
		return nil, fmt.Errorf("task %s: a pattern does not say which answer matches it", t.ID)
	}
	return sandboxed.Answers(q.Known), nil
}
