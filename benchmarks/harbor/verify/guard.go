package verify

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/score"
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

// A monitor works on a machine's files from inside its process 1, without programs of the machine:
// see package executor.
type monitor interface {
	Ping(ctx context.Context) error
	Snapshot(ctx context.Context, set string, add bool, ws []executor.Watch) ([]string, error)
	Changes(ctx context.Context, set string) ([]executor.Change, bool, error)
	Clear(ctx context.Context, owner string, dirs ...string) ([]string, error)
	Remove(ctx context.Context, files ...string) error
	WatchDir(ctx context.Context, dir string) (entry bool, err error)
	DirEvents(ctx context.Context) (executor.DirEvents, error)
	KillEverything(ctx context.Context) error
	Links(ctx context.Context, root string, into ...string) ([]string, error)
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

// Names of the sets of files that the executor remembers.
const (
	beforeAgent = "agent"
	beforeTests = "tests"
)

// A Guard remembers what tests on the agent's machine depend on, as it was before the agent began:
// programs, libraries, and files that programs load by themselves.
type Guard struct {
	sb    sandbox.Sandbox
	dir   string // working directory
	tests *filetree.Tree
	in    *inputs  // nil: the machine has no executor to remember anything
	path  []string // where programs are searched
}

// Watch begins to guard a machine. dir is where the tests will run, tests is what [Guard.Begin]
// will put into /tests.
func Watch(ctx context.Context, sb sandbox.Sandbox, dir string, tests *filetree.Tree) (*Guard, error) {
	g := &Guard{sb: sb, dir: dir, tests: tests}
	m, ok := monitorOf(sb)
	if !ok {
		return g, nil
	}
	in, err := readInputs(tests)
	if err != nil {
		return nil, fmt.Errorf("reading the tests: %w", err)
	}
	g.in = in
	if g.path, err = m.Snapshot(ctx, beforeAgent, false, []executor.Watch{{Path: "$PATH", Depth: 1}}); err != nil {
		return nil, err
	}
	_, err = m.Snapshot(ctx, beforeAgent, true, g.watches())
	return g, err
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
func (g *Guard) watches() (ws []executor.Watch) {
	packages := append(slices.Collect(maps.Keys(g.in.words)), pytestModules...)
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
	if g.in.python {
		add(-1, watchedTrees...)
		for _, d := range g.path {
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
		if g.in.python {
			add(-1, h+"/.local/lib/python3*")
		}
	}
	for dir := g.dir; ; dir = path.Dir(dir) {
		for _, f := range localFiles {
			add(0, path.Join(dir, f))
		}
		if dir == "/" {
			break
		}
	}
	if g.in.words["git"] {
		add(0, path.Join(g.dir, ".git/config"))
		add(1, path.Join(g.dir, ".git/hooks"))
	}
	for _, p := range g.in.run {
		if rest, ok := strings.CutPrefix(p, "~/"); ok {
			add(0, "/root/"+rest, "/home/*/"+rest)
			continue
		}
		add(0, p)
	}
	return ws
}
