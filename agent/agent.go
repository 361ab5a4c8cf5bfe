// Package agent says what an agent is and what it may touch.
//
// An [Agent] plays one stage of a session: it reads the [Goal], acts through its [Env], asks its
// models, and returns an [Answer]. Every field of its [Session] has been wrapped by the harness,
// which records, limits and masks; an agent needs no care for any of that. Agents live in folders
// below this one; agenttest holds what every one of them must keep.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An Agent plays one stage. It may be called again for the next stage of the same session, with the
// same log. Its error is what stopped it: a *[LimitError], the environment's or a model's error
// passed on, the context's cause, or its own failure (then the trial "broke" and is graded with
// what is there). It returns soon after ctx ends.
type Agent interface {
	Run(ctx context.Context, s *Session) (Answer, error)
}

// Func is an agent that is a function.
type Func func(ctx context.Context, s *Session) (Answer, error)

func (f Func) Run(ctx context.Context, s *Session) (Answer, error) { return f(ctx, s) }

// A Session is all that an agent may touch.
type Session struct {
	Env
	Goal  Goal
	Log   event.Log // not empty on resume, on a branch, in a later stage
	Actor string    // "" the root agent, "1" its first delegate
	// Models gives an actor's client for a role: "main", "condenser" …
	Models func(actor, role string) (model.Client, error)
	Seed   uint64
	Left   func() Budget
	Slog   *slog.Logger
}

// Model is this actor's client for a role.
func (s *Session) Model(role string) (model.Client, error) { return s.Models(s.Actor, role) }

// Child is a session for a delegate: same log, environment and limits, an actor of its own (s.Actor
// + "." + name).
func (s *Session) Child(name string, g Goal) *Session {
	c := *s
	c.Goal = g
	c.Actor = name
	if s.Actor != "" {
		c.Actor = s.Actor + "." + name
	}
	return &c
}

// An Env is what an agent acts on.
type Env interface {
	// Tools are the environment's own tools, fixed for a stage.
	Tools() []Tool
	// Can reports whether Step executes actions of a kind: "run", "edit", "browse_interactive" …
	Can(kind string) bool
	// Step records a, makes it durable, executes it, records the observation that answers it and
	// returns that. What goes wrong in the world is an observation. The error is ErrDone (with a
	// valid observation), a *LimitError, the context's cause, or ours, and stays. One call at a
	// time for an actor; a.Actor says whose. An action whose answer is the host's (think, finish,
	// invalid) is answered by Step as well, so that an agent has one way to act.
	Step(ctx context.Context, a event.Event) (event.Event, error)
}

// ErrDone: the environment has ended the episode.
var ErrDone = errors.New("the episode is over")

// As finds an ability of env, walking through wrappers (a method Unwrap() Env).
func As[T any](env Env) (T, bool) {
	for env != nil {
		if s, ok := env.(*Session); ok {
			env = s.Env
			continue
		}
		if t, ok := env.(T); ok {
			return t, true
		}
		u, ok := env.(interface{ Unwrap() Env })
		if !ok {
			break
		}
		env = u.Unwrap()
	}
	var zero T
	return zero, false
}

// Machine, asked for with As, is the sandbox itself: for agents that are programs inside it, and
// for oracles. The harness records each Exec as a "run" action with one observation (output as
// blobs when large), each Put as a note.
type Machine interface {
	Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error)
	Put(ctx context.Context, dir string, src fs.FS) error
	Get(ctx context.Context, name string) (io.ReadCloser, error) // a tar stream, hostile
	Listen(ctx context.Context, port int) (net.Listener, error)  // a port inside, served here
	Dir() string                                                 // the working directory of the task
}

// A Tool is what an environment offers to a model by name.
type Tool struct {
	Name, Description string
	Schema            json.RawMessage
	// Parse turns arguments into an action; an error is told to the model. Nil: event.ToolCall.
	Parse func(args json.RawMessage) (event.Body, error)
	// Browser is set where the tool drives a browser, for agents that describe it to a model in a
	// way of their own.
	Browser *Browser
}

// A Browser says which calls a browser takes: the options of a set of actions (package
// browsergym/action).
type Browser struct {
	Subsets        []string
	Single, Strict bool
}

// A Fault is trouble with what an agent was lent, of which it is not the cause: a record that
// cannot be read, say. An agent that returns one has not failed: the attempt is no evidence.
type Fault struct{ Err error }

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// A Goal is what the agent is asked to do.
type Goal struct {
	Parts []event.Part `json:"parts"`
	// folders inside the machine, each with skills (a folder with a SKILL.md each)
	Skills []string    `json:"skills,omitempty"`
	MCP    []MCPServer `json:"mcp,omitempty"` // tool servers of the task, as seen from inside the machine
}

// An MCPServer is a server of the Model Context Protocol that a task offers to the agent.
type MCPServer struct {
	Name      string            `json:"name"`
	Transport string            `json:"transport"` // "stdio", "sse", "streamable-http"
	URL       string            `json:"url,omitempty"`
	Command   string            `json:"command,omitempty"`
	Args      []string          `json:"args,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
}

// Text of the goal.
func (g Goal) Text() string { return event.PlainText(g.Parts) }

// An Answer is what the agent says at its end. Work that it left in the environment is not part of
// it.
type Answer struct {
	Parts   []event.Part    `json:"parts,omitempty"`
	Outputs json.RawMessage `json:"outputs,omitempty"`
	GaveUp  string          `json:"gave_up,omitempty"` // why; not empty: the agent says that it could not do it
}

// AnswerOf is what an agent answers that finishes with f.
func AnswerOf(f event.Finish) Answer {
	a := Answer{Outputs: f.Outputs}
	if f.Message != "" {
		a.Parts = event.Text(f.Message)
	}
	if f.GaveUp {
		a.GaveUp = cmp.Or(f.Message, "the agent gave no reason")
	}
	return a
}

// Text of the answer.
func (a Answer) Text() string { return event.PlainText(a.Parts) }

// A Budget is what is left; negative: no limit.
type Budget struct {
	Turns, Tokens int64
	USD           float64
	Time          time.Duration
}

// Kinds of limits.
const (
	LimitTurns  = "turns"
	LimitSteps  = "steps"
	LimitTokens = "tokens"
	LimitCost   = "cost"
	LimitTime   = "time"
	LimitOutput = "output"
)

// A LimitError says that a limit of the arm was reached: the trial is graded with what is there.
type LimitError struct {
	Kind string
	Max  string // the limit as people read it: "50", "10m"
}

func (e *LimitError) Error() string {
	if e.Max == "" {
		return "limit reached: " + e.Kind
	}
	return fmt.Sprintf("limit reached: %s (%s)", e.Kind, e.Max)
}
