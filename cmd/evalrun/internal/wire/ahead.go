package wire

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// lookAhead is of how many trials that have not begun the images are made ready at once. How many are really built and pulled at once is the
// store's business; those that are there already must not wait behind the others to be found.
const lookAhead = 16

// An expected job waits for a worker, and for its images.
type expected struct {
	harness.Job
	seen atomic.Bool // its images are ready, or cannot be made, which the trial itself will say
}

// ahead makes the images of the trials that come next ready in the background, so that a trial seldom waits for a build: those of as many
// trials as there are workers, for what is made far ahead would be pushed out of the disk's budget before it is used. Of these it hands out first
// whose images are ready; where none is, the next of the plan, whose worker waits for them.
func (r *Ready) ahead(jobs iter.Seq[harness.Job]) iter.Seq[harness.Job] {
	if r.images == nil || len(r.Needs.Drivers["docker"]) == 0 {
		return jobs
	}
	return func(yield func(harness.Job) bool) {
		window := max(1, r.Workers)
		ctx, cancel := context.WithCancel(context.Background())
		work := make(chan *expected, window+1) // as many as are looked ahead: the queue never waits for a build
		var makers sync.WaitGroup
		for range lookAhead {
			makers.Go(func() {
				for j := range work {
					r.makeImages(ctx, j.Job)
					j.seen.Store(true)
				}
			})
		}
		next, stop := iter.Pull(jobs)
		defer func() {
			stop()
			close(work)
			cancel()
			makers.Wait()
		}()
		var waiting []*expected
		for {
			for len(waiting) <= window {
				j, ok := next()
				if !ok {
					break
				}
				x := &expected{Job: j}
				waiting = append(waiting, x)
				select {
				case work <- x:
				default: // they are behind: the trial makes its images itself
				}
			}
			if len(waiting) == 0 {
				return
			}
			i := max(0, slices.IndexFunc(waiting, func(x *expected) bool { return x.seen.Load() }))
			x := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			if !yield(x.Job) {
				return
			}
		}
	}
}

func (r *Ready) makeImages(ctx context.Context, j harness.Job) {
	if ctx.Err() != nil {
		return
	}
	needs, ok := r.needsOf(ctx, j)
	if !ok {
		return
	}
	specs := needs.Grader
	if len(j.Evidence) == 0 {
		specs = slices.Concat(needs.Agent, needs.Grader)
	}
	for _, img := range imagesOf(specs) {
		if _, err := r.images.Ready(ctx, j.Task.Digest, img); err != nil {
			return
		}
	}
}

// imagesOf are the images of machines, of their services too.
func imagesOf(specs []sandbox.Spec) (out []sandbox.Image) {
	for _, s := range specs {
		img := s.Image
		if img.Platform == "" {
			img.Platform = s.Platform
		}
		if !img.IsZero() {
			out = append(out, img)
		}
		for _, side := range s.Services {
			out = append(out, imagesOf([]sandbox.Spec{side})...)
		}
	}
	return out
}
