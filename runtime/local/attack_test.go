package local

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Each attack is a shell script that prints BROKEN when it gets somewhere it must not. What fails
// is fine, however it fails.
var attacks = []struct{ name, script string }{
	{"read the memory of process 1", `head -c1 /proc/1/mem && echo BROKEN; cat /proc/1/maps && echo BROKEN`},
	{"read the environment of process 1", `[ -n "$(cat /proc/1/environ)" ] && echo BROKEN`},
	{"open what process 1 has open", `readlink /proc/1/fd/* && echo BROKEN; for f in /proc/1/fd/*; do head -c0 $f && echo BROKEN; done; readlink /proc/1/exe && echo BROKEN; head -c1 /proc/1/exe && echo BROKEN; ls /proc/1/root/ && echo BROKEN; ls /proc/1/cwd/ && echo BROKEN`},
	{"the same with our supervisor", `head -c1 /proc/$PPID/mem && echo BROKEN; [ -n "$(cat /proc/$PPID/environ)" ] && echo BROKEN; readlink /proc/$PPID/fd/* && echo BROKEN`},
	{"write to the descriptors of our supervisor", `echo x >/proc/$PPID/fd/3 && echo BROKEN`},
	{"kill process 1", `for s in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 34 50 64; do kill -$s 1; done; sleep 0.05; [ "$(cut -d' ' -f3 /proc/1/stat)" = T ] && echo BROKEN`},
	{"mount", `mount -t tmpfs x /mnt && echo BROKEN; mount --bind /etc /mnt && echo BROKEN; mount -t proc x /mnt && echo BROKEN`},
	{"make what is read-only writable", `mount -o remount,rw /usr && echo BROKEN; mount -o remount,bind,rw /usr && echo BROKEN; touch /usr/x /etc/ssl/certs/x && echo BROKEN`},
	{"uncover what is covered", `umount /proc/cmdline && echo BROKEN; umount -l /proc && echo BROKEN; [ -n "$(cat /proc/cmdline)" ] && echo BROKEN`},
	{"new namespaces", `unshare -U true && echo BROKEN; unshare -Ur true && echo BROKEN; unshare -m true && echo BROKEN; unshare -n true && echo BROKEN; nsenter -t 1 -m true && echo BROKEN`},
	{"settings of the kernel", `for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/net/ipv4/ip_forward /proc/sys/vm/drop_caches /proc/sysrq-trigger; do echo 1 >$f && echo BROKEN $f; done`},
	{"the kernel's view", `ls /sys/kernel && echo BROKEN; head -c1 /proc/kcore | grep -q . && echo BROKEN; [ -n "$(cat /proc/keys)" ] && echo BROKEN`},
	{"make devices", `mknod /tmp/d b 254 0 && head -c1 /tmp/d && echo BROKEN; mknod /tmp/m c 1 1 && head -c1 /tmp/m && echo BROKEN`},
	{"devices of the host", `ls /dev/vda /dev/sda /dev/kmsg /dev/mem /dev/kvm /dev/fuse 2>/dev/null | grep . && echo BROKEN`},
	{"gain privileges", `cp /bin/sh /tmp/s && chmod 4755 /tmp/s && grep -q '^NoNewPrivs:.*1' /proc/self/status || echo BROKEN; grep -q '^Seccomp:.*2' /proc/self/status || echo BROKEN`},
	{"files of the host", `find / -xdev -name 'SECRET-*' 2>/dev/null | grep . && echo BROKEN; ls -A /root | grep . && echo BROKEN; ls -A /home | grep . && echo BROKEN; ls /workspace /opt/* 2>/dev/null | grep . && echo BROKEN`},
	{"sockets of the host", `find / -type s 2>/dev/null | grep . && echo BROKEN; [ "$(wc -l </proc/net/unix)" -le 1 ] || echo BROKEN`},
	{"memory that nobody counts", `[ "$(cat /proc/sys/kernel/shmall)" -le 1000000 ] || echo BROKEN shm; grep -q '^Max address space *unlimited' /proc/self/limits || python3 -c '
import os
os.memfd_create("x")' && grep -q '^Max address space *[0-9]' /proc/self/limits && echo BROKEN memfd`},
	{"leave by chroot", `mkdir -p /tmp/r && python3 -c '
import os
os.chroot("/tmp/r")
for _ in range(64): os.chdir("..")
os.chroot(".")
print("BROKEN" if os.path.exists("/workspace") or os.path.exists("/boot") else "")'`},
	{"descriptors that we forgot", `ls /proc/self/fd | grep -v '^[0123]$' && echo BROKEN`}, // 3 is ls's own
	{"keys", `python3 -c '
import ctypes
l = ctypes.CDLL(None, use_errno=True)
if l.syscall(248, b"user", b"a", b"b", 1, -4) >= 0: print("BROKEN add_key")
if l.syscall(250, 0, -4, 1) >= 0: print("BROKEN keyctl")
if l.syscall(321, 0, 0, 0) >= 0: print("BROKEN bpf")
if l.syscall(425, 8, ctypes.create_string_buffer(256)) >= 0: print("BROKEN io_uring")
if l.syscall(272, 0x10000000) >= 0: print("BROKEN unshare")
if l.syscall(56, 0x10000000|17, 0, 0, 0, 0) >= 0: print("BROKEN clone")
if l.syscall(0x40000000|39) >= 0: print("BROKEN x32")
'`},
	{"sockets that no namespace keeps in", `python3 -c '
import socket
for f in (40, 38):
    try: socket.socket(f, socket.SOCK_STREAM if f == 40 else socket.SOCK_SEQPACKET); print("BROKEN", f)
    except OSError: pass
'`},
	{"trace process 1", `python3 -c '
import ctypes, os
l = ctypes.CDLL(None, use_errno=True)
sup = int(open("/proc/%d/stat" % os.getppid()).read().split()[3])
for pid in (1, sup):
    if l.ptrace(16, pid, 0, 0) == 0: print("BROKEN", pid)
    if l.ptrace(0x4206, pid, 0, 0) == 0: print("BROKEN seize", pid)
'`},
	{"become nobody's user", `python3 -c '
import os
for u in (65536, 100000, 2**31):
    try: os.setuid(u); print("BROKEN", u)
    except OSError: pass
'`},
	{"the network", `python3 -c '
import socket
for a in (("169.254.169.254", 80), ("1.1.1.1", 53), ("10.0.0.1", 22)):
    s = socket.socket(); s.settimeout(2)
    try: s.connect(a); print("BROKEN", a)
    except OSError: pass
'; grep -vE 'lo:|Inter|face' /proc/net/dev | grep . && echo BROKEN`},
}

func TestAttacks(t *testing.T) {
	d := require(t)
	home, err := os.UserHomeDir()
	if err == nil {
		f, err := os.CreateTemp(home, "SECRET-")
		if err == nil {
			f.Close()
			defer os.Remove(f.Name())
		}
	}
	os.WriteFile(filepath.Join(t.TempDir(), "SECRET-2"), nil, 0o644)
	before := left(t)
	sb := create(t, d, sandbox.Spec{Orphan: time.Hour}) // its executor has more: a key, and a socket
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			out, x := sh(t, sb, "exec 2>/dev/null\n"+a.script)
			if strings.Contains(out, "BROKEN") || x.TimedOut {
				t.Errorf("%+v\n%s", x, out)
			}
			if out, _ := sh(t, sb, "echo fine"); out != "fine\n" {
				t.Errorf("afterwards: %q", out)
			}
		})
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if m := more(t, before); len(m) > 0 {
		t.Errorf("left over:\n%s", strings.Join(m, "\n"))
	}
}

// TestSupervisorAttacked kills and stops the process that a command belongs to.
func TestSupervisorAttacked(t *testing.T) {
	sb := create(t, require(t), sandbox.Spec{})
	_, x := sh(t, sb, "setsid sleep 1000 & kill -9 $PPID; sleep 1000")
	if x.Signal != "SIGKILL" || x.TimedOut {
		t.Errorf("killed its supervisor: %+v", x)
	}
	eventually(t, "nothing of it lives", func() bool {
		out, _ := sh(t, sb, "ps ax | grep -c '[s]leep 1000'")
		return out == "0\n"
	})
	x, err := sb.Exec(context.Background(),
		sandbox.Command{Args: []string{"sh", "-c", "setsid sleep 1000 & kill -STOP $PPID; sleep 1000"},
			Timeout: 300 * time.Millisecond})
	if err != nil || !x.TimedOut {
		t.Errorf("stopped its supervisor: %+v %v", x, err)
	}
	if out, _ := sh(t, sb, "ps ax | grep -c '[s]leep 1000'"); out != "0\n" {
		t.Errorf("%s processes live", out)
	}
}

// TestForkBomb fills the table of processes, twice: with a time-out, and left behind.
func TestForkBomb(t *testing.T) {
	d := require(t)
	sb := create(t, d, sandbox.Spec{Pids: 64})
	bomb := `python3 -c '
import os, time
while True:
    try: os.fork()
    except OSError: time.sleep(0.01)
'`
	for _, script := range []string{bomb, "setsid " + bomb + " >/dev/null 2>&1 & sleep 0.3",
		"(setsid " + bomb + " &) ; sleep 1000"} {
		x, err := sb.Exec(context.Background(),
			sandbox.Command{Args: []string{"sh", "-c", script}, Timeout: time.Second})
		if err != nil {
			t.Fatalf("%s: %+v %v", script, x, err)
		}
		st, err := sandboxStats(sb)
		if err != nil || st > 64+executor.OwnPids {
			t.Errorf("%d processes, %v", st, err)
		}
		if err := sb.KillAll(context.Background()); err != nil {
			t.Fatal(err)
		}
		if st, err := sandboxStats(sb); err != nil || st != 0 {
			t.Errorf("after KillAll: %d processes, %v", st, err)
		}
		if out, x := sh(t, sb, "echo fine"); out != "fine\n" {
			t.Errorf("afterwards: %q %+v", out, x)
		}
	}
}

func sandboxStats(sb sandbox.Sandbox) (int, error) {
	st, err := sb.(sandbox.Stater).Stats(context.Background())
	if err != nil {
		return 0, err
	}
	return *st.Pids, nil
}

// TestDiskFull fills every place that can be written to; the sandbox still does its work.
func TestDiskFull(t *testing.T) {
	sb := create(t, require(t), sandbox.Spec{Disk: 8 << 20})
	sh(t, sb, "for d in /tmp /root /var/tmp /dev/shm /run / /etc; do dd if=/dev/zero of=$d/fill bs=64k count=1000 "+
		"2>/dev/null; done")
	st, err := sb.(sandbox.Stater).Stats(context.Background())
	if err != nil || *st.Disk > 8<<20 || *st.Disk < 7<<20 {
		t.Errorf("%d bytes on the disk, %v", *st.Disk, err)
	}
	var b bytes.Buffer
	x, err := sb.Exec(context.Background(),
		sandbox.Command{Args: []string{"sh", "-c", "seq 1 100000"}, Stdout: &b, Limit: 1000})
	if err != nil || x.Code != 0 || x.Out < 100000 {
		t.Errorf("output on a full disk: %+v %v", x, err)
	}
	if err := sb.Put(context.Background(), "/workspace", fstest.MapFS{"big": {Data: make([]byte, 1<<20)}}); err == nil {
		t.Error("a file on a full disk: no error")
	}
	sh(t, sb, "rm -f /tmp/fill /root/fill")
	if err := sb.Put(context.Background(), "/workspace", fstest.MapFS{"big": {Data: make([]byte, 1<<20)}}); err != nil {
		t.Error(err)
	}
}

// TestPaths looks for names of the host's folders in all that tells about mounts.
func TestPaths(t *testing.T) {
	sb := create(t, require(t), sandbox.Spec{})
	out, _ := sh(t, sb, "cat /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats /proc/self/cgroup "+
		"/proc/self/maps /proc/1/cmdline /proc/$PPID/cmdline; hostname")
	host, _ := os.Hostname()
	wd, _ := os.Getwd()
	for _, s := range []string{wd, os.TempDir() + "/", "/root", "/home", "evalrun/local", host} {
		if len(s) > 3 && strings.Contains(out, s) {
			t.Errorf("%q is seen inside:\n%s", s, out)
		}
	}
}
