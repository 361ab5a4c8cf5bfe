package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	require(t)
	g := findGroups()
	home, _ := os.UserHomeDir()
	host, _ := os.Hostname()
	var secrets []string
	for _, s := range []string{home, host, os.TempDir() + "/go-build"} {
		if len(s) > 3 && s != "/root" { // root's home has that name everywhere
			secrets = append(secrets, s)
		}
	}
	sandboxtest.Run(t, sandboxtest.Suite{
		Driver: func(t *testing.T) sandbox.Driver {
			d := New()
			t.Cleanup(func() { d.Close() })
			return d
		},
		Another: func(t *testing.T) sandbox.Driver { return New() },
		Secrets: secrets,
		Table:   table, Column: "local",
		Left: left,
		Claims: sandboxtest.Claims{
			Memory: g.has("memory"), Pids: true, Disk: true, Users: manyUsers(), NoNet: true, Usage: true,
			FileOps: true, Shells: true, Find: true,
		},
		Image: func(t *testing.T, programs map[string][]byte) sandbox.Image {
			root := t.TempDir()
			os.Chmod(root, 0o755)
			for name, b := range programs {
				file := filepath.Join(root, name)
				os.MkdirAll(filepath.Dir(file), 0o755)
				if err := os.WriteFile(file, b, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			return sandbox.Image{Ref: "dir:" + root}
		},
	})
}

// TestSuiteUnisolated runs the suite over the driver "none" in namespaces of its own: some of the
// suite's commands try to kill and to fill whatever they can reach, and here that would be this
// machine.
func TestSuiteUnisolated(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_NESTED") == "" {
		nested(t)
		return
	}
	if os.Getpid() != 1 {
		t.Fatal("not in namespaces of its own")
	}
	copyOfRoot(t)
	sandboxtest.Run(t, sandboxtest.Suite{
		Driver: func(t *testing.T) sandbox.Driver {
			d := NewUnisolated()
			t.Cleanup(func() { d.Close() })
			return d
		},
		Another: func(t *testing.T) sandbox.Driver { return NewUnisolated() },
		Left:    left,
		Claims:  sandboxtest.Claims{Usage: true, FileOps: true},
		Table:   table, Column: "none",
		Skip: map[string]string{
			"exec/directory":           paths,
			"exec/nothing-of-the-host": "nothing is isolated",
			"fileop/hostile":           "nothing is isolated",
			"files/round-trip":         paths,
			"files/through-links":      paths,
			"files/missing":            paths,
			"files/bytes":              paths,
			"files/deep":               paths,
			"files/in-the-way":         paths,
			"files/implied-folders":    paths,
			"files/hard-links":         paths,
			"files/get-early-close":    paths,
			"files/pipes":              paths,
			"life/alone":               "nothing is isolated",
		},
	})
}

// table is where the table of what drivers can do is.
const table = "../../docs/sandboxes.md"

const paths = "a command's absolute paths are the machine's"

// copyOfRoot puts us on a root whose changes are forgotten: what the suite writes to absolute paths
// lands there.
func copyOfRoot(t *testing.T) {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("EVALRUN_TEST_NESTED") == "user" { // who may not write elsewhere anyway
		must(unix.Mount("proc", "/proc", "proc", 0, ""))
		must(unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777"))
		return
	}
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	const at = "/mnt"
	must(unix.Mount("tmpfs", at, "tmpfs", 0, ""))
	for _, d := range []string{"u", "w", "m"} {
		must(os.Mkdir(at+"/"+d, 0o755))
	}
	must(unix.Mount("overlay", at+"/m", "overlay", 0, "lowerdir=/,upperdir="+at+"/u,workdir="+at+"/w"))
	must(unix.Mount("proc", at+"/m/proc", "proc", 0, ""))
	must(unix.Mount("/dev", at+"/m/dev", "", unix.MS_BIND|unix.MS_REC, ""))
	if !strings.HasPrefix(wd, "/tmp/") {
		must(unix.Mount("tmpfs", at+"/m/tmp", "tmpfs", 0, "mode=1777"))
	}
	must(unix.Chroot(at + "/m"))
	if err := os.Chdir(wd); err != nil { // on a file system of its own, which the copy lacks
		t.Skip(err)
	}
}

// nested runs the calling test again, as process 1 of a process namespace.
func nested(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$",
		"-test.v="+fmt.Sprint(testing.Verbose()))
	cmd.Env = append(os.Environ(), "EVALRUN_TEST_NESTED=user", "TMPDIR=/tmp")
	id := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	gid := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, UidMappings: id,
		GidMappings: gid, Pdeathsig: syscall.SIGKILL,
	}
	if os.Geteuid() == 0 {
		cmd.Env = append(cmd.Env, "EVALRUN_TEST_NESTED=root")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			Pdeathsig: syscall.SIGKILL}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) && os.Getenv("EVALRUN_TEST_LOCAL") == "" {
		t.Skip("needs user namespaces: ", err)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// left lists what sandboxes of this process have outside: processes, mounts, control groups, files.
func left(t *testing.T) []string {
	var out []string
	self := os.Getpid()
	parents := map[int]int{}
	names := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		b, err := os.ReadFile(d + "/stat")
		if err != nil {
			continue
		}
		s := string(b)
		var pid, ppid int
		var state string
		fmt.Sscan(s, &pid)
		fmt.Sscan(s[strings.LastIndexByte(s, ')')+1:], &state, &ppid)
		parents[pid], names[pid] = ppid, s[:strings.LastIndexByte(s, ')')+1]
	}
	for pid := range parents {
		depth := 0
		for p := pid; p > 1 && depth < 100; p, depth = parents[p], depth+1 {
			if p == self {
				// The spawner itself may stay for a while: the next sandbox needs it.
				if cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); pid != self &&
					!strings.HasPrefix(string(cmd), "evalrun-init\x00spawn") {
					out = append(out, "process "+names[pid])
				}
				break
			}
		}
	}
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		// an engine beside us comes and goes as it likes
		if !strings.Contains(line, "docker") && !strings.Contains(line, "containerd") {
			out = append(out, "mount "+strings.TrimSpace(line))
		}
	}
	g := findGroups()
	for _, dir := range append([]string{g.v2}, g.own["memory"], g.own["pids"], g.own["cpu"]) {
		if dir != "" {
			ds, _ := filepath.Glob(filepath.Join(dir, prefix+ownPrefix()+"*"))
			out = append(out, ds...)
		}
	}
	fs, _ := filepath.Glob(filepath.Join(stateDir(), ownPrefix()+"*"))
	out = append(out, fs...)
	ds, _ := filepath.Glob(filepath.Join(os.TempDir(), tmpPrefix+ownPrefix()+"*"))
	return append(out, ds...)
}

// more is what is left that was not there before. What was there may have gone: of other tests'
// mounts, which were copied to us at our start, each goes when its folder does.
func more(t *testing.T, before []string) []string {
	return slices.DeleteFunc(left(t), func(s string) bool { return slices.Contains(before, s) })
}
