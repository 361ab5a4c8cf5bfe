package browsers_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// TestDiskFull: where there is no room for a browser's folder none starts, which is said; one that
// runs goes on; and all is well once there is room again. It plays in a process with mounts of its
// own, on a file system that is full soon.
func TestDiskFull(t *testing.T) {
	needBrowser(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := os.Getenv("POOL_TEST_DISK")
	if dir == "" {
		dir, err := os.MkdirTemp("", "pool-test-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dir)
		cmd := exec.Command(os.Args[0], "-test.run=^TestDiskFull$", "-test.v")
		cmd.Env = append(os.Environ(), "POOL_TEST_DISK="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("t", dir, "tmpfs", 0, "size=16m,mode=755")); err != nil {
		t.Skip(err)
	}
	p := newPool(t, browsers.Options{Dir: dir, PerBrowser: 1})
	url, host := site(t, map[string]string{"/": "<title>here</title>"})
	a := p.For(browsers.AccessOptions{Hosts: []string{host}})
	_, page := open(t, a, cdp.ContextOptions{Downloads: "yes"})
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 32<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if _, err := a.NewContext(t.Context(), cdp.ContextOptions{}); !browsers.Infra(err) ||
		!errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a browser without room: %v", err)
	}
	err := page.Goto(t.Context(), url)
	if err == nil {
		_, err = page.Observe(t.Context(), cdp.ObserveOptions{Picture: true})
	}
	if err != nil {
		t.Errorf("the one that runs: %v", err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if _, page := open(t, a, cdp.ContextOptions{}); page.Goto(t.Context(), url) != nil {
		t.Error("with room again there is none that works")
	}
}
