package harbor

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/internal/fsutil"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Shared verification is the care that grading on the agent's own machine takes, for formats that
// have their rewards elsewhere than Harbor's:
//
//	Watch   before the agent begins: what the tests depend on is remembered
//	Begin   after the agent: it is compared, /tests made new, the tests put there
//	End     after the tests have run: what became of them
//	Apply   what was found goes into the result
type Shared struct {
	sb    sandbox.Sandbox
	tests *filetree.Tree
	guard *guard // nil: the machine has no executor to remember anything
	v     verification
}

// Tests is what goes to /tests: what lies in a folder of a task, and beside it single files of the
// task, by their last name. Shell scripts can be executed and have line ends that shells
// understand.
func Tests(files fs.FS, folder string, beside ...string) (fs.FS, error) {
	t := filetree.New()
	if info, err := fs.Stat(files, folder); err == nil && info.IsDir() {
		if t, err = format.Scripts(files, folder); err != nil {
			return nil, err
		}
	}
	for _, name := range beside {
		text, err := fsutil.ReadIn(files, name, 4<<20)
		if err != nil {
			return nil, err
		}
		base := name[strings.LastIndexByte(name, '/')+1:]
		t.Text(base, bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), 0o755)
	}
	return t, nil
}

// Watch has the machine remember what tests (of [Tests]) depend on. dir is where they will run.
func Watch(ctx context.Context, sb sandbox.Sandbox, dir string, tests fs.FS) (*Shared, error) {
	t, ok := tests.(*filetree.Tree)
	if !ok {
		return nil, errors.New("harbor: these tests are not from harbor.Tests")
	}
	s := &Shared{sb: sb, tests: t, v: verification{sb: sb, dir: dir, last: true}}
	m, ok := minderOf(sb)
	if !ok {
		return s, nil
	}
	in, err := readInputs(t, []string{"."})
	if err != nil {
		return nil, err
	}
	x := &guard{in: in, dir: dir}
	if x.path, err = m.Mark(ctx, beforeAgent, false, []executor.Watch{{Path: "$PATH", Depth: 1}}); err != nil {
		return nil, err
	}
	if _, err := m.Mark(ctx, beforeAgent, true, x.watches()); err != nil {
		return nil, err
	}
	s.guard = x
	return s, nil
}

// Begin readies the machine for the tests. refused is why a machine that still answers does not let
// itself be readied: no reward.
func (s *Shared) Begin(ctx context.Context) (refused string, err error) {
	err = s.begin(ctx)
	if err == nil || errors.As(err, new(*sandbox.Unsupported)) || errors.As(err, new(*benchmarks.TaskError)) ||
		!answers(ctx, s.sb) {
		return "", err
	}
	return "the machine that the agent left does not let itself be verified: " + clean(err.Error()), nil
}

func (s *Shared) begin(ctx context.Context) error {
	if s.guard != nil {
		if err := s.guard.compare(ctx, s.sb, &s.v.found); err != nil {
			return err
		}
	}
	if st, ok := sandbox.As[sandbox.Stater](s.sb); ok {
		stats, err := st.Stats(ctx)
		if err != nil {
			return err
		}
		s.v.left = stats.Pids != nil && *stats.Pids > 0
	}
	odd, err := clearDirs(ctx, s.sb, superuser, format.TestsDir)
	if err != nil {
		return err
	}
	for _, o := range odd {
		s.v.found.add(FlagTests, o)
	}
	if err := s.sb.Put(ctx, format.TestsDir, s.tests); err != nil {
		return err
	}
	if m, ok := minderOf(s.sb); ok {
		if _, err := m.Mark(ctx, beforeTests, false, []executor.Watch{{Path: format.TestsDir, Depth: -1}}); err != nil {
			return err
		}
	}
	return s.v.strangers(ctx, s.tests)
}

// End looks at what became of the tests while they ran.
func (s *Shared) End(ctx context.Context) error { return s.v.after(ctx) }

// Remark keeps the tests' output and how they ended in the log.
func (s *Shared) Remark(ctx context.Context, log event.Log, text string, x sandbox.Exit, out []byte) error {
	blob, err := keepText(ctx, log, bytes.NewReader(out), len(out))
	if err != nil {
		return err
	}
	return remark(ctx, log, "verifier", text, verified{x.Code, x.TimedOut, blob, s.v.found.notes, s.v.left})
}

// Apply writes what was found into a result. more are flags of tampering of the format's own that
// it has already; with fail any makes the score 0.
func (s *Shared) Apply(res benchmarks.Result, fail bool, more ...string) benchmarks.Result {
	for _, f := range more {
		if slices.Contains(res.Flags, f) {
			s.v.found.add(f, "seen in what the tests printed")
		}
	}
	return s.v.found.applied(res, fail, append(slices.Clone(tampering), more...))
}

// WorkingDir asks a machine where its commands begin.
func WorkingDir(ctx context.Context, sb sandbox.Sandbox) (string, error) { return workingDir(ctx, sb) }

// MakeOpen makes folders that everybody may write to.
func MakeOpen(ctx context.Context, sb sandbox.Sandbox, dirs ...string) error {
	return open777(ctx, sb, dirs...)
}
