//go:build unix

package rundir

import (
	"errors"
	"os"
	"syscall"
)

var errHeld = errors.New("held by another process")

// flock takes the lock or says errHeld; errors.ErrUnsupported where the disk has none.
func flock(f *os.File) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return errHeld
		case syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP:
			return errors.ErrUnsupported
		default:
			if err == nil {
				return nil
			}
			return err
		}
	}
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || err == syscall.EPERM
}
