package harbor

import (
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// around is what we may take around a task's own commands: files in and out, and, for a grader of its own, a machine's start.
const around = 5 * time.Minute

// times notes what the task's own limits add up to, so that no phase of ours ends before they do.
func (b *Benchmark) times(t *Task, n *benchmarks.Needs) {
	by := b.o.Times()
	for i := range t.Steps {
		s := &t.Steps[i]
		setup := around + patience(s.Health)
		if i == 0 {
			setup += patience(t.Environment.Health)
		}
		if s.Setup {
			setup += by.Setup(setupTime)
		}
		collect := around
		for _, h := range s.Verifier.Collect {
			collect += h.Timeout
		}
		n.Setup, n.Collect = max(n.Setup, setup), max(n.Collect, collect)
		n.Grade = max(n.Grade, around+by.Verifier(s.Verifier.Timeout))
	}
}

// patience is how long a health check may take to give up.
func patience(h *sandbox.Health) time.Duration {
	if h == nil {
		return 0
	}
	return h.StartPeriod + time.Duration(max(1, h.Retries)+1)*(h.Interval+h.Timeout+h.StartInterval)
}
