// Package agenttest supports tests of agents: a session in memory ([NewSession]) with a scripted
// environment and scripted models, and the test suite for all agents ([Run]).
//
// The session behaves like the harness's, but without limits: replies are in the log before
// Generate returns, and Step records the action and the observation and answers think, finish and
// invalid calls itself.
package agenttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Setup describes a session. All fields are optional.
type Setup struct {
	Goal    string
	Log     *Log // log of an earlier stage or of an interrupted attempt
	Tools   []agent.Tool
	Kinds   []string // kinds that Can accepts; nil means "run"
	Sandbox sandbox.Sandbox
	Dir     string // working directory of the machine; "" means "/workspace"

	// Step answers an action. If nil, Run answers commands and tools echo their arguments.
	Step func(ctx context.Context, a event.Event) (event.Body, error)
	// Run answers commands. If nil, Outputs does.
	Run func(ctx context.Context, r event.Run) (event.RunResult, error)
	// Outputs has the outputs of commands. A command that is missing exits with 127.
	Outputs map[string]string

	// Model is used for every role that Models does not have.
	Model  model.Client
	Models map[string]model.Client

	MaxSteps int64 // 0 means 1,000, so that no agent runs forever
	Seed     uint64
}

// NewSession returns a session. Its Log is a *[Log]; its Env is an *[Env], and also an
// [agent.Machine] if Setup.Sandbox is set.
func NewSession(s Setup) *agent.Session {
	if s.Log == nil {
		s.Log = &Log{}
	}
	if s.MaxSteps == 0 {
		s.MaxSteps = 1000
	}
	if s.Kinds == nil {
		s.Kinds = []string{"run"}
	}
	if s.Dir == "" {
		s.Dir = "/workspace"
	}
	env := &Env{setup: s, log: s.Log}
	rec := &recorder{log: s.Log}
	out := &agent.Session{
		Env: env, Log: s.Log, Seed: s.Seed,
		Left: func() agent.Budget { return agent.Budget{Turns: -1, Tokens: -1, USD: -1, Time: -1} },
		Slog: slog.New(slog.DiscardHandler),
		Models: func(actor, role string) (model.Client, error) {
			c := s.Models[role]
			if c == nil {
				c = s.Model
			}
			if c == nil {
				return nil, fmt.Errorf("no model for the role %q", role)
			}
			return &recorded{rec: rec, client: c, actor: actor, role: role}, nil
		},
	}
	if s.Goal != "" {
		out.Goal = agent.Goal{Parts: event.Text(s.Goal)}
	}
	if s.Sandbox != nil {
		out.Env = machineEnv{env, machine{sb: s.Sandbox, dir: s.Dir}}
	}
	return out
}

// LogOf returns the log of a session made by NewSession.
func LogOf(s *agent.Session) *Log { return s.Log.(*Log) }

// An Env is the environment of a session.
type Env struct {
	setup Setup
	log   *Log
	mu    sync.Mutex
	steps int64
	stays error
}

func (e *Env) Tools() []agent.Tool  { return e.setup.Tools }
func (e *Env) Can(kind string) bool { return slices.Contains(e.setup.Kinds, kind) }

// Steps returns the number of actions so far.
func (e *Env) Steps() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.steps
}

// Step implements [agent.Env]. An error of Setup.Step is returned by all later calls; with ErrDone
// its body is the last observation.
func (e *Env) Step(ctx context.Context, a event.Event) (event.Event, error) {
	if err := context.Cause(ctx); err != nil {
		return event.Event{}, err
	}
	e.mu.Lock()
	if e.stays == nil && e.steps >= e.setup.MaxSteps {
		e.stays = &agent.LimitError{Kind: agent.LimitSteps, Max: fmt.Sprint(e.setup.MaxSteps)}
	}
	if e.stays != nil {
		defer e.mu.Unlock()
		return event.Event{}, e.stays
	}
	e.steps++
	e.mu.Unlock()

	if a.Body == nil || a.Body.Class() != event.Action {
		return event.Event{}, errors.New("step: not an action")
	}
	if a.Source == "" {
		a.Source = event.FromAgent
	}
	a, err := e.log.Append(ctx, a)
	if err != nil {
		return event.Event{}, fmt.Errorf("step: recording the action: %w", err)
	}
	body, err := e.answer(ctx, a)
	if err != nil {
		e.mu.Lock()
		e.stays = err
		e.mu.Unlock()
		if body == nil {
			body = event.Lost{Why: err.Error()}
		}
	}
	if body == nil {
		body = event.Error{Code: "internal", Text: "the environment gave no observation"}
	}
	obs := event.New(event.FromEnvironment, body)
	obs.Actor, obs.Cause, obs.Call = a.Actor, a.ID, a.Call
	obs, aerr := e.log.Append(context.WithoutCancel(ctx), obs)
	return obs, errors.Join(aerr, err)
}

func (e *Env) answer(ctx context.Context, a event.Event) (event.Body, error) {
	switch b := a.Body.(type) {
	case event.Think, event.Finish:
		if e.setup.Step == nil {
			return event.Ack{Of: b.Kind()}, nil
		}
	case event.Invalid:
		return event.Error{Code: "invalid_call", Text: b.Why}, nil
	}
	if e.setup.Step != nil {
		return e.setup.Step(ctx, a)
	}
	switch b := a.Body.(type) {
	case event.Run:
		if e.setup.Run != nil {
			return e.setup.Run(ctx, b)
		}
		out, ok := e.setup.Outputs[b.Command]
		if !ok {
			return event.RunResult{Code: 127, Output: "not found"}, nil
		}
		return event.RunResult{Output: out, OutBytes: int64(len(out))}, nil
	case event.ToolCall:
		return event.ToolResult{Name: b.Name, Parts: event.Text(string(b.Args))}, nil
	}
	return event.Error{Code: "unsupported", Text: "this environment has no " + a.Body.Kind()}, nil
}

// recorder numbers the replies of a session.
type recorder struct {
	mu  sync.Mutex
	n   int
	log *Log
}

// recorded appends each reply to the log before returning it, as the harness does.
type recorded struct {
	rec         *recorder
	client      model.Client
	actor, role string
}

func (c *recorded) Info() model.Info { return c.client.Info() }

func (c *recorded) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	resp, err := c.client.Generate(ctx, req)
	if err != nil {
		return nil, err
	}
	c.rec.mu.Lock()
	c.rec.n++
	out := *resp
	out.ID = fmt.Sprintf("r%d", c.rec.n)
	c.rec.mu.Unlock()
	e := event.New(event.FromAgent, event.Reply{
		ID: out.ID, Role: c.role, Model: out.Model, Parts: out.Parts, Reasoning: out.Reasoning,
		Calls: out.Calls, Stop: out.Stop, Usage: out.Usage, Opaque: out.Opaque,
	})
	e.Actor = c.actor
	if _, err := c.rec.log.Append(ctx, e); err != nil {
		return nil, fmt.Errorf("recording the reply: %w", err)
	}
	return &out, nil
}

// machineEnv is an Env that gives agents access to its sandbox.
type machineEnv struct {
	*Env
	machine
}

// machine passes calls on to a sandbox. Unlike the harness's, it records nothing.
type machine struct {
	sb  sandbox.Sandbox
	dir string
}

func (m machine) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	return m.sb.Exec(ctx, c)
}
func (m machine) Put(ctx context.Context, dir string, src fs.FS) error {
	return m.sb.Put(ctx, dir, src)
}
func (m machine) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return m.sb.Get(ctx, name)
}
func (m machine) Dir() string { return m.dir }
func (m machine) Listen(ctx context.Context, port int) (net.Listener, error) {
	l, ok := sandbox.As[sandbox.Listener](m.sb)
	if !ok {
		return nil, errors.New("this sandbox cannot listen")
	}
	return l.Listen(ctx, port)
}
