package browsers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// prefix begins the names of browsers' folders, so that [Sweep] finds them.
const prefix = "evalrun-browser-"

// label is the file in a browser's folder that names its owner.
const label = "owner.json"

// makeFolder makes the folder of one browser, with its label.
func makeFolder(dir string, owner sandbox.Owner) (string, error) {
	path, err := os.MkdirTemp(dir, prefix)
	if err != nil {
		return "", fmt.Errorf("making a browser's folder: %w", err)
	}
	b, err := json.Marshal(owner)
	if err == nil {
		err = os.WriteFile(filepath.Join(path, label), b, 0o600)
	}
	if err != nil {
		os.RemoveAll(path)
		return "", fmt.Errorf("making a browser's folder: %w", err)
	}
	return path, nil
}

// removeFolder removes a browser's folder. It retries, as the last processes may still write there.
func removeFolder(path string) error {
	var err error
	for range 50 {
		if err = os.RemoveAll(path); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("removing a browser's folder: %w", err)
}

// Sweep removes the folders of browsers whose owners are not alive, and ends their processes if
// there are any. dir is [Options].Dir.
func Sweep(ctx context.Context, dir string, alive func(sandbox.Owner) bool) (int, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	found, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, path := range found {
		if ctx.Err() != nil {
			return n, errors.Join(append(errs, context.Cause(ctx))...)
		}
		if !orphan(path, alive) {
			continue
		}
		for _, pid := range browsersIn(path) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := removeFolder(path); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// unlabelledLimit is the age from which a folder without a label counts as orphaned. A younger one
// may be about to get its label.
const unlabelledLimit = time.Hour

// orphan reports whether a browser's folder has no living owner. Folders that others can write to
// are not trusted.
func orphan(path string, alive func(sandbox.Owner) bool) bool {
	fi, err := os.Lstat(path)
	if err != nil || !fi.IsDir() || fi.Mode().Perm()&0o022 != 0 {
		return false
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return false
	}
	b, err := os.ReadFile(filepath.Join(path, label))
	var o sandbox.Owner
	switch {
	case err == nil && json.Unmarshal(b, &o) == nil:
		return !alive(o)
	case err == nil || errors.Is(err, fs.ErrNotExist): // a browser without a pool has no label
		return time.Since(fi.ModTime()) > unlabelledLimit && len(browsersIn(path)) == 0
	}
	return false
}

// browsersIn finds the processes of browsers with a profile in a folder.
func browsersIn(path string) (found []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(b, []byte("--user-data-dir="+path+"/")) &&
			!bytes.Contains(b, []byte("--user-data-dir="+path+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}
