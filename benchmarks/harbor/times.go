package harbor

import (
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// around is what we may take around a task's own commands: files in and out, and, for a grader of
// its own, a machine's start.
const around = 5 * time.Minute

// times notes what the task's own limits add up to, so that no phase of ours ends before they do.
func (b *Benchmark) times(t *format.Task, n *benchmarks.Needs) {
	by := b.o.Times()
	for i := range t.Steps {
		s := &t.Steps[i]
		setup := around + patience(by.Health(s.Health))
		if i == 0 {
			setup += patience(by.Health(t.Environment.Health))
		}
		if s.Setup {
			setup += by.Setup(setupTime)
		}
		collect := around
		for _, h := range s.Verifier.Collect {
			collect += by.Verifier(h.Timeout)
		}
		grade := around + by.Verifier(s.Verifier.Timeout)
		if s.Verifier.Separate {
			grade += patience(by.Health(s.Verifier.Environment.Health))
		}
		n.Setup, n.Collect, n.Grade = max(n.Setup, setup), max(n.Collect, collect), max(n.Grade, grade)
	}
}

// patience is how long a health check may take to give up.
func patience(h *sandbox.Health) time.Duration {
	if h == nil {
		return 0
	}
	return h.StartPeriod + time.Duration(max(1, h.Retries)+1)*(h.Interval+h.Timeout+h.StartInterval)
}
