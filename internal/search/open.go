package search

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var errNotRegular = errors.New("it is no regular file")

// openFile opens a regular file. It does not wait for pipes, and follows no link.
func openFile(name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	for {
		fd, err := unix.Open(name, flags, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			unix.Close(fd)
			return -1, errNotRegular
		}
		return fd, nil
	}
}

// readFile reads what there is. At the end of the file it returns 0 and nil.
func readFile(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err == unix.EINTR {
			continue
		}
		return max(n, 0), err
	}
}

// openNamed opens a file that the caller has named, which may be a link.
func openNamed(name string) (int, error) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return -1, err
	}
	return openFile(real)
}
