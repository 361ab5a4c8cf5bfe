package agenttest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
)

// A Suite says how to test an agent.
type Suite struct {
	// New returns the agent.
	New func(t *testing.T) agent.Agent
	// Setup returns the goal, model and outputs of a session in which the agent acts at least once
	// through Step and ends. It is called for each session. The suite replaces Step, and sets the
	// log if there was an earlier stage.
	Setup func(t *testing.T) Setup
	// Grace is how soon Run must return after its context has ended; 0 means 5 s.
	Grace time.Duration
	// NoSteps is set if the agent does not act through Step (a program inside the sandbox). Tests
	// that need Step are skipped.
	NoSteps bool
}

// Run tests the contract of [agent.Agent]:
//
//   - Run returns soon after its context has ended, before the start or in the middle of an
//     action, and says why;
//   - it passes on limits and the environment's errors, and treats the end of the episode as a
//     normal end;
//   - no observation makes it panic or run forever;
//   - it can play a second stage of the same session;
//   - one agent can be used by several sessions at once;
//   - at the end each action has exactly one observation.
func Run(t *testing.T, s Suite) {
	if s.Grace == 0 {
		s.Grace = 5 * time.Second
	}
	t.Run("plays", s.plays)
	t.Run("second stage", s.secondStage)
	t.Run("several at once", s.several)
	t.Run("context ended before", s.endedBefore)
	if s.NoSteps {
		return
	}
	t.Run("context ends in an action", s.endsInAction)
	t.Run("limit", s.limit)
	t.Run("environment fails", s.envFails)
	t.Run("episode is over", s.over)
	t.Run("odd observations", s.odd)
}

func (s Suite) session(t *testing.T, step func(context.Context, event.Event) (event.Body, error)) *agent.Session {
	setup := s.Setup(t)
	if step != nil {
		setup.Step = step
	}
	return NewSession(setup)
}

// play runs an agent and checks how long it takes.
func (s Suite) play(t *testing.T, ctx context.Context, a agent.Agent,
	ses *agent.Session) (ans agent.Answer, err error) {
	t.Helper()
	done := make(chan struct{})
	var panicked any
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		ans, err = a.Run(ctx, ses)
	}()
	ended := ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case <-done:
			if panicked != nil {
				t.Fatalf("Run panicked: %v", panicked)
			}
			if open := LogOf(ses).Open(); len(open) > 0 {
				t.Errorf("actions without an observation: %v", open)
			}
			return ans, err
		case <-ended:
			ended, late = nil, time.After(s.Grace)
		case <-late:
			t.Fatalf("Run has not returned %v after its context ended", s.Grace)
		}
	}
}

func (s Suite) plays(t *testing.T) {
	ses := s.session(t, nil)
	if _, err := s.play(t, t.Context(), s.New(t), ses); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if !s.NoSteps && actions(ses) == 0 {
		t.Error("the agent did nothing")
	}
}

func (s Suite) secondStage(t *testing.T) {
	a := s.New(t)
	first := s.Setup(t)
	first.Log = &Log{}
	ses := NewSession(first)
	if _, err := s.play(t, t.Context(), a, ses); err != nil {
		t.Fatalf("first stage: %v", err)
	}
	n := actions(ses)
	second := s.Setup(t)
	second.Log = first.Log
	ses = NewSession(second)
	if _, err := s.play(t, t.Context(), a, ses); err != nil {
		t.Fatalf("second stage: %v", err)
	}
	if !s.NoSteps && actions(ses) == n {
		t.Error("the agent did nothing in the second stage")
	}
}

func (s Suite) several(t *testing.T) {
	a := s.New(t)
	errs := make(chan error, 8)
	for range cap(errs) {
		ses := s.session(t, nil)
		go func() {
			_, err := a.Run(t.Context(), ses)
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

var errStop = errors.New("stopped by the test")

func (s Suite) endedBefore(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStop)
	ses := s.session(t, nil)
	_, err := s.play(t, ctx, s.New(t), ses)
	mustStop(t, err)
}

func (s Suite) endsInAction(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ses := s.session(t, func(ctx context.Context, _ event.Event) (event.Body, error) {
		cancel(errStop)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	_, err := s.play(t, ctx, s.New(t), ses)
	mustStop(t, err)
}

func mustStop(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, errStop) && !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want the cause of the context's end", err)
	}
}

func (s Suite) limit(t *testing.T) {
	ses := s.session(t, func(context.Context, event.Event) (event.Body, error) {
		return event.Error{Text: "no more"}, &agent.LimitError{Kind: agent.LimitSteps, Max: "0"}
	})
	_, err := s.play(t, t.Context(), s.New(t), ses)
	if lim := new(agent.LimitError); !errors.As(err, &lim) {
		t.Errorf("Run = %v, want the *LimitError", err)
	}
}

func (s Suite) envFails(t *testing.T) {
	broken := errors.New("the machine burnt down")
	ses := s.session(t, func(context.Context, event.Event) (event.Body, error) { return nil, broken })
	_, err := s.play(t, t.Context(), s.New(t), ses)
	if !errors.Is(err, broken) {
		t.Errorf("Run = %v, want the environment's error", err)
	}
}

func (s Suite) over(t *testing.T) {
	ses := s.session(t, func(context.Context, event.Event) (event.Body, error) {
		return event.Ack{Of: "finish", Text: "that was all"}, agent.ErrDone
	})
	_, err := s.play(t, t.Context(), s.New(t), ses)
	if err != nil && !errors.Is(err, agent.ErrDone) {
		t.Errorf("Run = %v, want nil or ErrDone", err)
	}
	if n := actions(ses); n != 1 {
		t.Errorf("%d actions, want 1: the episode was over after the first", n)
	}
}

func (s Suite) odd(t *testing.T) {
	bodies := map[string]event.Body{
		"empty run":     event.RunResult{},
		"invalid utf-8": event.RunResult{Output: "\xff\xfe\x00\x1b[2J"},
		"large":         event.RunResult{Output: strings.Repeat("0123456789\n", 100_000), Truncated: true},
		"timed out":     event.RunResult{Code: -1, Signal: "SIGKILL", TimedOut: true, OOM: true},
		"empty tool":    event.ToolResult{},
		"blob": event.ToolResult{
			Parts: []event.Part{{Blob: &event.Blob{SHA256: "00", Type: "image/png", Size: 1}}}},
		"missing blob":   event.RunResult{Blob: &event.Blob{SHA256: "ff", Size: 1 << 40}},
		"unknown":        event.Unknown{K: "vendor.kind", C: event.Observation, Raw: []byte(`{"a":[1,2]}`)},
		"unknown broken": event.Unknown{K: "vendor.kind", C: event.Observation, Raw: nil},
		"ack of nothing": event.Ack{},
		"error":          event.Error{},
		"lost":           event.Lost{},
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ses := s.session(t, func(context.Context, event.Event) (event.Body, error) {
				if n.Add(1) > 50 {
					return body, &agent.LimitError{Kind: agent.LimitSteps, Max: "50"}
				}
				return body, nil
			})
			// The agent may fail here, but it must not panic or hang.
			_, err := s.play(t, ctx, s.New(t), ses)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Run went on without acting until it was stopped: %v", err)
			}
		})
	}
}

func actions(s *agent.Session) int {
	n := 0
	for _, e := range LogOf(s).All() {
		if e.Body.Class() == event.Action {
			n++
		}
	}
	return n
}
