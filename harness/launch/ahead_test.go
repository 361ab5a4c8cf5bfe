package launch

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The tasks of an imaged benchmark have images named after them.
type imaged struct{ benchmarks.Benchmark }

func (imaged) Source() datasets.Source { return imagedSource{} }
func (imaged) Needs(t datasets.Task, _ benchmarks.Options) (benchmarks.Needs, error) {
	return benchmarks.Needs{Agent: []sandbox.Spec{{Image: sandbox.Image{Ref: t.ID}}}}, nil
}

type imagedSource struct{ datasets.Source }

func (imagedSource) Task(_ context.Context, id string) (datasets.Task, error) {
	return datasets.Task{ID: id}, nil
}

// A knows is a driver whose images are ready, except slow ones. It answers once asked is closed.
type knows struct {
	sandbox.Driver
	asked chan struct{}
}

func (d knows) ImageReady(_ context.Context, img sandbox.Image) bool {
	<-d.asked
	return !strings.HasPrefix(img.Ref, "slow")
}

// Trials whose images are ready overtake those whose images are being prepared, within a window,
// and no trial waits for another's images.
func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, asked := make(chan struct{}), make(chan struct{})
		r := &Ready{Workers: 3, Needs: Needs{Imaged: []string{"a"}}, benches: []harness.Bench{{Benchmark: imaged{}}}}
		r.Driver = knows{fake.New(fake.Options{}), asked}
		r.images = &harness.Images{Get: func(ctx context.Context, img sandbox.Image) (string, error) {
			if !strings.HasPrefix(img.Ref, "slow") {
				<-asked
				return img.Ref, nil
			}
			select {
			case <-release:
				return img.Ref, nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}}
		jobs := func(yield func(harness.Job) bool) {
			for _, id := range []string{"slow1", "slow2", "a", "b", "slow3", "c", "d", "e", "slow4"} {
				if !yield(harness.Job{Task: record.Task{ID: id, Digest: id}}) {
					return
				}
			}
		}
		of, end := r.ahead(1)
		defer end()
		next, stop := iter.Pull(of(jobs))
		defer stop()
		var got []string
		take := func() {
			if j, ok := next(); ok {
				got = append(got, j.Task.ID)
			}
			synctest.Wait()
		}
		take() // no image is known to be ready: a worker takes slow1 and waits for it
		close(asked)
		synctest.Wait()
		for range 3 {
			take()
		}
		if want := []string{"slow1", "a", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		close(release)
		synctest.Wait()
		for range 9 {
			take()
		}
		if want := []string{"slow1", "a", "b", "c", "slow2", "slow3", "d", "e", "slow4"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// The sandboxes of the next trials are made while one plays, if starting them takes long.
func TestExpect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{})
		close(asked)
		d := knows{fake.New(fake.Options{}), asked}
		r := &Ready{Workers: 8, Needs: Needs{Imaged: []string{"a"}}, benches: []harness.Bench{{Benchmark: imaged{}}},
			Driver: d, Eff: &config.Effective{}, Plan: &record.Plan{Run: "r"}, slow: true}
		r.Eff.Sandbox = &config.Sandbox{Driver: "slow"}
		r.o.Kinds = &registry.Registry{Sandboxes: []sandbox.Kind{{Name: "slow", Slow: true}, {Name: "other"}}}
		r.images = &harness.Images{Get: func(context.Context, sandbox.Image) (string, error) { return "sha256:1", nil }}
		r.pool = pool.New(pool.Options{Ahead: 3}, d)
		defer r.pool.Close()
		of, end := r.ahead(1)
		defer end()
		next, stop := iter.Pull(of(func(yield func(harness.Job) bool) {
			for i := range 6 {
				j := harness.Job{Trial: strconv.Itoa(i), Task: record.Task{ID: strconv.Itoa(i)}}
				switch i {
				case 1:
					j.Evidence = make([]record.Evidence, 1) // it is only graded
				case 2:
					j.Interrupted = 1 // it may have a sandbox
				}
				if !yield(j) {
					return
				}
			}
		}))
		defer stop()
		stock := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := r.pool.Stats().Stock; n != want {
				t.Errorf("%d made ahead, want %d", n, want)
			}
		}
		play := func(want string) {
			t.Helper()
			j, _ := next()
			if j.Trial != want {
				t.Fatalf("trial %s, want %s", j.Trial, want)
			}
			needs, _ := r.needsOf(t.Context(), j)
			spec := needs.Agent[0]
			spec.Owner.Trial = j.Trial
			l, err := r.pool.Acquire(t.Context(), []sandbox.Spec{spec})
			if err == nil {
				_, err = l.Sandbox(t.Context(), spec)
				l.Close()
			}
			if err != nil {
				t.Error(err)
			}
		}
		play("0")
		stock(3) // 3, 4 and 5
		for _, trial := range []string{"1", "2", "3", "4"} {
			play(trial)
		}
		stock(1)
		r.pool.Forget("5")
		stock(0)
		if s := r.pool.Stats(); s.Ahead != 2 {
			t.Errorf("%d were handed out that were made ahead, want 2", s.Ahead)
		}
		zero := config.Count(0)
		r.Eff.Pools = &config.Pools{Ahead: &zero}
		if n := r.aheadOf(); n != 0 {
			t.Errorf("%d ahead, though the configuration says none", n)
		}
	})
}
