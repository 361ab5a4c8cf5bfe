package tasks

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/filetree"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// tree returns a task's files as they are copied into a machine.
func tree(files map[string]Item, beside fs.FS) (fs.FS, error) {
	out := filetree.New()
	for _, name := range sorted(files) {
		i := files[name]
		to := path.Clean(name)
		mode := fs.FileMode(i.Mode)
		if i.From != "" {
			if err := copyTree(out, to, beside, path.Clean(i.From), mode); err != nil {
				return nil, fmt.Errorf("files: %q: %w", name, err)
			}
			continue
		}
		if mode == 0 {
			mode = 0o644
		}
		if strings.HasSuffix(name, "/") {
			out.Add(to, &filetree.Node{Mode: fs.ModeDir | 0o755})
			continue
		}
		data := i.Base64
		if data == nil {
			data = []byte(i.Text)
		}
		out.Text(to, data, mode)
	}
	return out, nil
}

// copyTree copies a file or a directory from beside the task file. Its size was checked when its
// digest was computed.
func copyTree(out *filetree.Tree, to string, beside fs.FS, from string, mode fs.FileMode) error {
	if beside == nil {
		return errors.New("these tasks have no folder of their own")
	}
	return fs.WalkDir(beside, from, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name := path.Join(to, strings.TrimPrefix(strings.TrimPrefix(p, from), "/"))
		perm := info.Mode().Perm()
		switch {
		case e.IsDir():
			if name != "." {
				out.Add(name, &filetree.Node{Mode: fs.ModeDir | perm | 0o700})
			}
		case info.Mode()&fs.ModeSymlink != 0:
			l, err := fs.ReadLink(beside, p)
			if err != nil {
				return err
			}
			out.Add(name, &filetree.Node{Mode: fs.ModeSymlink | 0o777, Link: l})
		default:
			data, err := fs.ReadFile(beside, p)
			if err != nil {
				return err
			}
			if mode != 0 {
				perm = mode
			} else {
				perm |= 0o444 // embedded files have mode 0444, checkouts may have less
			}
			out.Text(name, data, perm)
		}
		return nil
	})
}

// collect reads a file or directory of a machine into a normalized tar: only files, directories and
// links, within limits, without times and owners. It returns nil if name does not exist. out says
// why something was left out. If the agent's files are too large, the error is a
// *[benchmarks.LeftError].
func collect(ctx context.Context, sb sandbox.Sandbox, name string) (content []byte, out string, err error) {
	r, err := sb.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for f, err := range sandbox.Files(r, sandbox.Limits{Files: maxFiles, Bytes: maxBytes}) {
		switch {
		case errors.Is(err, sandbox.ErrTooLarge):
			return nil, "", &benchmarks.LeftError{
				Err: fmt.Errorf("%s holds more than %d files or %d MiB", name, maxFiles, maxBytes>>20)}
		case errors.As(err, new(*sandbox.FileError)):
			out = err.Error()
			continue
		case err != nil:
			return nil, "", &sandbox.Error{Op: "get", ID: sb.ID(), Err: err}
		}
		h := &tar.Header{Name: f.Name, Mode: int64(f.Mode.Perm()), Typeflag: tar.TypeReg, Size: f.Size,
			Format: tar.FormatPAX}
		switch {
		case f.Mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, f.Name+"/"
		case f.Mode&fs.ModeSymlink != 0:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, f.Link, 0
		}
		if err := w.WriteHeader(h); err != nil {
			out = err.Error() // a name that tar cannot represent
			continue
		}
		if f.Mode.IsRegular() {
			if _, err := io.Copy(w, f); err != nil {
				return nil, "", &sandbox.Error{Op: "get", ID: sb.ID(), Err: err}
			}
		}
	}
	return buf.Bytes(), out, w.Close()
}

// unpack returns a file system with the content of a collected tar, to be copied into dir. Entries
// below a link are left out, because nothing is written through links. Links that lead outside
// roots, the collected paths and the working directory, are left out as well.
func unpack(r io.Reader, dir string, roots []string) (fs.FS, error) {
	out := filetree.New()
	for f, err := range sandbox.Files(r, sandbox.Limits{Files: maxFiles, Bytes: maxBytes}) {
		if errors.As(err, new(*sandbox.FileError)) && !errors.Is(err, sandbox.ErrTooLarge) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if f.Name == "." || out.Shadowed(f.Name) {
			continue
		}
		switch {
		case f.Mode.IsDir():
			out.Add(f.Name, &filetree.Node{Mode: f.Mode | 0o700})
		case f.Mode&fs.ModeSymlink != 0:
			if stays(path.Join(dir, f.Name), f.Link, roots) {
				out.Add(f.Name, &filetree.Node{Mode: f.Mode, Link: f.Link})
			}
		default:
			data, err := io.ReadAll(f)
			if err != nil {
				return nil, err
			}
			out.Text(f.Name, data, f.Mode)
		}
	}
	return out, nil
}

// system lists the directories that links may always point to, as those of a Python virtual
// environment do.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64"}

// stays reports whether a link at path at, created by the agent, points to the agent's own files or
// to system programs. Any other link would expose the grader to itself in the grader's machine:
// /dev/stdin, /proc/self/cmdline and /proc/self/fd hold the expected answer.
func stays(at, link string, roots []string) bool {
	to, ok := sandboxed.LinkTarget(at, link)
	below := func(dir string) bool { return sandboxed.Within(to, dir) }
	return ok && !slices.ContainsFunc([]string{"/proc", "/dev"}, below) &&
		(slices.ContainsFunc(system, below) || slices.ContainsFunc(roots, below))
}
