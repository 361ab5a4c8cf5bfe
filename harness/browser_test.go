package harness_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
)

// At most the configured number of sessions hold a browser, sessions without a browser are not held
// up, and waiting for a browser does not count as the agent's time.
func TestBrowsers(t *testing.T) {
	var mu sync.Mutex
	open, most, bare := 0, 0, 0
	ended := make(chan struct{})
	b := &toy{tasks: 12, needs: func(i int) benchmarks.Needs { return benchmarks.Needs{Browser: i%3 != 0} }}
	b.step = func(ctx context.Context, a event.Event) (benchmarks.Turn, error) {
		mu.Lock()
		open++
		most = max(most, open)
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		open--
		bare++
		if bare == 12 {
			close(ended)
		}
		mu.Unlock()
		return benchmarks.Turn{Obs: event.RunResult{}}, nil
	}
	bed := newBed(t, b, says("right", 1))
	bed.cfg.Workers, bed.cfg.Browsers = 12, 2
	sum := bed.run(t, t.Context())
	<-ended
	if sum.Final != 12 || sum.By[record.Scored] != 12 {
		t.Errorf("%+v", sum)
	}
	if sum.Browsers < 1 || sum.Browsers > 2 {
		t.Errorf("%d sessions had a browser at once, 2 are allowed", sum.Browsers)
	}
	if most > 2+4 {
		t.Errorf("%d sessions acted at once: 2 in browsers and 4 others are allowed", most)
	}
}
