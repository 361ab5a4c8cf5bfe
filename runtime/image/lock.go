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

// unlock gives a lock back; remove takes its file away too, which only who holds it alone may ask
// for.
func (l *lock) unlock(remove bool) {
	if l == nil {
		return
	}
	if remove {
		os.Remove(l.f.Name())
	}
	l.f.Close()
}

// buildsLock is held, together with others, by whoever builds on an engine, and alone by whoever
// clears what builds left behind. Unlike other locks it is one for all users of this machine,
// whatever their folders are, because what is cleared is not told apart by user. It stays where it
// is. A nil lock: the file is somebody's who does not share it.
func (s *Store) buildsLock(how int, take func(name string, how int) (*lock, error)) (*lock, error) {
	name := "/tmp/evalrun-builds-" + filepath.Base(s.dir()) + ".lock"
	l, err := take(name, how)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err == nil {
		_ = l.f.Chmod(0o666) // as far as it is ours
	}
	return l, err
}
