package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
)

// A blobReader reads what the run keeps. Damage that it meets is a failure of the run's storage,
// also where the agent or the grader that reads swallows the error: a grade of damaged content
// would be no grade.
type blobReader struct {
	io.ReadCloser
	ctx  context.Context
	a    *attempt
	done bool // it was read to the end, or to an error
}

func (r *blobReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.done = r.done || err != nil
	if err != nil && err != io.EOF {
		err = r.a.unreadable(err)
	}
	return n, err
}

// Close reads the rest: the digest is known at the end only, and who stops before may have done so
// because of what is damaged.
func (r *blobReader) Close() error {
	for p := []byte(nil); !r.done && r.ctx.Err() == nil; {
		if p == nil {
			p = make([]byte, 32<<10)
		}
		_, _ = r.Read(p) // damage is remembered
	}
	return r.ReadCloser.Close()
}

// unreadable remembers the first damaged blob, and marks the error as one of storage.
func (a *attempt) unreadable(err error) error {
	if !errors.Is(err, record.ErrDamaged) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.damaged == nil {
		a.damaged = &errStorage{err}
	}
	return &errStorage{err}
}

func (a *attempt) damage() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.damaged
}

// kept says whether the blobs of evidence that an earlier process left are there. Their content is
// checked as it is read.
func (a *attempt) kept(ctx context.Context, ev benchmarks.Evidence) error {
	for _, name := range slices.Sorted(maps.Keys(ev.Files)) {
		if a.Blobs == nil {
			return errors.New("this run keeps no blobs")
		}
		r, err := a.Blobs.Open(ctx, ev.Files[name].SHA256)
		if err != nil {
			return &errStorage{fmt.Errorf("%w: %q of the evidence of trial %s: %w", record.ErrMissing, name,
				a.job.Trial, err)}
		}
		r.Close()
	}
	return nil
}
