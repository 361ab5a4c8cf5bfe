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

// A lock is a locked file. The kernel releases it when the process dies.
type lock struct{ f *os.File }

var errLocked = errors.New("locked by another")

// tryLock creates and locks a file. It returns errLocked if another process holds the lock.
func tryLock(name string, how int) (*lock, error) {
	for {
		// without O_CREATE first: another user's, in /tmp, may not be opened otherwise
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if errors.Is(err, os.ErrNotExist) {
			f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		}
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
		f.Close() // removed between opening and locking
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// waitLock is tryLock, but waits for the lock.
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

// unlock releases a lock. With remove it removes the file too, which only the holder of an
// exclusive lock may do.
func (l *lock) unlock(remove bool) {
	if l == nil {
		return
	}
	if remove {
		os.Remove(l.f.Name())
	}
	l.f.Close()
}

// buildsLock is held shared by processes that build on an engine, and exclusively to remove what
// builds left behind. Unlike other locks it is the same for all users of this machine, because
// these remains cannot be told apart by user. Its file is never removed. The lock is nil if the
// file belongs to another user and cannot be opened.
func (s *Store) buildsLock(how int, take func(name string, how int) (*lock, error)) (*lock, error) {
	name := "/tmp/evalrun-builds-" + filepath.Base(s.dir()) + ".lock"
	l, err := take(name, how)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err == nil {
		_ = l.f.Chmod(0o666) // possible if it is ours
	}
	return l, err
}
