package harbor

import (
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// overhead is the time for uploads, downloads and a grader's start beside a task's own commands.
const overhead = 5 * time.Minute

// phaseTimes sets the limits of the harness's phases to at least the sum of the task's own limits.
func (b *Benchmark) phaseTimes(t *format.Task, n *benchmarks.Needs) {
	by := b.o.times()
	for i := range t.Steps {
		s := &t.Steps[i]
		setup := overhead + healthCheckTime(by.Health(s.Health))
		if i == 0 {
			setup += healthCheckTime(by.Health(t.Environment.Health))
		}
		if s.Setup {
			setup += by.Setup(maxSetupTime)
		}
		collect := overhead
		for _, h := range s.Verifier.Collect {
			collect += by.Verifier(h.Timeout)
		}
		grade := overhead + by.Verifier(s.Verifier.Timeout)
		if s.Verifier.Separate {
			grade += healthCheckTime(by.Health(s.Verifier.Environment.Health))
		}
		n.Setup, n.Collect, n.Grade = max(n.Setup, setup), max(n.Collect, collect), max(n.Grade, grade)
	}
}

// healthCheckTime is how long a health check may take until it gives up.
func healthCheckTime(h *sandbox.Health) time.Duration {
	if h == nil {
		return 0
	}
	return h.StartPeriod + time.Duration(max(1, h.Retries)+1)*(h.Interval+h.Timeout+h.StartInterval)
}
