package table

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/evalrun/evalrun/datasets"
)

// A Maker converts a row to a task. Its error counts against the row; a *[MissingColumn] in the
// first row counts against the file.
type Maker func(r Row) (datasets.Task, error)

// New returns a source of the tasks that mk makes of f's rows. New itself reads nothing.
func New(f File, mk Maker) datasets.Source { return &source{file: f, make: mk} }

type source struct {
	file File
	make Maker

	mu    sync.Mutex
	index map[key]at // of the whole file; nil before the first complete pass
}

// An index entry is 16 bytes of the ID's hash and 24 bytes of position: about 60 MB for a file of a
// million rows, whatever their size.
type (
	key [16]byte
	at  struct{ number, pos, line int64 }
)

func keyOf(id string) key {
	sum := sha256.Sum256([]byte(id))
	return key(sum[:16])
}

func (s *source) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		index := map[key]at{}
		for t, err := range s.read(ctx, index) {
			if !yield(t, err) {
				return
			}
		}
	}
}

// read reads the file once and fills index. A complete index is kept.
func (s *source) read(ctx context.Context, index map[key]at) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		good := false
		for r, err := range s.file.Rows(ctx) {
			if err != nil {
				if !yield(datasets.Task{}, broken(r, "", err)) || isFatal(err) {
					return
				}
				continue
			}
			t, err := s.task(r)
			if missing := (*MissingColumn)(nil); errors.As(err, &missing) && !good {
				yield(datasets.Task{}, &datasets.Fatal{Place: r.Place, Err: missing})
				return
			}
			if err != nil {
				if !yield(datasets.Task{}, broken(r, t.ID, err)) {
					return
				}
				continue
			}
			good = true
			k := keyOf(t.ID)
			if first, twice := index[k]; twice {
				yield(datasets.Task{}, &datasets.Fatal{Place: r.Place, Err: fmt.Errorf(
					"task ID %q is used twice; the first is at %s: give each row an ID of its own", t.ID,
					s.place(first))})
				return
			}
			index[k] = at{r.Number, r.Pos, r.Line}
			if !yield(t, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(datasets.Task{}, context.Cause(ctx))
			return
		}
		s.mu.Lock()
		s.index = index
		s.mu.Unlock()
	}
}

func (s *source) task(r Row) (datasets.Task, error) {
	t, err := s.make(r)
	if missing := (*MissingColumn)(nil); errors.As(err, &missing) {
		missing.Left = r.Left
	}
	return t, err
}

func isFatal(err error) bool {
	var bad *datasets.BadTask
	return !errors.As(err, &bad)
}

func (s *source) place(a at) string {
	if a.line > 0 {
		return fmt.Sprintf("line %d", a.line)
	}
	return fmt.Sprintf("row %d", a.number+1)
}

func (s *source) Task(ctx context.Context, id string) (datasets.Task, error) {
	a, ok, err := s.find(ctx, id)
	if err != nil {
		return datasets.Task{}, err
	}
	if !ok {
		return datasets.Task{}, fmt.Errorf("%s: task %q: %w", s.file.Path(), id, datasets.ErrNoTask)
	}
	r, err := s.file.At(ctx, Row{Number: a.number, Pos: a.pos, Line: a.line})
	if err != nil {
		return datasets.Task{}, broken(r, id, err)
	}
	t, err := s.task(r)
	if err != nil {
		return datasets.Task{}, broken(r, id, err)
	}
	if t.ID != id {
		return datasets.Task{}, &datasets.Fatal{Place: r.Place,
			Err: fmt.Errorf("the file has changed since it was first read: task %q is where %q was", t.ID, id)}
	}
	return t, nil
}

// find looks up id. The first call reads the whole file, because only the maker knows the IDs.
func (s *source) find(ctx context.Context, id string) (at, bool, error) {
	s.mu.Lock()
	index := s.index
	s.mu.Unlock()
	if index == nil {
		index = map[key]at{}
		for _, err := range s.read(ctx, index) {
			if err != nil && isFatal(err) {
				return at{}, false, err
			}
		}
	}
	a, ok := index[keyOf(id)]
	return a, ok, nil
}

// String returns the file's path.
func (s *source) String() string { return s.file.Path() }
