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

// A blobReader reads a stored blob. Damage it finds is a storage failure of the run even if the
// agent or the grader ignores the error, because a grade of damaged content is worthless.
type blobReader struct {
	io.ReadCloser
	ctx  context.Context
	a    *attempt
	done bool // Read has returned an error or io.EOF
}

func (r *blobReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.done = r.done || err != nil
	if err != nil && err != io.EOF {
		err = r.a.unreadable(err)
	}
	return n, err
}

// Close reads the rest of the blob, because the digest can be checked only at its end and the
// caller may have stopped early because of the damage.
func (r *blobReader) Close() error {
	for p := []byte(nil); !r.done && r.ctx.Err() == nil; {
		if p == nil {
			p = make([]byte, 32<<10)
		}
		_, _ = r.Read(p) // Read remembers any damage
	}
	return r.ReadCloser.Close()
}

// unreadable remembers the first damaged blob and wraps its error in errStorage. Other errors are
// returned unchanged.
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

// kept checks that the blobs of evidence written by an earlier process exist. Their content is
// checked when it is read.
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
