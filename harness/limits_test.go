package harness_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
)

// A task's own limit applies if the run sets none, and a shorter limit of the run takes precedence.
func TestAgentTime(t *testing.T) {
	for _, tt := range []struct{ arm, task, want time.Duration }{
		{0, 0, harness.DefaultTime}, {0, 2 * time.Hour, 2 * time.Hour}, {time.Minute, 2 * time.Hour, time.Minute},
		{3 * time.Hour, 2 * time.Hour, 2 * time.Hour}, {-1, 0, -1}, {-1, 2 * time.Hour, 2 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			var left time.Duration
			b := newBed(t, &toy{tasks: 1, time: tt.task},
				agent.Func(func(_ context.Context, s *agent.Session) (agent.Answer, error) {
					left = s.Left().Time
					return agent.Answer{Parts: event.Text("right")}, nil
				}))
			b.cfg.Arms[0].Limits = harness.Limits{Time: tt.arm}
			b.run(t, t.Context())
			if left != tt.want {
				t.Errorf("a run with %v and a task with %v: the agent has %v, want %v", tt.arm, tt.task, left, tt.want)
			}
		})
	}
}

// A grader whose task allows an hour is not ended by the run's ten minutes.
func TestTaskTakesLonger(t *testing.T) {
	for _, grade := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, &toy{tasks: 1,
				needs: func(int) benchmarks.Needs { return benchmarks.Needs{Grade: grade} },
				grade: func(ctx context.Context, ev benchmarks.Evidence,
					_ benchmarks.Episode) (benchmarks.Result, error) {
					select {
					case <-time.After(40 * time.Minute):
					case <-ctx.Done():
						return benchmarks.Result{}, context.Cause(ctx)
					}
					v := 1.0
					return benchmarks.Result{Scores: []record.Score{{Name: "toy", Primary: true, Value: &v}}}, nil
				}}, says("right", 0))
			b.cfg.Retry.Attempts = 1
			sum := b.run(t, t.Context())
			if scored := sum.By[record.Scored] == 1; scored != (grade > 0) {
				t.Errorf("with %v for grading: %+v", grade, sum)
			}
		})
	}
}
