package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/search"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// acting measures what agents act with: shells, the editor and searches.
func (b *bench) acting() error {
	ctx := context.Background()
	d := local.New()
	defer d.Close()
	if err := d.Probe(ctx); err != nil {
		return err
	}
	sb, err := d.Create(ctx, sandbox.Spec{Owner: sandbox.Owner{Run: "bench", PID: os.Getpid()}, Dir: "/workspace"})
	if err != nil {
		return err
	}
	defer sb.Close()
	if err := b.executor(d); err != nil {
		return err
	}
	if err := b.shells(ctx, sb); err != nil {
		return err
	}
	if err := b.edits(ctx, sb); err != nil {
		return err
	}
	return b.searches(ctx)
}

// executor measures the program inside: its size, and its memory once it has done something. The row
// of the local sandbox's first command has its start.
func (b *bench) executor(d sandbox.Driver) error {
	program, err := executor.Program(runtime.GOARCH)
	if err != nil {
		return err
	}
	b.add("executor: its program", float64(len(program)), 4e6, 0, mb, "")
	ctx := context.Background()
	before := map[string]bool{}
	for _, p := range programs() {
		before[p] = true
	}
	sb, err := d.Create(ctx, sandbox.Spec{Owner: sandbox.Owner{Run: "bench", PID: os.Getpid()}})
	if err != nil {
		return err
	}
	defer sb.Close()
	if _, err := sb.Exec(ctx, sandbox.Command{Args: []string{"true"}}); err != nil {
		return err
	}
	private := 0.0
	for _, p := range programs() {
		if before[p] {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(p, "smaps_rollup")) // it may have ended
		for l := range strings.Lines(string(text)) {
			if f := strings.Fields(l); len(f) > 1 && strings.HasPrefix(f[0], "Private_") {
				kb, _ := strconv.ParseFloat(f[1], 64)
				private += kb * 1024
			}
		}
	}
	b.add("executor: private memory without commands", private, 5e6, 0, mb, "")
	return nil
}

// programs returns the processes of executors.
func programs() (out []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range dirs {
		if name, _ := os.ReadFile(filepath.Join(p, "cmdline")); strings.HasPrefix(string(name), executor.Command[0]+"\x00") {
			out = append(out, p)
		}
	}
	return out
}

func (b *bench) shells(ctx context.Context, sb sandbox.Sandbox) error {
	sh, ok := sandbox.As[sandbox.Sheller](sb)
	if !ok {
		return errors.New("the sandbox has no shells")
	}
	run := func(shell, text string) error {
		x, err := sh.Shell(ctx, sandbox.ShellCall{Shell: shell, Op: sandbox.ShellRun, Text: text, Limit: 30_000,
			Timeout: time.Minute, Stdout: io.Discard})
		if err == nil && (x.End != sandbox.ShellCompleted || x.Code != 0) {
			err = fmt.Errorf("%s: %+v", text, x)
		}
		return err
	}
	if err := run("a", "true"); err != nil {
		return err
	}
	m, err := median(201, func() error { return run("a", "true") })
	if err != nil {
		return err
	}
	b.add("persistent shell: a command", m, 3e-3, b.floors.exec, ms, "exec")

	if err := run("a", "head -c 100000000 /dev/zero"+
		" | tr '\\0' '\\n' > /tmp/large; cat /tmp/large > /dev/null"); err != nil {
		return err
	}
	floor, err := median(5, func() error {
		_, err := sb.Exec(ctx, sandbox.Command{Args: []string{"sh", "-c", "cat /tmp/large > /dev/null"}})
		return err
	})
	if err != nil {
		return err
	}
	file := filepath.Join(b.work, "large")
	if err := os.WriteFile(file, bytes.Repeat([]byte("\n"), 100_000_000), 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	// A terminal carries its output in pieces of 4 KB, each with a switch between two processes. So the
	// floor is a reader that does nothing else; they take turns.
	var ours, bare []float64
	for range 5 {
		t := time.Now()
		if err := run("a", "cat /tmp/large"); err != nil {
			return err
		}
		ours = append(ours, time.Since(t).Seconds())
		if m, err = bareTerminal(file, 100_000_000); err != nil {
			return err
		}
		bare = append(bare, m)
	}
	b.add("persistent shell: 100 MB of output", mid(ours), 2*mid(bare), mid(bare), ms, "bare terminal")
	b.note("— cat > /dev/null, without a terminal", ms(floor))

	t := time.Now()
	for i := range 100 {
		if err := run(fmt.Sprint("s", i), "true"); err != nil {
			return err
		}
	}
	b.note("100 shells in one sandbox, each with a command", ms(time.Since(t).Seconds())+" in all")
	return nil
}

// bareTerminal returns how long cat needs for a file of n bytes on a terminal, when what it prints is
// read and dropped.
func bareTerminal(file string, n int) (float64, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	defer master.Close()
	raw, err := master.SyscallConn()
	if err != nil {
		return 0, err
	}
	slave := -1
	err = raw.Control(func(fd uintptr) {
		if unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0) == nil {
			r, _, _ := unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
			slave = int(r)
		}
	})
	if err != nil || slave < 0 {
		return 0, errors.New("opening a terminal")
	}
	out := os.NewFile(uintptr(slave), "terminal")
	defer out.Close()
	modes, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err != nil {
		return 0, err
	}
	modes.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(slave, unix.TCSETS, modes); err != nil {
		return 0, err
	}
	cmd := exec.Command("cat", file)
	cmd.Stdout = out
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	out.Close()
	buf := make([]byte, 64<<10)
	for left := n; left > 0; {
		k, err := master.Read(buf)
		if err != nil {
			return 0, err
		}
		left -= k
	}
	took := time.Since(begun).Seconds()
	return took, cmd.Wait()
}

func (b *bench) edits(ctx context.Context, sb sandbox.Sandbox) error {
	f, ok := sandbox.As[sandbox.Filer](sb)
	if !ok {
		return errors.New("the sandbox has no editor")
	}
	op := func(o sandbox.FileOp) error {
		o.Path = "/tmp/edited"
		res, err := f.FileOp(ctx, o)
		if err == nil && res.Error {
			err = errors.New(res.Text)
		}
		return err
	}
	text := "one\n" + strings.Repeat("0123456789abcde\n", 1<<16)
	if err := op(sandbox.FileOp{Op: sandbox.FileCreate, Text: text}); err != nil {
		return err
	}
	was, is := "one", "two"
	m, err := median(21, func() error {
		was, is = is, was
		return op(sandbox.FileOp{Op: sandbox.FileReplace, Old: is, Text: was})
	})
	if err != nil {
		return err
	}
	b.add("editor: a replacement in a file of 1 MB", m, 5e-3, b.floors.exec, ms, "exec")
	return nil
}

func (b *bench) searches(ctx context.Context) error {
	if _, err := exec.LookPath("rg"); err != nil {
		return errors.New("searches: there is no rg to compare with")
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), "src")
	for _, c := range []struct {
		name string
		s    sandbox.Search
		glob bool
		args []string // of rg
	}{
		{"glob *_test.go", sandbox.Search{Pattern: "*_test.go"}, true, []string{"--files", "-g", "*_test.go"}},
		{"grep for a text", sandbox.Search{Pattern: "no such text"}, false, []string{"no such text"}},
		{"— without its case", sandbox.Search{Pattern: "no such text", IgnoreCase: true}, false,
			[]string{"-i", "no such text"}},
		{"— for a regular expression with a text", sandbox.Search{Pattern: `^func \(.*\) WriteTo\(`}, false,
			[]string{`^func \(.*\) WriteTo\(`}},
		{"— for one without", sandbox.Search{Pattern: `[0-9]{4}-[0-9]{2}-[0-9]{2}T`}, false,
			[]string{`[0-9]{4}-[0-9]{2}-[0-9]{2}T`}},
	} {
		do := search.Grep
		if c.glob {
			do = search.Glob
		}
		var ours, theirs []float64
		for range 11 {
			t := time.Now()
			if _, err := do(ctx, dir, c.s); err != nil {
				return err
			}
			ours = append(ours, time.Since(t).Seconds())
			t = time.Now()
			cmd := exec.Command("rg", append([]string{"--no-config", "-n"}, c.args...)...)
			cmd.Dir = dir
			if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 1 { // 1: nothing was found
				return err
			}
			theirs = append(theirs, time.Since(t).Seconds())
		}
		b.add("Go's standard library: "+c.name, mid(ours), 2*mid(theirs), mid(theirs), ms, "ripgrep")
	}
	return nil
}
