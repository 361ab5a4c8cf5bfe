// Package tracetest tests the tracing of commands with any driver: see [executor.Client.Trace].
package tracetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Suite is what the tests need to know.
type Suite struct {
	// Create makes a sandbox whose commands can be traced. It has python3 and git.
	Create func(t testing.TB) sandbox.Sandbox
	Setuid bool // it allows setuid programs
	Users  bool // commands can run as several users
}

const patience = 5 * time.Minute

type tester struct {
	testing.TB
	sb sandbox.Sandbox
	c  *executor.Client
}

func (s Suite) open(t testing.TB) *tester {
	t.Helper()
	sb := s.Create(t)
	c, ok := executor.Of(sb)
	if !ok {
		t.Fatal("a sandbox without an executor")
	}
	return &tester{t, sb, c}
}

func (t *tester) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// plain runs a command without a tracer.
func (t *tester) plain(cmd sandbox.Command) (string, sandbox.Exit) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout = &out
	x, err := t.sb.Exec(t.ctx(), cmd)
	if err != nil {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	return out.String(), x
}

// trace runs a command with a tracer, which has to be complete.
func (t *tester) trace(cmd sandbox.Command) (string, sandbox.Exit, executor.Lookups) {
	t.Helper()
	out, x, l := t.tracePart(cmd)
	if !l.Complete || l.Why != "" {
		t.Errorf("%q: not complete: %s", cmd.Args, l.Why)
	}
	return out, x, l
}

func (t *tester) tracePart(cmd sandbox.Command) (string, sandbox.Exit, executor.Lookups) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout = &out
	x, l, err := t.c.Trace(t.ctx(), cmd)
	if err != nil {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	for what, names := range map[string][]string{"found": l.Found, "missing": l.Missing, "listed": l.Listed,
		"executed": l.Executed, "picked": l.Picked} {
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("%q: %s is not a sorted set: %q", cmd.Args, what, names)
		}
		for _, n := range names {
			for _, dir := range []string{"/proc/", "/sys/", "/dev/"} {
				if strings.HasPrefix(n, dir) {
					t.Errorf("%q: %s has %s", cmd.Args, what, n)
				}
			}
		}
	}
	return out.String(), x, l
}

func sh(script string, args ...string) sandbox.Command {
	return sandbox.Command{Args: append([]string{"/bin/sh", "-ec", script, "sh"}, args...)}
}

func python(script string) sandbox.Command {
	return sandbox.Command{Args: []string{"python3", "-c", script}}
}

// have checks that names are in a list, and lack that they are not.
func (t *tester) have(what string, list []string, names ...string) {
	t.Helper()
	for _, n := range names {
		if !slices.Contains(list, n) {
			t.Errorf("%s lacks %s: %q", what, n, list)
		}
	}
}

func (t *tester) lack(what string, list []string, names ...string) {
	t.Helper()
	for _, n := range names {
		if slices.Contains(list, n) {
			t.Errorf("%s has %s", what, n)
		}
	}
}

// Run runs the tests.
func (s Suite) Run(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(*tester)
	}{
		{"path", path}, {"interpreters", interpreters}, {"python", pythonImports}, {"picked", picked}, {"git", git},
		{"directories", directories}, {"links", links}, {"made", made}, {"root", root}, {"processes", processes},
		{"daemon", daemon}, {"same", s.same}, {"stop", stop}, {"signal", signal}, {"users", s.users},
		{"setuid", s.setuid}, {"timeout", timeout}, {"not complete", notComplete}, {"socket", socket},
		{"many", many}, {"end", end},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(s.open(t)) })
	}
}

// A shell looks for a program in several directories.
func path(t *tester) {
	t.plain(sh(`mkdir -p /tmp/p1 /tmp/p2; printf '#!/bin/sh\necho here\n' >/tmp/p2/prog; chmod 755 /tmp/p2/prog`))
	out, x, l := t.trace(sh(`PATH=/tmp/none:/tmp/p1:/tmp/p2:/tmp/p3:$PATH; prog; cat /tmp/p1`))
	if x.Code != 1 || !strings.HasPrefix(out, "here\n") {
		t.Errorf("%+v, %s", x, out)
	}
	t.have("missing", l.Missing, "/tmp/none/prog", "/tmp/p1/prog", "/etc/ld.so.preload")
	t.have("found", l.Found, "/tmp/p1", "/tmp/p2/prog", "/bin/sh", "/etc/ld.so.cache")
	t.have("executed", l.Executed, "/tmp/p2/prog", "/bin/sh")
	t.lack("found", l.Found, "/tmp/none/prog", "/tmp/p1/prog")
	t.lack("missing", l.Missing, "/tmp/p2/prog", "/tmp/p3/prog", "/bin/sh")
	if !slices.ContainsFunc(l.Found, func(n string) bool { return strings.Contains(n, "/libc.so") }) {
		t.Errorf("no C library: %q", l.Found)
	}
	// The executor itself looks for the program of a command.
	_, x, l = t.trace(sandbox.Command{Args: []string{"prog"}, Env: map[string]string{"PATH": "/tmp/p1:/tmp/p2"}})
	if x.Code != 0 {
		t.Errorf("%+v", x)
	}
	t.have("missing", l.Missing, "/tmp/p1/prog")
	t.have("executed", l.Executed, "/tmp/p2/prog")
}

// The kernel itself opens the interpreter of a script, and the loader of shared libraries.
func interpreters(t *tester) {
	t.plain(sh(`cd /tmp; printf '#!/tmp/two -x\n' >one; printf '#! /bin/sh\nexit 3\n' >two
printf '#!/tmp/three\n' >lost; chmod 755 one two lost`))
	_, x, l := t.trace(sh(`cd /tmp; ./one || echo $? ; ./lost || exit 7`))
	if x.Code != 7 {
		t.Errorf("%+v", x)
	}
	t.have("executed", l.Executed, "/tmp/one", "/tmp/two", "/bin/sh")
	t.have("missing", l.Missing, "/tmp/three")
	t.have("found", l.Found, "/tmp/lost")
	t.lack("missing", l.Missing, "/tmp/lost")
	t.lack("executed", l.Executed, "/tmp/lost")
	if !slices.ContainsFunc(l.Executed, func(n string) bool { return strings.Contains(n, "/ld-linux") }) {
		t.Errorf("no loader: %q", l.Executed)
	}
}

// Python lists the directories in which it looks for modules, and looks up what it found there. It
// only looks up names in vain in a package's directory, and where a directory has none.
func pythonImports(t *tester) {
	out, _, l := t.trace(sh(`mkdir -p /tmp/py/pkg; cd /tmp/py; touch pkg/__init__.py; echo 'print(1)' >pkg/mod.py
python3 -c 'import pkg.mod, json
try: import absent
except ImportError: print(2)'`))
	if out != "1\n2\n" {
		t.Errorf("%s", out)
	}
	t.have("listed", l.Listed, "/tmp/py", "/tmp/py/pkg")
	t.have("found", l.Found, "/tmp/py", "/tmp/py/pkg", "/tmp/py/pkg/__init__.py", "/tmp/py/pkg/mod.py")
	t.have("missing", l.Missing, "/tmp/py/pkg/__init__.so")
	t.lack("missing", l.Missing, "/tmp/py/absent.py", "/tmp/py/json.py", "/tmp/py/json")
	t.have("picked", l.Picked, "/tmp/py/pkg")
	t.lack("picked", l.Picked, "/tmp/py/pkg/mod.py", "/tmp/py/pkg/__init__.py")
}

// What a process picks from the directories that it lists: packages with one file and with several, a
// directory to search in within another one, and links.
func picked(t *tester) {
	out, _, l := t.trace(sh(`mkdir -p /tmp/k/lib/one /tmp/k/lib/many/sub /tmp/k/lib/more; cd /tmp/k
touch lib/one/__init__.py lib/many/__init__.py lib/many/part.py lib/many/sub/__init__.py lib/many/sub/deep.py \
	lib/single.py lib/more/late.py lib/unused.py
ln -s lib link
PYTHONPATH=/tmp/k/link:/tmp/k/link/more python3 -c 'import one, many.part, many.sub.deep, single, late'
PYTHONPATH=/tmp/k/link python3 -c 'import single'
cat lib/unused.py; ls /tmp/k/lib`))
	if !strings.Contains(out, "unused.py") {
		t.Errorf("%s", out)
	}
	t.have("picked", l.Picked, "/tmp/k/lib/one", "/tmp/k/lib/many", "/tmp/k/lib/single.py", "/tmp/k/lib/more/late.py")
	t.lack("picked", l.Picked, "/tmp/k/lib/one/__init__.py", "/tmp/k/lib/many/part.py", "/tmp/k/lib/many/sub",
		"/tmp/k/lib/many/sub/deep.py", "/tmp/k/lib/unused.py")
}

func git(t *tester) {
	_, x, l := t.trace(sandbox.Command{Args: []string{"git", "config", "--list"},
		Env: map[string]string{"HOME": "/tmp/home"}, Dir: "/tmp"})
	if x.Code != 0 && x.Code != 1 && x.Code != 128 {
		t.Errorf("%+v", x)
	}
	t.have("missing", l.Missing, "/tmp/home/.gitconfig", "/tmp/home/.config/git/config", "/tmp/.git")
}

func directories(t *tester) {
	_, _, l := t.trace(sh(`mkdir -p /tmp/d/e/f; echo x >/tmp/d/e/file; cd /tmp/d; cd e; cat file; cat ../no || :; ls f; (cd ./f/..; cat no2) || :`))
	t.have("found", l.Found, "/tmp/d", "/tmp/d/e", "/tmp/d/e/file", "/tmp/d/e/f")
	t.have("missing", l.Missing, "/tmp/d/no", "/tmp/d/e/no2")
	t.have("listed", l.Listed, "/tmp/d/e/f")
	t.lack("listed", l.Listed, "/tmp/d", "/tmp/d/e")

	_, x, l := t.trace(python(`
import os, ctypes
d = os.open("/tmp/d", os.O_RDONLY)
os.close(os.open("e/file", os.O_RDONLY, dir_fd=d))
os.stat("e", dir_fd=d)
for name in ("e/one", "e/file/two", "three/four"):
    try: os.stat(name, dir_fd=d)
    except (FileNotFoundError, NotADirectoryError): pass
os.chdir(d)
try: os.readlink("five")
except FileNotFoundError: pass
try: open("e", "w")
except IsADirectoryError: pass
try: os.listdir("/tmp/d/e/file")
except NotADirectoryError: pass
os.mkdir("gone"); os.chdir("gone"); os.rmdir("/tmp/d/gone")
try: open("six")
except FileNotFoundError: pass
`))
	if x.Code != 0 {
		t.Errorf("%+v", x)
	}
	t.have("found", l.Found, "/tmp/d", "/tmp/d/e", "/tmp/d/e/file", "/tmp/d/gone")
	t.have("missing", l.Missing, "/tmp/d/e/one", "/tmp/d/e/file/two", "/tmp/d/three/four", "/tmp/d/five")
	t.lack("missing", l.Missing, "/tmp/d/e", "/tmp/d/e/file")
	if all := fmt.Sprint(l.Found, l.Missing); strings.Contains(all, "six") || strings.Contains(all, "deleted") {
		t.Errorf("a name in a removed directory: %s", all)
	}
}

func links(t *tester) {
	_, x, l := t.trace(sh(`mkdir -p /tmp/real/sub; echo x >/tmp/real/file; cd /tmp; ln -s real link; ln -s nothing dangling
ln -s /tmp/real/file link2; cat link/file link2; cat link/no || :; cat dangling || :; cat link/sub/../no3 || :; ls -ld link2`))
	if x.Code != 0 {
		t.Errorf("%+v", x)
	}
	t.have("found", l.Found, "/tmp/link/file", "/tmp/real/file", "/tmp/link2")
	t.have("missing", l.Missing, "/tmp/link/no", "/tmp/real/no", "/tmp/dangling", "/tmp/nothing", "/tmp/link/no3",
		"/tmp/real/no3")
	// One that is not followed.
	_, _, l = t.trace(python(`import os; os.lstat("/tmp/dangling"); os.readlink("/tmp/link2")
os.open("/tmp/dangling", os.O_PATH | os.O_NOFOLLOW)`))
	t.have("found", l.Found, "/tmp/dangling", "/tmp/link2")
	t.lack("found", l.Found, "/tmp/real/file")
	t.lack("missing", l.Missing, "/tmp/dangling", "/tmp/nothing")
	// Links of the kernel's.
	_, _, l = t.trace(sh(`cd /tmp/real; cat /proc/self/cwd/file; cat /proc/self/cwd/no4 || :; cat <file /dev/stdin`))
	t.have("found", l.Found, "/tmp/real/file")
	t.have("missing", l.Missing, "/tmp/real/no4")
}

// A file that comes to be was missing, and is found.
func made(t *tester) {
	_, x, l := t.trace(sh(`cd /tmp; echo 1 >new; cat new; echo 2 >new2; rm new2; cat new2 || :; echo 3 >>old`))
	if x.Code != 0 {
		t.Errorf("%+v", x)
	}
	t.have("missing", l.Missing, "/tmp/new", "/tmp/new2", "/tmp/old")
	t.have("found", l.Found, "/tmp/new", "/tmp/new2", "/tmp/old")
	_, _, l = t.trace(sh(`cd /tmp; echo 4 >>old`))
	t.lack("missing", l.Missing, "/tmp/old")
	_, _, l = t.trace(python(`
import os
os.chdir("/tmp")
os.mkdir("dir"); os.rmdir("dir")
os.symlink("x", "sym"); os.unlink("sym")
os.rename("new", "newer"); os.link("newer", "newest")
`))
	t.have("found", l.Found, "/tmp/new", "/tmp/newer", "/tmp/dir")
	t.have("missing", l.Missing, "/tmp/dir")
	t.lack("missing", l.Missing, "/tmp/new", "/tmp/newer", "/tmp/newest")
}

func root(t *tester) {
	out, x, l := t.trace(python(`
import os
os.makedirs("/tmp/jail/in/side", exist_ok=True)
os.symlink("/in", "/tmp/jail/link")
open("/tmp/jail/in/file", "w").write("x")
os.chroot("/tmp/jail"); os.chdir("/")
open("/in/file"); open("link/file"); open("../../in/file")
try: open("/link/no")
except FileNotFoundError: pass
`))
	if x.Code != 0 {
		t.Fatalf("%+v\n%s", x, out)
	}
	t.have("found", l.Found, "/tmp/jail/in/file", "/tmp/jail/link/file")
	t.have("missing", l.Missing, "/tmp/jail/link/no", "/tmp/jail/in/no")
	t.lack("found", l.Found, "/in/file")
}

// What children of all kinds look up, and threads, and what a thread has become by an exec.
func processes(t *tester) {
	out, x, l := t.trace(python(`
import os, subprocess, threading, sys
def look(name):
    try: os.stat("/tmp/" + name)
    except FileNotFoundError: pass
if os.fork() == 0:
    look("by-fork")
    os._exit(0)
os.wait()
subprocess.run(["ls", "/tmp/by-vfork"], stderr=subprocess.DEVNULL)
os.waitpid(os.posix_spawn("/bin/ls", ["ls", "/tmp/by-spawn"], {}, file_actions=[(os.POSIX_SPAWN_CLOSE, 2)]), 0)
all = [threading.Thread(target=look, args=("by-thread%d" % i,)) for i in range(20)]
for x in all: x.start()
for x in all: x.join()
def execute():
    os.execv("/bin/sh", ["sh", "-c", "echo executed; cat /tmp/by-exec; exit 9"])
sys.stdout.flush()
threading.Thread(target=execute).start()
threading.Event().wait()
`))
	if out != "executed\ncat: /tmp/by-exec: No such file or directory\n" || x.Code != 9 {
		t.Errorf("%+v\n%s", x, out)
	}
	t.have("missing", l.Missing, "/tmp/by-fork", "/tmp/by-vfork", "/tmp/by-spawn", "/tmp/by-exec")
	for i := range 20 {
		t.have("missing", l.Missing, fmt.Sprintf("/tmp/by-thread%d", i))
	}
	// Many at once.
	out, x, l = t.trace(sh(`for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5; do cat /tmp/many-$i-$j 2>/dev/null || :; done) & done; wait; echo end`))
	if out != "end\n" || x.Code != 0 {
		t.Errorf("%+v\n%s", x, out)
	}
	for i := 1; i <= 8; i++ {
		for j := 1; j <= 5; j++ {
			t.have("missing", l.Missing, fmt.Sprintf("/tmp/many-%d-%d", i, j))
		}
	}
}

// The lookups of a process that has left its parents count until the command ends. It lives on, and
// is killed with the others.
func daemon(t *tester) {
	// A pipe for each message: a second one could meet the reader of the first, as it closes the pipe.
	out, x, l := t.trace(sh(`mkfifo /tmp/told /tmp/go /tmp/on
(setsid sh -c 'cat /tmp/by-daemon; echo told >/tmp/told; read x </tmp/go; cat /tmp/on' >/dev/null 2>&1 &)
cat /tmp/told`))
	if out != "told\n" || x.Code != 0 {
		t.Errorf("%+v\n%s", x, out)
	}
	t.have("missing", l.Missing, "/tmp/by-daemon")
	if out, _ := t.plain(sh("echo x >/tmp/go; echo y >/tmp/on; echo alive")); out != "alive\n" {
		t.Errorf("the daemon: %s", out)
	}
	_, _, l = t.trace(sh("sleep 1003 & exec true"))
	t.have("executed", l.Executed, "/bin/sh")
	if err := t.c.KillAll(t.ctx()); err != nil {
		t.Errorf("killing what was left: %v", err)
	}
	if out, _ := t.plain(sh("ps -ef 2>/dev/null | grep '[s]leep 1003' || :")); out != "" {
		t.Errorf("left: %s", out)
	}
}

// A command sees the same with and without a tracer.
func (s Suite) same(t *tester) {
	cmds := []sandbox.Command{
		sh("exit 0"), sh("exit 3"), sh("kill -TERM $$"), sh("kill -SEGV $$"), sh("echo out; echo err >&2; exit 4"),
		{Args: []string{"no-such-program"}}, {Args: []string{"/tmp"}}, {Args: []string{"/no/such"}},
		{Args: []string{"pwd"}, Dir: "/no/such"}, {Args: []string{"pwd"}, Dir: "/usr/lib"},
		{Args: []string{"cat"}, Stdin: strings.NewReader("")},
		{Args: []string{"env"}, Env: map[string]string{"A": "b", "HOME": "/tmp"}},
		sh("id; umask; ulimit -a; ulimit -aH"),
		sh("ls -l /proc/self/fd | sed 's/.* \\([0-9]* ->.*\\)/\\1/; s/[0-9]*]//; s/[0-9]*.fd//'"),
		sh("grep -E '^(Uid|Gid|Groups|Sig[PBIC]|Shd|Cap|NoNew|Seccomp:|Threads|Nspid|Umask)' /proc/self/status"),
		sh("cat /proc/self/oom_score_adj /proc/self/limits; cat /proc/$PPID/environ 2>/dev/null; ls /proc/$PPID/fd"),
		sh("cat /proc/self/cgroup"),
		python("import os; print(os.getsid(0) == os.getpid() == os.getpgrp(), os.sched_getaffinity(0))"),
		python("import signal; print([signal.getsignal(i) for i in range(1, 32)], signal.pthread_sigmask(0, []))"),
		python("import os; os.kill(os.getppid(), 15); os.kill(os.getppid(), 3); print(1)"),
	}
	if s.Users {
		for _, user := range []string{"65534", "1:2", "nobody"} {
			cmds = append(cmds, sandbox.Command{User: user,
				Args: []string{"sh", "-c",
					"id; cd; pwd; cat /proc/self/status | grep -E '^(Uid|Gid|Groups|Cap|NoNew)'"}})
		}
	}
	for _, cmd := range cmds {
		want, x := t.plain(cmd)
		got, y, _ := t.tracePart(cmd)
		x.Wall, x.CPU, x.MaxRSS, y.Wall, y.CPU, y.MaxRSS = 0, 0, 0, 0, 0, 0
		if got != want || x != y {
			t.Errorf("%q: %+v, want %+v\n%s\nwant\n%s", cmd.Args, y, x, got, want)
		}
	}
	var out, errs bytes.Buffer
	x, l, err := t.c.Trace(t.ctx(), sandbox.Command{Args: []string{"sh", "-c", "cat; echo err >&2"},
		Stdin: strings.NewReader(strings.Repeat("x", 1<<20)), Stdout: &out, Stderr: &errs, Limit: 1000})
	if err != nil || x.Code != 0 || x.Out != 1<<20 || errs.String() != "err\n" || !l.Complete || x.Full == "" {
		t.Errorf("%+v, %v, %d bytes, %s", x, err, out.Len(), &errs)
	}
	// A long environment.
	long, x := t.plain(sandbox.Command{Args: []string{"sh", "-c", "echo $A | wc -c"},
		Env: map[string]string{"A": strings.Repeat("y", 100_000), "B": strings.Repeat("z", 100_000)}})
	if long != "100001\n" || x.Code != 0 {
		t.Errorf("%+v, %s", x, long)
	}
}

// Stopped processes stay stopped until they are to continue, and their parents see both.
func stop(t *tester) {
	out, x, l := t.trace(python(`
import os, signal
def child():
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os.path.exists("/tmp/after-stop")
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGSTOP)
        signal.sigwait([signal.SIGUSR1])
        os._exit(5)
    return pid
pid = child()
_, st = os.waitpid(pid, os.WUNTRACED); print(os.WIFSTOPPED(st), os.WSTOPSIG(st))
print(open("/proc/%d/stat" % pid).read().split()[2] in "Tt")
os.kill(pid, signal.SIGCONT)
_, st = os.waitpid(pid, os.WCONTINUED | os.WUNTRACED); print(os.WIFCONTINUED(st))
_, st = os.waitpid(pid, os.WUNTRACED); print(os.WIFSTOPPED(st), os.WSTOPSIG(st))
os.kill(pid, signal.SIGCONT)
os.kill(pid, signal.SIGUSR1)
_, st = os.waitpid(pid, 0); print(os.WIFEXITED(st), os.WEXITSTATUS(st))
pid = child()
os.waitpid(pid, os.WUNTRACED)
os.kill(pid, signal.SIGKILL)
_, st = os.waitpid(pid, 0); print(os.WIFSIGNALED(st), os.WTERMSIG(st))
`))
	if want := "True 19\nTrue\nTrue\nTrue 19\nTrue 5\nTrue 9\n"; out != want || x.Code != 0 {
		t.Errorf("%+v\n%s\nwant\n%s", x, out, want)
	}
	t.have("missing", l.Missing, "/tmp/after-stop")
}

// Signals reach the command's process group.
func signal(t *tester) {
	r, w := newLines()
	ended := make(chan error, 1)
	go func() {
		x, l, err := t.c.Trace(t.ctx(), sandbox.Command{ID: "traced", Stdout: w, Args: []string{"python3", "-c", `
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
signal.sigwait([signal.SIGUSR1])
os.path.exists("/tmp/signalled")
os._exit(6)`}})
		if err == nil && (x.Code != 6 || !l.Complete || !slices.Contains(l.Missing, "/tmp/signalled")) {
			err = fmt.Errorf("%+v %+v", x, l)
		}
		ended <- err
	}()
	if line := <-r; line != "ready" {
		t.Fatalf("it said %s", line)
	}
	if err := t.c.Signal("traced", 10); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// A second caller gets the result, and no lookups.
	x, l, err := t.c.Trace(t.ctx(), sandbox.Command{ID: "traced", Args: []string{"x"}})
	if err != nil || x.Code != 6 || l.Complete || l.Why == "" {
		t.Errorf("%+v, %+v, %v", x, l, err)
	}
}

// lines passes on lines.
type lines struct {
	to   chan string
	rest []byte
}

func newLines() (<-chan string, *lines) {
	l := &lines{to: make(chan string, 100)}
	return l.to, l
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.to <- string(line)
		l.rest = rest
	}
}

func (s Suite) users(t *tester) {
	if !s.Users {
		t.Skip("one user only")
	}
	cmd := sh("cd /tmp; mkdir own; cat own/no || :; id -u")
	cmd.User = "65534"
	out, x, l := t.trace(cmd)
	if x.Code != 0 || !strings.HasSuffix(out, "\n65534\n") {
		t.Errorf("%+v\n%s", x, out)
	}
	t.have("missing", l.Missing, "/tmp/own/no")
	t.have("found", l.Found, "/tmp")
	// What the user may not see, exists or not.
	t.plain(sh("mkdir -p /tmp/closed/in; chmod 700 /tmp/closed"))
	cmd = sh("cat /tmp/closed/in /tmp/closed/no || :")
	cmd.User = "65534"
	_, _, l = t.trace(cmd)
	t.have("missing", l.Missing, "/tmp/closed/no")
	t.have("found", l.Found, "/tmp/closed/in")
	t.lack("missing", l.Missing, "/tmp/closed/in")
}

// A setuid program gets its privileges, and its names are read.
func (s Suite) setuid(t *tester) {
	if !s.Setuid {
		t.Skip("no setuid programs")
	}
	t.plain(sh(`mkdir -p /suid; cp "$(readlink -f /usr/bin/cat)" /suid/cat; cp /usr/bin/id /suid/id; chmod 4755 /suid/*
echo secret >/suid/secret; chmod 600 /suid/secret; chmod 4711 /suid/id`))
	out, x, l := t.trace(sandbox.Command{User: "65534", Args: []string{"sh", "-c",
		"cat /suid/secret; id -u; /suid/id -u; /suid/cat /suid/secret; /suid/cat /suid/none"}})
	want := "cat: /suid/secret: Permission denied\n65534\n0\nsecret\n/suid/cat: /suid/none: No such file or directory\n"
	if out != want || x.Code != 1 {
		t.Errorf("%+v\n%s\nwant\n%s", x, out, want)
	}
	t.have("found", l.Found, "/suid/secret")
	t.have("missing", l.Missing, "/suid/none")
	t.have("executed", l.Executed, "/suid/cat", "/suid/id")
}

// A time limit kills all processes, and so does the end of the context.
func timeout(t *tester) {
	cmd := sh("(setsid sleep 1004 &) ; sleep 1004; echo never")
	cmd.Timeout = 2 * time.Second
	out, x, l := t.tracePart(cmd)
	if !x.TimedOut || x.Signal != "SIGKILL" || out != "" || l.Complete {
		t.Errorf("%+v %s %v", x, out, l.Complete)
	}
	r, w := newLines()
	ctx, cancel := context.WithCancel(t.ctx())
	ended := make(chan error, 1)
	go func() {
		_, _, err := t.c.Trace(ctx, sandbox.Command{Stdout: w, Args: []string{"sh", "-c", "echo ready; sleep 1004"}})
		ended <- err
	}()
	<-r
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
	if out, _ := t.plain(sh("ps -ef 2>/dev/null | grep '[s]leep 1004' || :")); out != "" {
		t.Errorf("left: %s", out)
	}
}

// What the tracer cannot see, it says.
func notComplete(t *tester) {
	for _, c := range []struct{ why, script string }{
		{"a program that traces others", `
import ctypes, os
if os.fork() == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os._exit(0)
os.wait()`},
		{"the tracer was ended", "import os; os.kill(os.getppid(), 9)"},
	} {
		_, _, l := t.tracePart(python(c.script))
		if l.Complete || l.Why != c.why {
			t.Errorf("want %s, got %v %q", c.why, l.Complete, l.Why)
		}
	}
	if _, x, _ := t.trace(sh("exit 3")); x.Code != 3 {
		t.Errorf("afterwards: %+v", x)
	}
}

func socket(t *tester) {
	_, _, l := t.trace(python(`
import socket
for name in ("/tmp/no-socket", "\0abstract", "relative-socket"):
    try: socket.socket(socket.AF_UNIX).connect(name)
    except OSError: pass
`))
	t.have("missing", l.Missing, "/tmp/no-socket")
	for _, n := range l.Missing {
		if strings.Contains(n, "abstract") {
			t.Errorf("an abstract socket: %q", n)
		}
	}
}

// Bytes of any kind, long names, and more names than are kept.
func many(t *tester) {
	_, x, l := t.trace(python(`
import os
os.chdir("/tmp")
for name in (b"/tmp/\xff\xfe\n", b"/tmp/" + b"y" * 250, b"/tmp" + b"/z" * 2044, b"/tmp" + b"/z" * 2100):
    try: os.stat(name)
    except OSError: pass
for i in range(20000):
    try: os.stat("many-%d" % i)
    except OSError: pass
`))
	if x.Code != 0 {
		t.Errorf("%+v", x)
	}
	t.have("missing", l.Missing, "/tmp/\xff\xfe\n", "/tmp/"+strings.Repeat("y", 250), "/tmp"+strings.Repeat("/z", 2044),
		"/tmp/many-0", "/tmp/many-19999")
	t.lack("missing", l.Missing, "/tmp"+strings.Repeat("/z", 2100))
}

// The sandbox goes on as before, also while a command is traced.
func end(t *tester) {
	r, w := newLines()
	ended := make(chan error, 1)
	go func() {
		_, _, err := t.c.Trace(t.ctx(), sandbox.Command{Stdout: w,
			Args: []string{"sh", "-c", "echo ready; sleep 1005"}})
		ended <- err
	}()
	<-r
	if out, x := t.plain(sh("echo beside; exit 2")); out != "beside\n" || x.Code != 2 {
		t.Errorf("%+v, %s", x, out)
	}
	if err := t.c.KillAll(t.ctx()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Benchmark compares a run of pytest with and without a tracer.
func (s Suite) Benchmark(b *testing.B) {
	t := s.open(b)
	t.plain(sh(`mkdir -p /tmp/project/tests; cd /tmp/project/tests; echo 'def f(n): return n + 1' >code_of.py
for i in 1 2 3 4 5 6 7 8 9 10; do cat >test_$i.py <<'END'
import json, subprocess, code_of, pytest
@pytest.mark.parametrize("n", range(20))
def test_file(n, tmp_path):
    (tmp_path / "x").write_text(json.dumps(n))
    assert code_of.f(n) == n + 1
def test_process():
    subprocess.run(["ls", "/"], check=True)
END
done`))
	cmd := sandbox.Command{Args: []string{"python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"},
		Dir: "/tmp/project",
		Env: map[string]string{"PYTHONDONTWRITEBYTECODE": "1"}}
	if out, x := t.plain(cmd); x.Code != 0 {
		b.Fatalf("%+v\n%s", x, out)
	}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			t.plain(cmd)
		}
	})
	b.Run("traced", func(b *testing.B) {
		var l executor.Lookups
		for b.Loop() {
			_, _, l = t.trace(cmd)
		}
		b.ReportMetric(float64(len(l.Found)), "found")
		b.ReportMetric(float64(len(l.Missing)), "missing")
		b.ReportMetric(float64(len(l.Listed)), "listed")
	})
}
