package harbor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/verify"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/workspace"
)

// maxSetupTime bounds a step's setup.sh.
const maxSetupTime = 5 * time.Minute

// An episode is a task that is played: one main machine for all its steps, with its services.
//
//	Open:    start → files of a bare image → health check
//	Next:    baseline network → workdir, setup.sh, health check of the step → the agent's network;
//	         what grading will compare is recorded while the agent's model thinks
//	Collect: baseline network → main's hooks → main's artifacts → (separate: main's processes end)
//	         → sidecars' hooks and artifacts
//	Grade:   the verifier's network → see package verify
type episode struct {
	b     *Benchmark
	h     benchmarks.Host
	o     benchmarks.Options
	task  *format.Task
	id    string
	files fs.FS
	get   format.Lookup
	main  *machine
	mcp   []agent.MCPServer // templates filled in
	guard *verify.Guard     // of a step whose verifier shares the machine
	// replay is set when a second opinion is played instead of an agent.
	replay *verify.Replay

	next   int // index of the next step
	broken string

	mu     sync.Mutex
	sb     sandbox.Sandbox
	dir    string
	policy sandbox.Network // in force
	space  *workspace.Workspace
	closed bool
}

// Open starts the machine and readies it. What fails here is the task's or ours: no agent was there
// yet.
func (b *Benchmark) Open(ctx context.Context, h benchmarks.Host, t datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	e, err := b.open(ctx, h, t, o, nil)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (b *Benchmark) open(ctx context.Context, h benchmarks.Host, t datasets.Task, o benchmarks.Options,
	replay *verify.Replay) (*episode, error) {
	g, err := b.newEpisode(h, t, o)
	if err != nil {
		return nil, err
	}
	g.replay = replay
	if g.main, err = b.agentMachine(g.task, t.Files, o, g.get); err != nil {
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	if g.mcp, err = format.ResolveServers(g.task.Environment.MCP, g.get); err != nil {
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	g.main.Spec.Trace = replay != nil && replay.Trace != nil
	g.policy = g.main.Spec.Network
	if g.sb, err = h.Sandbox(ctx, g.main.Spec); err != nil {
		return nil, unhealthy(ctx, t.ID, "the agent's machine", err)
	}
	if g.dir, err = b.prepare(ctx, g.sb, g.main, t, "environment.healthcheck"); err != nil {
		g.sb.Close()
		return nil, err
	}
	return g, nil
}

// newEpisode is an episode of t without a machine.
func (b *Benchmark) newEpisode(h benchmarks.Host, t datasets.Task, o benchmarks.Options) (*episode, error) {
	task, err := decode(t)
	if err != nil {
		return nil, err
	}
	return &episode{b: b, h: h, o: o, task: task, id: t.ID, files: t.Files, get: b.variables(h)}, nil
}

func (e *episode) taskError(format string, args ...any) error {
	return &benchmarks.TaskError{Task: e.id, Err: fmt.Errorf(format, args...)}
}

// prepare readies a machine that was just started, and returns its working directory. check names
// its health check in errors.
func (b *Benchmark) prepare(ctx context.Context, sb sandbox.Sandbox, m *machine, t datasets.Task,
	check string) (dir string, err error) {
	if dir = m.Spec.Dir; dir == "" {
		if dir, err = sandboxed.WorkingDir(ctx, sb); err != nil {
			return "", err
		}
	}
	if err := sandboxed.MakeOpen(ctx, sb, m.Dirs...); err != nil {
		return "", err
	}
	if err := upload(ctx, sb, m, t.Files, dir); err != nil {
		return "", err
	}
	return dir, b.waitHealthy(ctx, sb, t.ID, check, m.Env.Health)
}

// upload puts the files of an environment that nothing builds in into the working directory.
func upload(ctx context.Context, sb sandbox.Sandbox, m *machine, files fs.FS, dir string) error {
	src, err := m.uploads(files)
	if err != nil || src == nil {
		return err
	}
	t := filetree.New()
	if err := t.Overlay(src, "."); err != nil {
		return err
	}
	return sb.Put(ctx, dir, t)
}

// An unhealthyError says that a health check never succeeded.
type unhealthyError struct {
	check string // "environment.healthcheck"
	err   error
}

func (e *unhealthyError) Error() string {
	return e.check + ": HealthcheckError: " + sandboxed.Cause(e.err).Error()
}
func (e *unhealthyError) Unwrap() error { return e.err }

// waitHealthy waits for a health check of task.toml. If it never succeeds, the error is as of
// [unhealthy].
func (b *Benchmark) waitHealthy(ctx context.Context, sb sandbox.Sandbox, task, check string, h *sandbox.Health) error {
	if h == nil {
		return nil
	}
	return unhealthy(ctx, task, check, executor.WaitHealthy(ctx, sb, *b.o.times().Health(h), nil))
}

// unhealthy returns err, the error of starting a machine or of waiting for it. If a health check
// never succeeded, it is the task's fault, an [unhealthyError] that names the check.
func unhealthy(ctx context.Context, task, check string, err error) error {
	if ctx.Err() != nil || !errors.As(err, new(*executor.Unhealthy)) {
		return err
	}
	return &benchmarks.TaskError{Task: task, Err: &unhealthyError{check, err}}
}

// Next readies the next step. A step that cannot be readied is the task's fault when it is the
// first; later the agent may have done it.
func (e *episode) Next(ctx context.Context, prev *benchmarks.Result) (*benchmarks.Stage, error) {
	i := e.next
	if i >= len(e.task.Steps) || i > 0 && prev != nil && !reached(e.task.Steps[i-1].MinReward, *prev) {
		return nil, io.EOF
	}
	e.next++
	s := &e.task.Steps[i]
	if err := e.setNetwork(ctx, e.b.policies(e.task, i, e.o).Start); err != nil {
		return nil, err
	}
	why, err := e.setup(ctx, s, i)
	if err != nil {
		return nil, err
	}
	if why != "" && i == 0 {
		return nil, e.taskError("%s", why)
	}
	e.broken = why
	stage := &benchmarks.Stage{
		Name: s.Name, Goal: e.goal(s), Kinds: e.workspace().Kinds(), ToolSets: workspace.ToolSets(),
		Time:  e.b.o.times().Agent(s.Timeout),
		Leave: keepsProcesses(s), Last: i == len(e.task.Steps)-1, Broken: why,
	}
	if len(e.mcp) > 0 {
		stage.Servers = func(ctx context.Context) ([]agent.Tool, []string, error) {
			return e.workspace().ServerTools(ctx)
		}
	}
	if why != "" {
		return stage, nil
	}
	if !s.Verifier.Separate {
		tests, err := format.Scripts(e.files, s.Verifier.Tests...)
		if err != nil {
			return nil, e.taskError("reading the tests: %w", err)
		}
		e.guard = verify.Watch(ctx, e.sb, e.setupOf(s, tests))
	}
	return stage, e.setNetwork(ctx, e.b.policies(e.task, i, e.o).Agent)
}

// setupOf returns what the guard of a step's shared verifier needs to know.
func (e *episode) setupOf(s *format.Step, tests *filetree.Tree) verify.Setup {
	o := verify.Setup{Tests: tests, Work: e.b.workOf(s, e.dir), Mode: e.b.integrity(e.o), Before: e.guard}
	if e.replay != nil {
		o.Replay, o.Trace = true, e.replay.Trace
	}
	if s.Setup && e.guard != nil {
		e.guard.Ran("setup.sh of step " + s.Name)
	}
	return o
}

// workOf returns the paths of a step's work; dir is the working directory, "" if it is not known.
func (b *Benchmark) workOf(s *format.Step, dir string) []record.WorkPath {
	artifacts := []string{format.ArtifactsDir}
	for _, a := range s.Artifacts {
		if a.Service == "" || a.Service == format.MainService {
			artifacts = append(artifacts, a.Source)
		}
	}
	return verify.WorkPaths(b.o.Work, dir, s.Instruction, artifacts...)
}

// Work implements [benchmarks.WorkNamer]. Where the verifier has a machine of its own, nothing has to
// be told from the work.
func (b *Benchmark) Work(dt datasets.Task, o benchmarks.Options) ([]record.WorkPath, error) {
	t, err := decode(dt)
	if err != nil {
		return nil, err
	}
	m, err := b.agentMachine(t, dt.Files, o, b.allowedVariables())
	if err != nil {
		return nil, err
	}
	var out []record.WorkPath
	for i := range t.Steps {
		if !t.Steps[i].Verifier.Separate {
			out = append(out, b.workOf(&t.Steps[i], m.Spec.Dir)...)
		}
	}
	slices.SortStableFunc(out, func(a, b record.WorkPath) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(out, func(a, b record.WorkPath) bool { return a.Path == b.Path }), nil
}

// keepsProcesses reports whether processes outlive the agent's turn: a service may be the answer,
// for a verifier on the same machine or for a hook in it.
func keepsProcesses(s *format.Step) bool {
	return !s.Verifier.Separate || slices.ContainsFunc(s.Verifier.Collect,
		func(h format.Hook) bool { return h.Service == "" || h.Service == format.MainService })
}

// reached reports whether a step's result has at least the minimal rewards that the next step asks
// for.
func reached(minReward map[string]float64, r benchmarks.Result) bool {
	if slices.Contains(r.Flags, benchmarks.FlagNoReward) {
		return false
	}
	for key, least := range minReward {
		ok := false
		for _, sc := range r.Scores {
			ok = ok || sc.Name == key && sc.Value != nil && *sc.Value >= least
		}
		if !ok {
			return false
		}
	}
	return true
}

func (e *episode) goal(s *format.Step) agent.Goal {
	goal := sandboxed.TextGoal(s.Instruction)
	if d := e.task.Environment.SkillsDir; d != "" {
		goal.Skills = []string{d}
	}
	goal.MCP = e.mcp
	return goal
}

// setup readies the machine for a step. why says what the machine would not do.
func (e *episode) setup(ctx context.Context, s *format.Step, i int) (why string, err error) {
	if i > 0 {
		if _, err := verify.EmptyDirs(ctx, e.sb, "0", format.AgentLogs); err != nil {
			return e.agentsDoing(ctx, "emptying /logs/agent", err)
		}
		if err := sandboxed.MakeOpen(ctx, e.sb, format.AgentLogs); err != nil {
			return e.agentsDoing(ctx, "making /logs/agent", err)
		}
	}
	if s.User != "" {
		_, err := e.sb.Exec(ctx, sandbox.Command{Args: []string{"true"}, User: s.User})
		if sb := (*sandbox.Error)(nil); i == 0 && errors.As(err, &sb) && sb.Inside {
			return "", e.taskError("agent.user: %w", err)
		}
		if err != nil {
			return e.agentsDoing(ctx, "running a command as "+s.User, err)
		}
	}
	if s.Workdir != "" {
		files, err := format.Scripts(e.files, s.Workdir)
		if err != nil {
			return "", e.taskError("reading %s: %w", s.Workdir, err)
		}
		if err := e.sb.Put(ctx, e.dir, files); err != nil {
			return e.agentsDoing(ctx, "uploading "+s.Workdir, err)
		}
	}
	if s.Setup {
		limit := e.b.o.times().Setup(maxSetupTime)
		args, err := format.ScriptCommand(e.files, path.Join(s.Workdir, "setup.sh"), path.Join(e.dir, "setup.sh"))
		if err != nil {
			return "", e.taskError("%w", err)
		}
		var out sandboxed.Tail
		x, err := e.sb.Exec(ctx, sandbox.Command{Args: args, Dir: e.dir, User: s.User, Stdout: &out, Limit: 64 << 10,
			FullLimit: -1, Timeout: limit})
		if err != nil {
			return e.agentsDoing(ctx, "running setup.sh", err)
		}
		if x.Code != 0 || x.TimedOut {
			return fmt.Sprintf("setup.sh of step %s %s: %s", s.Name, x.How(limit), out.String()), nil
		}
	}
	if !e.task.Multi {
		return "", nil
	}
	err = e.b.waitHealthy(ctx, e.sb, e.id, fmt.Sprintf("healthcheck of step %s", s.Name), s.Health)
	if u := (*unhealthyError)(nil); i > 0 && errors.As(err, &u) { // the agent may have caused it
		return u.Error(), nil
	}
	return "", err
}

// agentsDoing returns a failed operation as a reason if the machine still responds after the first
// step, because the agent has caused it then. Other errors are infrastructure failures.
func (e *episode) agentsDoing(ctx context.Context, what string, err error) (string, error) {
	if e.next > 1 && verify.Responds(ctx, e.sb) {
		return fmt.Sprintf("%s: %v", what, sandboxed.Cause(err)), nil
	}
	return "", err
}

// setNetwork puts a network policy in force.
func (e *episode) setNetwork(ctx context.Context, n sandbox.Network) error {
	err := setNetwork(ctx, e.sb, e.policy, n, "another network policy for a phase of the task")
	if err == nil {
		e.policy = n
	}
	return err
}

// setNetwork changes a machine's policy, unless the new one is the same. what says, for a driver
// that cannot, what it cannot do.
func setNetwork(ctx context.Context, sb sandbox.Sandbox, old, new sandbox.Network, what string) error {
	if samePolicy(old, new) {
		return nil
	}
	r, ok := sandbox.As[sandbox.Rewirer](sb)
	if !ok {
		return &sandbox.Unsupported{Driver: "of this run", What: what}
	}
	return r.Rewire(ctx, new)
}

func samePolicy(a, b sandbox.Network) bool {
	if a.None() || b.None() {
		return a.None() && b.None()
	}
	return a.Mode == b.Mode && slices.Equal(a.Allow, b.Allow)
}

// Step executes an action as the step's user.
func (e *episode) Step(ctx context.Context, a event.Event) (benchmarks.Turn, error) {
	obs, err := e.workspace().Step(ctx, a)
	return benchmarks.Turn{Obs: obs}, err
}

func (e *episode) workspace() *workspace.Workspace {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.space == nil {
		e.space = workspace.New(e.Machine, workspace.Options{Dir: e.dir, Servers: e.mcp,
			Keep: func(ctx context.Context, kind string, data []byte) (event.Blob, error) {
				return e.h.Log().PutBlob(ctx, kind, bytes.NewReader(data))
			}})
	}
	return e.space
}

// current is the step that is being played.
func (e *episode) current() *format.Step { return &e.task.Steps[max(e.next-1, 0)] }

// Machine is the agent's view of the machine: commands that name no user run as the step's. The
// agent gets it once its state is recorded.
func (e *episode) Machine(ctx context.Context) (sandbox.Sandbox, error) {
	if err := e.guard.Ready(ctx); err != nil {
		return nil, err
	}
	return e.Started(), nil
}

// Started is the same, for the harness.
func (e *episode) Started() sandbox.Sandbox {
	if u := e.current().User; u != "" {
		return &asUser{e.sb, u}
	}
	return e.sb
}

// Dir is the working directory.
func (e *episode) Dir() string { return e.dir }

// asUser is a machine whose commands, shells and file operations run as a user, unless they name
// another.
type asUser struct {
	sandbox.Sandbox
	user string
}

func (a *asUser) Unwrap() sandbox.Sandbox { return a.Sandbox }
func (a *asUser) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	if c.User == "" {
		c.User = a.user
	}
	return a.Sandbox.Exec(ctx, c)
}

func (a *asUser) Shell(ctx context.Context, c sandbox.ShellCall) (sandbox.ShellResult, error) {
	sh, ok := sandbox.As[sandbox.Sheller](a.Sandbox)
	if !ok {
		return sandbox.ShellResult{}, &sandbox.Unsupported{What: "a persistent shell"}
	}
	if c.User == "" {
		c.User = a.user
	}
	return sh.Shell(ctx, c)
}

func (a *asUser) FileOp(ctx context.Context, op sandbox.FileOp) (sandbox.FileResult, error) {
	f, ok := sandbox.As[sandbox.Filer](a.Sandbox)
	if !ok {
		return sandbox.FileResult{}, &sandbox.Unsupported{What: "file operations"}
	}
	if op.User == "" {
		op.User = a.user
	}
	return f.FileOp(ctx, op)
}

// LeaveShells ends the agent's shells.
func (e *episode) LeaveShells(ctx context.Context) error { return e.workspace().LeaveShells(ctx) }

// Close ends the machine with its services.
func (e *episode) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	if err := e.sb.Close(); err != nil {
		return fmt.Errorf("closing the agent's machine: %w", err)
	}
	return nil
}
