package harness_test

import (
	"context"
	"errors"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
)

// A trial that loses its browser runs again with its own browser, even without another try. A trial
// that loses that one, too, is "broke".
func TestLostBrowsers(t *testing.T) {
	for name, c := range map[string]struct {
		lost   int // number of attempts that lose their browser
		end    record.End
		reward float64
	}{"by another": {1, record.Answered, 1}, "by itself": {9, record.Broke, 0}} {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			b := &toy{tasks: 1, needs: func(int) benchmarks.Needs { return benchmarks.Needs{Browser: true} }}
			b.step = func(context.Context, event.Event) (benchmarks.Turn, error) {
				if attempts++; attempts <= c.lost {
					return benchmarks.Turn{}, &benchmarks.BrowserLost{Err: errors.New("the browser is gone")}
				}
				return benchmarks.Turn{Obs: event.RunResult{}}, nil
			}
			bed := newBed(t, b, says("right", 1))
			bed.cfg.Retry.Attempts = 1
			bed.cfg.Retry.Budget = 0
			sum := bed.run(t, t.Context())
			if sum.By[record.Scored] != 1 || sum.Retries != 0 || attempts != 2 {
				t.Errorf("%+v after %d attempts", sum, attempts)
			}
			if v := bed.verdicts(t)["arm0/t0"]; v.Reward == nil || *v.Reward != c.reward || v.End != c.end {
				t.Errorf("%+v", v)
			}
		})
	}
}
