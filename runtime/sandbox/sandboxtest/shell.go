package sandboxtest

import (
	"context"
	"crypto/md5"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

//go:embed testdata/shell.txtar
var shellSteps string

func shells(c Claims) bool { return c.Shells }

var shellTests = []test{
	// Each file of testdata/shell.txtar is a session. The file begins with a description of its form.
	{name: "shell/steps", need: shells, spec: func(s *sandbox.Spec) { s.Dir = "/work" }, run: func(t *testing.T, b *box) {
		_, sh := b.shells(b.suite.Bash)
		steps := 0
		for _, file := range strings.Split("\n"+shellSteps, "\n-- ")[1:] {
			head, body, _ := strings.Cut(file, "\n")
			name := strings.TrimSuffix(head, " --")
			t.Run(name, func(t *testing.T) {
				for i, st := range parseSteps(t, body) {
					steps++
					if !playStep(t, sh, name, st) {
						t.Fatalf("step %d failed; the rest of the session was not played", i+1)
					}
				}
				sh.Shell(t.Context(), sandbox.ShellCall{Shell: name, Op: sandbox.ShellReset})
			})
		}
		t.Logf("%d steps", steps)
	}},
	{name: "shell/many", need: shells, spec: func(s *sandbox.Spec) { s.Memory, s.Pids = 4<<30, 2000 },
		run: func(t *testing.T, b *box) {
			// 200 sessions in one sandbox, each with a process in the background. All of them end
			// with their sandbox.
			m, sh := b.shells(b.suite.Bash)
			const sessions, together = 200, 8
			each := func(text func(name string) (text, out string)) {
				names := make(chan string)
				var wg sync.WaitGroup
				for range together {
					wg.Go(func() {
						for name := range names {
							text, want := text(name)
							var out strings.Builder
							r, err := sh.Shell(b.ctx(), sandbox.ShellCall{Shell: name, Text: text, Stdout: &out})
							if err != nil || r.Code != 0 || out.String() != want {
								t.Errorf("session %s: %+v, %q, %v; want %q", name, r, out.String(), err, want)
							}
						}
					})
				}
				for i := range sessions {
					names <- fmt.Sprint(i)
				}
				close(names)
				wg.Wait()
			}
			each(func(name string) (text, out string) {
				return "n=" + name + "; { sleep 100000 & } 2>/dev/null", ""
			})
			each(func(name string) (text, out string) { return "echo $n; jobs | wc -l", name + "\n1\n" })
			var out strings.Builder
			if _, err := sh.Shell(b.ctx(), sandbox.ShellCall{Text: "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | " +
				"grep -o '[s]leep 100000' | wc -l", Stdout: &out}); err != nil || out.String() != fmt.Sprintln(sessions) {
				t.Errorf("%q processes in the background, %v; want %d", out.String(), err, sessions)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			_, err := sh.Shell(b.ctx(), sandbox.ShellCall{Shell: "0", Text: "echo"})
			wantIs(t, "a shell of a closed sandbox", err, sandbox.ErrGone)
		}},
	{name: "shell/leave", need: shells, run: func(t *testing.T, b *box) {
		// What a session has started goes on without it, also if it writes to the terminal.
		_, sh := b.shells(b.suite.Bash)
		call := func(op sandbox.ShellOp, text string) (string, sandbox.ShellResult) {
			t.Helper()
			var out strings.Builder
			r, err := sh.Shell(b.ctx(), sandbox.ShellCall{Op: op, Text: text, Stdout: &out, Quiet: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return out.String(), r
		}
		call(sandbox.ShellRun, "sleep 1000")
		if _, r := call(sandbox.ShellLeave, ""); r.End != sandbox.ShellBusy {
			t.Errorf("with a running command: %+v", r)
		}
		call(sandbox.ShellReset, "")
		if _, r := call(sandbox.ShellLeave, ""); r.End != sandbox.ShellIdle {
			t.Errorf("without a session: %+v", r)
		}
		call(sandbox.ShellRun, "(i=0; while echo tick; do i=$((i+1)); echo $i > /tmp/count; done) &")
		call(sandbox.ShellRun, "kept=1")
		if _, r := call(sandbox.ShellLeave, ""); r.End != sandbox.ShellExited {
			t.Errorf("end %+v", r)
		}
		count := func() string { out, _ := call(sandbox.ShellRun, "cat /tmp/count"); return out }
		out, r := call(sandbox.ShellRun, "echo \"<$kept>\"")
		if out != "<>\n" || !r.Began {
			t.Errorf("%q, %+v", out, r)
		}
		for first := count(); count() == first; {
		}
	}},
	{name: "shell/large", need: shells, run: func(t *testing.T, b *box) {
		// Commands, typed texts and output of a megabyte and of many lines, and of any bytes.
		_, sh := b.shells(b.suite.Bash)
		call := func(c sandbox.ShellCall) (string, sandbox.ShellResult) {
			t.Helper()
			var out strings.Builder
			c.Stdout, c.Timeout = &out, patience
			r, err := sh.Shell(b.ctx(), c)
			if err != nil {
				t.Fatalf("%.100q: %v", c.Text, err)
			}
			return out.String(), r
		}
		lines := strings.Repeat("a line\n", 100_000)
		binary := ""
		for c := 1; c < 256; c++ {
			if c != '\'' {
				binary += string([]byte{byte(c)})
			}
		}
		for _, c := range []struct{ what, text, want string }{
			{"a line of a megabyte", "x='" + strings.Repeat("0123456789", 100_000) + "'; echo ${#x}", "1000000\n"},
			{"a here-document of 100,000 lines", "wc -l <<'EOF'\n" + lines + "EOF", "100000\n"},
			{"100,000 commands", strings.Repeat(":\n", 100_000) + "echo end", "end\n"},
			{"all bytes but NUL", "printf %s '" + binary + "' | md5sum", fmt.Sprintf("%x  -\n", md5.Sum([]byte(binary)))},
			{"bytes that are no UTF-8", "echo '\xff\xfe\xc3('", "\xff\xfe\xc3(\n"},
			{"output with NUL", `printf 'a\0b\n'`, "a\x00b\n"},
			{"a program's bytes", `printf '\177ELF\2\1\1\0\377' | od -An -tx1`, " 7f 45 4c 46 02 01 01 00 ff\n"},
		} {
			if out, r := call(sandbox.ShellCall{Text: c.text}); out != c.want || r.Code != 0 {
				t.Errorf("%s: %+v, %s", c.what, r, short(out))
			}
		}
		if _, err := sh.Shell(b.ctx(), sandbox.ShellCall{Text: "echo a\x00b"}); err == nil {
			t.Error("a NUL byte in a command is no error")
		}
		call(sandbox.ShellCall{Text: "wc -l", Quiet: time.Millisecond})
		call(sandbox.ShellCall{Op: sandbox.ShellInput, Text: strings.TrimSuffix(lines, "\n"), Quiet: time.Millisecond})
		out, r := call(sandbox.ShellCall{Op: sandbox.ShellKey, Text: "d"})
		if out != "100000\n" || r.Code != 0 {
			t.Errorf("100,000 typed lines: %+v, %s", r, short(out))
		}
		out, r = call(sandbox.ShellCall{Text: "yes 0123456789 | head -c 20000000", Limit: 1000, FullLimit: -1})
		if r.Out != 20_000_000 || r.Full != "" || len(out) > 1100 {
			t.Errorf("20 MB of output: %+v, %s", r, short(out))
		}
		if out, r := call(sandbox.ShellCall{Text: "echo next"}); out != "next\n" || r.Code != 0 {
			t.Errorf("%+v, %q", r, out)
		}
	}},
	{name: "shell/lost", need: shells, run: func(t *testing.T, b *box) {
		// The sandbox is lost in the middle of a command.
		m, sh := b.shells(b.suite.Bash)
		done := make(chan error, 1)
		go func() {
			_, err := sh.Shell(b.ctx(), sandbox.ShellCall{Text: "echo > /tmp/begun; sleep 100000"})
			done <- err
		}()
		for m.run("stat", "/tmp/begun").Code != 0 {
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		wantIs(t, "a call whose sandbox was removed", <-done, sandbox.ErrGone)
	}},
	{name: "shell/environment", need: func(c Claims) bool { return c.Shells && c.FileOps },
		spec: func(s *sandbox.Spec) { s.Env = map[string]string{"TASK": "of the \"task\"\n'$x'", "PAGER": "more"} },
		run: func(t *testing.T, b *box) {
			// The sandbox's variables are the same for commands and shells, and what a shell exports stays
			// in it.
			m, sh := b.shells(b.suite.Bash)
			const text = `printf '%s|' "$TASK" "$PAGER" "$OWN" "$HOME" "$PATH"`
			own := map[string]string{"OWN": "own"}
			run := func(shell, text string) string {
				t.Helper()
				var out strings.Builder
				if _, err := sh.Shell(b.ctx(), sandbox.ShellCall{Shell: shell, Text: text, Env: own, Stdout: &out}); err != nil {
					t.Fatal(err)
				}
				return out.String()
			}
			want := m.exec(sandbox.Command{Args: []string{"bash", "-c", text}, Env: own}).Out
			if got := run("a", text); got != want || !strings.Contains(want, "'$x'|more|own|/") {
				t.Errorf("a shell has %q, a command %q", got, want)
			}
			run("a", "export KEPT=1 TASK=changed")
			if got := run("a", "sh -c 'echo $KEPT $TASK'"); got != "1 changed\n" {
				t.Errorf("after export: %q", got)
			}
			if got := run("b", text+`; echo "<$KEPT>"`); got != want+"<>\n" {
				t.Errorf("another shell has %q", got)
			}
			if got := m.exec(sandbox.Command{Args: []string{"bash", "-c", text}, Env: own}).Out; got != want {
				t.Errorf("a command has %q after a shell has changed its own", got)
			}
		}},
	{name: "shell/users", need: func(c Claims) bool { return c.Shells && c.Users }, run: func(t *testing.T, b *box) {
		// A session of another user, whose terminal is the user's own.
		_, sh := b.shells(b.suite.Bash)
		for _, user := range []string{"1234:1234", ""} {
			var out strings.Builder
			r, err := sh.Shell(b.ctx(), sandbox.ShellCall{Shell: user, User: user, Dir: "/tmp", Stdout: &out,
				Text: "id -u; stat -c %u $(tty); echo x > $(tty)"})
			id := "0"
			if user != "" {
				id = "1234"
			}
			if err != nil || r.Code != 0 || out.String() != id+"\n"+id+"\nx\n" {
				t.Errorf("user %q: %+v, %q, %v", user, r, out.String(), err)
			}
		}
		_, err := sh.Shell(b.ctx(), sandbox.ShellCall{Shell: "x", User: "no-such-user", Text: "id"})
		var failed *sandbox.Error
		if !errors.As(err, &failed) || !failed.Inside {
			t.Errorf("a user that does not exist: %v", err)
		}
	}},
	{name: "shell/none", need: shells, run: func(t *testing.T, b *box) {
		// In an image without bash, with and without another shell, a session is refused with the
		// reason; single commands and files work.
		programs := map[string]map[string][]byte{"no shell": {HelperPath: b.binary}}
		if file, err := exec.LookPath("busybox"); err != nil {
			t.Log("not tested in an image with another shell, because there is no busybox here")
		} else if busybox, err := os.ReadFile(file); err != nil {
			t.Error(err)
		} else {
			programs["ash"] = map[string][]byte{"bin/busybox": busybox, "bin/ash": busybox, "bin/sh": busybox,
				"bin/cat": busybox}
		}
		for what, files := range programs {
			m, sh := b.shells(b.suite.Image(t, files))
			_, err := sh.Shell(b.ctx(), sandbox.ShellCall{Text: "echo"})
			var no *sandbox.Unsupported
			if !errors.As(err, &no) || !strings.Contains(no.What, "bash cannot be started (no such file or directory)") {
				t.Errorf("%s: error %v", what, err)
			}
			if r := m.run("echo", "one"); r.Out != "one\n" {
				t.Errorf("%s: a single command: %+v", what, r)
			}
			if what != "ash" {
				continue
			}
			if err := m.Put(b.ctx(), "/tmp", fstest.MapFS{"file": {Data: []byte("content")}}); err != nil {
				t.Error(err)
			}
			r := m.exec(sandbox.Command{Args: []string{"ash", "-c", "cat /tmp/file; exit 3"}})
			if r.Code != 3 || r.Out != "content" {
				t.Errorf("ash: %+v", r)
			}
		}
	}},
}

// shells makes a sandbox of an image.
func (b *box) shells(image sandbox.Image) (machine, sandbox.Sheller) {
	b.t.Helper()
	spec := b.spec
	spec.Image = image
	m := b.openSpec(spec)
	sh, ok := sandbox.As[sandbox.Sheller](m.Sandbox)
	if !ok {
		b.t.Fatal("the sandbox has no shells")
	}
	return m, sh
}

// A shellStep is one call, and what it returns.
type shellStep struct {
	op    sandbox.ShellOp
	text  string
	out   string
	match bool // out is a regular expression
	end   sandbox.ShellEnd
	code  int
	dir   string // "": not compared
}

func parseSteps(t *testing.T, body string) (out []shellStep) {
	var st *shellStep
	for i, line := range strings.Split(strings.TrimSuffix(body, "\n"), "\n") {
		rest := ""
		if len(line) > 2 {
			rest = line[2:]
		}
		begin := func(op sandbox.ShellOp) {
			if st != nil {
				t.Fatalf("line %d: the step before has no result", i+1)
			}
			st = &shellStep{op: op, text: rest}
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if st == nil && !strings.ContainsRune("$<^?!", rune(line[0])) {
			t.Fatalf("line %d: a step begins with $, <, ^, ? or !", i+1)
		}
		switch line[0] {
		case '$':
			begin(sandbox.ShellRun)
		case '>':
			st.text += "\n" + rest
		case '<':
			begin(sandbox.ShellInput)
		case '^':
			begin(sandbox.ShellKey)
		case '?':
			begin(sandbox.ShellWait)
		case '!':
			begin(sandbox.ShellReset)
		case '|':
			st.out += rest + "\n"
		case '-':
			st.out += rest
		case '~':
			st.out, st.match = rest, true
		case '[':
			f := strings.Fields(strings.Trim(line, "[]"))
			if n, err := strconv.Atoi(f[0]); err == nil {
				f = append([]string{string(sandbox.ShellCompleted)}, f...)
				st.code = n
			}
			st.end = sandbox.ShellEnd(f[0])
			if len(f) > 1 {
				n, err := strconv.Atoi(f[1])
				if err != nil {
					t.Fatalf("line %d: no exit code", i+1)
				}
				st.code = n
			} else {
				st.code = -1
			}
			if len(f) > 2 {
				st.dir = f[2]
			}
			out = append(out, *st)
			st = nil
		default:
			t.Fatalf("line %d: %q", i+1, line)
		}
	}
	return out
}

func playStep(t *testing.T, sh sandbox.Sheller, name string, st shellStep) bool {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	text := strings.NewReplacer(`\x01`, "\x01", `\xff`, "\xff", `\t`, "\t").Replace(st.text)
	if st.op == sandbox.ShellRun {
		text = st.text
	}
	var out strings.Builder
	call := sandbox.ShellCall{Shell: name, Op: st.op, Text: text, Dir: "/work", Stdout: &out, Timeout: patience}
	if st.end.Running() {
		call.Quiet = 100 * time.Millisecond
	}
	fits := func() bool {
		if !st.match {
			return out.String() == st.out
		}
		ok, err := regexp.MatchString("^(?s:"+st.out+")$", out.String())
		return ok && err == nil
	}
	// A signal that comes while bash is starting the program is lost, as on any terminal: press again.
	again := st.op == sandbox.ShellKey && text != "d" && !st.end.Running()
	if again {
		call.Quiet = 2 * time.Second
	}
	r, err := sh.Shell(ctx, call)
	for again && err == nil && r.End == sandbox.ShellQuiet && ctx.Err() == nil {
		r, err = sh.Shell(ctx, call)
	}
	// What a command prints while it is running may come in several calls.
	for err == nil && r.End == sandbox.ShellQuiet && st.end == r.End && !fits() && ctx.Err() == nil {
		call.Op, call.Text = sandbox.ShellWait, ""
		r, err = sh.Shell(ctx, call)
	}
	if err != nil {
		t.Errorf("%.200q: %v; output %s", st.text, err, short(out.String()))
		return false
	}
	got := fmt.Sprintf("[%s %d %s]", r.End, r.Code, r.Dir)
	if r.End != st.end || r.Code != st.code || st.dir != "" && r.Dir != st.dir || !fits() {
		t.Errorf("%.200q: %s with %s; want [%s %d %s] with %s", st.text, got, short(out.String()), st.end, st.code,
			st.dir, short(st.out))
		return false
	}
	return true
}
