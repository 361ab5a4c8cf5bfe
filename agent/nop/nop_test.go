package nop

import (
	"context"
	"errors"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/google/go-cmp/cmp"
)

func TestNop(t *testing.T) {
	got, err := Agent.Run(t.Context(), &agent.Session{}) // touches nothing of the session
	if err != nil || !cmp.Equal(got, agent.Answer{}) {
		t.Errorf("got %+v, %v; want nothing at all", got, err)
	}
}

func TestNopStopped(t *testing.T) {
	why := errors.New("stopped by hand")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := Agent.Run(ctx, &agent.Session{}); !errors.Is(err, why) {
		t.Errorf("got %v, want the context's cause", err)
	}
}
