package local

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// counted takes what the kernel counts for a user, or for all of them: one of each, or with the
// argument "all" as much as it gets, which it then holds. It prints what was refused.
const counted = `
import array, ctypes, errno, fcntl, os, signal, socket, sys, time
l = ctypes.CDLL(None, use_errno=True)
held = []
def must(r):
    if r < 0:
        n = ctypes.get_errno()
        raise OSError(n, os.strerror(n))
    return r
def inotify():
    held.append(must(l.inotify_init()))
class attr(ctypes.Structure):
    _fields_ = [(n, ctypes.c_long) for n in ("flags", "maxmsg", "msgsize", "curmsgs", "a", "b", "c", "d")]
class event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("pad", ctypes.c_char * 48)]
n = 0
def queue():
    global n
    n += 1
    held.append(must(l.mq_open(b"/%d-%d" % (os.getpid(), n), os.O_CREAT | os.O_RDWR, 0o600, ctypes.byref(attr(maxmsg=10, msgsize=1024)))))
    if not every:
        l.mq_unlink(b"/%d-%d" % (os.getpid(), n))
def timer():
    t = ctypes.c_void_p()
    must(l.timer_create(0, ctypes.byref(event(signo=signal.SIGUSR1)), ctypes.byref(t)))
    held.append(t)
def pipe():
    r, w = os.pipe()
    held.extend((r, w))
    size = fcntl.fcntl(w, 1032)
    if size < 65536:
        raise OSError(errno.ENOBUFS, "a pipe of %d bytes" % size)
    if every:
        fcntl.fcntl(w, 1031, 1 << 20)
def send():
    if every and len(held) > 200:
        raise OSError(0, "enough")
    a, b = socket.socketpair()
    fds = array.array("i", [0] * (200 if every else 1))
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    held.extend((a, b))
def terminal():
    held.extend(os.openpty())
every = sys.argv[1:] == ["all"]
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
for f in terminal, inotify, queue, timer, pipe, send:
    try:
        f()
        while every: f()
    except (OSError, ValueError) as err:
        if not every: print(f.__name__, err)
        else: print(f.__name__, len(held), err, file=sys.stderr)
print("done", flush=True)
if every: time.sleep(1000)
`

// What the kernel counts for a user, or for all of them, is no way out of a sandbox: while one
// holds all that it can get of it, the others and this machine have what they need.
func TestCounted(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	// So that it does not take long to take all of them.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_SIGPENDING, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = min(few.Cur, 8000)
	if err := unix.Setrlimit(unix.RLIMIT_SIGPENDING, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_SIGPENDING, &limit) })
	d := require(t)
	hog, other := create(t, d, sandbox.Spec{}), create(t, d, sandbox.Spec{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	out := &tailBuffer{}
	go func() {
		_, err := hog.Exec(ctx, sandbox.Command{Args: []string{"python3", "-c", counted, "all"}, Stdout: out,
			Stderr: out})
		ended <- err
	}()
	eventually(t, "it holds all that it can get", func() bool { return strings.Contains(out.String(), "done\n") })
	if out, x := sh(t, other, "exec python3 -c '"+strings.ReplaceAll(counted, "'", `'\''`)+"'"); out != "done\n" {
		t.Errorf("another sandbox: %s%+v", out, x)
	}
	if out, err := exec.CommandContext(t.Context(), "python3", "-c",
		counted).CombinedOutput(); string(out) != "done\n" || err != nil {
		t.Errorf("the host: %s%v", out, err)
	}
	fresh := create(t, d, sandbox.Spec{})
	if out, _ := sh(t, fresh, "echo fine"); out != "fine\n" {
		t.Errorf("a new sandbox: %q", out)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}
