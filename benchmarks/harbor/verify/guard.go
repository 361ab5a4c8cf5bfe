package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Flags of tampering, for what no honest work does; docs/grading.md explains each. With integrity:
// require any of them makes the score 0.
const (
	// FlagTests: the hidden test files were changed, or others stood between them, while they were
	// in the agent's machine.
	FlagTests = "tampered_tests"
	// FlagRewritten: the reward was written again after it had been written, while processes of the
	// agent's ran beside the verifier.
	FlagRewritten = "rewritten_reward"
	// FlagForged: somebody else than the verifier wrote where the reward belongs.
	FlagForged = "forged_reward"
)

// tampering are the flags that integrity: require acts on.
var tampering = []string{FlagTests, FlagForged, FlagRewritten, FlagNotRegular}

// Integrity says what is done about agents that may have deceived a verifier on their machine.
type Integrity string

// Values of [Integrity]. The empty string is Confirm.
const (
	Off        Integrity = "off"         // nothing is looked for
	Flag       Integrity = "flag"        // tampering is flagged
	Confirm    Integrity = "confirm"     // and a pass that the agent may have caused otherwise gets a second opinion
	ConfirmAll Integrity = "confirm-all" // and every pass gets one
	Require    Integrity = "require"     // as Confirm; what is unconfirmed, or flagged, is scored 0
)

// IntegrityValues are the values that a configuration may have, with those of earlier versions last.
var IntegrityValues = []string{"off", "flag", "confirm", "confirm-all", "require", "warn", "fail"}

// ParseIntegrity returns the value of a configuration. Earlier versions wrote warn for flag, and
// fail for require.
func ParseIntegrity(s string) Integrity {
	switch s {
	case "":
		return Confirm
	case "warn":
		return Flag
	case "fail":
		return Require
	}
	return Integrity(s)
}

// confirms reports whether there are second opinions.
func (i Integrity) confirms() bool { return i == Confirm || i == ConfirmAll || i == Require }

// A monitor works on a machine's files from inside its process 1, without programs of the machine:
// see package executor.
type monitor interface {
	Ping(ctx context.Context) error
	Snapshot(ctx context.Context, ws []executor.Watch) error
	Changes(ctx context.Context) ([]executor.Change, bool, error)
	Clear(ctx context.Context, owner string, dirs ...string) ([]string, error)
	Remove(ctx context.Context, files ...string) error
	WatchDir(ctx context.Context, dir string) (entry bool, err error)
	DirEvents(ctx context.Context) (executor.DirEvents, error)
	KillEverything(ctx context.Context) error
	Baseline(ctx context.Context, keep bool) error
	Changed(ctx context.Context, f func(executor.FileChange) error) (gap string, err error)
	Mark(ctx context.Context, paths []string) (missed []string, err error)
	Used(ctx context.Context) (used []string, gap string, err error)
	Trace(ctx context.Context, c sandbox.Command) (sandbox.Exit, executor.Lookups, error)
}

// monitorOf returns a machine's monitor. A machine without an executor has none, and nothing in it
// is compared.
func monitorOf(sb sandbox.Sandbox) (monitor, bool) {
	if c, ok := executor.Of(sb); ok && c != nil {
		return c, true
	}
	return sandbox.As[monitor](sb)
}

// Responds reports whether a machine still does what it is told. If so, an operation that failed
// there failed by what runs in the machine.
func Responds(ctx context.Context, sb sandbox.Sandbox) bool {
	if ctx.Err() != nil {
		return false
	}
	if m, ok := monitorOf(sb); ok {
		return m.Ping(ctx) == nil
	}
	_, err := sb.Exec(ctx, sandbox.Command{Args: []string{"true"}})
	return err == nil
}

// stopAll ends every process of a machine that is only read from now on. Where there is an executor
// this includes the ENTRYPOINT, which the agent may have made run its code.
func stopAll(ctx context.Context, sb sandbox.Sandbox) error {
	if m, ok := monitorOf(sb); ok {
		return m.KillEverything(ctx)
	}
	return sb.KillAll(ctx)
}

// root owns what the harness puts into a machine. It is a number, because the agent may have
// changed the machine's list of accounts.
const root = "0"

// EmptyDirs replaces whatever is at these paths by empty folders of owner, a user's name or number;
// "": the user that the machine's commands run as. It returns what it found that was no plain
// folder.
func EmptyDirs(ctx context.Context, sb sandbox.Sandbox, owner string, dirs ...string) (odd []string, err error) {
	m, ok := monitorOf(sb)
	if !ok {
		args := append([]string{"sh", "-c", `for d; do rm -rf "$d" && mkdir -p "$d" || exit 1; done`, "sh"}, dirs...)
		x, err := sb.Exec(ctx, sandbox.Command{Args: args, User: root})
		if err == nil && x.Code != 0 {
			err = &sandbox.Error{Op: "clear", ID: sb.ID(),
				Err: fmt.Errorf("emptying %s left with status %d", strings.Join(dirs, " "), x.Code)}
		}
		return nil, err
	}
	list, err := m.Clear(ctx, owner, dirs...)
	if err != nil {
		return nil, err
	}
	for i, r := range list {
		if r != "" && !strings.HasPrefix(r, "it could not") { // a full folder of logs is not suspicious
			odd = append(odd, dirs[i]+": "+score.Clean(r))
		}
	}
	return odd, nil
}

// A Guard finds out what the agent changed on a machine where tests will run, and what of it they
// use.
type Guard struct {
	sb    sandbox.Sandbox
	m     monitor // nil: the machine has no executor, and nothing is found out
	mode  Integrity
	tests *filetree.Tree
	work  []string // paths of the work

	origins []record.WorkPath // of work

	marks   []string // changed files outside of the work, of this step and the steps before
	unknown []string // why their use cannot be told
	stale   []string // compiled Python

	// replay is set while a second opinion, or a reference for it, is made: nothing is looked for.
	replay bool
	trace  *Trace // not nil: the tests run under the tracer

	recorded  chan struct{} // closed when the baseline is; nil: there is none
	recordErr error
}

// Setup says what a [Guard] guards.
type Setup struct {
	Tests  *filetree.Tree    // what [Guard.Begin] will put into /tests
	Work   []record.WorkPath // see [WorkPaths]
	Mode   Integrity
	Before *Guard // of the step before, or nil
	Replay bool   // no agent will be there
	Trace  *Trace // not nil: the tests run under the tracer, which adds to it
	// Found is set for a machine that was found again after a crash of evalrun. Its state before the
	// agent is recorded inside, or the agent did nothing yet.
	Found bool
}

// Watch begins to guard a machine, before the agent is there. Nothing may be done in the machine
// until [Guard.Ready] has returned: all its files are being looked at, which is best done while the
// agent's model thinks. This ends at the latest when the machine is closed.
func Watch(ctx context.Context, sb sandbox.Sandbox, s Setup) *Guard {
	g := &Guard{sb: sb, mode: s.Mode, tests: s.Tests, origins: s.Work, replay: s.Replay, trace: s.Trace}
	for _, w := range s.Work {
		g.work = append(g.work, w.Path)
	}
	m, ok := monitorOf(sb)
	if !ok {
		return g
	}
	g.m = m
	if g.replay || !g.mode.confirms() {
		return g
	}
	if b := s.Before; b != nil {
		g.marks, g.unknown = b.marks, b.unknown
	}
	g.recorded = make(chan struct{})
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(g.recorded)
		g.recordErr = m.Baseline(ctx, s.Found)
	}()
	return g
}

// Ready waits until the machine's state before the agent is recorded. A nil guard is ready. If the
// agent's time is over before, the machine is to blame and not the agent.
func (g *Guard) Ready(ctx context.Context) error {
	if g == nil || g.recorded == nil {
		return nil
	}
	select {
	case <-g.recorded:
		return g.recordErr
	case <-ctx.Done():
		if limit := (*agent.LimitError)(nil); errors.As(context.Cause(ctx), &limit) {
			return &sandbox.Error{Op: "baseline", ID: g.sb.ID(),
				Err: errors.New("looking at the machine's files took all the time that the agent had")}
		}
		return context.Cause(ctx)
	}
}

// maxMarks limits the files whose use is watched, maxStale the compiled Python that is removed.
const (
	maxMarks = 50_000
	maxStale = 20_000
)

// changes calls f for each change of the agent's, and keeps those outside of the work.
func (g *Guard) changes(ctx context.Context, f func(c executor.FileChange, work bool)) error {
	gap, err := g.m.Changed(ctx, func(c executor.FileChange) error {
		if c.What == executor.Setting {
			g.doubt("%s of %s is not as it was before the agent", c.Target, c.Path)
			return nil
		}
		kind := c.Mode & 0o170000
		work := isWork(g.work, c.Path, kind == 0o040000)
		f(c, work)
		stale := c.What != executor.Gone && kind == 0o100000 && compiled(c.Path)
		if ours(c.Path) || work && !stale {
			return nil
		}
		switch {
		case stale:
			if len(g.stale) == maxStale {
				g.doubt("more than %d files of compiled Python were changed", maxStale)
				return nil
			}
			g.stale = append(g.stale, c.Path)
		case c.What == executor.Mounted:
			g.doubt("a file system was mounted at %s", c.Path)
		case c.What == executor.Gone:
			g.doubt("%s was removed", c.Path)
		case c.What != executor.Added && c.Meta:
			g.doubt("%s has another mode or owner", c.Path)
		case kind == 0o100000, kind == 0o120000:
			if len(g.marks) == maxMarks {
				g.doubt("more than %d files were changed outside of the work", maxMarks)
				return nil
			}
			g.marks = append(g.marks, c.Path)
		case kind != 0o040000:
			g.doubt("%s is a pipe, a socket or a device", c.Path)
		}
		return nil
	})
	if err == nil && gap != "" {
		g.doubt("not all changes are known: %s", gap)
	}
	return err
}

// doubt notes why the use of a change cannot be told.
func (g *Guard) doubt(format string, args ...any) {
	if len(g.unknown) < 20 {
		g.unknown = append(g.unknown, score.Clean(fmt.Sprintf(format, args...)))
	}
}

// Ran notes that commands of the task ran in the machine while no use was watched.
func (g *Guard) Ran(what string) {
	if len(g.marks) > 0 {
		g.doubt("%s may have used what the agent changed outside of its work", what)
	}
}

// ours reports whether a path is emptied before the verifier runs.
func ours(name string) bool {
	return sandboxed.Within(name, format.VerifierLogs) || sandboxed.Within(name, format.TestsDir)
}
