package launch

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The numbers of goroutines that work on trials that have not started. Makers prepare images in
// plan order; they are few because they compete with running trials. Finders only check whether
// images are ready.
const (
	aheadMakers  = 2
	aheadFinders = 4
)

// An expected job is waiting for a worker and for its images.
type expected struct {
	harness.Job
	seen atomic.Bool // its images are ready or cannot be built; the trial itself will report a failure

	mu    sync.Mutex
	given bool // it was handed out
}

// ahead prepares the images of upcoming trials in the background, so that a trial seldom waits for
// a build. It looks ahead by about as many trials as there are workers, because images prepared
// earlier would be evicted from the disk budget before use. Among these trials, one whose images
// are ready is handed out first; if there is none, the next in plan order, whose worker waits for
// its images. of wraps one of the run's streams of jobs. The caller must call close when no stream
// is read any more.
func (r *Ready) ahead(streams int) (of func(iter.Seq[harness.Job]) iter.Seq[harness.Job], close func()) {
	if r.images == nil || len(r.Needs.Imaged) == 0 {
		return func(jobs iter.Seq[harness.Job]) iter.Seq[harness.Job] { return jobs }, func() {}
	}
	window := max(1, r.Workers/max(1, streams))
	// Large enough for all jobs looked ahead at, and for those handed out at the start, so that the
	// queue never waits for a build.
	room := 2 * (window + 1) * streams
	a := &lookahead{window: window, toMake: make(chan *expected, room), toFind: make(chan *expected, room)}
	ctx, cancel := context.WithCancel(context.Background())
	for range aheadMakers {
		a.workers.Go(func() {
			for j := range a.toMake {
				if j.taken() { // it prepares them itself
					continue
				}
				r.makeImages(ctx, j.Job)
				if !j.seen.Swap(true) {
					r.expect(ctx, j)
				}
			}
		})
	}
	for range aheadFinders {
		a.workers.Go(func() {
			for j := range a.toFind {
				if !j.taken() && r.imagesThere(ctx, j.Job) && !j.seen.Swap(true) {
					r.expect(ctx, j)
				}
			}
		})
	}
	return a.stream, func() {
		cancel()
		a.close()
	}
}

func (x *expected) taken() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.given
}

// A lookahead prepares the images of trials that have not started.
type lookahead struct {
	window         int // jobs to look ahead in each stream
	toMake, toFind chan *expected
	workers        sync.WaitGroup
}

func (a *lookahead) close() {
	close(a.toMake)
	close(a.toFind)
	a.workers.Wait()
}

func (a *lookahead) stream(jobs iter.Seq[harness.Job]) iter.Seq[harness.Job] {
	return func(yield func(harness.Job) bool) {
		next, stop := iter.Pull(jobs)
		defer stop()
		var waiting []*expected
		for {
			for len(waiting) <= a.window {
				j, ok := next()
				if !ok {
					break
				}
				x := &expected{Job: j}
				waiting = append(waiting, x)
				for _, c := range []chan *expected{a.toFind, a.toMake} {
					select {
					case c <- x:
					default: // the goroutines lag behind: the trial prepares its images itself
					}
				}
			}
			if len(waiting) == 0 {
				return
			}
			// Trials that share a world keep their order, because the queue relies on it.
			i := max(0, slices.IndexFunc(waiting, func(x *expected) bool { return x.World == "" && x.seen.Load() }))
			x := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			x.mu.Lock()
			x.given = true
			x.mu.Unlock()
			if !yield(x.Job) {
				return
			}
		}
	}
}

// expect lets the pool make the sandboxes of a trial that has not started ahead, where starting them
// takes long.
func (r *Ready) expect(ctx context.Context, x *expected) {
	if r.pool == nil || !r.slow || r.aheadOf() == 0 || ctx.Err() != nil || len(x.Evidence) > 0 || x.Interrupted > 0 {
		return
	}
	needs, ok := r.needsOf(ctx, x.Job)
	if !ok || needs.Late {
		return
	}
	var specs []sandbox.Spec
	for _, s := range needs.Agent {
		if k := r.kindFor(s); k == nil || !k.Slow || !r.allReady(ctx, imagesOf([]sandbox.Spec{s})) {
			continue
		}
		s.Owner = self()
		s.Owner.Run, s.Owner.Trial = r.Plan.Run, x.Trial
		s.Orphan = harness.Orphan // it may be for an attempt that can go on after a crash
		specs = append(specs, s)
	}
	x.mu.Lock() // a trial that has begun may have asked for its sandboxes already
	defer x.mu.Unlock()
	if !x.given {
		r.pool.Expect(ctx, specs)
	}
}

// aheadOf returns how many sandboxes may be made ahead.
func (r *Ready) aheadOf() int {
	if p := r.Eff.Pools; p != nil && p.Ahead != nil {
		return int(*p.Ahead)
	}
	return 2 * runtime.NumCPU()
}

func (r *Ready) makeImages(ctx context.Context, j harness.Job) {
	for _, img := range r.imagesFor(ctx, j) {
		if _, err := r.images.Ready(ctx, j.Task.Digest, img); err != nil {
			return
		}
	}
}

// imagesThere reports whether all images of a trial are ready.
func (r *Ready) imagesThere(ctx context.Context, j harness.Job) bool {
	return r.allReady(ctx, r.imagesFor(ctx, j))
}

func (r *Ready) allReady(ctx context.Context, images []sandbox.Image) bool {
	for _, img := range images {
		if !sandbox.ImageReady(ctx, r.Driver, img) {
			return false
		}
	}
	return ctx.Err() == nil
}

// imagesFor returns the images that a trial will need, as far as that is known in advance.
func (r *Ready) imagesFor(ctx context.Context, j harness.Job) []sandbox.Image {
	if ctx.Err() != nil {
		return nil
	}
	needs, ok := r.needsOf(ctx, j)
	if !ok {
		return nil
	}
	specs := needs.Grader
	if len(j.Evidence) == 0 {
		specs = slices.Concat(needs.Agent, needs.Grader)
	}
	return imagesOf(specs)
}

// imagesOf returns the images of sandboxes and their services.
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
