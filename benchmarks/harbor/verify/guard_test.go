package verify

import (
	"context"
	"errors"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// slow is a machine whose files take long to be looked at.
type slow struct {
	sandbox.Sandbox
	monitor
	looked chan error
}

func (s *slow) ID() string                           { return "m" }
func (s *slow) Baseline(context.Context, bool) error { return <-s.looked }

// TestReady: who waits for the machine's state gets it, the error of recording it, or the reason to
// stop, which is a failure of the machine if it has used up the agent's time.
func TestReady(t *testing.T) {
	stop, broken := errors.New("stopped"), errors.New("broken")
	for name, c := range map[string]struct {
		recorded error
		cause    error
		want     error
	}{
		"recorded": {},
		"broken":   {recorded: broken, want: broken},
		"stopped":  {cause: stop, want: stop},
		"time":     {cause: &agent.LimitError{Kind: "time"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &slow{looked: make(chan error, 1)}
			g := Watch(t.Context(), m, Setup{Mode: Confirm})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.cause == nil {
				m.looked <- c.recorded
			} else {
				cancel(c.cause)
			}
			err := g.Ready(ctx)
			var sb *sandbox.Error
			switch {
			case name == "time":
				if !errors.As(err, &sb) || errors.As(err, new(*agent.LimitError)) {
					t.Errorf("the agent's time was over: %v", err)
				}
			case !errors.Is(err, c.want) || c.want == nil && err != nil:
				t.Errorf("got %v, want %v", err, c.want)
			}
			close(m.looked)
		})
	}
	if err := (*Guard)(nil).Ready(t.Context()); err != nil {
		t.Error(err)
	}
}
