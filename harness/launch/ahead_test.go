package launch

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/fake"
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
