package controller

import (
	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// A State is the state of one actor, derived from the log.
type State struct {
	Session  *agent.Session
	Turns    int64 // replies of the main model
	Steps    int64 // actions
	BadCalls int64 // calls that could not be parsed
	Idle     int   // consecutive replies without a call in this stage
	Repeated bool  // the latest of those replies equals the one before

	stepper Stepper
	stuck   Stuck
	system  *event.System
	goal    []event.Part  // goal of the stage
	finish  *event.Finish // not nil after the stage has ended
	text    []event.Part  // latest text of the model
	reply   *event.Reply  // latest reply, until everything in it has been executed
	played  int           // number of its calls already executed
	loops   loops
}

// Pending returns the reply whose calls have not all been executed, and the index of the first call
// that remains. It returns nil if the model must be called.
func (s *State) Pending() (r *event.Reply, from int) { return s.reply, s.played }

// Replied adds a reply of the session's main model to the state. The session has already recorded
// it.
func (s *State) Replied(r *model.Response) {
	e := event.New(event.FromAgent, event.Reply{
		ID: r.ID, Role: "main", Model: r.Model, Parts: r.Parts, Reasoning: r.Reasoning, Calls: r.Calls, Stop: r.Stop,
		Usage: r.Usage, Opaque: r.Opaque,
	})
	e.Actor = s.Session.Actor
	s.add(e)
}

// add updates the state with one event.
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
