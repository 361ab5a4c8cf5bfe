package blob

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// workers is the number of concurrent fsync calls, which the file system combines into few commits.
const workers = 8

// Sync implements record.Blobs: blobs put before the call are durable when it returns. Concurrent
// callers share the work. The first failure is permanent, because after a failed fsync nobody knows
// what the kernel still holds.
func (s *Store) Sync(ctx context.Context) error {
	s.mu.Lock()
	free := len(s.fresh) == 0 && s.moving == nil
	err := s.err
	s.mu.Unlock()
	if free || err != nil {
		return err
	}
	select {
	case s.syncing <- struct{}{}:
		defer func() { <-s.syncing }()
	case <-ctx.Done():
		return fmt.Errorf("blobs: waiting for the disk: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	if s.err != nil || len(s.fresh) == 0 { // another goroutine has done the work meanwhile
		defer s.mu.Unlock()
		return s.err
	}
	s.moving, s.fresh = s.fresh, map[string]string{}
	batch := s.moving
	s.mu.Unlock()

	err = s.settle(batch)

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = fmt.Errorf("blobs: making content durable: %w; look after the disk of %s and run `evalrun resume`", err,
			filepath.Dir(s.dir))
		return s.err // s.moving stays set, so that its blobs can still be read
	}
	for sum := range batch {
		s.sound.add(sum)
	}
	s.moving = nil
	return nil
}

// settle makes a batch durable: first contents, then names, then the folders that hold the names.
func (s *Store) settle(batch map[string]string) error {
	sums := make([]string, 0, len(batch))
	for sum := range batch {
		sums = append(sums, sum)
	}
	var mu sync.Mutex
	dirs := map[string]bool{}
	if err := each(sums, func(sum string) error {
		if !s.opts.NoSync {
			if err := s.opts.syncFile(batch[sum]); err != nil {
				return err
			}
		}
		path := s.path(sum)
		dir := filepath.Dir(path)
		mu.Lock()
		known := s.dirs[dir]
		mu.Unlock()
		if !known {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
			mu.Lock()
			dirs[s.dir] = true // even if it existed: the process that created it may have died before this sync
			mu.Unlock()
		}
		if err := os.Rename(batch[sum], path); err != nil {
			return err
		}
		mu.Lock()
		dirs[dir], s.dirs[dir] = true, true
		mu.Unlock()
		return nil
	}); err != nil {
		return err
	}
	if s.opts.NoSync {
		return nil
	}
	var names []string
	for d := range dirs {
		names = append(names, d)
	}
	return each(names, s.opts.syncFile)
}

// each calls f for every name with a few goroutines and returns the first error.
func each(names []string, f func(string) error) error {
	var next, failed atomic.Int64
	var first error
	work := func() {
		for failed.Load() == 0 {
			i := int(next.Add(1)) - 1
			if i >= len(names) {
				return
			}
			if err := f(names[i]); err != nil && failed.Add(1) == 1 {
				first = err
			}
		}
	}
	var wg sync.WaitGroup
	for range min(workers, len(names)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return first
}

// syncPath makes a file's content or a folder's names durable.
func syncPath(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
