// Package workspace is an environment over a sandbox: it executes actions of kind "run" and says
// what became of them.
//
// A [Workspace] is what a benchmark's episode puts behind its Step. It asks for its sandbox when
// the first action comes, so a session that never acts starts no machine. What goes wrong inside is
// an observation; an error is ours.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options of a workspace. The zero value works.
type Options struct {
	Dir     string            // where commands begin; "": the sandbox's own
	User    string            // "": the sandbox's own
	Env     map[string]string // added to the sandbox's
	Shell   string            // "": bash, or sh where there is no bash
	Timeout time.Duration     // of an action that brings none; 0: 2 minutes
	// MaxTimeout is the most that an action may bring; 0: no limit but that of the trial.
	MaxTimeout time.Duration
	Limit      int64 // bytes of output shown, the middle is left out; 0: 30,000
}

// Defaults of Options.
const (
	DefaultTimeout = 2 * time.Minute
	DefaultLimit   = 30_000
)

// A Workspace executes actions in one sandbox. Several actors may act at once, each with a working
// directory of its own.
type Workspace struct {
	get     func(context.Context) (sandbox.Sandbox, error)
	options Options

	mu    sync.Mutex
	shell string            // found to work
	dirs  map[string]string // by actor: where its last command ended, if that is not where they begin
}

// New makes a workspace. The function is called for every action; it makes the sandbox at the first
// call and returns the same from then on.
func New(sb func(ctx context.Context) (sandbox.Sandbox, error), o Options) *Workspace {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Limit <= 0 {
		o.Limit = DefaultLimit
	}
	o.Limit = min(o.Limit, event.MaxInline/2) // two streams fit into an event
	return &Workspace{get: sb, options: o, shell: o.Shell, dirs: map[string]string{}}
}

// Kinds of actions that Step executes.
func (w *Workspace) Kinds() []string { return []string{event.Run{}.Kind()} }

// Step executes an action and returns the observation that answers it. Its errors are the
// sandbox's, and the context's cause.
//
// A command line runs in a fresh shell; what stays for the next is the working directory. Its
// standard input is empty. An action that is not for a sandbox, or that no system could execute, is
// answered with an event.Error.
func (w *Workspace) Step(ctx context.Context, a event.Event) (event.Body, error) {
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
		j.id = fmt.Sprintf("step-%d", a.ID) // asked again after a resume, it does not run twice
	}
	res, err := j.do(ctx)
	var failed *sandbox.Error
	var no *sandbox.Unsupported
	switch {
	case run.User == "": // it runs as who the task says
	case errors.As(err, &failed) && failed.Inside: // a user that the machine does not have, say
		return event.Error{Code: "invalid_call", Text: brief(failed.Err)}, nil
	case errors.As(err, &no):
		return event.Error{Code: "unsupported", Text: brief(no)}, nil
	}
	return res, err
}

// brief is the text of an error that may quote what an action said.
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

// maxArg is the longest single argument that Linux takes, with its NUL.
const maxArg = 128 << 10

// invalid says why nothing can be executed.
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
	case len(r.Args) == 0 && strings.TrimSpace(r.Command) == "":
		return "the command is empty"
	case len(r.Args) > 0 && r.Command != "":
		return "give a command line or arguments, not both"
	case len(r.Command) > 16<<20:
		return "the command is longer than 16 MiB; write what it needs to a file first"
	}
	return ""
}

// Dir is where the next command of an actor begins, as its commands see it; "" is the sandbox's own
// directory.
func (w *Workspace) Dir(actor string) string {
	if d := w.where(actor); d != "" {
		return d
	}
	return w.options.Dir
}

// where is the directory that an actor has gone to; "": none.
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
