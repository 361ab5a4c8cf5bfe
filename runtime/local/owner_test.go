package local

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// asOwner is a process that has a sandbox with a daemon in it, and waits to be killed.
func asOwner() {
	d := New()
	if os.Getenv("EVALRUN_TEST_OWNER") == "none" {
		d = NewUnisolated()
	}
	if dir := os.Getenv("EVALRUN_TEST_STATE"); dir != "" {
		d.state = dir
	}
	sb, err := d.Create(context.Background(), sandbox.Spec{Owner: sandbox.Self()})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	// One in the background with a session of its own, one in the foreground.
	mark := os.Getenv("EVALRUN_TEST_MARK")
	x, err := sb.Exec(context.Background(),
		sandbox.Command{Args: []string{"/bin/sh", "-c", "setsid sleep " + mark + " >/dev/null 2>&1 & sleep 0.1"}})
	if err != nil || x.Code != 0 {
		fmt.Println("error", x, err)
		os.Exit(1)
	}
	go sb.Exec(context.Background(), sandbox.Command{Args: []string{"sleep", mark}})
	fmt.Println("ready", sb.ID(), d.sp.s.cmd.Process.Pid)
	select {}
}

// owner starts such a process.
func owner(t *testing.T, driver, mark string) (cmd *exec.Cmd, id string, spawner int) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "EVALRUN_TEST_OWNER="+driver, "EVALRUN_TEST_MARK="+mark)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	if n, _ := fmt.Sscanf(line, "ready %s %d", &id, &spawner); n != 2 {
		t.Fatalf("the owner said %q", line)
	}
	return cmd, id, spawner
}

// running counts processes with an argument.
func running(mark string) int {
	n := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, _ := os.ReadFile(f); strings.Contains(string(b), "\x00"+mark+"\x00") &&
			strings.HasPrefix(string(b), "sleep\x00") {
			n++
		}
	}
	return n
}

// remains lists what a sandbox has left outside.
func remains(id string) []string {
	var out []string
	for _, d := range []string{findGroups().v2, findGroups().own["memory"], findGroups().own["pids"],
		findGroups().own["cpu"]} {
		if d != "" {
			m, _ := filepath.Glob(filepath.Join(d, prefix+id))
			out = append(out, m...)
		}
	}
	dir := stateDir()
	if d := os.Getenv("EVALRUN_TEST_STATE"); d != "" {
		dir = d
	}
	m, _ := filepath.Glob(filepath.Join(dir, id+"*"))
	return append(out, m...)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after minutes", what)
		}
	}
}

func TestOwnerKilled(t *testing.T) {
	for _, driver := range []string{"local", "none"} {
		t.Run(driver, func(t *testing.T) {
			if driver == "local" {
				require(t)
			}
			mark := fmt.Sprint(100000 + os.Getpid())
			cmd, id, _ := owner(t, driver, mark)
			eventually(t, "both commands run", func() bool { return running(mark) == 2 })
			if len(remains(id)) == 0 {
				t.Error("a live sandbox has nothing outside: what would Reap go by?")
			}
			cmd.Process.Signal(syscall.SIGKILL)
			eventually(t, "its commands end", func() bool { return running(mark) == 0 })
			eventually(t, "nothing remains", func() bool { return len(remains(id)) == 0 })
		})
	}
}

func TestReapAfterCrash(t *testing.T) {
	d := require(t)
	d.state = t.TempDir() // each evalrun that starts on this machine clears up what it finds in the common one
	t.Setenv("EVALRUN_TEST_STATE", d.state)
	mark := fmt.Sprint(200000 + os.Getpid())
	cmd, id, spawner := owner(t, "local", mark)
	eventually(t, "both commands run", func() bool { return running(mark) == 2 })
	// Everything that could clear up dies at once. It is the owner that is stopped meanwhile: a
	// stopped spawner would be woken by its death, as it has a process group of its own, which the
	// death leaves without a parent.
	cmd.Process.Signal(syscall.SIGSTOP)
	syscall.Kill(spawner, syscall.SIGKILL)
	cmd.Process.Signal(syscall.SIGKILL)
	eventually(t, "its commands end", func() bool { return running(mark) == 0 })
	eventually(t, "the owner ends", func() bool { return syscall.Kill(cmd.Process.Pid, 0) != nil || cmd.Wait() != nil })
	if len(remains(id)) == 0 {
		t.Fatal("nothing remains, so nothing is tested")
	}
	if n, err := d.Reap(context.Background(),
		func(o sandbox.Owner) bool { return o.PID != cmd.Process.Pid }); err != nil || n != 1 {
		t.Errorf("Reap: %d, %v", n, err)
	}
	if r := remains(id); len(r) > 0 {
		t.Errorf("after Reap: %v", r)
	}
}
