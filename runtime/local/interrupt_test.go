package local

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The Go runtime sends its threads signals, and some files of control groups answer EINTR for them.
func TestWriteIsInterrupted(t *testing.T) {
	base := findGroups().own["memory"]
	if base == "" {
		t.Skip("needs control groups of version 1 that may be made")
	}
	dir := filepath.Join(base, prefix+ownPrefix()+"-interrupted")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid, done := unix.Gettid(), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			default:
				unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
			}
		}
	}()
	defer close(done)
	for range 20_000 {
		if err := writeFile(filepath.Join(dir, "memory.limit_in_bytes"), "100000000"); err != nil {
			t.Fatal(err)
		}
	}
}
