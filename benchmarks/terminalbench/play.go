package terminalbench

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/benchmarks/harbor/verify"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An episode is a task that is played: one stage, in the machine that is then graded.
type episode struct {
	sandboxed.Base
	task  *Task
	o     benchmarks.Options
	dirs  []string
	tests *filetree.Tree // what goes to /tests
	guard *verify.Guard
}

// Open starts the machine with its sidecars, so that a fault of the task shows before the agent
// begins.
func (b *Benchmark) Open(ctx context.Context, h benchmarks.Host, dt datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	t, err := decodeTask(dt)
	if err != nil {
		return nil, err
	}
	m, err := agentMachine(t, dt.Files, o)
	if err != nil {
		return nil, &benchmarks.TaskError{Task: dt.ID, Err: err}
	}
	g := &episode{task: t, o: o, dirs: m.dirs}
	if g.tests, err = testFiles(dt.Files, t.TestScripts); err != nil {
		return nil, &benchmarks.TaskError{Task: dt.ID, Err: fmt.Errorf("reading the tests: %w", err)}
	}
	g.Host, g.Spec, g.Setup = h, &m.spec, g.ready
	g.Stages = []benchmarks.Stage{{
		Goal: sandboxed.TextGoal(t.Instruction),
		Time: b.o.agentTime(t.AgentTime),
		// The tests run on this machine, and a service that the agent left may be what they ask
		// for.
		Leave: true,
	}}
	if _, err := g.Machine(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// ready makes the folders that v1 mounts from the host, for everybody to write to, asks where the
// image's commands begin, and has the machine remember what the tests depend on.
func (e *episode) ready(ctx context.Context, sb sandbox.Sandbox) error {
	if e.Spec.Dir == "" {
		dir, err := sandboxed.WorkingDir(ctx, sb)
		if err != nil {
			return err
		}
		e.Spec.Dir = dir
	}
	if err := sandboxed.MakeOpen(ctx, sb, e.dirs...); err != nil {
		return err
	}
	var err error
	e.guard, err = verify.Watch(ctx, sb, e.Spec.Dir, e.tests)
	return err
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
	Where     string `json:"where,omitempty"` // the folder that the agent was in at its end
	Integrity string `json:"integrity,omitempty"`
}

// Collect notes where the agent was. What counts is the machine itself.
func (e *episode) Collect(_ context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	d := evidence{Integrity: e.o.Integrity}
	if e.task.SameShell {
		d.Where = e.WorkingDir()
	}
	raw, err := json.Marshal(d)
	return benchmarks.Evidence{Stage: e.Index(), Answer: ans, Data: raw}, err
}
