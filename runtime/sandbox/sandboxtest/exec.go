package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest/verb"
)

func patternReader(n int64) io.Reader { return verb.Pattern(n) }

var execTests = []test{
	{name: "exec/codes", run: func(t *testing.T, b *box) {
		m := b.open()
		for _, code := range []string{"0", "1", "3", "127", "255"} {
			r := m.run("exit", code)
			if fmt.Sprint(r.Code) != code || r.Signal != "" || r.TimedOut || r.OOM {
				t.Errorf("exit %s: got %+v", code, r.Exit)
			}
		}
		r := m.run("kill", "0", "9")
		if r.Code != -1 || r.Signal != "SIGKILL" || r.TimedOut || r.OOM {
			t.Errorf("killed itself: got %+v, want code -1 and SIGKILL", r.Exit)
		}
		if r := m.run("kill", "0", "15"); r.Code != -1 || r.Signal != "SIGTERM" {
			t.Errorf("ended itself: got %+v, want code -1 and SIGTERM", r.Exit)
		}
		// That it has closed its outputs does not mean that it has ended.
		if r := m.run("close-output", ",", "sleep", "300ms", ",", "write", "/tmp/hushed", "x", ",", "exit",
			"5"); r.Code != 5 ||
			r.Wall < 250*time.Millisecond {
			t.Errorf("without outputs: got %+v", r.Exit)
		}
		if got := m.ok("echo", "still", "here"); got != "still here\n" {
			t.Errorf("afterwards: got %q", got)
		}
	}},
	{name: "exec/cannot-start", run: func(t *testing.T, b *box) {
		// What an agent may ask for is a result and not our failure.
		m := b.open()
		if r := m.exec(sandbox.Command{Args: []string{"/no/such/program"}}); r.Code != 127 {
			t.Errorf("no such program: got %+v, want code 127", r.Exit)
		}
		if r := m.exec(sandbox.Command{Args: []string{"no-such-program-in-path"}}); r.Code != 127 {
			t.Errorf("no such program in PATH: got %+v, want code 127", r.Exit)
		}
		m.ok("write", "/tmp/data", "no program")
		if r := m.exec(sandbox.Command{Args: []string{"/tmp/data"}}); r.Code != 126 {
			t.Errorf("a file that is not executable: got %+v, want code 126", r.Exit)
		}
		c := m.command("echo", "hi")
		c.Dir = "/no/such/dir"
		if r := m.exec(c); r.Code != 126 && r.Code != 127 {
			t.Errorf("no such working directory: got %+v, want code 126 or 127", r.Exit)
		}
		if _, err := m.Exec(b.ctx(), sandbox.Command{}); err == nil {
			t.Error("no Args: no error")
		}
	}},
	{name: "exec/args", run: func(t *testing.T, b *box) {
		m := b.open()
		args := []string{"echo", "a b", "", "$HOME", "*", "'", `"`, "\\", "a\nb", "ü", "\xff\xfe", "-n",
			strings.Repeat("x", 100<<10)}
		if got, want := m.ok(args...), strings.Join(args[1:], " ")+"\n"; got != want {
			t.Errorf("got %s, want %s", short(got), short(want))
		}
	}},
	{name: "exec/stdin", run: func(t *testing.T, b *box) {
		m := b.open()
		if got := m.ok("cat"); got != "" {
			t.Errorf("nil Stdin: read %q, want nothing", got)
		}
		c := m.command("cat")
		c.Stdin = patternReader(3<<20 + 7)
		if got := m.exec(c).Out; got != pattern(3<<20+7) {
			t.Errorf("3 MiB through cat: got %s", short(got))
		}

		// Who does not read its input does not wait for it, whether there is more or none to come.
		c = m.command("echo", "done")
		c.Stdin = patternReader(10 << 20)
		if r := m.exec(c); r.Out != "done\n" || r.Code != 0 {
			t.Errorf("input not read: got %+v, %q", r.Exit, r.Out)
		}
		pr, pw := io.Pipe()
		defer pw.Close()
		c.Stdin = pr
		if r := m.exec(c); r.Out != "done\n" || r.Code != 0 {
			t.Errorf("input that never comes: got %+v, %q", r.Exit, r.Out)
		}
	}},
	{name: "exec/environment", run: func(t *testing.T, b *box) {
		spec := b.spec
		spec.Env = map[string]string{"FROM_SPEC": "spec", "BOTH": "spec", "EMPTY": ""}
		maps.Copy(spec.Env, b.spec.Env)
		m := b.openSpec(spec)
		c := m.command("env")
		c.Env = map[string]string{"BOTH": "command", "MULTI": "a\nb=c"}
		out := m.exec(c).Out
		for _, want := range []string{"FROM_SPEC=spec\n", "BOTH=command\n", "EMPTY=\n", "MULTI=a\nb=c\n", "PATH="} {
			if !strings.Contains("\n"+out, "\n"+want) {
				t.Errorf("environment lacks %q: %q", want, out)
			}
		}
		if n := strings.Count("\n"+out, "\nBOTH="); n != 1 {
			t.Errorf("BOTH is there %d times: %q", n, out)
		}
		if strings.Contains(m.ok("env"), "MULTI") {
			t.Error("a command's variable stayed for the next")
		}
	}},
	{name: "exec/directory", run: func(t *testing.T, b *box) {
		spec := b.spec
		spec.Dir = "/workspace/deep/er"
		m := b.openSpec(spec)
		if got := m.ok("cwd"); got != "/workspace/deep/er\n" {
			t.Errorf("the spec's directory: got %q", got)
		}
		m.ok("write", "here", "relative")
		if got := m.ok("cat", "/workspace/deep/er/here"); got != "relative" {
			t.Errorf("a relative name: got %q", got)
		}
		c := m.command("cwd")
		c.Dir = "/tmp"
		if got := m.exec(c).Out; got != "/tmp\n" {
			t.Errorf("the command's directory: got %q", got)
		}
	}},
	{name: "exec/users", need: func(c Claims) bool { return c.Users }, run: func(t *testing.T, b *box) {
		m := b.open()
		c := m.command("id")
		c.User = "1234:2345"
		if got := m.exec(c).Out; got != "1234:2345\n" {
			t.Errorf("as 1234:2345: got %q", got)
		}
		spec := b.spec
		spec.User = "1234:2345"
		m = b.openSpec(spec)
		if got := m.ok("id"); got != "1234:2345\n" {
			t.Errorf("spec's user 1234:2345: got %q", got)
		}
		// What Put brought can be read by the user, and Get reads what only the user can.
		if err := m.Put(b.ctx(), "/data", fstest.MapFS{"d/f": {Data: []byte("for all"), Mode: 0o644}}); err != nil {
			t.Fatal(err)
		}
		if got := m.ok("cat", "/data/d/f"); got != "for all" {
			t.Errorf("the user reads %q", got)
		}
		m.ok("mkdir", "/tmp/mine", ",", "write", "/tmp/mine/f", "private", ",", "chmod", "/tmp/mine/f", "0", ",",
			"chmod", "/tmp/mine", "448")
		if f := b.get(m, "/tmp/mine"); f["mine/f"].Data != "private" {
			t.Errorf("Get of the user's files: %v", f)
		}
		c = m.command("id")
		c.User = "0:0"
		if got := m.exec(c).Out; got != "0:0\n" {
			t.Errorf("back as 0:0: got %q", got)
		}
	}},
	{name: "exec/nothing-of-the-host", run: func(t *testing.T, b *box) {
		m := b.open()
		seen := map[string]string{
			"environment": m.ok("env"),
			"open files":  m.ok("fds"),
		}
		for _, name := range []string{"/proc/self/environ", "/proc/1/environ", "/proc/1/cmdline",
			"/proc/self/mountinfo", "/proc/self/cgroup"} {
			seen[name] = m.run("cat", name).Out // that it cannot be read is fine
		}
		for where, text := range seen {
			for _, secret := range b.suite.Secrets {
				if strings.Contains(text, secret) {
					t.Errorf("%s shows %q of the host", where, secret)
				}
			}
			if strings.Contains(text, canary) {
				t.Errorf("%s shows a variable of the host", where)
			}
		}
		if b.suite.Claims.NoNet { // it isolates at all
			wd, _ := os.Getwd()
			file := filepath.Join(t.TempDir(), "canary")
			if err := os.WriteFile(file, []byte("x"), 0o666); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{wd, file} {
				if r := m.run("stat", name); r.Code == 0 {
					t.Errorf("%s of the host can be seen", name)
				}
			}
		}
		if seen["open files"] != "" {
			t.Errorf("open files were handed in: %q", seen["open files"])
		}
	}},
	{name: "exec/remembers", run: func(t *testing.T, b *box) {
		m := b.open()
		c := m.command("append", "/tmp/count", "x", ",", "spam", "1000", ",", "exit", "7")
		c.ID = "once"
		first := m.exec(c)
		if first.Code != 7 || first.Exit.Out != 1000 {
			t.Fatalf("first: got %+v", first.Exit)
		}
		if again := m.exec(c); !reflect.DeepEqual(again.Exit, first.Exit) {
			t.Errorf("asked again: got %+v, want %+v", again.Exit, first.Exit)
		}
		if got := m.ok("cat", "/tmp/count"); got != "x" {
			t.Errorf("executed %d times, want once", len(got))
		}

		// Who asks while it runs gets the same Exit, and it still runs once.
		c = m.command("append", "/tmp/count2", "x", ",", "sleep", "200ms", ",", "exit", "8")
		c.ID = "twice at once"
		var wg sync.WaitGroup
		exits := make([]sandbox.Exit, 4)
		for i := range exits {
			wg.Go(func() {
				var err error
				if exits[i], err = m.Exec(b.ctx(), c); err != nil {
					t.Errorf("Exec: %v", err)
				}
			})
		}
		wg.Wait()
		for _, e := range exits {
			if !reflect.DeepEqual(e, exits[0]) || e.Code != 8 {
				t.Errorf("at once: got %+v and %+v", e, exits[0])
			}
		}
		if got := m.ok("cat", "/tmp/count2"); got != "x" {
			t.Errorf("at once: executed %d times, want once", len(got))
		}

		c = m.command("append", "/tmp/count3", "x") // no ID: nothing is remembered
		m.exec(c)
		m.exec(c)
		if got := m.ok("cat", "/tmp/count3"); got != "xx" {
			t.Errorf("without an ID: executed %d times, want twice", len(got))
		}
	}},
	{name: "exec/parallel", run: func(t *testing.T, b *box) {
		m := b.open()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				c := m.command("cat", ",", "exit", fmt.Sprint(i))
				text := strings.Repeat(fmt.Sprintf("line of %d\n", i), 1000)
				c.Stdin = strings.NewReader(text)
				r, err := m.try(b.ctx(), c)
				if err != nil || r.Code != i || r.Out != text {
					t.Errorf("command %d: %+v, %s, error %v", i, r.Exit, short(r.Out), err)
				}
			})
		}
		wg.Wait()
	}},
	{name: "exec/usage", need: func(c Claims) bool { return c.Usage }, run: func(t *testing.T, b *box) {
		m := b.open()
		r := m.run("alloc", "33554432", ",", "spin", "200ms")
		if r.CPU < 150*time.Millisecond || r.CPU > patience {
			t.Errorf("200 ms of processor time: Exit.CPU is %v", r.CPU)
		}
		if r.MaxRSS < 32<<20 {
			t.Errorf("32 MiB of memory: Exit.MaxRSS is %d", r.MaxRSS)
		}
		if r.Wall < 150*time.Millisecond {
			t.Errorf("Exit.Wall is %v", r.Wall)
		}
	}},
	{name: "exec/context", run: func(t *testing.T, b *box) {
		m := b.open()
		cause := errors.New("somebody has changed their mind")
		ctx, cancel := context.WithCancelCause(b.ctx())
		done := make(chan error, 1)
		go func() {
			_, err := m.Exec(ctx, m.command("start", "setsid", "keep", "/tmp/a", "ignore", ",", "ignore", ",", "hold",
				"/tmp/main"))
			done <- err
		}()
		m.waitHeld("/tmp/main")
		cancel(cause)
		wantIs(t, "Exec after its context ended", <-done, cause)
		for _, f := range []string{"/tmp/main", "/tmp/a"} {
			if m.alive(f) {
				t.Errorf("%s: still runs after the context ended", f)
			}
		}
		// An ended context starts nothing.
		_, err := m.Exec(ctx, m.command("write", "/tmp/never", "x"))
		wantIs(t, "Exec with an ended context", err, cause)
		if r := m.run("stat", "/tmp/never"); r.Code == 0 {
			t.Error("a command with an ended context ran")
		}
		// The sandbox lives on.
		if got := m.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("afterwards: got %q", got)
		}
	}},
}
