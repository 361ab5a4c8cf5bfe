// Package blob stores content by its SHA-256, in files blobs/ab/cdef….
//
// A blob gets its final name only once its content is durable. A crash therefore leaves complete
// blobs and, in tmp/, partial files that the next Open for writing removes. Equal content is stored
// once. In memory, a [Store] holds only the names of what the next Sync must make durable.
//
// Disks lose bits and copies fail, so a blob is never trusted by its name. Each read compares the
// content with the digest and ends with [record.ErrDamaged] if they differ, and Put writes a
// damaged blob again.
package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/harness/record"
)

// Options configure a store. The zero value is right for a run.
type Options struct {
	ReadOnly bool // Put returns an error, and Open removes nothing
	NoSync   bool // skip every fsync: for tests and measurements only

	syncFile func(name string) error // replaced in tests
}

// A Store is a folder of blobs. It implements record.Blobs and is safe for concurrent use. Only one
// process at a time may write.
type Store struct {
	dir  string
	opts Options

	mu      sync.Mutex
	fresh   map[string]string // blobs put but not durable: file in tmp by digest
	moving  map[string]string // blobs being made durable by the running Sync
	err     error             // first failed fsync or rename; permanent
	syncing chan struct{}     // semaphore: its holder runs Sync
	dirs    map[string]bool   // folders known to exist
	sound   sound
	known   int64
	bytes   int64
}

var _ record.Blobs = (*Store)(nil)

const tmp = "tmp"

// small is the number of bytes read into memory before a file is created, so that content that is
// already stored needs no file.
const small = 256 << 10

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Open opens the store in dir. It creates the folder unless ReadOnly is set.
func Open(dir string, opts Options) (*Store, error) {
	s := &Store{dir: dir, opts: opts, fresh: map[string]string{}, syncing: make(chan struct{}, 1),
		dirs: map[string]bool{}}
	if s.opts.syncFile == nil {
		s.opts.syncFile = syncPath
	}
	if opts.ReadOnly {
		return s, nil
	}
	if err := os.RemoveAll(filepath.Join(dir, tmp)); err != nil {
		return nil, fmt.Errorf("blobs: sweeping: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, tmp), 0o755); err != nil {
		return nil, fmt.Errorf("blobs: %w", err)
	}
	if !opts.NoSync {
		if err := syncPath(filepath.Dir(dir)); err != nil {
			return nil, fmt.Errorf("blobs: %w", err)
		}
	}
	return s, nil
}

// Put implements record.Blobs.
func (s *Store) Put(ctx context.Context, r io.Reader) (string, int64, error) {
	if s.opts.ReadOnly {
		return "", 0, errors.New("blobs: the store is open for reading only")
	}
	if err := s.failed(); err != nil {
		return "", 0, err
	}
	sum, size, err := s.put(ctx, r)
	if err != nil {
		return "", 0, fmt.Errorf("blobs: keeping content: %w", err)
	}
	return sum, size, nil
}

func (s *Store) put(ctx context.Context, r io.Reader) (string, int64, error) {
	buf := buffers.Get().(*bytes.Buffer)
	buf.Reset()
	defer buffers.Put(buf)
	r = &reader{ctx, r}
	h := sha256.New()
	n, err := io.Copy(buf, io.LimitReader(r, small))
	if err != nil {
		return "", 0, err
	}
	h.Write(buf.Bytes())
	if n < small {
		sum := hexSum(h)
		if s.whole(sum) {
			return sum, n, nil
		}
		name, err := s.write(buf.Bytes(), nil)
		if err != nil {
			return "", 0, err
		}
		return sum, n, s.add(sum, name, n)
	}
	rest := &counter{r: io.TeeReader(r, h)}
	name, err := s.write(buf.Bytes(), rest)
	if err != nil {
		return "", 0, err
	}
	sum := hexSum(h)
	if s.whole(sum) {
		os.Remove(name)
		return sum, n + rest.n, nil
	}
	return sum, n + rest.n, s.add(sum, name, n+rest.n)
}

// write creates a file in tmp.
func (s *Store) write(head []byte, rest io.Reader) (string, error) {
	name := filepath.Join(s.dir, tmp, rand.Text())
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	_, err = f.Write(head)
	if err == nil && rest != nil {
		_, err = io.Copy(f, rest)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(name)
		return "", err
	}
	return name, nil
}

// add records a new blob, unless another goroutine was faster.
func (s *Store) add(sum, name string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		os.Remove(name)
		return s.err
	}
	if s.pendingLocked(sum) != "" {
		os.Remove(name)
		return nil
	}
	s.fresh[sum] = name
	s.known++
	s.bytes += size
	return nil
}

func (s *Store) pendingLocked(sum string) string {
	if name := s.fresh[sum]; name != "" {
		return name
	}
	return s.moving[sum]
}

// Open implements record.Blobs. A blob can be opened as soon as it was put, durable or not.
func (s *Store) Open(_ context.Context, sum string) (io.ReadCloser, error) {
	if !valid(sum) {
		return nil, fmt.Errorf("blobs: %.80q is no SHA-256: %w", sum, fs.ErrNotExist)
	}
	for range 2 {
		s.mu.Lock()
		name := s.pendingLocked(sum)
		s.mu.Unlock()
		if name != "" {
			if f, err := os.Open(name); err == nil {
				return verified(f, sum)
			} // Sync has since moved it to its final name
		}
		// check before opening, because opening a pipe would block
		if fi, err := os.Stat(s.path(sum)); err == nil && !fi.Mode().IsRegular() {
			return nil, fmt.Errorf("blobs: %s is not a regular file", sum)
		}
		f, err := os.Open(s.path(sum))
		if err == nil {
			return verified(f, sum)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("blobs: %w", err)
		}
	}
	return nil, fmt.Errorf("blobs: %s: %w", s.path(sum), fs.ErrNotExist)
}

// Stats are counters since the store was opened.
type Stats struct{ Blobs, Bytes int64 }

// Stats returns the number and size of new blobs.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.known, s.bytes}
}

func (s *Store) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Store) path(sum string) string { return filepath.Join(s.dir, sum[:2], sum[2:]) }

// valid rejects everything but hashes, to protect the file system.
func valid(sum string) bool {
	return len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == ""
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// A reader stops when its context ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
