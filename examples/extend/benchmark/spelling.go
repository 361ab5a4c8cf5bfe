// Package spelling is a benchmark for evalrun: each line of a JSON-lines file is a text with
// spelling mistakes and its correction. The score is the part of the mistakes that an answer
// corrects.
package spelling

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/jsonl"
	"github.com/evalrun/evalrun/datasets/table"
	"github.com/evalrun/evalrun/harness/record"
)

// A line of the file.
type line struct {
	ID    string `json:"id"`
	Text  string `json:"text"`
	Right string `json:"right"`
}

// A Benchmark is the texts of one file. Its tasks need no machine.
type Benchmark struct {
	opts   Options
	source datasets.Source
}

// New makes the benchmark of a file. Nothing is read before its tasks are asked for.
func New(path string, options json.RawMessage) (*Benchmark, error) {
	b := &Benchmark{source: table.New(jsonl.Open(path), task)}
	if len(options) > 0 {
		if err := json.Unmarshal(options, &b.opts); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// task makes a task of a line. What is wrong with it is reported with its place, and the other
// tasks are played.
func task(r table.Row) (t datasets.Task, err error) {
	var l line
	if err := json.Unmarshal(r.Data, &l); err != nil {
		return t, err
	}
	if l.ID == "" || l.Text == "" || len(words(l.Text)) != len(words(l.Right)) || mistakes(l.Text, l.Right) == 0 {
		return t, fmt.Errorf("want id, text and right, which have equally many words and are not the same")
	}
	t = datasets.Task{ID: l.ID, Data: r.Data}
	t.Digest, err = record.TaskDigest("spelling", l.ID, l)
	return t, err
}

func (b *Benchmark) Name() string            { return "spelling" }
func (b *Benchmark) Source() datasets.Source { return b.source }

func (b *Benchmark) Needs(datasets.Task, benchmarks.Options) (benchmarks.Needs, error) {
	return benchmarks.Needs{}, nil
}

func (b *Benchmark) Open(_ context.Context, h benchmarks.Host, t datasets.Task,
	_ benchmarks.Options) (benchmarks.Episode, error) {
	l, err := decode(t)
	if err != nil {
		return nil, err
	}
	goal := cmp.Or(b.opts.Instruction, "Correct the spelling. Answer with the corrected text only.") + "\n\n" + l.Text
	return &play{sandboxed.Base{Host: h, Stages: []benchmarks.Stage{{Goal: sandboxed.TextGoal(goal)}}}}, nil
}

// A play is one session: one stage, whose answer is the evidence.
type play struct{ sandboxed.Base }

func (p *play) Collect(_ context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	return benchmarks.Evidence{Stage: p.Index(), Answer: ans}, nil
}

// Grade looks at nothing but the task and the evidence, so that grading can be repeated.
func (b *Benchmark) Grade(_ context.Context, _ benchmarks.Host, t datasets.Task, ev benchmarks.Evidence,
	_ benchmarks.Episode) (benchmarks.Result, error) {
	l, err := decode(t)
	if err != nil {
		return benchmarks.Result{}, err
	}
	had, left := mistakes(l.Text, l.Right), mistakes(ev.Answer.Text(), l.Right)
	value := max(0, 1-float64(left)/float64(had))
	score := record.Score{Name: "corrected", Primary: true, Value: &value,
		Why: fmt.Sprintf("%d of %d mistakes are left", left, had)}
	return benchmarks.Result{Scores: []record.Score{score}}, nil
}

// Solve answers with the correction.
func (b *Benchmark) Solve(t datasets.Task) (agent.Agent, error) {
	l, err := decode(t)
	return sandboxed.Answers(l.Right), err
}

func decode(t datasets.Task) (l line, err error) {
	if err := json.Unmarshal(t.Data, &l); err != nil {
		return l, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	return l, nil
}

// mistakes counts the words that are not as in right. A text with more or fewer words has as many
// mistakes as right has words.
func mistakes(text, right string) (n int) {
	a, b := words(text), words(right)
	if len(a) != len(b) {
		return len(b)
	}
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func words(text string) []string { return strings.Fields(text) }
