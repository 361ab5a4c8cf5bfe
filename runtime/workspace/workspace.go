// Package workspace is an environment over a sandbox: it executes actions of the kinds "run", "read",
// "write", "edit", "glob" and "grep", and calls of the tools of its tool sets (see [ToolSets]), and returns
// their results as observations.
//
// A benchmark's episode calls a [Workspace] in its Step. The workspace creates its sandbox with the
// first action, so a session without actions starts none. A failure inside the sandbox is an
// observation; a failure of ours is an error.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/mcp"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options of a workspace. The zero value works.
type Options struct {
	Dir     string            // first working directory; "": the sandbox's own
	User    string            // "": the sandbox's own
	Env     map[string]string // added to the sandbox's
	Shell   string            // "": bash, or sh where there is no bash
	Timeout time.Duration     // for actions without a timeout; 0: 2 minutes
	// MaxTimeout limits the timeout of an action; 0: limited by the trial only.
	MaxTimeout time.Duration
	Limit      int64 // bytes of output shown, without the middle; 0: 30,000
	// NoChange is how long a command of a session may print nothing before its call returns; 0: 30
	// seconds. Blocking commands have no such limit.
	NoChange time.Duration
	// Servers are tool servers in the sandbox.
	Servers []agent.MCPServer
	// Keep stores images and PDFs that are viewed, and images that tool servers return. With a nil Keep
	// they are left out.
	Keep func(ctx context.Context, kind string, data []byte) (event.Blob, error)
}

// Defaults of Options.
const (
	DefaultTimeout = 2 * time.Minute
	DefaultLimit   = 30_000
	// OpenHands waits 10 seconds, and 30 in evaluations.
	DefaultNoChange = 30 * time.Second
)

// A Workspace executes actions in one sandbox. Several actors may act concurrently, each with its
// own working directory.
type Workspace struct {
	get     func(context.Context) (sandbox.Sandbox, error)
	options Options

	mu     sync.Mutex
	shell  string            // a shell that works
	dirs   map[string]string // by actor: where its last command ended, if it is not the first directory
	editor editor
	mcp    *mcp.Client       // nil until it is needed
	known  map[string]string // by actor and path: the sum of a file that DeerFlow's read_file has read
	// shells has the actors whose persistent shell was started.
	shells    map[string]bool
	shellless bool // the sandbox has no persistent shells
	restored  bool // it was used by an earlier process
}

// New creates a workspace. The function sb is called for every action; the first call creates the
// sandbox, and all later ones return it.
func New(sb func(ctx context.Context) (sandbox.Sandbox, error), o Options) *Workspace {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Limit <= 0 {
		o.Limit = DefaultLimit
	}
	if o.NoChange <= 0 {
		o.NoChange = DefaultNoChange
	}
	o.Limit = min(o.Limit, event.MaxInline/2) // two streams fit into an event
	return &Workspace{get: sb, options: o, shell: o.Shell, dirs: map[string]string{},
		shells: map[string]bool{}, known: map[string]string{}}
}

// Kinds of actions that Step executes.
func (w *Workspace) Kinds() []string {
	return []string{event.Run{}.Kind(), event.Read{}.Kind(), event.Write{}.Kind(), event.Edit{}.Kind(),
		event.Glob{}.Kind(), event.Grep{}.Kind()}
}

// Step executes an action and returns its observation. Errors are those of the sandbox, and the
// context's cause.
//
// A command line runs in a new shell. Only the working directory is kept for the next one. Its
// standard input is empty, and a timeout kills it.
//
// A command line for a session runs in the actor's persistent shell, as specified by
// [sandbox.Sheller]: everything is kept for the next one, a timeout ends only the waiting, and
// several commands on lines of their own are refused. If the sandbox has no such shell, it runs like
// any other, and the first result says why.
//
// An action that is not for a sandbox, or that cannot be executed on any
// system, gets an event.Error.
func (w *Workspace) Step(ctx context.Context, a event.Event) (event.Body, error) {
	switch b := a.Body.(type) {
	case event.Read:
		return w.view(ctx, a.Actor, b)
	case event.Write:
		return w.write(ctx, a.Actor, b)
	case event.Edit:
		return w.edit(ctx, a.Actor, b)
	case event.Glob:
		return w.glob(ctx, a.Actor, b)
	case event.Grep:
		return w.grep(ctx, a.Actor, b)
	case event.ToolCall:
		if c := w.client(); c.Has(b.Name) {
			return w.callServer(ctx, c, b)
		}
		for _, t := range deerflow {
			if t.name == b.Name {
				return w.callDeerFlow(ctx, a, t, b)
			}
		}
	}
	run, ok := asRun(a.Body)
	if !ok {
		return event.Error{Code: "unsupported",
			Text: fmt.Sprintf("this environment does not execute actions of kind %q", a.Body.Kind())}, nil
	}
	if why := invalid(run); why != "" {
		return event.Error{Code: "invalid_call", Text: why}, nil
	}
	sb, err := w.get(ctx)
	if err != nil {
		return nil, err
	}
	timeout := a.Timeout
	if timeout <= 0 {
		timeout = w.options.Timeout
	}
	if m := w.options.MaxTimeout; m > 0 {
		timeout = min(timeout, m)
	}
	j := &job{w: w, sb: sb, run: run, actor: a.Actor, timeout: timeout}
	if a.ID >= 0 {
		j.id = fmt.Sprintf("step-%d", a.ID) // after a resume it is not executed twice
	}
	res, err := j.play(ctx)
	var failed *sandbox.Error
	var no *sandbox.Unsupported
	switch {
	case run.User == "": // it runs as the task's user
	case errors.As(err, &failed) && failed.Inside: // for example, a user that does not exist
		return event.Error{Code: "invalid_call", Text: brief(failed.Err)}, nil
	case errors.As(err, &no):
		return event.Error{Code: "unsupported", Text: brief(no)}, nil
	}
	return res, err
}

// brief shortens the text of an error that may quote an action.
func brief(err error) string {
	text := err.Error()
	return clean([]byte(text[:min(len(text), 300)]))
}

func asRun(b event.Body) (event.Run, bool) {
	switch r := b.(type) {
	case event.Run:
		return r, true
	case *event.Run:
		return *r, true
	}
	return event.Run{}, false
}

// maxArg is the maximum length of a single argument on Linux, with its NUL.
const maxArg = 128 << 10

// invalid returns why a run cannot be executed, or "".
func invalid(r event.Run) string {
	total := 0
	for _, s := range append([]string{r.Command, r.Dir, r.User}, r.Args...) {
		if strings.ContainsRune(s, 0) {
			return "the command holds a NUL byte, which no program can be given"
		}
	}
	for _, s := range r.Args {
		if total += len(s) + 1; len(s) >= maxArg || total > 1<<20 {
			return "the arguments are too long; write them to a file first"
		}
	}
	switch {
	case r.Session && (len(r.Args) > 0 || r.Dir != "" || r.User != ""):
		return "a session takes a command line, and has its own directory and user"
	case !r.Session && r.Input:
		return "input is for a session"
	case len(r.Args) == 0 && strings.TrimSpace(r.Command) == "" && !r.Session:
		return "the command is empty"
	case len(r.Args) > 0 && r.Command != "":
		return "give a command line or arguments, not both"
	case len(r.Command) > 16<<20:
		return "the command is longer than 16 MiB; write what it needs to a file first"
	}
	return ""
}

// Dir returns the directory of an actor's next command, as its commands see it; "" is the sandbox's
// own.
func (w *Workspace) Dir(actor string) string {
	if d := w.where(actor); d != "" {
		return d
	}
	return w.options.Dir
}

// where returns the directory that an actor has changed to, or "".
func (w *Workspace) where(actor string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dirs[actor]
}

func (w *Workspace) moved(actor, dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirs[actor] = dir
}
