package format

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/fsutil"
)

// Bounds of a task folder: more is no task but an attack, or a mistake.
const (
	maxFiles = 100_000
	maxBytes = 16 << 30
	maxText  = 4 << 20 // of a file that is read whole
)

// digested are the parts of a folder that make a task what it is.
var digested = []string{"task.toml", "instruction.md", "README.md", "environment", "tests", "solution", "steps"}

// defaultIgnores count where a task has no .gitignore.
const defaultIgnores = "__pycache__/\n*.pyc\n.DS_Store\n*.swp\n*.swo\n*~\n"

// taskDigest is Harbor's task digest: SHA-256 over a line a file, in the order of their names,
// without what the folder's .gitignore leaves out. A link that leads out of the folder is an error;
// one that leads nowhere is no file.
func taskDigest(fsys fs.FS) (string, error) {
	rules := defaultIgnores
	if b, err := readText(fsys, ".gitignore"); err == nil {
		rules = string(b)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	ignore := parseIgnore(rules)
	w := fileLister{fsys: fsys}
	for _, name := range digested {
		if err := w.walk(name, true); err != nil {
			return "", err
		}
	}
	slices.Sort(w.files)
	all := sha256.New()
	for _, name := range w.files {
		if ignore.match(name) {
			continue
		}
		h := sha256.New()
		if _, err := w.copy(h, name); err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s\x00%x\n", name, h.Sum(nil))
	}
	return "sha256:" + hex.EncodeToString(all.Sum(nil)), nil
}

// environmentHash is Harbor's hash of an environment's files: names and contents with their
// lengths, in the order of the names, cut to 32 digits. Without files it is of the image's name,
// and without that of the folder's.
func environmentHash(fsys fs.FS, dir, image string) (string, error) {
	w := fileLister{fsys: fsys}
	if err := w.walk(dir, false); err != nil {
		return "", err
	}
	slices.Sort(w.files)
	h := sha256.New()
	some := false
	for _, name := range w.files {
		rel := strings.TrimPrefix(name, dir+"/")
		if slices.ContainsFunc(strings.Split(rel, "/"),
			func(p string) bool { return p == ".DS_Store" || p == ".git" || p == "__pycache__" }) {
			continue
		}
		some = true
		info, err := fs.Stat(fsys, name)
		if err != nil {
			return "", err
		}
		size := info.Size()
		sized(h, len(rel))
		io.WriteString(h, rel)
		sized(h, int(size))
		if n, err := w.copy(h, name); err != nil || n != size {
			return "", cmp.Or(err, fmt.Errorf("%s changed while it was read", name))
		}
	}
	if !some {
		io.WriteString(h, cmp.Or(image, path.Base(dir)))
	}
	return hex.EncodeToString(h.Sum(nil))[:32], nil
}

func sized(h hash.Hash, n int) {
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
}

// A fileLister lists files below a folder.
type fileLister struct {
	fsys  fs.FS
	files []string
	n     int
	bytes int64
}

// walk lists the files at or below name; links to files too, if links is set. Links to folders are
// not followed.
func (w *fileLister) walk(name string, links bool) error {
	if _, err := fs.Stat(w.fsys, name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fs.WalkDir(w.fsys, name, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if w.n++; w.n > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		switch {
		case e.Type().IsRegular():
			w.files = append(w.files, p)
		case e.Type()&fs.ModeSymlink != 0:
			info, err := fs.Stat(w.fsys, p)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return fmt.Errorf("the link %s leads out of the task's folder, or in a circle; make it a file (%w)", p,
					err)
			case info.Mode().IsRegular() && links:
				w.files = append(w.files, p)
			}
		case !e.IsDir():
			return fmt.Errorf("%s is a device, a pipe or a socket; remove it", p)
		}
		return nil
	})
}

// copy writes a file's content into h.
func (w *fileLister) copy(h io.Writer, name string) (int64, error) {
	f, err := w.fsys.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := io.Copy(h, io.LimitReader(f, maxBytes-w.bytes+1))
	if w.bytes += n; w.bytes > maxBytes && err == nil {
		err = fmt.Errorf("more than %d GiB of files", maxBytes>>30)
	}
	return n, err
}

// readText reads a regular file that is small enough to be read whole.
func readText(fsys fs.FS, name string) ([]byte, error) { return fsutil.ReadIn(fsys, name, maxText) }
