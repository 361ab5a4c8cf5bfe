package sandboxtest

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest/verb"
)

// families are the ways in which a process can stay behind.
var families = []string{"child", "setsid", "double"}

var killTests = []test{
	{name: "kill/timeout", run: func(t *testing.T, b *box) {
		m := b.open()
		// Everything that the command ever started dies with it: its group, those that left it,
		// orphans, the deaf.
		var args []string
		for _, how := range families {
			args = append(args, "start", how, "keep", "/tmp/"+how, ",", "start", how, "drop", "/tmp/deaf-"+how,
				"ignore", ",", "start", how, "drop", "/tmp/headless-"+how, "exit-main-thread", ",")
		}
		args = append(args, "echo", "ready", ",", "ignore", ",", "hold", "/tmp/main")
		c := m.command(args...)
		c.Timeout = time.Second
		r := m.exec(c)
		if !r.TimedOut || r.Code != -1 || r.OOM {
			t.Errorf("got %+v, want a time-out and code -1", r.Exit)
		}
		if r.Wall < 900*time.Millisecond {
			t.Errorf("Exit.Wall is %v, after a time-out of 1 s", r.Wall)
		}
		for _, how := range families {
			for _, f := range []string{"/tmp/" + how, "/tmp/deaf-" + how, "/tmp/headless-" + how} {
				if m.run("held", f).Code == 0 {
					t.Errorf("%s: still runs after the time-out", f)
				}
			}
		}
		if m.run("held", "/tmp/main").Code == 0 {
			t.Error("the command itself still runs after the time-out")
		}
		// What was printed before is kept, and who ends in time is left alone.
		c = m.command("echo", "early", ",", "sleep", "1000h")
		c.Timeout = 500 * time.Millisecond
		if r := m.exec(c); r.Out != "early\n" || !r.TimedOut {
			t.Errorf("got %+v, %q", r.Exit, r.Out)
		}
		c = m.command("echo", "in time")
		c.Timeout = patience
		if r := m.exec(c); r.TimedOut || r.Code != 0 || r.Out != "in time\n" {
			t.Errorf("got %+v, %q", r.Exit, r.Out)
		}
	}},
	{name: "kill/timeout-is-its-own", run: func(t *testing.T, b *box) {
		// A time-out kills its command's tree, and nobody else's.
		m := b.open()
		m.start("double", "drop", "/tmp/service")
		c := m.command("start", "setsid", "keep", "/tmp/mine", ",", "start", "double", "drop", "/tmp/headless",
			"exit-main-thread", ",", "hold", "/tmp/main")
		c.Timeout = time.Second
		if r := m.exec(c); !r.TimedOut {
			t.Errorf("got %+v", r.Exit)
		}
		for _, f := range []string{"/tmp/mine", "/tmp/headless"} {
			if m.run("held", f).Code == 0 {
				t.Errorf("%s: its child still runs", f)
			}
		}
		if !m.alive("/tmp/service") {
			t.Error("the service of an earlier command was killed too")
		}
	}},
	{name: "kill/all", run: func(t *testing.T, b *box) {
		m := b.open()
		for _, how := range families {
			m.start(how, "keep", "/tmp/"+how, "ignore")
			m.start(how, "drop", "/tmp/headless-"+how, "exit-main-thread")
			if !m.alive("/tmp/" + how) {
				t.Errorf("%s: did not outlive its Exec", how)
			}
		}
		// One that still runs in an Exec ends as well, and its Exec returns.
		done := make(chan result, 1)
		go func() {
			r, err := m.try(b.ctx(), m.command("ignore", ",", "hold", "/tmp/running"))
			if err != nil {
				t.Errorf("Exec during KillAll: %v", err)
			}
			done <- r
		}()
		m.waitHeld("/tmp/running")
		if err := m.KillAll(b.ctx()); err != nil {
			t.Fatalf("KillAll: %v", err)
		}
		if r := <-done; r.Code != -1 || r.Signal != "SIGKILL" || r.TimedOut || r.OOM {
			t.Errorf("the command that ran: got %+v, want code -1 and SIGKILL", r.Exit)
		}
		for _, f := range append(families, "running") {
			if m.alive("/tmp/"+f) || f != "running" && m.alive("/tmp/headless-"+f) {
				t.Errorf("%s: still runs after KillAll", f)
			}
		}
		// Nothing to kill is fine, and the machine is as good as before.
		if err := m.KillAll(b.ctx()); err != nil {
			t.Errorf("KillAll of nothing: %v", err)
		}
		if got := m.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("afterwards: got %q", got)
		}
	}},
	{name: "kill/by-the-command", run: func(t *testing.T, b *box) {
		// A command that kills all it can see harms itself and its like, not the machine.
		m := b.open()
		if ours, err := os.Readlink("/proc/self/ns/pid"); err == nil && m.ok("pidns") == ours+"\n" && os.Getpid() != 1 {
			t.Skip("commands run among the processes of this machine, and this one would kill them all")
		}
		m.start("double", "drop", "/tmp/service")
		c := m.command("kill", "-1", "9")
		c.Timeout = 15 * time.Second // where it may not, it waits for its end
		if r, err := m.try(b.ctx(), c); err != nil {
			t.Errorf("kill -9 -1: %v", err)
		} else if r.Code == 0 {
			t.Errorf("kill -9 -1: %+v", r.Exit)
		}
		for range 3 {
			if got := m.ok("echo", "fine"); got != "fine\n" {
				t.Errorf("afterwards: got %q", got)
			}
		}
		if err := m.KillAll(b.ctx()); err != nil {
			t.Errorf("KillAll: %v", err)
		}
		if m.alive("/tmp/service") {
			t.Error("the service still runs after KillAll")
		}
	}},
	{name: "kill/bomb", run: func(t *testing.T, b *box) {
		// Many children left behind are as dead as one.
		m := b.open()
		m.ok("bomb", "30")
		c := m.command("bomb", "30", ",", "hold", "/tmp/bomb")
		c.Timeout = time.Second
		if r := m.exec(c); !r.TimedOut {
			t.Errorf("got %+v", r.Exit)
		}
		if err := m.KillAll(b.ctx()); err != nil {
			t.Fatalf("KillAll: %v", err)
		}
		if n := running(b, m); n > 0 {
			t.Errorf("%d processes after KillAll", n)
		}
	}},
	{name: "kill/storm", run: func(t *testing.T, b *box) {
		// Commands that start while all is being killed end one way or the other, and none escapes.
		m := b.open()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 12 {
					file := fmt.Sprintf("/tmp/storm-%d-%d", i, n)
					r, err := m.try(b.ctx(), m.command("start", families[n%len(families)], "keep", file))
					if err != nil || r.Code != 0 && r.Signal != "SIGKILL" && r.Code != verb.Failed {
						t.Errorf("Exec: %+v, %s, error %v", r.Exit, r.Err, err)
						return
					}
				}
			})
		}
		for range 8 {
			if err := m.KillAll(b.ctx()); err != nil {
				t.Errorf("KillAll: %v", err)
			}
		}
		wg.Wait()
		if err := m.KillAll(b.ctx()); err != nil {
			t.Errorf("KillAll: %v", err)
		}
		if n := running(b, m); n != 0 {
			t.Errorf("%d processes escaped", n)
		}
		if got := m.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("afterwards: got %q", got)
		}
	}},
}
