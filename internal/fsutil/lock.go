package fsutil

import (
	"errors"
	"os"
	"syscall"
)

// ErrLocked says that another process, or another open file of this one, holds a lock.
var ErrLocked = errors.New("held by another process")

// Lock takes the kernel's exclusive lock (flock) of a file without waiting: it returns ErrLocked
// where somebody has it, and [errors.ErrUnsupported] where the disk knows no locks. The lock ends
// when f is closed, and with the process.
func Lock(f *os.File) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return ErrLocked
		case syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP:
			return errors.ErrUnsupported
		default:
			return err
		}
	}
}
