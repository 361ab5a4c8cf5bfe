// Package agent defines what an agent is and what it may touch.
//
// An [Agent] plays one stage of a session: it reads the [Goal], acts through its [Env], calls its
// models, and returns an [Answer]. The harness wraps every field of the [Session], and the wrappers
// record events, enforce limits and mask secrets, so an agent need not do any of that. Agents live
// in the packages below this one; package agenttest has the tests that every agent must pass.
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
// same log. Run returns soon after ctx ends. Its error says what stopped the agent: a
// *[LimitError], an error returned by the environment or a model, the cause of ctx, or a failure of
// the agent itself. In the last case the trial counts as "broke" and the current state is graded.
type Agent interface {
	Run(ctx context.Context, s *Session) (Answer, error)
}

// A Restorer is an agent whose state is a function of its session's log. After a crash of evalrun, a
// new value of it can go on in the first stage: Run reads the log, in which every action has its
// observation, and continues.
type Restorer interface {
	Agent
	// Restores reports whether this agent, as it is configured, can do so.
	Restores() bool
}

// Func adapts a function to the [Agent] interface.
type Func func(ctx context.Context, s *Session) (Answer, error)

func (f Func) Run(ctx context.Context, s *Session) (Answer, error) { return f(ctx, s) }

// A Session holds everything that an agent may touch.
type Session struct {
	Env
	Goal  Goal
	Log   event.Log // has events already after a resume, on a branch and in a later stage
	Actor string    // "" is the root agent, "1" its first delegate
	// Models returns the client of an actor for a role: "main", "condenser" …
	Models func(actor, role string) (model.Client, error)
	Seed   uint64
	Left   func() Budget
	Slog   *slog.Logger
}

// Model returns this actor's client for a role.
func (s *Session) Model(role string) (model.Client, error) { return s.Models(s.Actor, role) }

// Child returns a session for a delegate. It shares the log, the environment and the limits, and
// has its own actor: name below the root agent, else s.Actor + "." + name.
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
	// Tools returns the environment's own tools. They do not change during a stage.
	Tools() []Tool
	// Can reports whether Step executes actions of a kind: "run", "edit", "browse_interactive" …
	Can(kind string) bool
	// Step records a, makes it durable, executes it, and records and returns the observation that
	// answers it. Failures of the action itself are reported as observations. The error is ErrDone
	// (with a valid observation), a *LimitError, the cause of ctx, or an infrastructure error;
	// later calls return it again. Each actor (a.Actor) makes one call at a time. Step also answers
	// the actions that are handled on the host (think, finish, invalid), so an agent acts through
	// Step alone.
	Step(ctx context.Context, a event.Event) (event.Event, error)
}

// A ToolBox is an [Env] with sets of further tools, which an agent can take in the place of its own.
// Get it with [As].
type ToolBox interface {
	// ToolSet returns the tools of a set, such as "deerflow"; nil if the environment does not have
	// it. The tools of a set do not change during a stage.
	ToolSet(name string) []Tool
}

// A ToolServers is an [Env] whose task has tool servers (Goal.MCP) that the environment can reach. Get
// it with [As].
type ToolServers interface {
	// ServerTools starts the servers and returns their tools, whose calls Step executes. Each note,
	// which is for the model, says why a server or a tool is missing. Later calls in a stage return
	// the same tools.
	ServerTools(ctx context.Context) (tools []Tool, notes []string, err error)
}

// ErrDone reports that the environment has ended the episode.
var ErrDone = errors.New("the episode is over")

// As returns the first value of type T in env's chain of wrappers (those with a method Unwrap()
// Env).
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

// Machine is the sandbox itself, for agents that are programs inside it and for oracles. Get it
// with [As]. The harness records each Exec as a "run" action with one observation (large output as
// blobs), and each Put as a note.
type Machine interface {
	Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error)
	Put(ctx context.Context, dir string, src fs.FS) error
	Get(ctx context.Context, name string) (io.ReadCloser, error) // a tar stream; untrusted
	// listens on a port inside the sandbox and serves it here
	Listen(ctx context.Context, port int) (net.Listener, error)
	Dir() string // the task's working directory
}

// A Tool is a tool that the environment offers to a model.
type Tool struct {
	Name, Description string
	Schema            json.RawMessage
	// Parse turns arguments into an action; its error is shown to the model. If nil, the action is
	// an event.ToolCall.
	Parse func(args json.RawMessage) (event.Body, error)
	// Browser is set if the tool drives a browser. Agents use it to describe the browser to a model
	// in their own way.
	Browser *Browser
}

// A Browser says which calls a browser accepts: the options of an action set (package
// browsergym/action).
type Browser struct {
	Subsets        []string
	Single, Strict bool
}

// A Fault is an error in a resource that the agent was given, such as a recording that cannot be
// read. An agent that returns a Fault has not failed: the attempt is not evidence about the agent.
type Fault struct{ Err error }

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// A Goal is the task that an agent is given.
type Goal struct {
	Parts []event.Part `json:"parts"`
	// folders inside the machine; each holds skills, one folder with a SKILL.md per skill
	Skills []string    `json:"skills,omitempty"`
	MCP    []MCPServer `json:"mcp,omitempty"` // the task's tool servers, addressed from inside the machine
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

// Text returns the goal's text parts, joined.
func (g Goal) Text() string { return event.PlainText(g.Parts) }

// An Answer is an agent's final answer. Work that the agent left in the environment is not part of
// it.
type Answer struct {
	Parts   []event.Part    `json:"parts,omitempty"`
	Outputs json.RawMessage `json:"outputs,omitempty"`
	// not empty if the agent says that it could not do the task: the reason
	GaveUp string `json:"gave_up,omitempty"`
}

// AnswerOf returns the answer of an agent that ends with f.
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

// Text returns the answer's text parts, joined.
func (a Answer) Text() string { return event.PlainText(a.Parts) }

// A Budget is what remains of each limit; a negative value means no limit.
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

// A LimitError reports that the trial reached a limit of its arm. The trial is graded in its
// current state.
type LimitError struct {
	Kind string
	Max  string // the limit in readable form: "50", "10m"
}

func (e *LimitError) Error() string {
	if e.Max == "" {
		return "limit reached: " + e.Kind
	}
	return fmt.Sprintf("limit reached: %s (%s)", e.Kind, e.Max)
}
