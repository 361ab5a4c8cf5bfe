package local

import (
	"context"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runtime/executor"
)

// hung ends a box whose executor does not answer. It returns the states of the executor's threads
// as the kernel has them, and the stacks that it prints on SIGQUIT. One that prints nothing soon is
// killed.
func (b *box) hung(ctx context.Context) string {
	defer b.p.kill()
	var s strings.Builder
	s.WriteString(executor.Threads(b.p.pid))
	select { // one after the other: where many hang at once, the last have no stacks
	case b.sp.asks <- struct{}{}:
	case <-ctx.Done():
		s.WriteString("no stacks: other executors hang too\n")
		return s.String()
	}
	defer func() { <-b.sp.asks }()
	errs := b.sp.errs
	from := errs.written()
	b.p.quit()
	select {
	case <-b.p.ended:
	case <-ctx.Done():
		s.WriteString("it did not end on SIGQUIT\n")
	}
	// What it has written comes through a pipe of its spawner's, perhaps a moment later.
	for n, tries := int64(-1), 0; n != errs.written() && tries < 10; tries++ {
		n = errs.written()
		time.Sleep(20 * time.Millisecond)
	}
	s.WriteString(errs.since(from))
	return s.String()
}
