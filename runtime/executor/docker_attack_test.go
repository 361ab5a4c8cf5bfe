package executor

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Each attack is a shell script of root in a container that prints BROKEN when it gets somewhere it
// must not. What fails is fine, however it fails.
var attacks = []struct{ name, script string }{
	{"read the memory of process 1", `head -c1 /proc/1/mem && echo BROKEN; cat /proc/1/maps /proc/1/smaps /proc/1/pagemap && echo BROKEN; [ -n "$(cat /proc/1/environ)" ] && echo BROKEN; [ -n "$(cat /proc/1/auxv | head -c1)" ] && echo BROKEN`},
	{"find its channel", `readlink /proc/1/fd/* && echo BROKEN; readlink /proc/1/task/*/fd/* && echo BROKEN; ls /proc/1/fdinfo/* && echo BROKEN; ls /proc/1/map_files/* && echo BROKEN; readlink /proc/self/fd/* | grep -v "^pipe\|^/dev/null\|^/proc" && echo BROKEN`},
	{"write its channel", `for p in 1 $PPID; do for t in /proc/$p /proc/$p/task/*; do for n in 0 1 2 3 4 5 6 7 8 9 10 11 12; do echo x >$t/fd/$n && echo BROKEN $t $n; done; done; done`},
	{"the same with our supervisor", `head -c1 /proc/$PPID/mem && echo BROKEN; [ -n "$(cat /proc/$PPID/environ)" ] && echo BROKEN; readlink /proc/$PPID/fd/* && echo BROKEN`},
	{"take its descriptors", `python3 -c '
import ctypes, os
l = ctypes.CDLL(None, use_errno=True)
for pid in (1, os.getppid()):
    fd = l.syscall(434, pid, 0)
    for n in range(16):
        if fd >= 0 and l.syscall(438, fd, n, 0) >= 0: print("BROKEN pidfd_getfd", pid, n)
    buf = ctypes.create_string_buffer(8)
    class V(ctypes.Structure): _fields_ = [("b", ctypes.c_void_p), ("n", ctypes.c_size_t)]
    lv, rv = V(ctypes.addressof(buf), 8), V(0x400000, 8)
    for call in (310, 311):
        if l.syscall(call, pid, ctypes.byref(lv), 1, ctypes.byref(rv), 1, 0) >= 0: print("BROKEN process_vm", call, pid)
'`},
	{"trace it", `python3 -c '
import ctypes, os
l = ctypes.CDLL(None, use_errno=True)
sup = os.getppid()
sup = int(open("/proc/%d/stat" % sup).read().split()[3])
for pid in [1, sup] + [int(t) for t in os.listdir("/proc/1/task")]:
    if l.ptrace(16, pid, 0, 0) == 0: print("BROKEN", pid)
    if l.ptrace(0x4206, pid, 0, 0) == 0: print("BROKEN seize", pid)
'`},
	{"signal it", `for s in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 34 50 64; do kill -$s 1; for t in /proc/1/task/*; do kill -$s ${t##*/}; done; done; sleep 0.05; [ "$(cut -d' ' -f3 /proc/1/stat)" = T ] && echo BROKEN`},
	{"set its limits", `python3 -c '
import os, resource
sup = int(open("/proc/%d/stat" % os.getppid()).read().split()[3])
for pid in [1, sup] + [int(t) for t in os.listdir("/proc/1/task")]:
    for r in (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_AS):
        try: resource.prlimit(pid, r, (0, 0)); print("BROKEN", pid, r)
        except (OSError, ValueError): pass
'`},
	{"its binary", `for f in /evalrun-init /proc/1/exe; do echo x >>$f && echo BROKEN $f; done; head -c1 /proc/1/exe && echo BROKEN; ls /proc/1/root/ /proc/1/cwd/ && echo BROKEN`},
	{"freeze it", `find /sys/fs/cgroup -writable -name '*freez*' 2>/dev/null | grep . | while read f; do echo 1 >$f && echo BROKEN; echo FROZEN >$f && echo BROKEN; done; mkdir /sys/fs/cgroup/memory/x /sys/fs/cgroup/x && echo BROKEN`},
	{"gain privileges", `cp /bin/sh /tmp/s && chmod 4755 /tmp/s; grep -q '^NoNewPrivs:.*1' /proc/self/status || echo BROKEN; unshare -Ur true && echo BROKEN; mount -t tmpfs x /mnt && echo BROKEN; nsenter -t 1 -m true && echo BROKEN; grep -q '^CapBnd:.*00000000800404fb' /proc/self/status || echo BROKEN caps`},
	{"descriptors that we forgot", `ls /proc/self/fd | grep -v '^[0123]$' && echo BROKEN`}, // 3 is ls's own
}

func TestContainerAttacks(t *testing.T) {
	box := create(t)
	c, _ := box.start(Config{Key: NewKey()})
	e := c.Start(entry("sleep 1000"))
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			out, x := sh(t, c, "exec 2>/dev/null\n"+a.script)
			if strings.Contains(out, "BROKEN") || x.TimedOut {
				t.Errorf("%+v\n%s", x, out)
			}
			if out, _ := sh(t, c, "echo fine"); out != "fine\n" {
				t.Errorf("afterwards: %q", out)
			}
		})
	}
	select {
	case <-e.Done():
		t.Errorf("the entry has ended: %s", e.Logs())
	default:
	}
}

// With setuid programs allowed there is no filter of ours, and the same holds.
func TestContainerSetuid(t *testing.T) {
	c, _ := create(t, func(host map[string]any) { delete(host, "SecurityOpt") }).start(Config{Setuid: true})
	for _, a := range attacks {
		switch a.name {
		case "gain privileges":
			continue
		}
		if out, x := sh(t, c, "exec 2>/dev/null\n"+a.script); strings.Contains(out, "BROKEN") || x.TimedOut {
			t.Errorf("%s: %+v\n%s", a.name, x, out)
		}
	}
	sh(t, c, "cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id")
	var out strings.Builder
	if x, err := c.Exec(t.Context(), sandbox.Command{Args: []string{"/tmp/id", "-u"}, User: "65534",
		Stdout: &out}); err != nil || out.String() != "0\n" {
		t.Errorf("a setuid program runs as %s%+v, %v", out.String(), x, err)
	}
	if out, _ := sh(t, c, "grep -E '^Cap(Eff|Bnd)' /proc/self/status"); strings.Count(out, "00000000800404fb") != 2 {
		t.Errorf("capabilities: %s", out)
	}
}

// escapes are ways to be left behind by a command.
var escapes = []string{
	"setsid sleep 1002 >/dev/null 2>&1 &",
	"(setsid sleep 1002 >/dev/null 2>&1 &)",
	"setsid sh -c '(trap \"\" 1 2 3 15; sleep 1002 & sleep 1002 & wait) &' >/dev/null 2>&1",
	`python3 -c '
import os, signal
for i in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        for s in range(1, 32):
            try: signal.signal(s, signal.SIG_IGN)
            except (OSError, ValueError): pass
        os.setpgid(0, 0)
        os.execvp("sleep", ["sleep", "1002"])'`,
	"setsid sleep 1002 >/dev/null 2>&1 & kill -9 $PPID",
}

func TestContainerKillAll(t *testing.T) {
	for _, withEntry := range []bool{false, true} {
		c, _ := create(t).start(Config{})
		if withEntry {
			c.Start(entry("sleep 1001 & wait"))
			eventually(t, "the entry runs", func() bool { return lives(t, c, "sleep 1001") == "1" })
		}
		for _, s := range escapes {
			sh(t, c, s)
		}
		eventually(t, "they run", func() bool { return lives(t, c, "sleep 1002") != "0" })
		if err := c.KillAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := lives(t, c, "sleep 1002"); n != "0" {
			t.Errorf("entry %v: %s escaped", withEntry, n)
		}
		bomb := "python3 -c '\nimport os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.001)\n'"
		for _, how := range []string{bomb, "setsid " + bomb + " >/dev/null 2>&1 & sleep 0.5",
			"(setsid " + bomb + " &); sleep 1000"} {
			x, err := c.Exec(t.Context(),
				sandbox.Command{Args: []string{"sh", "-c", how}, Stdout: io.Discard, Timeout: time.Second})
			if err != nil {
				t.Fatalf("entry %v, %.20q: %+v, %v", withEntry, how, x, err)
			}
			if err := c.KillAll(t.Context()); err != nil {
				t.Fatalf("entry %v, %q: %v", withEntry, how[:20], err)
			}
			if st, err := c.Stats(t.Context()); err != nil || *st.Pids != 0 {
				t.Errorf("entry %v: %d processes after KillAll, %v", withEntry, *st.Pids, err)
			}
		}
		if withEntry && lives(t, c, "sleep 1001") != "1" {
			t.Error("the entry was killed")
		}
	}
}

// A command that passes the machine's memory limit dies of it, and says so; process 1 is none of
// the victims.
func TestContainerOOM(t *testing.T) {
	c, _ := create(t, func(host map[string]any) { host["Memory"], host["MemorySwap"] = 64<<20, 64<<20 }).start(Config{})
	for range 3 {
		x, err := c.Exec(t.Context(), sandbox.Command{Args: []string{"python3", "-c", "b = bytearray(1 << 30)"}})
		if err != nil || !x.OOM || x.Signal != "SIGKILL" {
			t.Fatalf("%+v, %v", x, err)
		}
		if x, err := c.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c", "exit 3"}}); err != nil || x.OOM ||
			x.Code != 3 {
			t.Fatalf("the next is blamed: %+v, %v", x, err)
		}
	}
	if st, err := c.Stats(t.Context()); err != nil || st.OOMKills == nil || *st.OOMKills < 3 {
		t.Errorf("Stats: %+v, %v", st, err)
	}
}

// The host's own process is killed; another takes the container up.
func TestContainerReattach(t *testing.T) {
	key := NewKey()
	box := create(t)
	c, ch := box.start(Config{Key: key, Orphan: patience})
	e := c.Start(entry("echo up; sleep 1001"))
	eventually(t, "the entry prints", func() bool { return string(e.Logs()) == "up\n" })
	go c.Exec(context.Background(), sandbox.Command{ID: "a",
		Args: []string{"sh", "-c", "mkfifo /tmp/go; read x </tmp/go; exit 7"}})
	go c.Exec(context.Background(), sandbox.Command{Args: []string{"cat", "/dev/zero"}, Stdout: io.Discard})
	eventually(t, "all runs", func() bool {
		out, _ := sh(t, c, "ls /tmp/go 2>/dev/null; true")
		st, err := c.Stats(t.Context())
		return err == nil && *st.Pids == 2 && out != ""
	})
	for round := range 5 {
		if round%2 == 1 {
			go c.Exec(context.Background(), sandbox.Command{Args: []string{"cat", "/dev/zero"}, Stdout: io.Discard})
		}
		ch.cmd.Process.Signal(os.Kill)
		eventually(t, "the host's calls fail", func() bool { return c.Ping(t.Context()) != nil })
		ch = box.stream("attach", "--sig-proxy=false", box.id)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var err error
		if c, err = Reattach(ctx, ch, Options{Driver: "docker", ID: box.id[:12],
			Config: Config{Key: key}}); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if out, _ := sh(t, c, "echo fine"); out != "fine\n" {
			t.Errorf("got %q", out)
		}
	}
	sh(t, c, "echo >/tmp/go")
	if x, known, err := c.Exit(t.Context(), "a"); x.Code != 7 || !known || err != nil {
		t.Errorf("%+v, %v, %v", x, known, err)
	}
	if lives(t, c, "sleep 1001") != "1" {
		t.Error("the entry has ended")
	}
}
