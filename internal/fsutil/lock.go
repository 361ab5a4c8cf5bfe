package fsutil

import (
	"errors"
	"os"
	"syscall"
)

// ErrLocked reports that another process, or another open file of this one, holds a lock.
var ErrLocked = errors.New("held by another process")

// Lock acquires the kernel's exclusive lock (flock) of a file without waiting. It returns ErrLocked
// if the lock is held, and [errors.ErrUnsupported] if the file system has no locks. The lock is
// released when f is closed or the process ends.
func Lock(f *os.File) error { return lock(f, syscall.LOCK_EX|syscall.LOCK_NB) }

// WaitLock is like Lock, but waits while the lock is held.
func WaitLock(f *os.File) error { return lock(f, syscall.LOCK_EX) }

func lock(f *os.File, how int) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), how); err {
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
