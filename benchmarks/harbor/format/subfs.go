package format

import (
	"io"
	"io/fs"
	"os"

	"github.com/evalrun/evalrun/internal/fsutil"
)

// subFS is the content of a task's folder, which links do not lead out of. It holds no descriptor
// between calls, so that a thousand of them cost nothing.
type subFS struct {
	root *os.Root // of the dataset
	sub  string
}

func inSubFS[T any](f *subFS, do func(fs.FS) (T, error)) (T, error) {
	r, err := f.root.OpenRoot(f.sub)
	if err != nil {
		var zero T
		return zero, err
	}
	defer r.Close()
	return do(r.FS())
}

func (f *subFS) Open(name string) (fs.File, error) {
	return inSubFS(f, func(fsys fs.FS) (fs.File, error) { return fsutil.OpenIn(fsys, name) })
}

func (f *subFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return inSubFS(f, func(fsys fs.FS) ([]fs.DirEntry, error) { return fs.ReadDir(fsys, name) })
}

func (f *subFS) ReadFile(name string) ([]byte, error) {
	return inSubFS(f, func(fsys fs.FS) ([]byte, error) {
		file, err := fsutil.OpenIn(fsys, name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return io.ReadAll(file)
	})
}

func (f *subFS) Stat(name string) (fs.FileInfo, error) {
	return inSubFS(f, func(fsys fs.FS) (fs.FileInfo, error) { return fs.Stat(fsys, name) })
}

func (f *subFS) Lstat(name string) (fs.FileInfo, error) {
	return inSubFS(f, func(fsys fs.FS) (fs.FileInfo, error) { return fs.Lstat(fsys, name) })
}

func (f *subFS) ReadLink(name string) (string, error) {
	return inSubFS(f, func(fsys fs.FS) (string, error) { return fs.ReadLink(fsys, name) })
}
