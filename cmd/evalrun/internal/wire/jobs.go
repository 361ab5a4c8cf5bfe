package wire

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// needsOf asks what a job's task needs; false: its trial will say why there is no telling.
func (r *Ready) needsOf(ctx context.Context, j harness.Job) (benchmarks.Needs, bool) {
	b := &r.benches[j.Benchmark]
	t, err := b.Source().Task(ctx, j.Task.ID)
	if err != nil {
		return benchmarks.Needs{}, false
	}
	needs, err := b.Needs(t, b.Options)
	return needs, err == nil && needs.Skip == ""
}

// named gives jobs the names of what they must have to themselves. Tasks are asked only where some that were looked at have such
// names, or not all were looked at.
func (r *Ready) named(jobs iter.Seq[harness.Job]) iter.Seq[harness.Job] {
	if !r.Needs.Exclusive && len(r.Plan.Tasks) <= surveyed {
		return jobs
	}
	return func(yield func(harness.Job) bool) {
		for j := range jobs {
			if len(j.Evidence) == 0 { // grading alone disturbs nobody
				if needs, ok := r.needsOf(context.Background(), j); ok {
					j.Exclusive = slices.Compact(slices.Sorted(slices.Values(needs.Exclusive)))
				}
			}
			if !yield(j) {
				return
			}
		}
	}
}

// lookAhead is how many images are made ready at once for trials that have not begun.
const lookAhead = 2

// ahead makes the images of the trials that come next ready in the background, so that a trial seldom waits for a build: those of as many
// trials as there are workers, for what is made far ahead would be pushed out of the disk's budget before it is used. Whether it
// worked, the trial itself will see.
func (r *Ready) ahead(jobs iter.Seq[harness.Job]) iter.Seq[harness.Job] {
	if r.images == nil || len(r.Needs.Drivers["docker"]) == 0 {
		return jobs
	}
	return func(yield func(harness.Job) bool) {
		ctx, cancel := context.WithCancel(context.Background())
		work := make(chan harness.Job, r.Workers) // as many as are looked ahead: the queue never waits for a build
		var makers sync.WaitGroup
		for range lookAhead {
			makers.Go(func() {
				for j := range work {
					r.makeImages(ctx, j)
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
		var waiting []harness.Job
		for {
			for len(waiting) <= r.Workers {
				j, ok := next()
				if !ok {
					break
				}
				waiting = append(waiting, j)
				select {
				case work <- j:
				default: // they are behind: the trial makes its images itself
				}
			}
			if len(waiting) == 0 {
				return
			}
			j := waiting[0]
			waiting = slices.Delete(waiting, 0, 1)
			if !yield(j) {
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
