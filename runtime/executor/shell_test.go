package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func shell(t testing.TB, c *Client, call sandbox.ShellCall) (string, sandbox.ShellResult) {
	t.Helper()
	var out bytes.Buffer
	call.Stdout = &out
	if call.Timeout == 0 {
		call.Timeout = patience
	}
	x, err := c.Shell(t.Context(), call)
	if err != nil {
		t.Fatalf("%.200s: %v", call.Text, err)
	}
	return out.String(), x
}

func bashClient(t *testing.T) *Client {
	t.Helper()
	c, _ := boot(t).first(Config{Env: []string{"HOME=/"}})
	if _, x := sh(t, c, "command -v bash && test -e /dev/ptmx"); x.Code != 0 {
		t.Skip("needs bash and terminals")
	}
	return c
}

// Long output is cut in the middle, and the file has all of it.
func TestShellOutput(t *testing.T) {
	c := bashClient(t)
	out, x := shell(t, c, sandbox.ShellCall{Text: "seq 100000", Limit: 1000})
	if x.Out != 588895 || !strings.HasPrefix(out, "1\n2\n3\n") || !strings.HasSuffix(out, "99999\n100000\n") ||
		!strings.Contains(out, "\n[... 587895 bytes left out ...]\n") || x.Full == "" {
		t.Errorf("%+v, %q", x, out)
	}
	if out, _ := sh(t, c, "wc -c < "+x.Full); strings.TrimSpace(out) != "588895" {
		t.Errorf("the file has %s bytes", out)
	}
	// A command of a megabyte, with many lines.
	var long strings.Builder
	long.WriteString("cat <<'EOF' | wc\n")
	for i := range 100_000 {
		fmt.Fprintf(&long, "%09d\n", i)
	}
	long.WriteString("EOF")
	if out, x := shell(t, c, sandbox.ShellCall{Text: long.String()}); x.Code != 0 ||
		strings.Join(strings.Fields(out), " ") != "100000 100000 1000000" {
		t.Errorf("%+v, %q", x, out)
	}
	// Nobody takes the output of a command that goes on: it ends, and no memory grows.
	shell(t, c, sandbox.ShellCall{Text: "yes | head -c 50000000; echo end", Timeout: time.Millisecond, Limit: 1000})
	for {
		out, x := shell(t, c, sandbox.ShellCall{Op: sandbox.ShellWait, Limit: 1000})
		if len(out) > 1100 {
			t.Fatalf("%d bytes", len(out))
		}
		if x.End == sandbox.ShellCompleted {
			break
		}
	}
	if out, x := shell(t, c, sandbox.ShellCall{Text: `printf 'a\0b\377\n'`}); out != "a\x00b\xff\n" || x.Code != 0 {
		t.Errorf("%+v, %q", x, out)
	}
}

// A call with an ID is executed once.
func TestShellOnce(t *testing.T) {
	c := bashClient(t)
	for range 2 {
		out, x := shell(t, c, sandbox.ShellCall{ID: "a", Text: "echo $((++n)); cd /"})
		if out != "1\n" || x.Code != 0 || x.Dir != "/" {
			t.Errorf("%+v, %q", x, out)
		}
	}
	if out, _ := shell(t, c, sandbox.ShellCall{ID: "b", Text: "echo $((++n))"}); out != "2\n" {
		t.Errorf("%q", out)
	}
}

// The end of a context and a reset kill everything that the session has started.
func TestShellKill(t *testing.T) {
	c := bashClient(t)
	alive := func() bool {
		st, err := c.Stats(t.Context())
		return err != nil || *st.Pids != 0
	}
	for _, daemon := range []string{"", "setsid sleep 1000 >/dev/null 2>&1 & ", "(trap '' HUP INT TERM; sleep 1000) & "} {
		why := errors.New("the trial is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, why)
		_, err := c.Shell(ctx, sandbox.ShellCall{Text: daemon + "sleep 1000"})
		cancel()
		if !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		eventually(t, "the session is gone", func() bool { return !alive() })
		shell(t, c, sandbox.ShellCall{Text: daemon + "true"})
		shell(t, c, sandbox.ShellCall{Op: sandbox.ShellReset})
		if alive() {
			t.Error("a reset has left processes")
		}
	}
	// After KillAll, a command runs in a new session, also if one was running before.
	for _, last := range []string{"", "; echo begun; sleep 1000"} {
		shell(t, c, sandbox.ShellCall{Text: "x=1" + last, Timeout: 500 * time.Millisecond})
		if err := c.KillAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		out, x := shell(t, c, sandbox.ShellCall{Text: "echo \"<$x>\""})
		if !strings.HasSuffix(out, "<>\n") || !x.Began || x.End != sandbox.ShellCompleted {
			t.Errorf("after KillAll: %+v, %q", x, out)
		}
	}
}

// Neither output nor another process forges the end of a command.
func TestShellForged(t *testing.T) {
	c := bashClient(t)
	shell(t, c, sandbox.ShellCall{Text: "cd /"})
	out, x := shell(t, c, sandbox.ShellCall{Text: `
		for fd in /proc/$$/fd/*; do (printf '2\0000\000/forged\000' >&${fd##*/}) 2>/dev/null; done
		(for i in $(seq 0 20) 43; do printf '2\0000\000/forged\000' >&$i; done) >/dev/null 2>&1
		echo honest; (exit 7)`})
	if x.Code != 7 || x.Dir != "/" || !strings.HasSuffix(out, "honest\n") || x.End != sandbox.ShellCompleted {
		t.Errorf("%+v, %q", x, out)
	}
	if out, x := shell(t, c, sandbox.ShellCall{Text: "echo next"}); out != "next\n" || x.Code != 0 || x.Dir != "/" {
		t.Errorf("%+v, %q", x, out)
	}
}

// Sessions do not disturb each other.
func TestShellMany(t *testing.T) {
	c := bashClient(t)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			name := fmt.Sprint(i)
			for range 3 {
				var out bytes.Buffer
				x, err := c.Shell(t.Context(), sandbox.ShellCall{Shell: name, Stdout: &out, Text: "n=${n:-" + name + "}; echo $n"})
				if err != nil || out.String() != name+"\n" || x.Code != 0 {
					t.Errorf("shell %d: %+v, %q, %v", i, x, &out, err)
				}
			}
		})
	}
	wg.Wait()
}

// Without bash, a shell is refused with the reason, and so is one without a usable directory.
func TestNoShell(t *testing.T) {
	c, _ := boot(t).first(Config{Env: []string{"HOME=/"}})
	_, err := c.Shell(t.Context(), sandbox.ShellCall{Text: "true", Env: map[string]string{"PATH": "/nowhere"}})
	var no *sandbox.Unsupported
	if !errors.As(err, &no) || !strings.Contains(no.What, "bash cannot be started") {
		t.Errorf("error %v", err)
	}
	_, err = c.Shell(t.Context(), sandbox.ShellCall{Text: "true", Dir: "/nowhere"})
	if err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("error %v", err)
	}
}
