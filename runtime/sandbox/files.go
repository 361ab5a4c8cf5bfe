package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
	"time"
)

var (
	// ErrTooLarge: more bytes or more files than the caller's limit.
	ErrTooLarge = errors.New("too large")
	// ErrNotRegular: a directory, link or device instead of a file.
	ErrNotRegular = errors.New("not a regular file")
)

// A FileError is an error of a file in a sandbox, for which what ran there is responsible.
type FileError struct {
	Name string // name inside the sandbox; hostile
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("%q: %v", e.Name, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// Limits of what [Files] reads. Zero fields are the defaults.
type Limits struct {
	Files int   // entries of any type; default 100,000
	Bytes int64 // total content, including holes of sparse files; default 1 GiB
	Name  int   // length of a name or of a link's target; default 4096
}

func (l Limits) orDefaults() Limits {
	if l.Files == 0 {
		l.Files = 100_000
	}
	if l.Bytes == 0 {
		l.Bytes = 1 << 30
	}
	if l.Name == 0 {
		l.Name = 4096
	}
	return l
}

// A File is one entry of a stream that [Files] reads. Regular files have content, which must be
// read before the next entry.
type File struct {
	// Name is slash-separated, relative and clean, as required by fs.ValidPath. An earlier entry
	// may be a link in its path, so extract files through an os.Root.
	Name    string
	Mode    fs.FileMode // a regular file, a directory or a symbolic link; only permission bits besides
	Size    int64
	ModTime time.Time
	Link    string // unchecked target of a symbolic link, which may point anywhere
	r       io.Reader
}

// Read reads the content of a regular file.
func (f *File) Read(p []byte) (int, error) {
	if f.r == nil {
		return 0, io.EOF
	}
	return f.r.Read(p)
}

// LeftOut is the PAX record of an entry for what Get could not send (directories nested too deep, a
// path that is too long). Its value is the reason.
const LeftOut = "EVALRUN.left_out"

// Files reads a hostile tar stream. It never panics, never reads more than the limits, and yields
// no name outside of its directory. An entry that is refused (a device, a pipe, a hard link, a
// hostile name, one that Get has left out) is yielded as a *[FileError] with only the name, and
// reading goes on. Any other error is the last one: the stream is broken, or a *FileError is
// [ErrTooLarge].
func Files(r io.Reader, limits Limits) iter.Seq2[*File, error] {
	limits = limits.orDefaults()
	return func(yield func(*File, error) bool) {
		tr := tar.NewReader(r)
		left := limits.Bytes
		for n := 0; ; n++ {
			h, err := tr.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(&File{}, fmt.Errorf("reading an archive from a sandbox: %w", err))
				return
			}
			f := &File{Name: h.Name, ModTime: h.ModTime}
			if n >= limits.Files {
				yield(f, &FileError{h.Name, fmt.Errorf("%w: more than %d files", ErrTooLarge, limits.Files)})
				return
			}
			if err := f.fill(h, limits); err != nil {
				if !yield(f, &FileError{h.Name, err}) {
					return
				}
				continue
			}
			if f.Mode.IsRegular() {
				// An entry that is refused or skipped uses no memory, so its size does not matter.
				if f.Size > left {
					yield(f, &FileError{h.Name, fmt.Errorf("%w: more than %d bytes in all", ErrTooLarge, limits.Bytes)})
					return
				}
				left -= f.Size
				f.r = tr
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

// fill checks a header.
func (f *File) fill(h *tar.Header, limits Limits) error {
	name := strings.TrimSuffix(h.Name, "/")
	if strings.HasPrefix(name, "./") {
		name = path.Clean(name)
	}
	why, out := h.PAXRecords[LeftOut]
	switch {
	case out:
		return fmt.Errorf("left out: %s", strings.ToValidUTF8(why[:min(len(why), 200)], "\ufffd"))
	case len(name) > limits.Name || len(h.Linkname) > limits.Name:
		return errors.New("a name that is too long")
	case strings.ContainsRune(name, 0) || strings.ContainsRune(h.Linkname, 0):
		return errors.New("a name with a NUL")
	case !validPath(name):
		return errors.New("a name that may leave its folder")
	}
	perm := fs.FileMode(h.Mode) & 0o777 // setuid, setgid and sticky are dropped
	switch h.Typeflag {
	case tar.TypeReg:
		f.Mode, f.Size = perm, h.Size
	case tar.TypeDir:
		f.Mode = fs.ModeDir | perm
	case tar.TypeSymlink:
		f.Mode, f.Link = fs.ModeSymlink|0o777, h.Linkname
	case tar.TypeLink:
		return errors.New("a hard link")
	default:
		return ErrNotRegular
	}
	f.Name = name
	return nil
}

// validPath is fs.ValidPath for names that need not be UTF-8, as on Linux.
func validPath(name string) bool {
	if name == "." {
		return true
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// ReadFile reads one regular file of a sandbox, of at most max bytes. If it does not exist, the
// error is fs.ErrNotExist. If it is larger, it is [ErrTooLarge], and if it is not a regular file,
// [ErrNotRegular], both as a *[FileError]. Links are not followed.
func ReadFile(ctx context.Context, sb Sandbox, name string, max int64) ([]byte, error) {
	r, err := sb.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for f, err := range Files(r, Limits{Files: 1, Bytes: max1(max)}) {
		switch {
		case errors.Is(err, ErrTooLarge):
			return nil, &FileError{name, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, max)}
		case err != nil && errors.As(err, new(*FileError)):
			return nil, &FileError{name, ErrNotRegular}
		case err != nil:
			return nil, &Error{Op: "get", ID: sb.ID(), Err: err}
		case !f.Mode.IsRegular():
			return nil, &FileError{name, ErrNotRegular}
		case f.Size > max: // max is 0
			return nil, &FileError{name, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, max)}
		}
		b := make([]byte, 0, min(f.Size, 1<<20)) // do not allocate memory only because of a header
		b, err = readAll(f, b)
		if err != nil {
			return nil, &Error{Op: "get", ID: sb.ID(), Err: fmt.Errorf("reading %q: %w", name, err)}
		}
		return b, nil
	}
	return nil, &FileError{name, ErrNotRegular} // an empty archive: a pipe, a device or a socket, which Get leaves out
}

// max1 avoids 0, which means the default.
func max1(n int64) int64 { return max(n, 1) }

func readAll(r io.Reader, b []byte) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}
