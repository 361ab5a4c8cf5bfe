package harness_test

import (
	"context"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A lateEpisode does parts of its work only after the harness has given up on it.
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

// The late result of an abandoned phase changes nothing (run with -race), and an episode opened too
// late is closed.
func TestLatePhases(t *testing.T) {
	const limit = 400 * time.Millisecond
	for _, part := range []string{"needs", "open", "next", "collect", "close", "grade"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			over, slept := make(chan struct{}), false
			late := func(name string) func() {
				return func() {
					if name == part && !slept { // no synchronization with the run, which would hide a race
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
			time.Sleep(limit / 4) // so that the late write happens during the test
			if n := closed.Load(); n != 1 {
				t.Errorf("the episode was closed %d times", n)
			}
		})
	}
}

// A stuckMachine is an episode with a sandbox that accepts no files.
type stuckMachine struct{ benchmarks.Episode }

func (s stuckMachine) Machine(context.Context) (sandbox.Sandbox, error) { return stuckSandbox{}, nil }
func (s stuckMachine) Started() sandbox.Sandbox                         { return nil }
func (s stuckMachine) Dir() string                                      { return "/" }

type stuckSandbox struct{ sandbox.Sandbox }

func (stuckSandbox) Put(ctx context.Context, _ string, _ fs.FS) error {
	<-ctx.Done()
	return &sandbox.Error{Op: "put", Err: context.Cause(ctx)}
}

// An operation interrupted by the end of a phase or of the agent's time has not failed by itself:
// neither the sandbox nor the disk is to blame.
func TestBrokenOff(t *testing.T) {
	put := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		m, ok := agent.As[agent.Machine](s.Env)
		if !ok {
			t.Fatal("no machine")
		}
		return agent.Answer{}, m.Put(ctx, "/", fstest.MapFS{})
	})
	run := func(t *testing.T, ctx context.Context, wrap func(benchmarks.Episode) benchmarks.Episode,
		ag agent.Agent) (harness.Summary, record.Verdict) {
		b := newBed(t, &toy{tasks: 1, wrap: wrap}, ag)
		b.cfg.Arms[0].Limits, b.cfg.Retry.Attempts = harness.Limits{Time: time.Minute}, 1
		b.cfg.Phases.Command = 10 * time.Second
		store, err := blob.Open(t.TempDir(), blob.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b.cfg.Blobs = store
		sum := b.run(t, ctx)
		return sum, b.verdicts(t)["arm0/t0"]
	}
	stuck := func(e benchmarks.Episode) benchmarks.Episode { return stuckMachine{e} }
	t.Run("limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			if _, v := run(t, t.Context(), stuck, put); v.Status != record.Scored || v.End != record.Limit {
				t.Errorf("%+v %+v", v, v.Error)
			}
		})
	})
	t.Run("stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(harness.ErrStopped) })
			if sum, v := run(t, ctx, stuck, put); sum.Reason != "stopped" || sum.Final != 0 {
				t.Errorf("%+v %+v %+v", sum, v, v.Error)
			}
		})
	})
	t.Run("blob", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sum, v := run(t, t.Context(),
				func(e benchmarks.Episode) benchmarks.Episode { return &endlessEpisode{e.(*toyEpisode)} },
				says("right", 1))
			if v.Status != record.Infra || v.Error.Class != "timeout" || sum.Reason != "done" {
				t.Errorf("%+v %+v %+v", sum, v, v.Error)
			}
		})
	})
}

// An endlessEpisode never finishes storing the output of an action.
type endlessEpisode struct{ *toyEpisode }

func (e *endlessEpisode) Step(ctx context.Context, _ event.Event) (benchmarks.Turn, error) {
	_, err := e.host.Log().PutBlob(ctx, "text/plain", slowly{})
	return benchmarks.Turn{}, err
}

type slowly struct{}

func (slowly) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return copy(p, "more\n"), nil
}
