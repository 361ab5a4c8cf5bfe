package sandboxtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

var limitTests = []test{
	{
		name: "limits/more processors than there are",
		spec: func(s *sandbox.Spec) { s.CPUs = 4096 },
		run:  func(t *testing.T, b *box) { b.open().ok("echo", "fine") },
	},
	{
		name: "limits/memory",
		need: func(c Claims) bool { return c.Memory },
		spec: func(s *sandbox.Spec) { s.Memory = 128 << 20 },
		run: func(t *testing.T, b *box) {
			m := b.open()
			if r := m.run("alloc", fmt.Sprint(32<<20)); r.Code != 0 || r.OOM {
				t.Errorf("a part of the limit: %+v, %s", r.Exit, r.Err)
			}
			r := m.run("alloc", fmt.Sprint(1<<30))
			if !r.OOM || r.Code == 0 || r.TimedOut {
				t.Errorf("eight times the limit: %+v, want OOM", r.Exit)
			}
			// The machine survives, and the next command is not blamed.
			if r := m.run("exit", "3"); r.Code != 3 || r.OOM {
				t.Errorf("afterwards: %+v", r.Exit)
			}
		},
	},
	{
		name: "limits/disk",
		need: func(c Claims) bool { return c.Disk },
		spec: func(s *sandbox.Spec) { s.Disk = 32 << 20 },
		run: func(t *testing.T, b *box) {
			m := b.open()
			if r := m.run("fill", "/tmp/little", fmt.Sprint(1<<20)); r.Code != 0 {
				t.Errorf("a part of the limit: %+v, %s", r.Exit, r.Err)
			}
			for _, dir := range []string{"/tmp", "/opt/sandboxtest", "/root", "/dev/shm"} {
				r := m.run("fill", dir+"/much", fmt.Sprint(200<<20))
				if r.Code == 0 {
					t.Errorf("200 MiB into %s fitted into a disk of 32", dir)
				} else if dir == "/tmp" && !strings.Contains(r.Err, "no space left") {
					t.Errorf("a full disk: %+v, %s", r.Exit, r.Err)
				}
			}
			if got := m.ok("echo", "fine"); got != "fine\n" {
				t.Errorf("on a full disk: %q", got)
			}
			// Output that is cut still comes, where it cannot be kept.
			c := m.command("spam", "5000000")
			c.Limit = 1000
			if r := m.exec(c); r.Code != 0 || r.Exit.Out != 5000000 {
				t.Errorf("output on a full disk: %+v", r.Exit)
			} else if err := checkCut(r.Out, 5000000, 1000); err != nil {
				t.Errorf("output on a full disk: %v", err)
			}
			if err := m.KillAll(b.ctx()); err != nil {
				t.Errorf("KillAll: %v", err)
			}
		},
	},
	{
		name: "limits/pids",
		need: func(c Claims) bool { return c.Pids },
		spec: func(s *sandbox.Spec) { s.Pids = 128 },
		run: func(t *testing.T, b *box) {
			m := b.open()
			r := m.run("bomb", "1000")
			if r.Code == 0 {
				t.Errorf("1000 processes fitted into a limit of 128: %+v", r.Exit)
			}
			if err := m.KillAll(b.ctx()); err != nil {
				t.Fatalf("KillAll after a bomb: %v", err)
			}
			if got := m.ok("echo", "fine"); got != "fine\n" {
				t.Errorf("afterwards: %q", got)
			}
		},
	},
}
