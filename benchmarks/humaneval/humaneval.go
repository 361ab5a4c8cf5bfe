// Package humaneval is the benchmark for files in the format of HumanEval: a Python function's
// signature and docstring, to be completed and graded by hidden tests.
//
// The solution is the file solution.py in the working directory, if the agent has a machine and
// left the file there; otherwise the text of the answer (a fenced block, or all of it). Either may
// hold only the function's body or define the function; see [pygrade.Code] and [pygrade.Compose].
// The solution is graded in a fresh machine by [pygrade.Run].
package humaneval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/pygrade"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/formats"
	"github.com/evalrun/evalrun/datasets/table"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// File is the path, within the working directory, at which an agent may leave its solution.
const File = "solution.py"

// maxFile is the maximum size of a solution file.
const maxFile = 1 << 20

// Options are the benchmark's options.
type Options struct {
	Name string `json:"name,omitempty"` // default "humaneval"
	// Timeout is the wall-clock limit of a program in seconds. The published harness uses 3; the
	// default is 10, because a machine with many trials is slower. No known solution needs even
	// one.
	Timeout float64 `json:"timeout,omitempty"`
}

// Benchmark is the benchmark of one file of functions.
type Benchmark struct {
	opts   Options
	source datasets.Source
}

// New returns the benchmark for a file. The file is not read before its tasks are requested.
func New(file string, raw json.RawMessage) (*Benchmark, error) {
	b := &Benchmark{opts: Options{Name: "humaneval", Timeout: 10}}
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&b.opts); err != nil {
			return nil, fmt.Errorf("options of humaneval: %w", err)
		}
	}
	if b.opts.Timeout <= 0 || b.opts.Timeout > 3600 {
		return nil, fmt.Errorf("options of humaneval: a timeout of %v seconds; want more than 0 and at most 3600",
			b.opts.Timeout)
	}
	f, err := formats.Open(file)
	if err != nil {
		return nil, fmt.Errorf("humaneval: %w", err)
	}
	b.source = table.New(f, makeTask)
	return b, nil
}

// A problem is the data of a task, as published.
type problem struct {
	Prompt   string `json:"prompt"`
	Entry    string `json:"entry_point"`
	Solution string `json:"canonical_solution,omitempty"`
	Test     string `json:"test"`
}

func makeTask(r table.Row) (datasets.Task, error) {
	f, err := r.Fields()
	if err != nil {
		return datasets.Task{}, err
	}
	var p problem
	var t datasets.Task
	for _, c := range []struct {
		to     *string
		name   string
		needed bool
	}{{&t.ID, "task_id", true}, {&p.Prompt, "prompt", true}, {&p.Entry, "entry_point", true}, {&p.Test, "test", true},
		{&p.Solution, "canonical_solution", false}} {
		if _, ok := f[c.name]; !ok && c.needed {
			return t, f.Missing(c.name)
		}
		if *c.to, err = f.Text(c.name); err != nil {
			return t, err
		}
		if c.needed && *c.to == "" {
			return t, fmt.Errorf("%s is empty", c.name)
		}
	}
	if t.Data, err = json.Marshal(p); err != nil {
		return t, err
	}
	t.Digest, err = record.TaskDigest("humaneval", t.ID, p)
	return t, err
}

func decode(t datasets.Task) (problem, error) {
	var p problem
	if err := json.Unmarshal(t.Data, &p); err != nil {
		return p, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	return p, nil
}

func (b *Benchmark) Name() string            { return b.opts.Name }
func (b *Benchmark) Source() datasets.Source { return b.source }

var (
	worker = sandbox.Spec{Dir: sandboxed.Dir, Memory: pygrade.Memory, Pids: 128}
	grader = sandbox.Spec{Dir: "/", Memory: pygrade.Memory, Disk: 64 << 20, Pids: 64}
)

// Needs returns a machine for the agent, which starts only if the agent acts, and a fresh one for
// the grader.
func (b *Benchmark) Needs(_ datasets.Task, o benchmarks.Options) (benchmarks.Needs, error) {
	return benchmarks.Needs{Agent: []sandbox.Spec{o.Merge(worker)}, Grader: []sandbox.Spec{graderOf(o)}}, nil
}

// graderOf returns the spec of the grader's machine: the run's image and limits, but our user and
// no network.
func graderOf(o benchmarks.Options) sandbox.Spec {
	g := o.Merge(grader)
	g.Network, g.User = sandbox.Network{}, ""
	g.Reserve = sandbox.Reserve{}
	return g
}

type episode struct {
	sandboxed.Base
	options json.RawMessage
}

func (b *Benchmark) Open(_ context.Context, h benchmarks.Host, t datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	p, err := decode(t)
	if err != nil {
		return nil, err
	}
	spec := o.Merge(worker)
	return &episode{sandboxed.Base{Host: h, Spec: &spec,
		Stages: []benchmarks.Stage{{Goal: sandboxed.TextGoal(goal(p))}}},
		sandboxed.SaveOptions(o)}, nil
}

func goal(p problem) string {
	return fmt.Sprintf("Complete the Python function %s below. Keep its name and its parameters; it will be called "+
		"by tests that you do not see.\n\n"+
		"```python\n%s\n```\n\n"+
		"Answer with the whole function in one block of Python code, imports included. If you have a shell you may "+
		"instead write it to %s in the working directory; then the file counts.",
		p.Entry, strings.TrimRight(p.Prompt, "\n "), File)
}

// Collect keeps solution.py, if present, in addition to the answer.
func (e *episode) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	ev := benchmarks.Evidence{Stage: e.Index(), Answer: ans, Data: e.options}
	sb := e.Started()
	if sb == nil {
		return ev, nil
	}
	code, err := sandbox.ReadFile(ctx, sb, path.Join(e.Dir(), File), maxFile)
	var theirs *sandbox.FileError
	switch {
	// a link or an oversized file is not a solution
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &theirs):
		return ev, nil
	case err != nil:
		return ev, err
	}
	blob, err := e.Host.Log().PutBlob(ctx, "text/x-python", bytes.NewReader(code))
	if err != nil {
		return ev, err
	}
	ev.Files = map[string]event.Blob{File: blob}
	return ev, nil
}

// Grade runs the tests.
func (b *Benchmark) Grade(ctx context.Context, h benchmarks.Host, t datasets.Task, ev benchmarks.Evidence,
	_ benchmarks.Episode) (benchmarks.Result, error) {
	p, err := decode(t)
	if err != nil {
		return benchmarks.Result{}, err
	}
	code, err := solution(ctx, h, p, ev)
	if err != nil {
		return benchmarks.Result{}, err
	}
	if strings.TrimSpace(code) == "" {
		return result(pygrade.Outcome{Why: "no answer"}), nil
	}
	o, err := sandboxed.LoadOptions(ev.Data)
	if err != nil {
		return benchmarks.Result{}, err
	}
	sb, err := h.Sandbox(ctx, graderOf(o))
	if err != nil {
		return benchmarks.Result{}, err
	}
	defer sb.Close()
	out, err := pygrade.Run(ctx, sb, pygrade.Program{
		Prompt: p.Prompt, Source: pygrade.Compose(p.Prompt, code, p.Entry), Entry: p.Entry, Test: p.Test,
	}, time.Duration(b.opts.Timeout*float64(time.Second)))
	if err != nil {
		return benchmarks.Result{}, err
	}
	if out.Task {
		return benchmarks.Result{}, &benchmarks.TaskError{Task: t.ID, Err: errors.New(out.Why)}
	}
	return result(out), nil
}

// solution returns the code to grade.
func solution(ctx context.Context, h benchmarks.Host, p problem, ev benchmarks.Evidence) (string, error) {
	blob, ok := ev.Files[File]
	if !ok {
		return pygrade.Code(ev.Answer.Text(), p.Entry), nil
	}
	r, err := h.Log().OpenBlob(ctx, blob)
	if err != nil {
		return "", err
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, maxFile))
	return string(raw), err
}

func result(o pygrade.Outcome) benchmarks.Result {
	v, status := 0.0, "failed"
	if o.Passed {
		v, status = 1, "passed"
	}
	r := benchmarks.Result{
		Scores: []record.Score{{Name: "passed", Primary: true, Value: &v, Why: score.Clip(o.Why, 2000)}},
		Tests:  []record.Test{{Name: "check", Status: status, Message: score.Clip(o.Why, 2000)}},
	}
	if o.NoVerdict {
		r.Flags = append(r.Flags, benchmarks.FlagNoReward)
		r.Scores[0].TimedOut = o.TimedOut
	}
	if o.Shared {
		r.Flags = append(r.Flags, "not_apart")
	}
	return r
}

// Solve returns an agent that gives the published solution.
func (b *Benchmark) Solve(t datasets.Task) (agent.Agent, error) {
	p, err := decode(t)
	if err != nil {
		return nil, err
	}
	if p.Solution == "" {
		return nil, benchmarks.NoSolution("task %s has no canonical_solution", t.ID)
	}
	return sandboxed.Answers(p.Solution), nil
}
