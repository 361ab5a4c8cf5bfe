package harbor

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Flags of tampering; docs/grading.md explains each. With integrity: fail any of them makes the
// score 0.
const (
	// FlagTests: the hidden test files were changed, or others stood between them, while they were
	// in the agent's machine.
	FlagTests = "tampered_tests"
	// FlagTools: programs, libraries or loader settings that the verifier uses are not those of the
	// image.
	FlagTools = "tampered_tools"
	// FlagPlanted: files lie where programs of the verifier load code or settings from by
	// themselves, and were not in the image.
	FlagPlanted = "planted"
	// FlagRewritten: the reward was written again after it had been written, while processes of the
	// agent's ran beside the verifier.
	FlagRewritten = "rewritten_reward"
	// FlagForged: somebody else than the verifier wrote where the reward belongs.
	FlagForged = "forged_reward"
)

// tampering are the flags that integrity: fail acts on.
var tampering = []string{FlagTests, FlagTools, FlagPlanted, FlagForged, FlagRewritten, FlagNotRegular}

// A minder looks after a machine's files from inside its process 1, with no program of the
// machine's own: see package executor.
type minder interface {
	Ping(ctx context.Context) error
	Mark(ctx context.Context, set string, add bool, ws []executor.Watch) ([]string, error)
	Changes(ctx context.Context, set string) ([]executor.Change, bool, error)
	Clear(ctx context.Context, owner string, dirs ...string) ([]string, error)
	Remove(ctx context.Context, files ...string) error
	Vigil(ctx context.Context, dir string) (entry bool, err error)
	VigilEnd(ctx context.Context) (executor.Vigil, error)
	KillEverything(ctx context.Context) error
	Links(ctx context.Context, root string, into ...string) ([]string, error)
}

// minderOf finds a machine's; machines without an executor have none, and then nothing is compared.
func minderOf(sb sandbox.Sandbox) (minder, bool) {
	if c, ok := executor.Of(sb); ok && c != nil {
		return c, true
	}
	return sandbox.As[minder](sb)
}

// EndAll ends everything in a machine that is only read from now on, ENTRYPOINT too where there is
// an executor: a process of it may carry code of the agent's, which is root like it.
func EndAll(ctx context.Context, sb sandbox.Sandbox) error {
	if m, ok := minderOf(sb); ok {
		return m.KillEverything(ctx)
	}
	return sb.KillAll(ctx)
}

// superuser owns what the harness puts into a machine, whatever its list of accounts says.
const superuser = "0"

// clearDirs makes folders new and empty, of owner ("": who the machine's commands run as), whatever
// is there, and returns what was not a plain folder.
func clearDirs(ctx context.Context, sb sandbox.Sandbox, owner string, dirs ...string) (remarks []string, err error) {
	m, ok := minderOf(sb)
	if !ok {
		args := append([]string{"sh", "-c", `for d; do rm -rf "$d" && mkdir -p "$d" || exit 1; done`, "sh"}, dirs...)
		x, err := sb.Exec(ctx, sandbox.Command{Args: args, User: superuser})
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
		if r != "" && !strings.HasPrefix(r, "it could not") { // much in a folder of logs is not suspicious
			remarks = append(remarks, dirs[i]+": "+clean(r))
		}
	}
	return remarks, nil
}

// The names under which the executor remembers.
const (
	beforeAgent = "agent"
	beforeTests = "tests"
)

// A guard compares what a shared verifier depends on with what it was before the agent began.
type guard struct {
	in   *inputs
	path []string // where programs are looked for
	dir  string   // working directory
}

// mark has the executor remember what the step's verifier depends on. A separate verifier depends
// on nothing here.
func (e *episode) mark(ctx context.Context, s *format.Step) error {
	e.guard = nil
	m, ok := minderOf(e.sb)
	if !ok || s.Verifier.Separate {
		return nil
	}
	in, err := readInputs(e.files, s.Verifier.Tests)
	if err != nil {
		return e.taskError("reading the tests: %w", err)
	}
	x := &guard{in: in, dir: e.dir}
	if x.path, err = m.Mark(ctx, beforeAgent, false, []executor.Watch{{Path: "$PATH", Depth: 1}}); err != nil {
		return err
	}
	if _, err := m.Mark(ctx, beforeAgent, true, x.watches()); err != nil {
		return err
	}
	e.guard = x
	return nil
}

// Where things lie that programs load by themselves, in any Linux machine.
var (
	watchedAlone = []string{
		"/lib", "/lib64", "/bin", "/sbin", // links of a merged /usr
		"/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.cache", "/etc/hosts", "/etc/resolv.conf",
		"/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone",
		"/etc/locale.conf", "/etc/default/locale", "/etc/environment", "/etc/profile", "/etc/bash.bashrc",
		"/etc/bashrc", "/etc/crontab", "/etc/gitconfig",
		"/etc/pip.conf", "/etc/npmrc", "/etc/curlrc", "/etc/wgetrc",
	}
	watchedFolders = []string{
		"/etc/alternatives", "/etc/ld.so.conf.d", "/etc/profile.d", "/etc/cron.d", "/etc/cron.hourly",
		"/etc/cron.daily", "/var/spool/cron/crontabs", "/var/spool/cron",
		"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/usr/local/lib", "/usr/lib", "/lib64", "/etc/python3*",
	}
	watchedTrees = []string{"/usr/lib/python3*", "/usr/local/lib/python3*", "/opt/*/lib/python3*"}
	// Below a home.
	homeFiles = []string{
		".bashrc", ".bash_profile", ".bash_login", ".profile", ".bash_logout", ".zshrc", ".zshenv", ".gitconfig",
		".config/git/config", ".pip/pip.conf",
		".config/pip/pip.conf", ".config/uv/uv.toml", ".curlrc", ".wgetrc", ".netrc", ".npmrc", ".pydistutils.cfg",
		".pytest.ini",
	}
	homes = []string{"/root", "/home/*"}
	// Beside tests, or above where they run.
	localFiles = []string{"conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml",
		"sitecustomize.py", "usercustomize.py"}
)

// watches are what is remembered beside $PATH.
func (x *guard) watches() (ws []executor.Watch) {
	packages := append(slices.Collect(maps.Keys(x.in.words)), machinery...)
	add := func(depth int, names ...string) {
		for _, n := range names {
			w := executor.Watch{Path: n, Depth: depth}
			if depth < 0 { // Python's
				w.Python, w.Packages = true, packages
			}
			ws = append(ws, w)
		}
	}
	add(0, watchedAlone...)
	add(1, watchedFolders...)
	if x.in.python {
		add(-1, watchedTrees...)
		for _, d := range x.path {
			if lib := path.Join(path.Dir(d), "lib"); path.Base(d) == "bin" && lib != "/usr/lib" && lib != "/lib" &&
				lib != "/usr/local/lib" {
				add(-1, lib+"/python3*")
			}
		}
	}
	for _, h := range homes {
		for _, f := range homeFiles {
			add(0, h+"/"+f)
		}
		if x.in.python {
			add(-1, h+"/.local/lib/python3*")
		}
	}
	for dir := x.dir; ; dir = path.Dir(dir) {
		for _, f := range localFiles {
			add(0, path.Join(dir, f))
		}
		if dir == "/" {
			break
		}
	}
	if x.in.words["git"] {
		add(0, path.Join(x.dir, ".git/config"))
		add(1, path.Join(x.dir, ".git/hooks"))
	}
	for _, p := range x.in.run {
		if rest, ok := strings.CutPrefix(p, "~/"); ok {
			add(0, "/root/"+rest, "/home/*/"+rest)
			continue
		}
		add(0, p)
	}
	return ws
}
