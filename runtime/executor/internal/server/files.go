package server

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// put extracts a tar stream below dir. Links in the path of dir are followed; below it none are:
// every directory is opened from its parent, and whatever else is in the way of an entry is removed
// first.
func (sv *server) put(st *execproto.Stream, dir string) error {
	dir = sv.path(clean(dir))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	w := &putter{root: root}
	defer w.leave(0)
	defer unix.Close(root)
	tr := tar.NewReader(st)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := w.entry(h, tr); err != nil {
			return &fs.PathError{Op: "put", Path: path.Join(dir, h.Name), Err: err}
		}
	}
	w.times()
	// Padding may follow the end of the archive.
	_, err = io.Copy(io.Discard, st)
	return err
}

// A putter writes entries. It keeps the directory of the last entry and those above it open: the
// next entry usually is in the same place or near it, so that a deep tree is not opened from its
// root for each entry.
type putter struct {
	root int
	open []level // each inside the previous one
	dirs []*tar.Header
}

type level struct {
	name string
	fd   int
}

// leave closes the directories below the first n.
func (w *putter) leave(n int) {
	for _, l := range w.open[n:] {
		unix.Close(l.fd)
	}
	w.open = w.open[:n]
}

// enter opens a directory below the root, and makes those that are missing.
func (w *putter) enter(dir string) (fd int, err error) {
	n, fd := 0, w.root
	if dir != "." {
		for name := range strings.SplitSeq(dir, "/") {
			if n < len(w.open) && w.open[n].name == name {
				fd = w.open[n].fd
				n++
				continue
			}
			w.leave(n)
			if n == maxDepth {
				return -1, errors.New("folders nested too deep")
			}
			if fd, err = step(fd, name, 0o755); err != nil {
				return -1, err
			}
			w.open = append(w.open, level{name, fd})
			n++
		}
	}
	w.leave(n)
	return fd, nil
}

// step opens the directory name in the directory fd without following a link. If it does not exist
// or is something else, step makes it.
func step(fd int, name string, mode uint32) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	for try := 0; ; try++ {
		next, err := unix.Openat(fd, name, flags, 0)
		if err == nil || try == 3 {
			return next, err
		}
		switch err {
		case unix.ENOENT:
		case unix.ENOTDIR, unix.ELOOP:
			if err := unix.Unlinkat(fd, name, 0); err != nil && err != unix.ENOENT {
				return -1, err
			}
		default:
			return -1, err
		}
		if err := unix.Mkdirat(fd, name, mode); err != nil && err != unix.EEXIST {
			return -1, err
		}
	}
}

func (w *putter) entry(h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if name == "." && h.Typeflag == tar.TypeDir {
		return nil
	}
	if name == "." || path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") {
		return errors.New("not a path below the folder")
	}
	dir, base := path.Split(name)
	if dir == "" {
		dir = "."
	}
	at, err := w.enter(path.Clean(dir))
	if err != nil {
		return err
	}
	mode := uint32(h.Mode & 0o777)
	switch h.Typeflag {
	case tar.TypeDir:
		fd, err := step(at, base, 0o755)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		h.Name = name
		w.dirs = append(w.dirs, h)
		// A directory keeps write permission for its owner, so that files can be added without
		// isolation; for root it makes no difference.
		return unix.Fchmod(fd, mode|0o700)
	case tar.TypeSymlink:
		if err := remove(at, base); err != nil {
			return err
		}
		return unix.Symlinkat(h.Linkname, at, base)
	case tar.TypeReg:
		if err := remove(at, base); err != nil {
			return err
		}
		fd, err := unix.Openat(at, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), base)
		_, err = io.Copy(f, r)
		if err == nil {
			err = unix.Fchmod(fd, mode)
		}
		if err == nil && !h.ModTime.IsZero() {
			ts := unix.NsecToTimespec(h.ModTime.UnixNano())
			unix.UtimesNanoAt(at, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return err
	}
	return errors.New("neither a file, a folder nor a symbolic link")
}

func remove(fd int, name string) error {
	err := unix.Unlinkat(fd, name, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err == unix.EISDIR || err == unix.EPERM {
		return unix.EISDIR
	}
	return err
}

// times sets the times of the directories, which writing into them has changed.
func (w *putter) times() {
	for i := len(w.dirs) - 1; i >= 0; i-- {
		h := w.dirs[i]
		dir, base := path.Split(h.Name)
		if dir == "" {
			dir = "."
		}
		if h.ModTime.IsZero() {
			continue
		}
		at, err := w.enter(path.Clean(dir))
		if err != nil {
			continue
		}
		ts := unix.NsecToTimespec(h.ModTime.UnixNano())
		unix.UtimesNanoAt(at, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// get sends name as a tar stream. If the last element of name is a link, it is not followed.
// Devices, pipes and sockets are left out. An entry says why something could not be sent.
func (sv *server) get(st *execproto.Stream, name string) error {
	p := sv.path(clean(name))
	parent, base := path.Split(p)
	if base == "" {
		base = "."
	}
	dir, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		err = unix.ENOENT // no such name can exist
	}
	if err != nil {
		return &fs.PathError{Op: "get", Path: name, Err: err}
	}
	defer unix.Close(dir)
	var s unix.Stat_t
	if err := unix.Fstatat(dir, base, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "get", Path: name, Err: err}
	}
	out := &buffered{w: st}
	g := &getter{buf: make([]byte, execproto.MaxData), out: out, tw: tar.NewWriter(out)}
	if err := g.walk(dir, base, base, 0); err != nil {
		return err
	}
	if err := g.tw.Close(); err != nil {
		return err
	}
	return g.flush(st)
}

// buffered joins the small writes of an archive into frames.
type buffered struct {
	w   io.Writer
	buf []byte
}

func (b *buffered) Write(p []byte) (int, error) {
	n := len(p)
	if len(b.buf)+len(p) > execproto.MaxData {
		if len(b.buf) > 0 {
			if _, err := b.w.Write(b.buf); err != nil {
				return 0, err
			}
			b.buf = b.buf[:0]
		}
		if len(p) >= execproto.MaxData {
			return b.w.Write(p)
		}
	}
	b.buf = append(b.buf, p...)
	return n, nil
}

type getter struct {
	tw  *tar.Writer
	out *buffered
	buf []byte
}

func (g *getter) flush(w io.Writer) error {
	if len(g.out.buf) == 0 {
		return nil
	}
	_, err := w.Write(g.out.buf)
	return err
}

const (
	maxDepth = 1000 // directories in directories; each needs a descriptor while it is walked
	maxName  = 4096 // bytes of a path
)

// leave writes an entry for one that is not sent; its content is the reason.
func (g *getter) leave(name string, why error) error {
	return g.tw.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: name[:min(len(name), maxName)] + "/", Format: tar.FormatPAX,
		PAXRecords: map[string]string{execproto.LeftOut: why.Error()},
	})
}

var (
	errDeep = errors.New("folders nested too deep")
	errLong = errors.New("a path that is too long")
)

// walk sends an entry recursively. It returns errors of the stream only.
func (g *getter) walk(dir int, base, name string, depth int) error {
	if len(name) > maxName {
		return g.leave(name, errLong)
	}
	var s unix.Stat_t
	if err := unix.Fstatat(dir, base, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return g.failed(name, err)
	}
	h := &tar.Header{Name: name, Mode: int64(s.Mode & 0o777), Uid: int(s.Uid), Gid: int(s.Gid), Format: tar.FormatPAX,
		ModTime: modTime(&s)}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if depth == maxDepth {
			return g.leave(name, errDeep)
		}
		fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return g.failed(name, err)
		}
		f := os.NewFile(uintptr(fd), base)
		defer f.Close()
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := g.tw.WriteHeader(h); err != nil {
			return err
		}
		for {
			names, err := f.Readdirnames(1000)
			for _, n := range names {
				if err := g.walk(fd, n, path.Join(name, n), depth+1); err != nil {
					return err
				}
			}
			switch {
			case err != nil && err != io.EOF:
				return g.failed(name, err)
			case err != nil || len(names) == 0:
				return nil
			}
		}
	case unix.S_IFLNK:
		target := make([]byte, 4096)
		n, err := unix.Readlinkat(dir, base, target)
		if err != nil {
			return g.failed(name, err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(target[:n])
		return g.tw.WriteHeader(h)
	case unix.S_IFREG:
		// O_NONBLOCK, because it may have been replaced by a pipe.
		fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return g.failed(name, err)
		}
		defer unix.Close(fd)
		if err := unix.Fstat(fd, &s); err != nil || s.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil
		}
		h.Typeflag, h.Size = tar.TypeReg, s.Size
		if err := g.tw.WriteHeader(h); err != nil {
			return err
		}
		return g.copy(fd, s.Size)
	}
	return nil
}

// failed leaves out an entry that cannot be read. If it was removed or replaced during the walk, it
// is skipped silently.
func (g *getter) failed(name string, err error) error {
	if errors.Is(err, unix.ENOENT) || err == unix.ELOOP || err == unix.ENOTDIR || err == unix.EINVAL {
		return nil
	}
	return g.leave(name, err)
}

// copy sends size bytes of a file. If the file has shrunk meanwhile, it sends zeros.
func (g *getter) copy(fd int, size int64) error {
	for size > 0 {
		b := g.buf[:min(int64(len(g.buf)), size)]
		n, err := syscall.Read(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			clear(b)
			n = len(b)
		}
		if _, err := g.tw.Write(b[:n]); err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}
