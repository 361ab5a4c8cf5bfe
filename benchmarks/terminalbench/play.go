package terminalbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/benchmarks/harbor/verify"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An episode is a task that is played: one stage, in the machine that is then graded.
type episode struct {
	sandboxed.Base
	task  *Task
	o     benchmarks.Options
	dirs  []string
	named []string       // the option work
	tests *filetree.Tree // what goes to /tests
	guard *verify.Guard
	// replay is set when a second opinion is played instead of an agent.
	replay *verify.Replay
	found  bool // the machine was found again
}

// Open starts the machine with its sidecars, so that a fault of the task shows before the agent
// begins.
func (b *Benchmark) Open(ctx context.Context, h benchmarks.Host, dt datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	e, err := b.open(ctx, h, dt, o, nil)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Resume implements [benchmarks.Resumer]. What the agent changed is compared with the machine's state
// before it, which process 1 of the machine has.
func (b *Benchmark) Resume(ctx context.Context, h benchmarks.Keeper, dt datasets.Task, o benchmarks.Options,
	log event.Log) (benchmarks.Episode, error) {
	g, err := b.newEpisode(h, dt, o, nil)
	if err != nil {
		return nil, err
	}
	g.found = true
	err = g.Resume(ctx, h, log)
	if err == nil && g.Started() == nil {
		err = errors.New("the machine was not recorded")
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (b *Benchmark) open(ctx context.Context, h benchmarks.Host, dt datasets.Task, o benchmarks.Options,
	replay *verify.Replay) (*episode, error) {
	g, err := b.newEpisode(h, dt, o, replay)
	if err != nil {
		return nil, err
	}
	if _, err := g.Machine(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// newEpisode is an episode without a machine.
func (b *Benchmark) newEpisode(h benchmarks.Host, dt datasets.Task, o benchmarks.Options,
	replay *verify.Replay) (*episode, error) {
	t, err := decodeTask(dt)
	if err != nil {
		return nil, err
	}
	m, err := agentMachine(t, dt.Files, o)
	if err != nil {
		return nil, &benchmarks.TaskError{Task: dt.ID, Err: err}
	}
	g := &episode{task: t, o: o, named: b.o.Work, dirs: m.dirs, replay: replay}
	if g.tests, err = testFiles(dt.Files, t.TestScripts); err != nil {
		return nil, &benchmarks.TaskError{Task: dt.ID, Err: fmt.Errorf("reading the tests: %w", err)}
	}
	m.spec.Trace = replay != nil && replay.Trace != nil
	g.Host, g.Spec, g.Setup, g.Enter = h, &m.spec, g.prepare, g.watch
	g.Ready = func(ctx context.Context) error { return g.guard.Ready(ctx) }
	g.Stages = []benchmarks.Stage{{
		Goal: sandboxed.TextGoal(t.Instruction),
		Time: b.o.agentTime(t.AgentTime),
		// The tests run on this machine, and a service that the agent left may be what they ask
		// for.
		Leave: true,
	}}
	return g, nil
}

// prepare makes the folders that v1 mounts from the host, for everybody to write to, and asks where
// the image's commands begin.
func (e *episode) prepare(ctx context.Context, sb sandbox.Sandbox) error {
	if e.Spec.Dir == "" {
		dir, err := sandboxed.WorkingDir(ctx, sb)
		if err != nil {
			return err
		}
		e.Spec.Dir = dir
	}
	return sandboxed.MakeOpen(ctx, sb, e.dirs...)
}

// watch has the machine remember what the tests depend on.
func (e *episode) watch(ctx context.Context, _ int) error {
	setup := verify.Setup{Tests: e.tests, Work: verify.WorkPaths(e.named, e.Spec.Dir, e.task.Instruction),
		Mode: verify.ParseIntegrity(e.o.Integrity), Found: e.found}
	if e.replay != nil {
		setup.Replay, setup.Trace = true, e.replay.Trace
	}
	e.guard = verify.Watch(ctx, e.Started(), setup)
	return nil
}

// Work implements [benchmarks.WorkNamer].
func (b *Benchmark) Work(dt datasets.Task, o benchmarks.Options) ([]record.WorkPath, error) {
	t, err := decodeTask(dt)
	if err != nil {
		return nil, err
	}
	m, err := agentMachine(t, dt.Files, o)
	if err != nil {
		return nil, err
	}
	return verify.WorkPaths(b.o.Work, m.spec.Dir, t.Instruction), nil
}

// testFiles are what goes to /tests: the folder tests, and the scripts beside it by their last names.
func testFiles(files fs.FS, scripts []string) (*filetree.Tree, error) {
	t := filetree.New()
	if info, err := fs.Stat(files, "tests"); err == nil && info.IsDir() {
		if t, err = format.Scripts(files, "tests"); err != nil {
			return nil, err
		}
	}
	for _, name := range scripts {
		text, err := readText(files, name)
		if err != nil {
			return nil, err
		}
		t.Text(path.Base(name), unix(text), 0o755)
	}
	return t, nil
}

// evidence is what evidence says beside the answer.
type evidence struct {
	Where string       `json:"where,omitempty"` // the folder that the agent was in at its end
	Work  *verify.Work `json:"work,omitempty"`  // what a second opinion is played with
}

// Collect notes where the agent was, and keeps its work. What counts is the machine itself.
func (e *episode) Collect(ctx context.Context, ans agent.Answer) (ev benchmarks.Evidence, err error) {
	ev = benchmarks.Evidence{Stage: e.Index(), Answer: ans}
	var d evidence
	if e.task.SameShell {
		d.Where = e.WorkingDir()
	}
	found, err := e.guard.Collect(ctx, e.Host.Log())
	if err != nil {
		return ev, err
	}
	d.Work, ev.Files, ev.Changes, ev.Work = found.Work, found.Files, found.Changes, found.Origins
	ev.Data, err = json.Marshal(d)
	return ev, err
}
