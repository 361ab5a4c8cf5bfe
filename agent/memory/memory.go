// Package memory converts a session's events to the conversation that a model is shown.
//
// A [Conversation] takes the events of one actor in the order of the log; its messages depend on
// those alone. Each reply becomes one assistant message, followed by exactly one tool message for
// each of its calls, in order, whatever the result of the call.
package memory

import (
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// DefaultMax is the default maximum number of characters of an observation shown to a model.
const DefaultMax = 30_000

// notPlayed answers a call that was never executed, because the stage ended before.
const notPlayed = "This call was not executed: the work had ended before its turn came."

// A Conversation is built with [Conversation.Add]. The zero value is ready to use. It is not safe
// for concurrent use.
type Conversation struct {
	Role string // role whose replies belong to it; "" means "main"
	Max  int    // maximum characters of an observation; 0 means DefaultMax
	// Recent is the number of latest browser observations that are shown; each older one is
	// replaced by the browser's address. 0 means 1, negative means all.
	Recent int

	msgs  []model.Message      // the first is the system message, empty if there is none
	calls map[callKey]int      // index of each call's tool message
	open  map[int64]int        // index of each action's tool message
	acts  map[int64]event.Body // browser actions without an observation yet
	seen  []browsed
	free  map[int64]event.Event // actions without a call and without an observation yet
}

type callKey struct {
	reply string
	index int
}

// Add adds one event. It ignores events that a model is not shown.
func (c *Conversation) Add(e event.Event) {
	if c.calls == nil {
		c.msgs = make([]model.Message, 1, 16)
		c.calls, c.open, c.free, c.acts = map[callKey]int{}, map[int64]int{}, map[int64]event.Event{},
			map[int64]event.Body{}
	}
	switch b := e.Body.(type) {
	case event.System:
		c.msgs[0] = model.Message{Role: model.System, Parts: event.Text(b.Text)}
	case event.Message:
		role := model.User
		if e.Source == event.FromAgent {
			role = model.Assistant
		}
		c.msgs = append(c.msgs, model.Message{Role: role, Parts: b.Parts})
	case event.Reply:
		if want := c.Role; b.Role == want || want == "" && b.Role == "main" {
			c.reply(b)
		}
	default:
		switch e.Body.Class() {
		case event.Action:
			c.action(e)
		case event.Observation:
			c.observation(e)
		}
	}
}

func (c *Conversation) reply(r event.Reply) {
	if len(r.Parts) == 0 && len(r.Calls) == 0 {
		return // several services refuse an empty assistant message
	}
	c.msgs = append(c.msgs, model.Message{
		Role: model.Assistant, Parts: r.Parts, Calls: r.Calls, Reasoning: r.Reasoning, Opaque: r.Opaque,
	})
	clear(c.calls) // only calls of the latest reply can still be executed
	for i, call := range r.Calls {
		c.calls[callKey{r.ID, i}] = len(c.msgs)
		c.msgs = append(c.msgs, model.Message{Role: model.ToolRole, CallID: call.ID, Name: call.Name,
			Parts: event.Text(notPlayed)})
	}
}

func (c *Conversation) action(e event.Event) {
	switch e.Body.(type) {
	case event.Browse, event.BrowseURL:
		c.acts[e.ID] = e.Body
	}
	if e.Call != nil {
		if i, ok := c.calls[callKey{e.Call.Reply, e.Call.Index}]; ok {
			c.open[e.ID] = i
			return
		}
	}
	switch e.Body.(type) {
	case event.Finish, event.Think: // already said by the assistant, or not shown at all
	default:
		c.free[e.ID] = e
	}
}

func (c *Conversation) observation(e event.Event) {
	act := c.acts[e.Cause]
	delete(c.acts, e.Cause)
	at, before := -1, []event.Part(nil)
	if i, ok := c.open[e.Cause]; ok {
		delete(c.open, e.Cause)
		c.msgs[i].Parts = Parts(e.Body, c.max())
		at = i
	} else if a, ok := c.free[e.Cause]; ok {
		delete(c.free, e.Cause)
		before = event.Text("What was done without you: " + describe(a.Body))
		c.msgs = append(c.msgs, model.Message{Role: model.User, Parts: append(before[:1:1], Parts(e.Body, c.max())...)})
		at = len(c.msgs) - 1
	}
	if b, ok := e.Body.(event.Browsed); ok && at >= 0 {
		c.see(browsed{at: at, before: before, action: act, body: b})
	}
}

func (c *Conversation) max() int {
	if c.Max > 0 {
		return c.Max
	}
	return DefaultMax
}

// Messages returns the conversation so far, starting with the system message. The result is valid
// until the next Add and must not be changed.
func (c *Conversation) Messages() []model.Message {
	if len(c.msgs) > 0 && c.msgs[0].Role == "" {
		return c.msgs[1:]
	}
	return c.msgs
}
