package controller

import (
	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// A State is what the log says of one actor.
type State struct {
	Session  *agent.Session
	Turns    int64 // replies of the main model
	Steps    int64 // actions
	BadCalls int64 // calls that could not be understood
	Idle     int   // replies without a call, in a row, in this stage
	Repeated bool  // the newest of them says what the one before said

	stepper Stepper
	stuck   Stuck
	system  *event.System
	goal    []event.Part  // of the stage
	finish  *event.Finish // the stage has ended
	text    []event.Part  // the newest words of the model
	reply   *event.Reply  // the newest, until all that follows from it has been played
	played  int           // how many of its calls
	loops   loops
}

// Pending is a reply that has not been acted on, or not to its end, and the first of its calls that
// is still to be played. Nil: the model is to be asked.
func (s *State) Pending() (r *event.Reply, from int) { return s.reply, s.played }

// Replied takes a reply of the session's main model. The session has recorded it already.
func (s *State) Replied(r *model.Response) {
	e := event.New(event.FromAgent, event.Reply{
		ID: r.ID, Role: "main", Model: r.Model, Parts: r.Parts, Reasoning: r.Reasoning, Calls: r.Calls, Stop: r.Stop,
		Usage: r.Usage, Opaque: r.Opaque,
	})
	e.Actor = s.Session.Actor
	s.add(e)
}

// add folds one event in.
func (s *State) add(e event.Event) {
	switch b := e.Body.(type) {
	case event.System:
		s.system = &b
	case event.Message:
		if e.Source == event.FromUser {
			s.goal, s.finish, s.Idle, s.Repeated, s.text = b.Parts, nil, 0, false, nil
			s.loops = loops{}
		}
		s.reply = nil
	case event.Reply:
		if b.Role == "main" {
			s.replied(b)
		}
	default:
		switch e.Body.Class() {
		case event.Action:
			s.Steps++
			s.action(e)
		case event.Observation:
			s.loops.observation(e)
		}
	}
	s.stepper.Add(e)
}

func (s *State) replied(r event.Reply) {
	s.Turns++
	s.reply, s.played = &r, 0
	if len(r.Calls) > 0 {
		s.Idle, s.Repeated = 0, false
	} else {
		said := event.PlainText(r.Parts)
		s.Repeated = s.Idle > 0 && said != "" && said == event.PlainText(s.text)
		s.Idle++
		s.loops.said(said)
	}
	if len(r.Parts) > 0 {
		s.text = r.Parts
	}
}

func (s *State) action(e event.Event) {
	switch b := e.Body.(type) {
	case event.Finish:
		s.finish = &b
		s.reply = nil
	case event.Invalid:
		s.BadCalls++
	}
	s.loops.action(e)
	if s.reply == nil || e.Call == nil || e.Call.Reply != s.reply.ID {
		return
	}
	s.played = max(s.played, e.Call.Index+1)
	if s.played >= len(s.reply.Calls) {
		s.reply = nil
	}
}
