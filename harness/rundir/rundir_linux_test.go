package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestReadOnly(t *testing.T) {
	root := t.TempDir()
	d, err := Create(filepath.Join(root, "run"), plan())
	if err != nil {
		t.Fatal(err)
	}
	path := d.Path()
	d.Close()
	if err := os.Chmod(filepath.Join(path, lockFile), 0o444); err != nil {
		t.Fatal(err)
	}
	for p := path; p != filepath.Dir(os.TempDir()) && p != "/"; p = filepath.Dir(p) {
		if p != os.TempDir() {
			os.Chmod(p, 0o555)
			defer os.Chmod(p, 0o755)
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with its file-system user
		if os.Geteuid() == 0 {
			syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
		}
		if _, err := View(path); err != nil {
			done <- fmt.Errorf("view: %w", err)
			return
		}
		if _, err := Create(filepath.Join(root, "new"), plan()); !errors.Is(err, ErrReadOnly) {
			done <- fmt.Errorf("create: %w", err)
			return
		}
		_, err := Open(path)
		done <- err
	}()
	if err := <-done; !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), "copy") {
		t.Errorf("%v", err)
	}
}
