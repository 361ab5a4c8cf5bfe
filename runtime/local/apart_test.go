package local

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The system's files are shared to be read: a lock on one of them inside is none outside, and who
// watches it inside does not see who opens it outside.
func TestSystemFilesApart(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	sb := create(t, require(t), sandbox.Spec{})
	if out, _ := sh(t, sb, "grep ' /usr ' /proc/self/mounts"); !strings.HasPrefix(out, "overlay ") {
		t.Skip("no overlay over this machine's /usr: ", out)
	}
	out := &tailBuffer{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sb.Exec(context.Background(), sandbox.Command{Stdout: out, Stderr: out, Args: []string{"python3", "-c", `
import ctypes, fcntl, os, time
f = open("/usr/bin/env", "rb")
fcntl.flock(f, fcntl.LOCK_EX)
watch = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK)
assert ctypes.CDLL(None).inotify_add_watch(watch, b"/usr/bin/env", 0xfff) >= 0
print("locked", flush=True)
while not os.path.exists("/tmp/opened"): time.sleep(0.01)
try: print(os.read(watch, 1000))
except BlockingIOError: print("nothing seen")
`}})
	}()
	eventually(t, "it has locked and watches", func() bool { return out.String() != "" })
	f, err := os.Open("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("locked outside as well: %v", err)
	}
	sh(t, sb, "touch /tmp/opened")
	<-ended
	if out.String() != "locked\nnothing seen\n" {
		t.Errorf("inside: %q", out)
	}
	if out, _ := sh(t, sb, "ls /proc/pressure"); out != "" {
		t.Errorf("this machine's pressure is seen: %s", out)
	}
}
