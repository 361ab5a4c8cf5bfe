package executor

import (
	"errors"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func entry(script string) sandbox.Command {
	return sandbox.Command{Args: []string{"/bin/sh", "-c", script}}
}

// The supervised entry and its daemons outlive KillAll; everything else dies by it, however it was
// left behind.
func TestEntry(t *testing.T) {
	c, _ := boot(t).first(Config{})
	e := c.Start(entry("echo begins; setsid sh -c 'echo $$ >/tmp/entry-$0.pid; sleep 1001' $$ & echo $! " +
		">/tmp/entry.mark; echo to stderr >&2; wait; echo over"))
	eventually(t, "the entry prints", func() bool { return strings.Contains(string(e.Logs()), "begins\nto stderr\n") })
	if st, err := c.Stats(t.Context()); err != nil || *st.Pids != 0 {
		t.Errorf("an entry alone: %+v, %v", st, err)
	}
	count := func(arg string) string {
		out, _ := sh(t, c, "ps -eo args | grep -c '^sleep "+arg+"'")
		return strings.TrimSpace(out)
	}
	for range 3 {
		sh(t, c, "setsid sleep 1002 >/dev/null 2>&1 & (sleep 1002 >/dev/null 2>&1 &); sh -c 'sleep 1002 & sleep "+
			"0.01' >/dev/null 2>&1")
		eventually(t, "all daemons run", func() bool { return count("1002") == "3" })
		done := make(chan sandbox.Exit, 1)
		go func() {
			x, err := c.Exec(t.Context(), sandbox.Command{Args: []string{"sleep", "1003"}})
			if err != nil {
				t.Error(err)
			}
			done <- x
		}()
		eventually(t, "a command runs", func() bool { return count("1003") == "1" })
		if err := c.KillAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if x := <-done; x.Signal != "SIGKILL" {
			t.Errorf("a running command: %+v", x)
		}
		if got := count("100[23]"); got != "0" {
			t.Errorf("%s processes live after KillAll", got)
		}
		if got := count("1001"); got != "1" {
			t.Errorf("%s daemons of the entry live after KillAll", got)
		}
	}
	// One tree is killed while others live.
	sh(t, c, "setsid sleep 1004 >/dev/null 2>&1 &")
	x, err := c.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c", "setsid sleep 1005 & sleep 1005"},
		Timeout: 300e6})
	if err != nil || !x.TimedOut {
		t.Errorf("%+v, %v", x, err)
	}
	if count("1005") != "0" || count("1004") != "1" || count("1001") != "1" {
		t.Errorf("after a time-out: %s of its own, %s of another's, %s of the entry's", count("1005"), count("1004"),
			count("1001"))
	}
	// The entry's end is known, and not the machine's.
	select {
	case <-e.Done():
		t.Fatal("the entry has ended")
	default:
	}
	sh(t, c, "kill $(cat /tmp/entry.mark)")
	sh(t, c, "pkill -x -f 'sleep 1001'; true")
	if x, err := e.Exit(); err != nil || x.Code != 0 {
		t.Errorf("the entry's end: %+v, %v", x, err)
	}
	if got := string(e.Logs()); got != "begins\nto stderr\nover\n" {
		t.Errorf("logs: %q", got)
	}
	if out, _ := sh(t, c, "echo fine"); out != "fine\n" {
		t.Errorf("after the entry's end: %q", out)
	}
	if err := c.KillAll(t.Context()); err != nil || count("1004") != "0" {
		t.Errorf("KillAll without an entry: %v", err)
	}
}

// What only the tree of a killed supervisor has left, KillAll finds as well.
func TestEntryStrays(t *testing.T) {
	c, _ := boot(t).first(Config{})
	e := c.Start(entry("sleep 1001"))
	eventually(t, "the entry runs", func() bool {
		out, _ := sh(t, c, "ps -eo args | grep -c '^sleep 1001'")
		return out == "1\n"
	})
	sh(t, c, "setsid sleep 1002 >/dev/null 2>&1 & kill -9 $PPID")
	if err := c.KillAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, _ := sh(t, c, "ps -eo args | grep -c '^sleep 1002'; ps -eo args | grep -c '^sleep 1001'"); out != "0\n1\n" {
		t.Errorf("got %q", out)
	}
	e.Kill()
	if x, err := e.Exit(); err == nil {
		t.Errorf("a killed entry: %+v, want the error of an ended context", x)
	}
	if out, _ := sh(t, c, "ps -eo args | grep -c '^sleep'"); out != "0\n" {
		t.Errorf("got %q", out)
	}
}

func TestEntryThatCannotStart(t *testing.T) {
	m := boot(t)
	c, _ := m.first(Config{})
	e := c.Start(sandbox.Command{Args: []string{"/no/such"}})
	if x, err := e.Exit(); err != nil || x.Code != 127 ||
		!strings.Contains(string(e.Logs()), "/no/such: command not found") {
		t.Errorf("%+v, %v, %q", x, err, e.Logs())
	}
	m2 := boot(t)
	c, _ = m2.first(Config{})
	e = c.Start(entry("sleep 1000"))
	m2.cmd.Process.Kill()
	if _, err := e.Exit(); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("a machine that died: %v", err)
	}
}

func TestLogs(t *testing.T) {
	var l logs
	want := strings.Repeat("a", logsHead) + strings.Repeat("b", logsTail)
	for i := 0; i < len(want); i += 1000 {
		l.Write([]byte(want[i:min(i+1000, len(want))]))
	}
	if got := string(l.bytes()); got != want {
		t.Errorf("%d bytes, want all %d", len(got), len(want))
	}
	for range 7 {
		l.Write([]byte(strings.Repeat("c", 50_000)))
	}
	l.Write([]byte("the end"))
	got := string(l.bytes())
	if !strings.HasPrefix(got, want[:logsHead]+"\n[... 350007 bytes left out ...]\nccc") ||
		!strings.HasSuffix(got, "cccthe end") ||
		len(got) != logsHead+logsTail+len("\n[... 350007 bytes left out ...]\n") {
		t.Errorf("%d bytes, %.100q", len(got), got[logsHead:])
	}
}
