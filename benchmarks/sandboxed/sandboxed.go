// Package sandboxed holds what most benchmarks' episodes share: a machine that is started when it
// is first needed, a list of stages, and actions on the machine. A benchmark embeds [Base] and adds
// Collect.
package sandboxed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/workspace"
)

// Dir is the working directory of tasks that name none.
const Dir = "/workspace"

// A Base plays stages over one machine. Its exported fields are set once, before use.
type Base struct {
	Host   benchmarks.Host
	Spec   *sandbox.Spec // nil: the episode has no machine, and no action runs
	Stages []benchmarks.Stage
	// Setup readies a machine that was just created. Its error closes the machine. May be nil.
	Setup func(ctx context.Context, sb sandbox.Sandbox) error
	// Enter is called when a stage begins, before the agent sees it. May be nil.
	Enter func(ctx context.Context, stage int) error
	// Ready is called each time before the agent gets the machine, which exists. May be nil.
	Ready func(ctx context.Context) error

	mu     sync.Mutex
	sb     sandbox.Sandbox
	closed bool
	stage  int // index of the next stage
	space  *workspace.Workspace
}

// Next begins the next stage.
func (b *Base) Next(ctx context.Context, _ *benchmarks.Result) (*benchmarks.Stage, error) {
	if b.stage >= len(b.Stages) {
		return nil, io.EOF
	}
	i := b.stage
	b.stage++
	if b.Enter != nil {
		if err := b.Enter(ctx, i); err != nil {
			return nil, err
		}
	}
	s := b.Stages[i]
	s.Last = i == len(b.Stages)-1
	if b.Spec != nil {
		s.Kinds = append(s.Kinds, b.workspace().Kinds()...)
		s.ToolSets = workspace.ToolSets()
	}
	return &s, nil
}

// Index is the stage being played, from 0.
func (b *Base) Index() int { return max(b.stage-1, 0) }

// Step executes an action on the machine, starting it when it is not there yet.
func (b *Base) Step(ctx context.Context, a event.Event) (benchmarks.Turn, error) {
	if b.Spec == nil {
		return benchmarks.Turn{Obs: event.Error{Code: "unsupported",
			Text: "there is no machine to act on; answer without one"}}, nil
	}
	obs, err := b.workspace().Step(ctx, a)
	return benchmarks.Turn{Obs: obs}, err
}

// workspace is what actions run in; it starts the machine with the first.
func (b *Base) workspace() *workspace.Workspace {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.space == nil {
		b.space = workspace.New(b.Machine, workspace.Options{Dir: b.Dir(),
			Keep: func(ctx context.Context, kind string, data []byte) (event.Blob, error) {
				return b.Host.Log().PutBlob(ctx, kind, bytes.NewReader(data))
			}})
	}
	return b.space
}

// Machine starts the machine when it is not there yet.
func (b *Base) Machine(ctx context.Context) (sandbox.Sandbox, error) {
	sb, err := b.start(ctx)
	if err == nil && b.Ready != nil {
		err = b.Ready(ctx)
	}
	if err != nil {
		return nil, err
	}
	return sb, nil
}

func (b *Base) start(ctx context.Context) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.sb != nil:
		return b.sb, nil
	case b.Spec == nil:
		return nil, &sandbox.Unsupported{Driver: "task", What: "this task has no machine"}
	case b.closed:
		return nil, &sandbox.Error{Op: "create", Err: sandbox.ErrGone}
	}
	sb, err := b.Host.Sandbox(ctx, *b.Spec)
	if err != nil {
		return nil, err
	}
	if b.Setup != nil {
		if err := b.Setup(ctx, sb); err != nil {
			sb.Close()
			return nil, err
		}
	}
	if k, ok := b.Host.(benchmarks.Keeper); ok {
		if err := k.Keep(ctx, sb); err != nil {
			sb.Close()
			return nil, err
		}
	}
	b.sb = sb
	return sb, nil
}

// Resume finds the machine of an interrupted session and restores the workspace from its log.
func (b *Base) Resume(ctx context.Context, h benchmarks.Keeper, log event.Log) error {
	if b.Spec == nil {
		return nil
	}
	acted, err := b.workspace().Restore(log.Events(0))
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	sb, err := h.Find(ctx, *b.Spec)
	if err == nil && sb == nil && acted {
		err = errors.New("the machine was not recorded before it was used")
	}
	if sb != nil {
		b.sb = sb
	}
	return err
}

// LeaveShells ends the agent's shells.
func (b *Base) LeaveShells(ctx context.Context) error { return b.workspace().LeaveShells(ctx) }

// Started returns the machine if it was started, else nil.
func (b *Base) Started() sandbox.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sb
}

// Dir is the working directory of the task.
func (b *Base) Dir() string {
	if b.Spec == nil || b.Spec.Dir == "" {
		return Dir
	}
	return b.Spec.Dir
}

// WorkingDir is the directory that the agent has gone to; "": the machine's own.
func (b *Base) WorkingDir() string {
	b.mu.Lock()
	space := b.space
	b.mu.Unlock()
	if space == nil {
		return ""
	}
	return space.Dir("")
}

// Close ends the machine.
func (b *Base) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.sb == nil {
		return nil
	}
	if err := b.sb.Close(); err != nil {
		return fmt.Errorf("closing the agent's machine: %w", err)
	}
	return nil
}

// Answers is an agent that gives one answer: the oracle of a task that asks for text.
func Answers(text string) agent.Agent {
	return agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) {
		return agent.Answer{Parts: event.Text(text)}, nil
	})
}

// TextGoal is a goal of one text.
func TextGoal(text string) agent.Goal { return agent.Goal{Parts: event.Text(text)} }
