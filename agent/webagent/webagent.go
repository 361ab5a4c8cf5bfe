// Package webagent is an agent that uses a browser. In each step it renders the page as text and
// images, asks its model for one action, and executes it. It works with any model, because it needs
// no tool calls. It keeps no conversation: each request holds the goal, the current page, and a
// history of the actions so far.
//
// The content and order of a request follow BrowserGym's GenericAgent, so that results are
// comparable; the wording is our own. Start with [New].
package webagent

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/controller"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/webtext"
	"github.com/evalrun/evalrun/browsergym/action"
)

// ErrNoBrowser reports that the session has no browser.
var ErrNoBrowser = errors.New("browse: this benchmark has no browser; use the agent codeact")

// New returns an agent. It is safe for use by several sessions at once.
func New(cfg Config) (agent.Agent, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("browse: %w", err)
	}
	if cfg.System == "" {
		cfg.System = DefaultSystem
	}
	if cfg.MaxPromptTokens == 0 {
		cfg.MaxPromptTokens = promptTokens
	}
	b := browse{cfg: cfg, retry: retries}
	if cfg.MaxRetry != nil {
		b.retry = max(*cfg.MaxRetry, 0)
	}
	return b, nil
}

type browse struct {
	cfg   Config
	retry int
}

// never disables the detection of repetition. The benchmark's own step limit ends an agent that
// repeats itself, as it does for published scores.
var never = controller.Stuck{Repeat: -1, Errors: -1, Alternate: -1, Monologue: -1, Wait: -1}

func (a browse) Run(ctx context.Context, s *agent.Session) (agent.Answer, error) {
	o, task, ok := webtext.Actions(s)
	if !ok {
		return agent.Answer{}, ErrNoBrowser
	}
	if !task { // a message to the user is the answer and ends the stage
		o.Subsets = append(o.Subsets, "chat", "infeas")
	}
	if len(a.cfg.Subsets) > 0 {
		o.Subsets = a.cfg.Subsets
	}
	set, err := action.New(o)
	if err != nil {
		return agent.Answer{}, fmt.Errorf("browse: the actions: %w", err)
	}
	client, err := s.Model("main")
	if err != nil {
		return agent.Answer{}, fmt.Errorf("browse: %w", err)
	}
	info := client.Info()
	if sc := a.cfg.Screenshot; (sc == "plain" || sc == "marks") && !info.Images {
		return agent.Answer{}, fmt.Errorf("browse: the option screenshot is %s, but the model %s takes no images; "+
			"set screenshot: none", sc, info.Name)
	}
	st := &stepper{cfg: a.cfg, retry: a.retry, client: client, set: set, options: o, alone: !task, session: s}
	st.limit = a.cfg.MaxPromptTokens
	if w := int(info.Window); w > 0 { // leave room for the reply
		st.limit = min(st.limit, max(w-4096, w/2))
	}
	system := &event.System{Text: a.cfg.System}
	ans, err := (&controller.Controller{Stepper: st, System: system, Stuck: never}).Run(ctx, s)
	if err == nil && ans.GaveUp == "" && task {
		ans.Parts = nil // the answer is the message to the user, not the model's text
		if st.said != "" {
			ans.Parts = event.Text(st.said)
		}
	}
	return ans, err
}

// A stepper is one run of the agent.
type stepper struct {
	cfg     Config
	client  model.Client
	session *agent.Session
	set     *action.Set
	options action.Options
	alone   bool // there is no user: the browser is not part of the task
	limit   int  // maximum tokens of a request
	retry   int  // how many invalid answers per step are asked for again

	past   []turn                 // actions of this stage
	now    *event.Browsed         // latest observation; nil if there is none yet
	talk   []event.BrowserChat    // messages of users after the goal
	open   map[int64]event.Browse // actions without an observation yet
	looked bool                   // now is the observation of an empty Browse
	said   string                 // last message of the agent to the user
	reply  *event.Reply           // latest reply
	bad    []model.Message        // replies of this step without a valid action, and the messages that answered them
	fails  int
}

// A turn is an executed action.
type turn struct {
	think, memory, plan, code, err string
	played                         bool // err is set
}

// Add updates the state with an event.
func (s *stepper) Add(e event.Event) {
	switch b := e.Body.(type) {
	case event.Message:
		if e.Source == event.FromUser { // goal of a stage
			*s = stepper{cfg: s.cfg, client: s.client, session: s.session, set: s.set, options: s.options,
				alone: s.alone, limit: s.limit, retry: s.retry}
			return
		}
		if s.reply != nil {
			s.bad = append(s.bad, model.Message{Role: model.Assistant, Parts: parts(s.reply.Parts)},
				model.Message{Role: model.User, Parts: b.Parts})
			s.fails++
		}
	case event.Reply:
		if b.Role == "main" {
			s.reply = &b
		}
	case event.Browse:
		if s.open == nil {
			s.open = map[int64]event.Browse{}
		}
		s.open[e.ID] = b
		if b.Code != "" {
			s.acted(e, b)
		}
	case event.Browsed:
		s.seen(e, b)
	case event.Error, event.Lost: // the action was not executed
		if a, ok := s.open[e.Cause]; ok && a.Code != "" {
			s.failed(errorText(e.Body))
		}
		delete(s.open, e.Cause)
	}
}

func (s *stepper) acted(e event.Event, b event.Browse) {
	t := turn{code: b.Code}
	if s.reply != nil && e.Call != nil && e.Call.Reply == s.reply.ID {
		a := readAnswer(event.PlainText(s.reply.Parts))
		t.think, t.memory, t.plan = a.think, a.memory, a.plan
		if t.think == "" {
			t.think = s.reply.Reasoning
		}
	}
	s.past = append(s.past, t)
	s.bad, s.fails = nil, 0
	if calls, err := s.set.Parse(b.Code); err == nil {
		for _, c := range calls {
			if c.Name == "send_msg_to_user" || c.Name == "report_infeasible" {
				if args, err := s.set.Bind(c); err == nil && len(args) == 1 {
					s.said = text(args[0])
				}
			}
		}
	}
}

func (s *stepper) seen(e event.Event, b event.Browsed) {
	if s.now != nil { // messages before the first observation are part of the goal
		for _, c := range b.Chat {
			if c.Role == "user" || c.Role == "user_image" {
				s.talk = append(s.talk, c)
			}
		}
	}
	s.now = &b
	a, ok := s.open[e.Cause]
	s.looked = ok && a.Code == ""
	if ok && a.Code != "" {
		s.failed(b.Error)
	}
	delete(s.open, e.Cause)
}

func (s *stepper) failed(why string) {
	if n := len(s.past); n > 0 {
		s.past[n-1].err, s.past[n-1].played = why, true
	}
}

// Step observes the page if that has not been done yet. Otherwise it asks the model and returns the
// action of its answer.
func (s *stepper) Step(ctx context.Context, st *controller.State) ([]event.Event, error) {
	if s.now == nil || s.now.Done && !s.looked { // an earlier stage has ended the episode
		return []event.Event{event.New(event.FromAgent, event.Browse{})}, nil
	}
	if s.now.Done {
		return []event.Event{event.New(event.FromAgent, event.Finish{Message: s.said})}, nil
	}
	if r, _ := st.Pending(); r == nil {
		req, err := s.request(ctx)
		if err != nil {
			return nil, fmt.Errorf("browse: %w", err)
		}
		resp, err := s.client.Generate(ctx, req)
		if err != nil {
			return nil, err
		}
		st.Replied(resp)
	}
	r, _ := st.Pending()
	return []event.Event{s.next(r)}, nil
}

// next returns what follows from a reply: an action, a question to the model, or the end.
func (s *stepper) next(r *event.Reply) event.Event {
	a := readAnswer(event.PlainText(r.Parts))
	why := a.wrong
	if why == "" {
		calls, err := s.set.Parse(a.action)
		if err == nil {
			var body event.Body = event.Browse{Code: a.action}
			if s.alone {
				body, err = s.finish(calls, body)
			}
			if err == nil {
				e := event.New(event.FromAgent, body)
				e.Call = &event.Call{Reply: r.ID, Of: 1}
				return e
			}
		}
		why = "The action is not one that can be taken: " + err.Error()
	}
	if r.Stop == "length" {
		why = "Your answer reached the limit on its length and was cut. " + why
	}
	if s.fails >= s.retry {
		return event.New(event.FromAgent,
			event.Finish{GaveUp: true, Message: fmt.Sprintf("no valid action in %d answers: %s", s.fails+1, why)})
	}
	return event.New(event.FromEnvironment,
		event.Message{Parts: event.Text(why + "\nAnswer again, in the form that was asked for, with one <action>.")})
}

// finish converts calls where there is no user: a message to the user ends the stage.
func (s *stepper) finish(calls []action.Call, body event.Body) (event.Body, error) {
	for _, c := range calls {
		if c.Name != "send_msg_to_user" && c.Name != "report_infeasible" {
			continue
		}
		args, err := s.set.Bind(c)
		switch {
		case err != nil:
			return nil, err
		case len(calls) > 1:
			return nil, fmt.Errorf("%s ends the work: call it alone, when you have seen what the other calls have done",
				c.Name)
		}
		return event.Finish{Message: text(args[0]), GaveUp: c.Name == "report_infeasible"}, nil
	}
	return body, nil
}

// request returns the next request to the model.
func (s *stepper) request(ctx context.Context) (*model.Request, error) {
	p, err := s.page(ctx)
	if err != nil {
		return nil, err
	}
	msgs := []model.Message{{Role: model.System, Parts: event.Text(s.cfg.System)}, {Role: model.User, Parts: s.fit(p)}}
	return &model.Request{Messages: append(msgs, s.bad...), Params: s.cfg.Params}, nil
}

// parts returns the parts of a reply, at least one, because several services refuse an empty
// message.
func parts(p []event.Part) []event.Part {
	if event.PlainText(p) == "" {
		return event.Text("(nothing)")
	}
	return p
}

func errorText(b event.Body) string {
	switch b := b.(type) {
	case event.Error:
		return b.Text
	case event.Lost:
		return "no result: " + b.Why
	}
	return ""
}
