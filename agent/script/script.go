// Package script is an agent that plays fixed actions from a file. It is for tests, for measuring
// the cost of a run without a model, and for attacks that must be the same every time.
//
// A file holds rules. The first rule whose task pattern and stage match is played. A YAML file is a
// list of rules; a JSONL file (a name that ends in .jsonl) has one rule per line:
//
//   - task: "greet-*"   # pattern of the task's ID, with * and ?; default: every task
//     stage: 1          # from 1; default: every stage
//     do:
//   - run: echo hi > out.txt            # a shell command
//   - run: {args: [ls, -l], dir: /tmp, user: nobody, timeout: 5s}
//   - browse: click("12")             # calls on a browser; "" only observes
//   - browse: {url: "http://localhost:8000/", timeout: 5s}
//   - tool: {name: lookup, args: {key: a}}
//   - action: {kind: edit, body: {…}}   # any other kind of action
//   - think: two roads lead there
//   - ask: What is 6 × 7?               # a model call; or {role: main, text: …}
//   - sleep: 50ms                       # simulates the model's latency
//   - do: [{run: "true"}, {think: again}]
//     times: 20                         # any step may be repeated
//   - fail: out of ideas                # the agent fails here; panic: TEXT panics
//   - finish: "42"                      # or {message: "42", gave_up: false, outputs: {…}}
//
// A script that ends without finish answers nothing. On a task that no rule matches, the agent
// gives up.
package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// A Script is a parsed file. It is immutable and may be used by any number of sessions at once.
type Script struct {
	name  string
	rules []rule
}

type rule struct {
	task  func(id string) bool
	stage int // from 1; 0 means every stage
	steps []step
}

// A step is an action (body), or one of the other fields.
type step struct {
	times   int
	body    event.Body
	timeout time.Duration
	sleep   time.Duration
	ask     *ask
	fail    string
	panic   string
	finish  *event.Finish
	group   []step
}

type ask struct{ role, text string }

// For returns the agent of one session of a task. Its first Run plays stage 1, the second plays
// stage 2, and so on.
func (s *Script) For(task string) agent.Agent {
	return &actor{script: s, task: task}
}

// An actor plays a script in one session.
type actor struct {
	script *Script
	task   string
	stage  int // being played, from 1
}

// Restores implements [agent.Restorer]: the log says which steps were played.
func (a *actor) Restores() bool { return true }

func (a *actor) Run(ctx context.Context, s *agent.Session) (agent.Answer, error) {
	a.stage++
	for _, r := range a.script.rules {
		if (r.stage == 0 || r.stage == a.stage) && r.task(a.task) {
			p := player{s: s}
			if a.stage == 1 {
				if err := p.remember(); err != nil {
					return agent.Answer{}, err
				}
			}
			err := startServers(ctx, s, r.steps)
			if err == nil {
				err = p.play(ctx, r.steps)
			}
			if errors.Is(err, errFinish) {
				err = nil
			}
			return p.answer, err
		}
	}
	return agent.Answer{GaveUp: fmt.Sprintf("script %s has no rule for this task and stage %d", a.script.name,
		a.stage)}, nil
}

// startServers starts the task's tool servers if a step calls a tool that the stage does not have.
func startServers(ctx context.Context, s *agent.Session, steps []step) error {
	box, ok := agent.As[agent.ToolServers](s)
	if !ok || len(s.Goal.MCP) == 0 || !callsOther(steps, s.Tools()) {
		return nil
	}
	_, _, err := box.ServerTools(ctx)
	return err
}

// callsOther reports whether one of the steps calls another tool than these.
func callsOther(steps []step, tools []agent.Tool) bool {
	return slices.ContainsFunc(steps, func(st step) bool {
		call, ok := st.body.(event.ToolCall)
		other := ok && !slices.ContainsFunc(tools, func(t agent.Tool) bool { return t.Name == call.Name })
		return other || callsOther(st.group, tools)
	})
}

// Fail is the error of an agent whose script says to fail.
type Fail struct{ Text string }

func (f *Fail) Error() string { return "script: " + f.Text }

// errFinish ends a script from any nesting of groups.
var errFinish = errors.New("finish")

type player struct {
	s      *agent.Session
	answer agent.Answer
	played []event.Body // actions and replies of before a crash that are still to be passed over
}

// remember reads from the log what was played before a crash.
func (p *player) remember() error {
	for e, err := range p.s.Log.Events(0) {
		if err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
		if _, ok := e.Body.(event.Reply); e.Actor == p.s.Actor && (ok || e.Body.Class() == event.Action) {
			p.played = append(p.played, e.Body)
		}
	}
	return nil
}

// passed reports whether a step, which leaves an event of this kind, was played before a crash.
func (p *player) passed(kind string) (bool, error) {
	if len(p.played) == 0 {
		return false, nil
	}
	was := p.played[0].Kind()
	if p.played = p.played[1:]; was != kind {
		return false, fmt.Errorf("script: the log has a %s where the script has a %s", was, kind)
	}
	return true, nil
}

func (p *player) play(ctx context.Context, steps []step) error {
	for i := range steps {
		for range max(1, steps[i].times) {
			if err := p.step(ctx, &steps[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *player) step(ctx context.Context, st *step) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case st.body != nil:
		return p.act(ctx, st.body, st.timeout)
	case st.sleep > 0 && len(p.played) == 0:
		t := time.NewTimer(st.sleep)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case st.ask != nil:
		if ok, err := p.passed(event.Reply{}.Kind()); ok || err != nil {
			return err
		}
		c, err := p.s.Model(st.ask.role)
		if err != nil {
			return err
		}
		_, err = c.Generate(ctx, &model.Request{
			Messages: []model.Message{{Role: model.User, Parts: event.Text(st.ask.text)}}})
		return err
	case st.fail != "":
		return &Fail{st.fail}
	case st.panic != "":
		panic("script: " + st.panic)
	case st.finish != nil:
		p.answer = agent.AnswerOf(*st.finish)
		if err := p.act(ctx, *st.finish, 0); err != nil {
			return err
		}
		return errFinish
	case st.group != nil:
		return p.play(ctx, st.group)
	}
	return nil
}

// act executes one action. The end of the episode ends the script and is not a failure.
func (p *player) act(ctx context.Context, b event.Body, timeout time.Duration) error {
	if ok, err := p.passed(b.Kind()); ok || err != nil {
		return err
	}
	e := event.New(event.FromAgent, b)
	e.Actor, e.Timeout = p.s.Actor, timeout
	_, err := p.s.Step(ctx, e)
	if errors.Is(err, agent.ErrDone) {
		return errFinish
	}
	return err
}

// Steps as they are written in a file.
type (
	rawRun struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
		Dir     string   `json:"dir"`
		User    string   `json:"user"`
		Timeout duration `json:"timeout"`
	}
	rawBrowse struct {
		Code    string   `json:"code"`
		URL     string   `json:"url"`
		Timeout duration `json:"timeout"`
	}
	rawTool struct {
		Name    string          `json:"name"`
		Args    json.RawMessage `json:"args"`
		Timeout duration        `json:"timeout"`
	}
	rawAction struct {
		Kind    string          `json:"kind"`
		Body    json.RawMessage `json:"body"`
		Timeout duration        `json:"timeout"`
	}
	rawAsk struct {
		Role string `json:"role"`
		Text string `json:"text"`
	}
	rawFinish struct {
		Message string          `json:"message"`
		GaveUp  bool            `json:"gave_up"`
		Outputs json.RawMessage `json:"outputs"`
	}
	duration time.Duration
)

// Set implements steps that are written as one string.
func (r *rawRun) Set(s string) error    { r.Command = s; return nil }
func (r *rawBrowse) Set(s string) error { r.Code = s; return nil }
func (r *rawTool) Set(s string) error   { r.Name = s; return nil }
func (r *rawAsk) Set(s string) error    { r.Text = s; return nil }
func (r *rawFinish) Set(s string) error { r.Message = s; return nil }

func (d *duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration", s)
	}
	*d = duration(v)
	return nil
}

func (duration) Notation() (name, pattern, example string) { return "a duration", "", "50ms or 1m30s" }

func (d duration) std() time.Duration { return time.Duration(d) }
