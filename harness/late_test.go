package harness_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
)

// lateEpisode does parts of its work only after the harness has given them up.
type lateEpisode struct {
	benchmarks.Episode
	next, collect, close func()
}

func (l *lateEpisode) Next(ctx context.Context, prev *benchmarks.Result) (*benchmarks.Stage, error) {
	l.next()
	return l.Episode.Next(ctx, prev)
}

func (l *lateEpisode) Collect(ctx context.Context, a agent.Answer) (benchmarks.Evidence, error) {
	l.collect()
	return l.Episode.Collect(ctx, a)
}

func (l *lateEpisode) Close() error {
	l.close()
	return l.Episode.Close()
}

// What comes out of a phase that was given up touches nothing any more (run it under -race), and an episode that is opened so late is closed.
func TestLatePhases(t *testing.T) {
	const limit = 400 * time.Millisecond
	for _, part := range []string{"needs", "open", "next", "collect", "close", "grade"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			over, slept := make(chan struct{}), false
			late := func(name string) func() {
				return func() {
					if name == part && !slept { // it waits for no word of the run's, which would order the two
						slept = true
						defer close(over)
						time.Sleep(4 * limit)
					}
				}
			}
			var closed atomic.Int32
			b := &toy{tasks: 1,
				needs: func(int) benchmarks.Needs { late("needs")(); return benchmarks.Needs{} },
				opens: func(benchmarks.Host) error { late("open")(); return nil },
				wrap: func(e benchmarks.Episode) benchmarks.Episode {
					return &lateEpisode{e, late("next"), late("collect"), func() { closed.Add(1); late("close")() }}
				},
				grade: func(context.Context, benchmarks.Evidence, benchmarks.Episode) (benchmarks.Result, error) {
					late("grade")()
					v := 1.0
					return benchmarks.Result{Scores: []record.Score{{Name: "x", Primary: true, Value: &v}}}, nil
				},
			}
			bed := newBed(t, b, says("right", 1))
			bed.cfg.Phases = harness.Phases{Start: limit, Collect: limit, Grade: limit, Close: limit, Grace: limit}
			bed.cfg.Retry.Attempts = 1
			bed.run(t, t.Context())
			want := map[string]record.Status{"close": record.Scored, "grade": record.Grader}[part]
			if want == "" {
				want = record.Infra
			}
			v := bed.verdicts(t)["arm0/t0"]
			if v.Status != want || want != record.Scored && v.Error.Class != "timeout" {
				t.Errorf("%s: %+v %+v, want %s", part, v, v.Error, want)
			}
			<-over
			if part == "needs" {
				return
			}
			for deadline := time.Now().Add(10 * time.Second); closed.Load() == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the episode was never closed")
				}
			}
			time.Sleep(limit / 4) // so that what is written late is written in the test's time
			if n := closed.Load(); n != 1 {
				t.Errorf("the episode was closed %d times", n)
			}
		})
	}
}
