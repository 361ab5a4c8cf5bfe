package executor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runtime/executor/embed"
)

// A container is made by hand, through Docker's own command: what is tested is the executor.
type container struct {
	t    *testing.T
	id   string
	host *exec.Cmd
}

func requireDocker(t *testing.T) {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_DOCKER") == "" {
		t.Skip("needs Docker: set EVALRUN_TEST_DOCKER=1")
	}
	if embed.Native() == nil {
		t.Fatal("no slim build: go generate ./runtime/executor/embed makes one")
	}
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

const testImage = "evalrun-test/bookworm:1"

// create makes a container that has the executor in it, and does not start it.
func create(t *testing.T, flags ...string) *container {
	t.Helper()
	requireDocker(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "evalrun-init"), embed.Native(), 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"create", "-i", "--network=none", "--log-driver=none", "--no-healthcheck", "--label=evalrun-executor-test=" + fmt.Sprint(os.Getpid()),
		"--cap-drop=ALL", "--security-opt=no-new-privileges", "--pids-limit=256", "--memory=256m", "--env=GOMAXPROCS=1"}
	for _, c := range strings.Fields("CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETFCAP NET_BIND_SERVICE SYS_CHROOT") {
		args = append(args, "--cap-add="+c)
	}
	args = append(append(args, flags...), "--user=0", "--entrypoint=/evalrun-init", testImage, Container)
	c := &container{t: t, id: docker(t, args...)}
	t.Cleanup(func() { exec.Command("docker", "rm", "-f", "-v", c.id).Run() })
	docker(t, "cp", filepath.Join(dir, "evalrun-init"), c.id+":/evalrun-init")
	return c
}

// channel is one end of the container's streams. Killed, it dies as a host does.
type channel struct {
	io.WriteCloser
	io.Reader
	cmd *exec.Cmd
}

func (c *channel) Close() error {
	c.cmd.Process.Kill()
	c.WriteCloser.Close()
	c.cmd.Wait()
	return nil
}

func (c *container) stream(args ...string) *channel {
	c.t.Helper()
	cmd := exec.Command("docker", args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Stdout = w
	errs := &bytes.Buffer{}
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	w.Close()
	c.t.Cleanup(func() {
		cmd.Process.Kill()
		if c.t.Failed() && errs.Len() > 0 {
			c.t.Logf("docker %q: %s", args, errs)
		}
	})
	return &channel{in, r, cmd}
}

// start starts it and says hello.
func (c *container) start(cfg Config) (*Client, *channel) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	ch := c.stream("start", "--attach", "--interactive", c.id)
	cfg.Drop = true
	cfg.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, cfg.Env...)
	cl, err := New(ctx, ch, Options{Driver: "docker", ID: c.id[:12], Config: cfg})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { cl.Close() })
	return cl, ch
}

func TestContainer(t *testing.T) {
	c, _ := create(t).start(Config{Dir: "/work"})
	out, x := sh(t, c, "id; pwd; env; cat /proc/1/oom_score_adj /proc/$PPID/oom_score_adj /proc/self/oom_score_adj; grep -E 'Cap|NoNew|Secc|Gid' /proc/self/status; exit 3")
	if x.Code != 3 || !strings.Contains(out, "uid=0") || !strings.Contains(out, "\n/work\n") || !strings.Contains(out, "HOME=/root\n") || !strings.Contains(out, "\n0\n0\n500\n") {
		t.Errorf("%+v\n%s", x, out)
	}
	st, err := c.Stats(t.Context())
	if err != nil || st.Memory == nil || *st.Memory <= 0 || st.MaxMemory == nil || st.OOMKills == nil || *st.OOMKills != 0 || st.CPU == nil || *st.CPU <= 0 || st.Throttled == nil || st.Disk != nil {
		t.Errorf("Stats: %+v, %v", st, err)
	}
}
