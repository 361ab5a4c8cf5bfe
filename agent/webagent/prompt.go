package webagent

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
)

// sections returns the message about a page, in the order of BrowserGym's GenericAgent: goal,
// observation, history, actions, format of the answer, screenshot. The oldest skip turns of the
// history are left out.
func (s *stepper) sections(p *page, skip int) []event.Part {
	var w writer
	w.f("# Instructions\n\nLook at the page as it is now, and at all else that is told below. Choose the action that " +
		"brings you nearest to the goal, " +
		"and answer in the form that is described at the end: a program reads your answer and carries the action " +
		"out.\n\n## Goal:\n")
	w.parts(s.session.Goal.Parts)
	if s.cfg.Instructions != "" {
		w.f("\n\n## Extra instructions:\n%s", s.cfg.Instructions)
	}
	if len(s.talk) > 0 {
		w.f("\n\n## What the user said since:\n")
		for _, c := range s.talk {
			w.f("- %s\n", c.Text)
		}
	}
	s.observation(&w, p)
	s.history(&w, skip)
	s.actions(&w)
	s.form(&w)
	if p.screenshot != nil {
		w.f("\n\n## Screenshot:\n")
		if s.cfg.Screenshot == "marks" {
			w.f("What can be acted on has a dashed box around it, with its bid at the upper left corner.\n")
		}
		w.blob(*p.screenshot)
	}
	return w.done()
}

func (s *stepper) observation(w *writer, p *page) {
	w.f("\n\n# Observation of current step:")
	if p.tabs {
		w.f("\n\n## Currently open tabs:")
		for i, t := range p.Pages {
			mark := ""
			if i == p.Active {
				mark = " (active tab)"
			}
			w.f("\nTab %d%s:\n    Title: %s\n    URL: %s", i, mark, line(t.Title), line(t.URL))
		}
	}
	visible := ""
	if s.cfg.OnlyVisible {
		visible = "Only what is visible now is listed; scroll to see more.\n"
	}
	if p.hasHTML {
		w.f("\n\n## HTML:\n%s%s", visible, p.html)
	}
	if p.hasAX {
		w.f("\n\n## AXTree:\nIn brackets before an element stands its bid, by which actions name it; it holds for "+
			"this step only.\n%s", visible)
		switch {
		case p.Properties == nil:
		case s.cfg.Coords == "center":
			w.f("center=\"(x,y)\" is an element's middle in pixels from the upper left corner of what is visible.\n")
		case s.cfg.Coords == "box":
			w.f("box=\"(left,top,right,bottom)\" is an element's place in pixels from the upper left corner of what " +
				"is visible.\n")
		}
		if p.Properties != nil && on(s.cfg.Visible) && !s.cfg.OnlyVisible {
			w.f("Elements with the tag visible can be used now; for others scroll first.\n")
		}
		w.f("%s", p.ax)
	}
	if p.focused {
		bid := "None"
		if p.Focused != "" {
			bid = "bid='" + line(p.Focused) + "'"
		}
		w.f("\n\n## Focused element:\n%s", bid)
	}
	if p.errors && p.Error != "" {
		w.f("\n\n## Error from previous action:\n%s", shortError(p.Error))
	}
	if len(p.Downloads) > 0 {
		w.f("\n\n## Downloads:")
		for _, d := range p.Downloads {
			w.f("\n%s (%s, %d bytes)", line(d.Name), line(d.State), d.Size)
			if d.Path != "" {
				w.f(", which is %s", line(d.Path))
			}
		}
	}
	if s.cfg.Console && len(p.Log) > 0 {
		w.f("\n\n## Console:")
		for _, l := range p.Log {
			w.f("\n%s: %s", l.Kind, middle(line(l.Text), 500))
		}
		if p.LogDropped > 0 {
			w.f("\n(and %d more)", p.LogDropped)
		}
	}
}

func (s *stepper) history(w *writer, skip int) {
	if !on(s.cfg.History) || len(s.past) == 0 {
		return
	}
	w.f("\n\n# History of interaction with the task:")
	if skip > 0 {
		w.f("\n\n(%d steps left out)", skip)
	}
	for i, t := range s.past {
		if i < skip {
			continue
		}
		w.f("\n\n## step %d", i)
		if on(s.cfg.Thinking) && on(s.cfg.Thoughts) {
			w.tag("think", t.think)
		}
		if on(s.cfg.Actions) {
			w.tag("action", t.code)
		}
		if s.cfg.PastErrors && t.err != "" {
			w.f("\n\nIts error: %s", shortError(t.err))
		}
		if s.cfg.Memory {
			w.tag("memory", t.memory)
		}
	}
	if s.cfg.Plan {
		if plan := s.past[len(s.past)-1].plan; plan != "" {
			w.f("\n\n# Plan\n\nYour plan of the previous step:\n%s", plan)
		}
	}
}

func (s *stepper) actions(w *writer) {
	w.f("\n\n# Action space:\n\nAn action is calls as in Python, with literal arguments; anything else is not "+
		"carried out. Bids are strings.\n%s",
		strings.TrimRight(s.set.Describe(s.cfg.Descriptions, s.cfg.Examples), "\n"))
	if on(s.cfg.Hints) {
		w.f("\n\nAdvice:\n" +
			"- What you see is the page after your previous action. If it did not have the effect that you wanted, " +
			"find out why, and do not repeat it unchanged.\n" +
			"- Before you finish a form, look whether its fields hold what they should.\n" +
			"- Fields that complete what is typed may need a choice from the list that opens.")
		if s.can("send_msg_to_user") {
			w.f("\n- If the goal asks for something to be told, tell it by send_msg_to_user, complete and without " +
				"more words than are asked for.")
		}
		if s.can("report_infeasible") {
			w.f("\n- Call report_infeasible only when you have seen that the goal cannot be reached.")
		}
	}
	if !s.options.Single && on(s.cfg.Cautious) {
		w.f("\n\nGive several calls only when the later ones do not depend on what the page looks like after the " +
			"earlier ones. A click may change the page, and with it all bids.")
	}
}

// A field is a tag of the answer, with its purpose and an example.
type field struct{ tag, what, example string }

func (s *stepper) fields() []field {
	var f []field
	if on(s.cfg.Thinking) {
		f = append(f, field{"think", "What you see, what your previous action has done, and what follows from it for " +
			"the next. Think step by step.",
			"The previous action has worked: the field holds the text now, and no error is shown. The form is not " +
				"sent yet. So the next action is the one below."})
	}
	if s.cfg.Plan {
		f = append(f, field{"plan", "The steps that are left until the goal, changed where the page tells you so.",
			"1. Start the search.\n2. Open the first result.\n3. Read the price."},
			field{"step", "Which of these steps is next.", "1"})
	}
	if s.cfg.Memory {
		f = append(f, field{"memory", "What you must know in later steps and will not see then. Leave it empty when " +
			"there is nothing.", "The order's number is 1042."})
	}
	if s.cfg.Criticise {
		f = append(f, field{"action_draft", "The action that you think of first.", s.set.Example()},
			field{"criticise", "What may go wrong with it: is it the right element, is it visible, is anything to be " +
				"done before?", "The element is visible and is the one that the goal speaks of. The draft is right."})
	}
	what := "One call of an action, or several."
	if s.options.Single {
		what = "One call of an action."
	}
	return append(f, field{"action", what, s.set.Example()})
}

// form describes the format of an answer.
func (s *stepper) form(w *writer) {
	fields := s.fields()
	if on(s.cfg.Abstract) {
		w.f("\n\n# Abstract Example\n\nAn answer has these tags, in this order; what belongs into each is said in it.")
		for _, f := range fields {
			w.tag(f.tag, f.what)
		}
	}
	if on(s.cfg.Concrete) {
		w.f("\n\n# Concrete Example\n\nOnly the form counts: the page and the bids are others.")
		for _, f := range fields {
			w.tag(f.tag, f.example)
		}
	}
	if !on(s.cfg.Abstract) && !on(s.cfg.Concrete) {
		w.f("\n\nWrite the action between <action> and </action>.")
	}
}

// shortError removes most of the browser's call log from an error.
func shortError(s string) string {
	before, log, ok := strings.Cut(s, "Call log:")
	if !ok {
		return middle(s, 10_000)
	}
	lines := strings.Split(log, "\n")
	return middle(before+"Call log:"+strings.Join(lines[:min(len(lines), 11)], "\n"), 10_000)
}

// line puts s on one line, so that text of a page cannot imitate lines of the prompt.
func line(s string) string { return strings.Join(strings.Fields(s), " ") }

// A writer joins text and images.
type writer struct {
	out []event.Part
	b   strings.Builder
}

func (w *writer) f(format string, args ...any) { fmt.Fprintf(&w.b, format, args...) }

func (w *writer) tag(name, text string) {
	if text != "" {
		w.f("\n\n<%s>\n%s\n</%s>", name, text, name)
	}
}

func (w *writer) parts(parts []event.Part) {
	for i, p := range parts {
		if p.Blob != nil {
			w.blob(*p.Blob)
			continue
		}
		if i > 0 && w.b.Len() > 0 {
			w.f("\n")
		}
		w.f("%s", p.Text)
	}
}

func (w *writer) blob(b event.Blob) {
	w.flush()
	w.out = append(w.out, event.Part{Blob: &b})
}

func (w *writer) flush() {
	if w.b.Len() > 0 {
		w.out = append(w.out, event.Part{Text: strings.ToValidUTF8(w.b.String(), "\uFFFD")})
		w.b.Reset()
	}
}

func (w *writer) done() []event.Part {
	w.flush()
	return w.out
}
