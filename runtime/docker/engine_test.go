package docker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// fakeEngine answers pings as an engine of this API version.
func fakeEngine(t *testing.T, version string) string {
	path := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", version)
		w.Header().Set("Ostype", "linux")
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "unix://" + path
}

// Each thing that can be wrong with an engine has words of its own that say what to do.
func TestProbeSays(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead.sock")
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	for _, tt := range []struct{ name, host, want string }{
		{"absent", "unix:///no/such/docker.sock", "install docker"},
		{"not running", "unix://" + dead, "start it"},
		{"too old", fakeEngine(t, "1.40"), "install docker 20.10 or newer"},
		{"not reached", "tcp://127.0.0.1:1", "cannot be reached"},
		{"nonsense", "nonsense", "write it as"},
		{"ssh without a name", "ssh://", "ssh://user@host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := New(Options{Host: tt.host})
			defer d.Close()
			err := d.Probe(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			var e *sandbox.Error
			if _, err := d.Create(t.Context(), sandbox.Spec{Image: sandbox.Image{Ref: "x"}}); !errors.As(err, &e) ||
				errors.Is(err, sandbox.ErrGone) {
				t.Errorf("Create: error %v", err)
			}
			if _, err := d.Find(t.Context(), prefix+"x"); err == nil || errors.Is(err, sandbox.ErrGone) {
				t.Errorf("Find: error %v, want one that is not definite", err)
			}
			if d.Describe()["engine"] == "" {
				t.Error("Describe says nothing")
			}
		})
	}
}

// Somebody who may not speak to the engine is told about the group.
func TestNotAllowed(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_PROBE") != "" {
		err := New(Options{Host: os.Getenv("EVALRUN_TEST_PROBE")}).Probe(context.Background())
		fmt.Println("probe:", err)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become nobody")
	}
	dir, err := os.MkdirTemp("/tmp", "evalrun-docker-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	path := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	os.Chmod(path, 0o600)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "test")
	if err := os.WriteFile(exe, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestNotAllowed$")
	cmd.Dir = "/"
	cmd.Env = []string{"EVALRUN_TEST_PROBE=unix://" + path, "HOME=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, _ := cmd.CombinedOutput()
	if !strings.Contains(string(out), "group docker") {
		t.Errorf("it says %s", out)
	}
}

// A host is found as docker's own command finds it.
func TestFindHost(t *testing.T) {
	dir := t.TempDir()
	for _, k := range []string{"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"} {
		t.Setenv(k, "")
	}
	t.Setenv("DOCKER_CONFIG", dir)
	write := func(name, text string) {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string, h host, err error) {
		t.Helper()
		if err != nil || h.Host != want {
			t.Errorf("%+v, %v; want %s", h, err, want)
		}
	}
	h, err := findHost("")
	check("unix:///var/run/docker.sock", h, err)
	write("contexts/meta/"+sum("far")+"/meta.json",
		`{"Name":"far","Endpoints":{"docker":{"Host":"tcp://far:2376","SkipTLSVerify":false}}}`)
	write("contexts/tls/"+sum("far")+"/docker/ca.pem", "")
	write("config.json", `{"currentContext":"far"}`)
	h, err = findHost("")
	check("tcp://far:2376", h, err)
	if h.TLS == "" {
		t.Error("the context's certificates are not used")
	}
	t.Setenv("DOCKER_CONTEXT", "default")
	h, err = findHost("")
	check("unix:///var/run/docker.sock", h, err)
	t.Setenv("DOCKER_CONTEXT", "unknown")
	if _, err := findHost(""); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("an unknown context: %v", err)
	}
	t.Setenv("DOCKER_HOST", "ssh://me@there")
	h, err = findHost("")
	check("ssh://me@there", h, err)
	h, err = findHost("unix:///x")
	check("unix:///x", h, err)
	t.Setenv("DOCKER_HOST", "tcp://there:2376")
	t.Setenv("DOCKER_TLS_VERIFY", "1")
	h, err = findHost("")
	check("tcp://there:2376", h, err)
	if h.TLS != dir || h.Skip {
		t.Errorf("%+v", h)
	}
}

func sum(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

// An engine behind ssh is spoken to through the streams of a command.
func TestSSH(t *testing.T) {
	d := require(t)
	ssh := filepath.Join(t.TempDir(), "ssh")
	self, _ := os.Executable()
	script := fmt.Sprintf("#!/bin/sh\nEVALRUN_TEST_STDIO=%s exec %s\n", strings.TrimPrefix(d.engine.name(), "unix://"),
		self)
	if err := os.WriteFile(ssh, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(ssh)+":"+os.Getenv("PATH"))
	far := requireWith(t, Options{Host: "ssh://somebody@example.com:2222"})
	sb := open(t, far, helped(t, d))
	if got := first(run(t, sb, "echo", "from afar")); got != "from afar\n" {
		t.Errorf("got %q", got)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
}

// An engine that accepts and never answers holds up nobody.
func TestSilentEngine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "silent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := New(Options{Host: "unix://" + path})
	cause := errors.New("no longer wanted")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, cause)
	defer cancel()
	if _, err := d.Create(ctx, sandbox.Spec{Image: sandbox.Image{Ref: "x"}}); !errors.Is(err, cause) {
		t.Errorf("Create: %v", err)
	}
	if _, err := d.Find(ctx, prefix+"x"); !errors.Is(err, cause) {
		t.Errorf("Find: %v", err)
	}
	if err := d.Probe(ctx); err == nil {
		t.Error("Probe: no error")
	}
	if _, err := d.Reap(ctx, func(sandbox.Owner) bool { return false }); err == nil {
		t.Error("Reap: no error")
	}
}
