package web

import (
	"context"
	"testing"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
)

type liveRecorder struct {
	benchmarks.Benchmark
	live benchmarks.Episode
}

func (r *liveRecorder) Grade(_ context.Context, _ benchmarks.Host, _ datasets.Task, _ benchmarks.Evidence,
	live benchmarks.Episode) (benchmarks.Result, error) {
	r.live = live
	return benchmarks.Result{}, nil
}

// The benchmark grades its own episode, not the wrapper with the browser.
func TestWithBrowserGradesOwnEpisode(t *testing.T) {
	own := &Episode{}
	r := &liveRecorder{}
	wrapped := struct {
		*browserEpisode
		benchmarks.Machiner
	}{browserEpisode: &browserEpisode{Episode: own}}
	if _, err := WithBrowser(r, Browsers{}).Grade(t.Context(), nil, datasets.Task{}, benchmarks.Evidence{},
		wrapped); err != nil || r.live != benchmarks.Episode(own) {
		t.Errorf("graded %T, %v", r.live, err)
	}
}
