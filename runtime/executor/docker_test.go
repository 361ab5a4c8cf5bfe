package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runtime/executor/embed"
)

// A container is made by hand, through Docker's own command: what is tested is the executor.
type container struct {
	t  testing.TB
	id string
}

func requireDocker(t testing.TB) {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_DOCKER") == "" {
		t.Skip("needs Docker: set EVALRUN_TEST_DOCKER=1")
	}
	if embed.Init(runtime.GOARCH) == nil {
		t.Fatal("no slim build: go generate ./runtime/executor/embed makes one")
	}
}

func docker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

const testImage = "evalrun-test/bookworm:1"

// create makes a container that has the executor in it, and does not start it. The engine's command
// would let the first host take stdin with it when it ends (StdinOnce), so this is asked of the
// engine itself.
func create(t testing.TB, change ...func(host map[string]any)) *container {
	t.Helper()
	requireDocker(t)
	host := map[string]any{
		"NetworkMode": "none", "LogConfig": map[string]any{"Type": "none"}, "CapDrop": []string{"ALL"},
		"CapAdd": strings.Fields("CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETFCAP " +
			"NET_BIND_SERVICE SYS_CHROOT"),
		"SecurityOpt": []string{"no-new-privileges"}, "PidsLimit": 256, "Memory": 256 << 20,
	}
	for _, f := range change {
		f(host)
	}
	body, err := json.Marshal(map[string]any{
		"Image": testImage, "Entrypoint": []string{"/evalrun-init", Container}, "User": "0:0",
		"Env": []string{"GOMAXPROCS=1"}, "OpenStdin": true,
		"Labels": map[string]string{"evalrun-executor-test": fmt.Sprint(os.Getpid())}, "HostConfig": host,
	})
	if err != nil {
		t.Fatal(err)
	}
	socket := strings.TrimPrefix(docker(t, "context", "inspect", "-f", "{{.Endpoints.docker.Host}}"), "unix://")
	api := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
	defer api.CloseIdleConnections()
	res, err := api.Post("http://docker/v1.41/containers/create", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var made struct{ ID, Message string }
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil || made.ID == "" {
		t.Fatalf("making a container: %v, %s", err, made.Message)
	}
	c := &container{t: t, id: made.ID}
	t.Cleanup(func() { exec.Command("docker", "rm", "-f", "-v", c.id).Run() })
	bin := filepath.Join(t.TempDir(), "evalrun-init")
	if err := os.WriteFile(bin, embed.Init(runtime.GOARCH), 0o755); err != nil {
		t.Fatal(err)
	}
	docker(t, "cp", bin, c.id+":/evalrun-init")
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
	out, x := sh(t, c, "id; pwd; env; cat /proc/1/oom_score_adj /proc/$PPID/oom_score_adj /proc/self/oom_score_adj; "+
		"grep -E 'Cap|NoNew|Secc|Gid' /proc/self/status; exit 3")
	if x.Code != 3 || !strings.Contains(out, "uid=0") || !strings.Contains(out, "\n/work\n") ||
		!strings.Contains(out, "HOME=/root\n") || !strings.Contains(out, "\n0\n0\n500\n") {
		t.Errorf("%+v\n%s", x, out)
	}
	st, err := c.Stats(t.Context())
	if err != nil || st.Memory == nil || *st.Memory <= 0 || st.MaxMemory == nil || st.OOMKills == nil ||
		*st.OOMKills != 0 || st.CPU == nil || *st.CPU <= 0 || st.Throttled == nil || st.Disk != nil {
		t.Errorf("Stats: %+v, %v", st, err)
	}
}
