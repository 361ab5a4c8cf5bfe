package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A lock is a locked file. The kernel gives it back when the process dies, however it dies.
type lock struct{ f *os.File }

var errLocked = errors.New("locked by another")

// tryLock locks a file, which it makes; errLocked: somebody else holds it.
func tryLock(name string, how int) (*lock, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(name), 0o700); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if err := flock(f, how|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errLocked
			}
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		here, err1 := f.Stat()
		there, err2 := os.Stat(name)
		if err1 == nil && err2 == nil && os.SameFile(here, there) {
			return &lock{f}, nil
		}
		f.Close() // it was removed between opening and locking
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// waitLock is tryLock that waits.
func waitLock(ctx context.Context, name string, how int) (*lock, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		l, err := tryLock(name, how)
		if !errors.Is(err, errLocked) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// unlock gives a lock back; remove takes its file away too, which only who holds it alone may ask for.
func (l *lock) unlock(remove bool) {
	if remove {
		os.Remove(l.f.Name())
	}
	l.f.Close()
}
