package tasks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/pygrade"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// setupTime is the time limit of a setup script.
const setupTime = 5 * time.Minute

// An episode is a task being played.
type episode struct {
	sandboxed.Base
	task    *Task
	id      string
	stages  []Stage
	dataset fs.FS
	options json.RawMessage
	broken  string // why the current stage could not be set up
}

// Open starts the machine at once if something has to be set up or collected, so that a defect of
// the task shows before the agent starts.
func (b *Benchmark) Open(ctx context.Context, h benchmarks.Host, t datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	d, err := decode(t)
	if err != nil {
		return nil, err
	}
	if d.Browser != nil {
		return b.openBrowser(ctx, h, t, d, o)
	}
	g := newEpisode(h, t, d, o)
	if g.eager() {
		if _, err := g.Machine(ctx); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Resume implements [benchmarks.Resumer] for tasks without a browser.
func (b *Benchmark) Resume(ctx context.Context, h benchmarks.Keeper, t datasets.Task, o benchmarks.Options,
	log event.Log) (benchmarks.Episode, error) {
	d, err := decode(t)
	if err != nil {
		return nil, err
	}
	if d.Browser != nil {
		return nil, errors.New("the task has a browser")
	}
	g := newEpisode(h, t, d, o)
	if err := g.Resume(ctx, h, log); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	if g.eager() && g.Started() == nil {
		return nil, errors.New("the machine was not recorded before it was used")
	}
	return g, nil
}

func newEpisode(h benchmarks.Host, t datasets.Task, d *Task, o benchmarks.Options) *episode {
	spec := o.Merge(d.spec())
	g := &episode{task: d, id: t.ID, stages: d.stages(), dataset: t.Files, options: sandboxed.SaveOptions(o)}
	g.Host, g.Spec, g.Setup, g.Enter = h, &spec, g.setup, g.enter
	for _, s := range g.stages {
		g.Stages = append(g.Stages, benchmarks.Stage{Name: s.Name, Goal: sandboxed.TextGoal(s.Instruction),
			Time: time.Duration(s.Time), Leave: s.Leave})
	}
	return g
}

// eager reports whether the machine starts before the agent does.
func (e *episode) eager() bool {
	return e.task.Setup != "" || slices.ContainsFunc(e.stages,
		func(s Stage) bool { return s.Setup != "" || s.Grade.Script != "" })
}

// setup prepares a new machine: it applies the task's own files and script, then the first stage's.
func (e *episode) setup(ctx context.Context, sb sandbox.Sandbox) error {
	list := e.stages[:1]
	if len(e.task.Stages) > 0 {
		list = []Stage{e.task.Stage, e.stages[0]}
	}
	for _, s := range list {
		if why, err := e.ready(ctx, sb, s); err != nil {
			return err
		} else if why != "" {
			return &benchmarks.TaskError{Task: e.id, Err: errors.New(why)}
		}
	}
	return nil
}

// enter prepares a later stage on the machine as the agent left it. A failure may be the agent's
// doing, so the stage is played and scores 0.
func (e *episode) enter(ctx context.Context, stage int) (err error) {
	e.broken = ""
	s := e.stages[stage]
	if stage == 0 || s.Files == nil && s.Setup == "" {
		return nil
	}
	sb, err := e.Machine(ctx)
	if err != nil {
		return err
	}
	e.broken, err = e.ready(ctx, sb, s)
	return err
}

// ready copies a stage's files and runs its setup script. why describes a failure inside the
// machine.
func (e *episode) ready(ctx context.Context, sb sandbox.Sandbox, s Stage) (why string, err error) {
	if len(s.Files) > 0 {
		files, err := tree(s.Files, e.dataset)
		if err != nil {
			return err.Error(), nil
		}
		if err := benchmarks.Left(sb.Put(ctx, e.Dir(), files)); err != nil {
			if errors.As(err, new(*benchmarks.LeftError)) {
				return err.Error(), nil
			}
			return "", err
		}
	}
	if s.Setup == "" {
		return "", nil
	}
	exit, out, err := run(ctx, sb, s.Setup, nil, e.Dir(), setupTime)
	if err != nil {
		return "", err
	}
	if exit.Code != 0 {
		return fmt.Sprintf("the setup script %s: %s", exit.How(setupTime), out), nil
	}
	return "", nil
}

// data is the part of the evidence that is neither answer nor files.
type data struct {
	Options json.RawMessage `json:"wishes,omitempty"`
	// Failed says why there is nothing to grade although the machine responded. The stage scores 0.
	Failed string `json:"failed,omitempty"`
	// Out says why some of the agent's files are missing from Files.
	Out string `json:"out,omitempty"`
}

// Collect gathers what the stage's grader needs.
func (e *episode) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	ev := benchmarks.Evidence{Stage: e.Index(), Answer: ans}
	d := data{Options: e.options, Failed: e.broken}
	grade := e.stages[e.Index()].Grade
	err := e.collect(ctx, grade, &ev, &d)
	if left := (*benchmarks.LeftError)(nil); errors.As(err, &left) {
		d.Failed, ev.Files, err = left.Error(), nil, nil
	}
	if err != nil {
		return ev, err
	}
	if d.Options != nil || d.Failed != "" || d.Out != "" {
		ev.Data, err = json.Marshal(d)
	}
	return ev, err
}

func (e *episode) collect(ctx context.Context, grade *Grade, ev *benchmarks.Evidence, d *data) error {
	sb := e.Started()
	if sb == nil {
		return nil
	}
	keep := func(name, kind string, content []byte) error {
		if ev.Files == nil {
			ev.Files = map[string]event.Blob{}
		}
		blob, err := e.Host.Log().PutBlob(ctx, kind, bytes.NewReader(content))
		ev.Files[name] = blob
		return err
	}
	switch {
	case grade.Function != nil:
		name := grade.Function.file()
		code, err := sandbox.ReadFile(ctx, sb, path.Join(e.Dir(), name), maxSource)
		if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*sandbox.FileError)) {
			return nil // missing, a link, or too large: the answer text counts
		}
		if err != nil {
			return err
		}
		return keep(name, "text/x-python", code)
	case grade.Script != "" && !grade.Shared:
		for _, p := range grade.paths(e.Dir()) {
			content, out, err := collect(ctx, sb, p)
			if err != nil {
				return err
			}
			d.Out = cmp.Or(d.Out, out)
			if content != nil {
				if err := keep(p, "application/x-tar", content); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// maxSource is the maximum size of a function's source file.
const maxSource = 1 << 20

func (f *Function) file() string {
	if f.File == "" {
		return "solution.py"
	}
	return f.File
}

// source returns the program that defines the function.
func (f *Function) source(code string) string {
	return pygrade.Compose(f.Prompt, code, f.Name)
}

// paths returns the absolute paths to collect.
func (g *Grade) paths(dir string) []string {
	if g.Collect == nil {
		return []string{dir}
	}
	var out []string
	for _, c := range g.Collect {
		if p := below(dir, c); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
