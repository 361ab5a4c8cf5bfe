package fileop

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// inside reports whether a path leads into one of the folders of Within, if there are any. What is
// there may be changed afterwards: this keeps an operation from leaving a folder by mistake, and is
// no boundary for processes that run beside it.
func (r request) inside(name string) bool {
	if len(r.Within) == 0 {
		return true
	}
	at, ok := leadsTo(name)
	return ok && slices.ContainsFunc(r.Within, func(folder string) bool {
		return at == folder || strings.HasPrefix(at, strings.TrimSuffix(folder, "/")+"/")
	})
}

// leadsTo returns a path without links. What does not exist is taken as it is named. A link that
// leads nowhere has no such path: what it names could be made elsewhere.
func leadsTo(name string) (at string, ok bool) {
	rest := ""
	for dir := path.Clean(name); ; dir = path.Dir(dir) {
		at, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return path.Join(at, rest), true
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return "", false
		}
		if _, err := os.Lstat(dir); err == nil {
			return "", false
		}
		rest = path.Join(path.Base(dir), rest)
	}
}
