//go:build unix

package tape

import (
	"errors"
	"os"
	"syscall"
)

var errHeld = errors.New("it is being recorded by another process")

// lock takes the tape for its recorder, until f is closed. A disk that has no locks has none to keep.
func lock(f *os.File) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return errHeld
		case syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP:
			return nil
		default:
			if err == nil {
				return nil
			}
			return err
		}
	}
}
