// Package qa is the benchmark for questions with known answers: one question per row of a JSONL,
// CSV or Parquet file, graded by comparing text. Grading needs no machine. The agent is offered
// one, which starts when it is first used.
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

// Options are the benchmark's options. All may be omitted; columns are then found by their usual
// names.
type Options struct {
	Name string `json:"name,omitempty"` // default "qa"

	// Names of columns.
	// default: question, prompt, input, problem or query
	Question string `json:"question,omitempty"`
	// default: answer, answers, target, expected or solution; a list holds several accepted answers
	Answer string `json:"answer,omitempty"`
	// default: id, task_id, question_id or qid, else the row number from 1
	ID string `json:"id,omitempty"`
	// default: choices, options or choices.text; the answer is a letter, an index from 0, or a text
	Choices string `json:"choices,omitempty"`
	// put before the question; default: column context, if present
	Context string `json:"context,omitempty"`
	// rows with equal text here are not independent; default: none
	Cluster string `json:"cluster,omitempty"`
	Tags    string `json:"tags,omitempty"` // default: column tags, if present

	// Instruction follows the question. The default asks for a last line "ANSWER: …".
	Instruction string `json:"instruction,omitempty"`
	// Scorer is used for all rows. Default: choice if there are choices, numeric if the answers are
	// numbers (or end in "#### 42"), else exact, ignoring case.
	Scorer            string  `json:"scorer,omitempty"`
	IgnoreCase        *bool   `json:"ignore_case,omitempty"`
	IgnorePunctuation bool    `json:"ignore_punctuation,omitempty"`
	IgnoreArticles    bool    `json:"ignore_articles,omitempty"`
	Tolerance         float64 `json:"tolerance,omitempty"`
	Relative          float64 `json:"relative_tolerance,omitempty"`
	// Machine says whether the agent is offered a machine; default true.
	Machine *bool `json:"machine,omitempty"`
}

// Benchmark is the benchmark of one file of questions.
type Benchmark struct {
	opts   Options
	source datasets.Source
}

// New returns the benchmark for a file. The file is not read before its tasks are requested.
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

// machine is small, and admission reserves even less for it, because most agents never start it.
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

// Collect keeps the answer only; what the agent did on its machine does not count.
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

// Correct grades the text of an answer. An empty answer is never correct.
func Correct(grade score.Scorer, ans agent.Answer) benchmarks.Result {
	m := score.Mark{Why: "no answer"}
	if text := ans.Text(); text != "" {
		m = grade(text)
	}
	return benchmarks.Result{Scores: []record.Score{
		{Name: "correct", Primary: true, Value: &m.Value, Text: m.Text, Why: m.Why}}}
}

// Solve returns an agent that gives the file's answer.
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
