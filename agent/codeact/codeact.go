// Package codeact is an agent that acts by running code. It gives the model a shell, a browser, the
// environment's own tools and a finish tool as native tool calls, and works until the model calls
// finish. Tools that the environment does not support are not offered. Start with [New].
package codeact

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/controller"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/memory"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/webtext"
)

// Config configures an agent. The zero value is the default agent.
type Config struct {
	Prompt string // the system prompt; "" means DefaultPrompt
	GoOn   string // the message sent after a reply without a tool call; "" means DefaultGoOn
	// MaxIdle is how many consecutive replies without a tool call are answered with GoOn. The next
	// such reply is taken as the answer. 0 means 2, negative means none.
	MaxIdle  int
	MaxChars int          // maximum length of an observation shown to the model; 0 means 30,000
	Params   model.Params // of each request

	// Picture is the picture shown with each observation of a browser, if the model takes images:
	// "" or none; plain, a screenshot; marks, a screenshot with the elements' bids.
	Picture string
	Pages   int  // number of latest browser observations shown in full; 0 means 1, negative all
	Visible bool // show only the visible part of a page
	Stuck   controller.Stuck

	// Tools are the tools for the sandbox: "" or openhands, a shell and an editor; search, these with
	// glob and grep; or the name of one of the environment's sets (see [agent.ToolBox]): deerflow.
	Tools string
	// Jupyter adds execute_ipython_cell, which runs Python in a kernel that keeps its variables.
	Jupyter bool
}

// DefaultPrompt is the system prompt if none is configured.
const DefaultPrompt = `You carry out a task in a Linux sandbox, by yourself: nobody can answer questions or do anything for you while you work.

You act only through tool calls. The sandbox, with its files, is what your tools reach; changes that you make there last until the task is over.

How to work:
- Look before you change: list the files that matter and read what you need to know.
- Take small steps and read what each of them prints. When something fails, find out why before you try again, and do not repeat what has failed unchanged.
- Check your result by running it or looking at it before you say that you are done.
- Start what runs for long, such as a server, in the background with its output in a file.
- Use options that keep programs from asking, and from showing their output page by page.

When the task is done, call finish. If the task asks for an answer, give it in finish's message, complete and in the form that the task asks for: only the message is read. If the task cannot be done, say why in the message and set gave_up.`

// BrowserPrompt is the system prompt if none is configured and the task has a browser but no
// sandbox.
const BrowserPrompt = `You carry out a task in a web browser, by yourself: nobody can answer questions or do anything for you while you work.

You act only through tool calls. How to work:
- Read the page before you act: the newest observation shows it as it is now, and each element by its bid.
- Take small steps and look at what each of them has changed. When something fails, find out why before you try again, and do not repeat what has failed unchanged.
- Check that forms hold what they should before you send them.

When the task is done, call finish. If the task asks for an answer, give it in finish's message, complete and in the form that the task asks for. If the task cannot be done, say why in the message and set gave_up.`

// PlainPrompt is the system prompt if none is configured and the task has neither a sandbox nor a
// browser.
const PlainPrompt = `You carry out a task by yourself: nobody can answer questions or do anything for you while you work.

You act only through tool calls; what your tools are is all that there is to act on. When the task is done, call finish. If the task asks for an answer, give it in finish's message, complete and in the form that the task asks for: only the message is read. If the task cannot be done, say why in the message and set gave_up.`

// DefaultGoOn is the message sent after a reply without a tool call.
const DefaultGoOn = `Your reply had no tool call, so nothing was done. Go on with the task by calling a tool. If it is done, call finish, with the answer as its message.`

// cutShort replaces it if the model's reply reached its token limit.
const cutShort = `Your reply reached the limit on its length before it called a tool, so nothing was done. Go on, more briefly, by calling a tool.`

// New returns an agent. It is safe for use by several sessions at once.
func New(cfg Config) agent.Agent {
	if cfg.GoOn == "" {
		cfg.GoOn = DefaultGoOn
	}
	switch {
	case cfg.MaxIdle == 0:
		cfg.MaxIdle = 2
	case cfg.MaxIdle < 0:
		cfg.MaxIdle = 0
	}
	return codeact{cfg}
}

type codeact struct{ cfg Config }

// Restores implements [agent.Restorer]; see [controller.Controller].
func (a codeact) Restores() bool { return true }

func (a codeact) Run(ctx context.Context, s *agent.Session) (agent.Answer, error) {
	c := *s
	theirs, notes, served, err := serverTools(ctx, s)
	if err != nil {
		return agent.Answer{}, err
	}
	c.Goal, s = withOffers(s.Goal, served, notes), &c
	client, err := s.Model("main")
	if err != nil {
		return agent.Answer{}, fmt.Errorf("codeact: %w", err)
	}
	if p := a.cfg.Picture; p != "" && p != "none" && !client.Info().Images {
		return agent.Answer{}, fmt.Errorf("codeact: pages are to be shown with a picture (%s), but the model %s "+
			"takes no images", p, client.Info().Name)
	}
	st := &stepper{cfg: a.cfg, client: client, conv: memory.Conversation{Max: a.cfg.MaxChars, Recent: a.cfg.Pages},
		log: s.Log}
	if st.tools, err = newTools(s, a.cfg.Tools, a.cfg.Jupyter, theirs); err != nil {
		return agent.Answer{}, fmt.Errorf("codeact: %w", err)
	}
	_, task, web := webtext.Actions(s)
	st.look = task
	system := &event.System{Text: a.cfg.Prompt, Tools: st.tools.names()}
	switch {
	case system.Text != "":
	case s.Can("run"):
		system.Text = DefaultPrompt
	case web:
		system.Text = BrowserPrompt
	default:
		system.Text = PlainPrompt
	}
	return (&controller.Controller{Stepper: st, System: system, Stuck: a.cfg.Stuck}).Run(ctx, s)
}

// A stepper is one run of the agent.
type stepper struct {
	cfg    Config
	client model.Client
	conv   memory.Conversation
	tools  tools
	log    event.Log
	look   bool // the task begins in a browser and its page has not been observed yet
}

func (s *stepper) Add(e event.Event) {
	if _, ok := e.Body.(event.Browsed); ok {
		s.look = false
	}
	s.conv.Add(e)
}

// show returns the function that renders a browser observation for the model.
func (s *stepper) show(ctx context.Context) func(event.Body, event.Browsed) ([]event.Part, error) {
	return func(action event.Body, b event.Browsed) ([]event.Part, error) {
		return webtext.Look(s.log, b).Parts(ctx, action, s.cfg.Picture, webtext.TextOptions{OnlyVisible: s.cfg.Visible})
	}
}

func (s *stepper) Step(ctx context.Context, st *controller.State) ([]event.Event, error) {
	if r, _ := st.Pending(); r == nil {
		if s.look {
			s.look = false // also if there is nothing to see
			return []event.Event{event.New(event.FromAgent, event.Browse{})}, nil
		}
		if err := s.conv.Render(s.show(ctx)); err != nil {
			return nil, fmt.Errorf("codeact: %w", err)
		}
		resp, err := s.client.Generate(ctx,
			&model.Request{Messages: s.conv.Messages(), Tools: s.tools.offered, Params: s.cfg.Params})
		if err != nil {
			return nil, err
		}
		st.Replied(resp)
	}
	r, from := st.Pending()
	if len(r.Calls) == 0 {
		return []event.Event{s.idle(st, r)}, nil
	}
	events := make([]event.Event, 0, len(r.Calls)-from)
	for i := from; i < len(r.Calls); i++ {
		events = append(events, s.tools.action(r, i))
	}
	return events, nil
}

// idle answers a reply without a call. A reply that repeats the previous one word for word is taken
// as the answer.
func (s *stepper) idle(st *controller.State, r *event.Reply) event.Event {
	text := event.PlainText(r.Parts)
	if st.Idle > s.cfg.MaxIdle || st.Repeated {
		return event.New(event.FromAgent, event.Finish{Message: text})
	}
	say := s.cfg.GoOn
	if r.Stop == "length" {
		say = cutShort
	}
	return event.New(event.FromEnvironment, event.Message{Parts: event.Text(say)})
}
