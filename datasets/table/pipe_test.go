package table_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/datasets/formats"
)

// A pipe or a device in a file's place is said, and not waited for.
func TestWhatIsNoFile(t *testing.T) {
	for _, name := range []string{"a.jsonl", "a.csv", "a.parquet", "a.jsonl.gz"} {
		path := filepath.Join(t.TempDir(), name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			f, err := formats.Open(path)
			if err == nil {
				for _, err = range f.Rows(t.Context()) {
					break
				}
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s is waited for", name)
		}
	}
}
