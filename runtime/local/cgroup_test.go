package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// However many processes a sandbox has, they get a share of a busy processor together.
func TestCPUShare(t *testing.T) {
	sb := create(t, require(t), sandbox.Spec{})
	g := findGroups()
	var file, want string
	switch {
	case g.cpu2:
		file, want = filepath.Join(g.v2, prefix+sb.ID(), "cpu.weight"), fmt.Sprint(sandbox.CPUShare*100/1024)
	case g.own["cpu"] != "":
		file, want = filepath.Join(g.own["cpu"], prefix+sb.ID(), "cpu.shares"), fmt.Sprint(sandbox.CPUShare)
	default:
		t.Skip("no control group for processors")
	}
	if b, err := os.ReadFile(file); strings.TrimSpace(string(b)) != want || err != nil {
		t.Errorf("%s: %s, %v; want %s", file, b, err, want)
	}
	procs, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup.procs"))
	tasks, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "tasks"))
	if len(procs)+len(tasks) == 0 {
		t.Error("nothing is in it")
	}
}

// A group that was given to an ordinary user can be divided while the user's processes are in it.
func TestDivide(t *testing.T) {
	if dir := os.Getenv("EVALRUN_TEST_DIVIDE"); dir != "" {
		fmt.Print(divide(dir, os.Getenv("EVALRUN_TEST_CONTROLLER")), mayMake(dir))
		os.Exit(0)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a group away")
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		b, _ := os.ReadFile(filepath.Join(f[1], "cgroup.controllers"))
		all := strings.Fields(string(b))
		dir := filepath.Join(f[1], fmt.Sprintf("%stest-%d", prefix, os.Getpid()))
		if len(all) == 0 || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { removeGroup(dir) })
		const user = 65534
		enabled := filepath.Join(f[1], "cgroup.subtree_control")
		if b, _ := os.ReadFile(enabled); !strings.Contains(string(b), all[0]) {
			if err := writeFile(enabled, "+"+all[0]); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { writeFile(enabled, "-"+all[0]) })
		}
		for _, p := range []string{dir, dir + "/cgroup.procs", dir + "/cgroup.subtree_control"} {
			if err := os.Chown(p, user, user); err != nil {
				t.Fatal(err)
			}
		}
		group, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(group)
		as := func(args ...string) *exec.Cmd {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(os.Environ(), "EVALRUN_TEST_DIVIDE="+dir, "EVALRUN_TEST_CONTROLLER="+all[0])
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user},
				UseCgroupFD: true, CgroupFD: group}
			return cmd
		}
		beside := as("sleep", "1000")
		if err := beside.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			beside.Process.Kill()
			beside.Wait()
			removeGroup(filepath.Join(dir, mainGroup))
		})
		if out, err := as("/proc/self/exe", "-test.run=^TestDivide$").CombinedOutput(); string(out) != "true true" ||
			err != nil {
			t.Errorf("%s, %v; want true true", out, err)
		}
		if b, _ := os.ReadFile(filepath.Join(dir, mainGroup, "cgroup.procs")); strings.TrimSpace(
			string(b)) != fmt.Sprint(beside.Process.Pid) {
			t.Errorf("in %s: %q; want %d", mainGroup, b, beside.Process.Pid)
		}
		return
	}
	t.Skip("no control groups of the second version with a controller")
}
