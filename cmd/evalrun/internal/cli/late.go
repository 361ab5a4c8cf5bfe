package cli

import (
	"sync/atomic"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness"
)

// late is a reporter that is made when it is known how much is left to do.
type late struct {
	r atomic.Pointer[progress.Reporter]
}

func (l *late) set(r *progress.Reporter) { l.r.Store(r) }

func (l *late) observe(p harness.Progress) {
	if r := l.r.Load(); r != nil {
		r.Observe(p)
	}
}

func (l *late) close() {
	if r := l.r.Load(); r != nil {
		r.Close()
	}
}

// drain is told that no more trials are begun, and says how many still run.
func (l *late) drain() int {
	if r := l.r.Load(); r != nil {
		return r.Drain()
	}
	return 0
}

// say reports whether there is a reporter that says it.
func (l *late) say(text string) bool {
	r := l.r.Load()
	if r == nil || r.Mode == progress.None {
		return false
	}
	r.Say(text)
	return true
}
