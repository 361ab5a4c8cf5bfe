// Package controller is the loop of an agent that thinks, acts and observes.
//
// A [Controller] is an [agent.Agent] around a [Stepper], which calls a model and interprets its
// replies. The controller executes what the stepper returns, in order, and stops the agent when it
// repeats itself. Both derive their state from the log alone ([State], [Stepper.Add]), so a fresh
// start, a later stage and a resumed log take the same path.
//
//	log ─┬─> State.add ──> State ──> Stepper.Step ──> actions, notes
//	     └─> Stepper.Add                                  │
//	     ^                                                v
//	     └──────────────── Session.Step, Log.Append ──────┘
package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
)

// A Stepper decides the actions in one run of an agent.
type Stepper interface {
	// Add takes an event of the actor: first those already in the log, then each new one, in order.
	Add(e event.Event)
	// Step returns what to do next: actions to execute and notes to record. If s has a pending
	// reply ([State.Pending]), Step continues with it. Otherwise it calls the model, passes the
	// reply to s ([State.Replied]) and returns what follows from it. A call that cannot be parsed
	// becomes an event.Invalid action. An event.Finish ends the stage.
	Step(ctx context.Context, s *State) ([]event.Event, error)
}

// A Controller plays one stage with one stepper. Make a new one for each Run.
type Controller struct {
	Stepper Stepper
	System  *event.System // recorded if the log has a different one or none; may be nil
	Stuck   Stuck
}

// Run implements [agent.Agent]. It records the goal, unless the log shows that this stage was
// interrupted, and continues until the stepper finishes, the environment ends the episode, or an
// error occurs. Actions after a finish in the same reply are not executed.
func (c *Controller) Run(ctx context.Context, s *agent.Session) (agent.Answer, error) {
	st := &State{Session: s, stuck: c.Stuck.withDefaults(), stepper: c.Stepper}
	for e, err := range s.Log.Events(0) {
		if err != nil {
			return agent.Answer{}, fmt.Errorf("reading the log: %w", err)
		}
		if e.Actor == s.Actor {
			st.add(e)
		}
	}
	if c.System != nil && !reflect.DeepEqual(st.system, c.System) {
		if err := st.note(ctx, event.New(event.FromEnvironment, *c.System)); err != nil {
			return agent.Answer{}, err
		}
	}
	if st.finish != nil || !reflect.DeepEqual(st.goal, s.Goal.Parts) || len(st.goal) == 0 {
		if err := st.note(ctx, event.New(event.FromUser, event.Message{Parts: s.Goal.Parts})); err != nil {
			return agent.Answer{}, err
		}
	}
	for st.finish == nil {
		if err := context.Cause(ctx); err != nil {
			return agent.Answer{}, err
		}
		if err := st.loop(); err != nil {
			return agent.Answer{}, err
		}
		events, err := c.Stepper.Step(ctx, st)
		if err != nil {
			return agent.Answer{}, err
		}
		if len(events) == 0 {
			return agent.Answer{}, errors.New("the agent had nothing to do and did not finish")
		}
		over, err := st.play(ctx, events)
		if err != nil {
			return agent.Answer{}, err
		}
		if over && st.finish == nil {
			return agent.Answer{Parts: st.text}, nil // the model's last text is the answer
		}
	}
	return agent.AnswerOf(*st.finish), nil
}

// play executes the events in order and reports whether the episode is over.
func (s *State) play(ctx context.Context, events []event.Event) (over bool, err error) {
	for _, e := range events {
		e.Actor = s.Session.Actor
		if e.Body.Class() == event.Note {
			if err := s.note(ctx, e); err != nil {
				return false, err
			}
			continue
		}
		obs, err := s.Session.Step(ctx, e)
		if obs.Body != nil {
			e.ID = obs.Cause
			s.add(e)
			s.add(obs)
		}
		switch {
		case errors.Is(err, agent.ErrDone):
			return true, nil
		case err != nil:
			return false, err
		case s.finish != nil:
			return false, nil
		}
	}
	return false, nil
}

func (s *State) note(ctx context.Context, e event.Event) error {
	e.Actor = s.Session.Actor
	e, err := s.Session.Log.Append(ctx, e)
	if err != nil {
		return fmt.Errorf("recording a %s: %w", e.Body.Kind(), err)
	}
	s.add(e)
	return nil
}
