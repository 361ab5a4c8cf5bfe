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
