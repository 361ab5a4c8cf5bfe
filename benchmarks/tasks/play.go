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
	"github.com/evalrun/evalrun/benchmarks/episode"
	"github.com/evalrun/evalrun/benchmarks/pygrade"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// setupTime bounds a setup script.
const setupTime = 5 * time.Minute

// A game is an episode of a task.
type game struct {
	episode.Base
	task   *Task
	id     string
	stages []Stage
	beside fs.FS
	wishes json.RawMessage
	broken string // why the current stage could not be set up
}

// Open starts the machine at once when something is set up or collected on it, so that a fault of
// the task shows before the agent begins.
func (b *Benchmark) Open(ctx context.Context, h benchmarks.Host, t datasets.Task, o benchmarks.Options) (benchmarks.Episode, error) {
	d, err := decode(t)
	if err != nil {
		return nil, err
	}
	if d.Browser != nil {
		return b.openBrowser(ctx, h, t, d, o)
	}
	spec := o.Merge(d.spec())
	g := &game{task: d, id: t.ID, stages: d.stages(), beside: t.Files, wishes: episode.Keep(o)}
	g.Host, g.Spec, g.Setup, g.Enter = h, &spec, g.setup, g.enter
	for _, s := range g.stages {
		g.Stages = append(g.Stages, benchmarks.Stage{Name: s.Name, Goal: episode.Say(s.Instruction), Time: time.Duration(s.Time), Leave: s.Leave})
	}
	if d.Setup != "" || slices.ContainsFunc(g.stages, func(s Stage) bool { return s.Setup != "" || s.Grade.Script != "" }) {
		if _, err := g.Machine(ctx); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// setup readies a new machine: the task's own files and script, then the first stage's.
func (g *game) setup(ctx context.Context, sb sandbox.Sandbox) error {
	list := g.stages[:1]
	if len(g.task.Stages) > 0 {
		list = []Stage{g.task.Stage, g.stages[0]}
	}
	for _, s := range list {
		if why, err := g.ready(ctx, sb, s); err != nil {
			return err
		} else if why != "" {
			return &benchmarks.TaskError{Task: g.id, Err: errors.New(why)}
		}
	}
	return nil
}

// enter readies a later stage, on the machine as the agent left it. If that fails the agent may
// have done it, so the stage is played and scores 0.
func (g *game) enter(ctx context.Context, stage int) (err error) {
	g.broken = ""
	s := g.stages[stage]
	if stage == 0 || s.Files == nil && s.Setup == "" {
		return nil
	}
	sb, err := g.Machine(ctx)
	if err != nil {
		return err
	}
	g.broken, err = g.ready(ctx, sb, s)
	return err
}

// ready puts a stage's files and runs its script; why says what failed in the machine.
func (g *game) ready(ctx context.Context, sb sandbox.Sandbox, s Stage) (why string, err error) {
	if len(s.Files) > 0 {
		files, err := tree(s.Files, g.beside)
		if err != nil {
			return err.Error(), nil
		}
		if err := benchmarks.Left(sb.Put(ctx, g.Dir(), files)); err != nil {
			if errors.As(err, new(*benchmarks.LeftError)) {
				return err.Error(), nil
			}
			return "", err
		}
	}
	if s.Setup == "" {
		return "", nil
	}
	exit, out, err := run(ctx, sb, s.Setup, nil, g.Dir(), setupTime)
	if err != nil {
		return "", err
	}
	if exit.Code != 0 {
		return fmt.Sprintf("the setup script %s: %s", exit.How(setupTime), out), nil
	}
	return "", nil
}

// data is what evidence says beside answer and files.
type data struct {
	Wishes json.RawMessage `json:"wishes,omitempty"`
	// Failed says why there is nothing to grade, although the machine answered; it scores 0.
	Failed string `json:"failed,omitempty"`
	// Out says why something of what the agent left is not among the files.
	Out string `json:"out,omitempty"`
}

// Collect keeps what the stage's grader is to see.
func (g *game) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	ev := benchmarks.Evidence{Stage: g.Index(), Answer: ans}
	d := data{Wishes: g.wishes, Failed: g.broken}
	grade := g.stages[g.Index()].Grade
	err := g.collect(ctx, grade, &ev, &d)
	if left := (*benchmarks.LeftError)(nil); errors.As(err, &left) {
		d.Failed, ev.Files, err = left.Error(), nil, nil
	}
	if err != nil {
		return ev, err
	}
	if d.Wishes != nil || d.Failed != "" || d.Out != "" {
		ev.Data, err = json.Marshal(d)
	}
	return ev, err
}

func (g *game) collect(ctx context.Context, grade *Grade, ev *benchmarks.Evidence, d *data) error {
	sb := g.Started()
	if sb == nil {
		return nil
	}
	keep := func(name, kind string, content []byte) error {
		if ev.Files == nil {
			ev.Files = map[string]event.Blob{}
		}
		blob, err := g.Host.Log().PutBlob(ctx, kind, bytes.NewReader(content))
		ev.Files[name] = blob
		return err
	}
	switch {
	case grade.Function != nil:
		name := grade.Function.file()
		code, err := sandbox.ReadFile(ctx, sb, path.Join(g.Dir(), name), maxSource)
		if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*sandbox.FileError)) {
			return nil // nothing there, a link, or too large: the answer's text counts
		}
		if err != nil {
			return err
		}
		return keep(name, "text/x-python", code)
	case grade.Script != "" && !grade.Shared:
		for _, p := range grade.paths(g.Dir()) {
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

// maxSource is the largest source file of a function.
const maxSource = 1 << 20

func (f *Function) file() string {
	if f.File == "" {
		return "solution.py"
	}
	return f.File
}

// source is the program that defines the function.
func (f *Function) source(code string) string {
	return pygrade.Compose(f.Prompt, code, f.Name)
}

// paths are what is collected, absolute.
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
