package episode

import (
	"bytes"
	"context"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// maxOutput is how much of a command's output an agent is shown.
const maxOutput = 30_000

type stepper struct{}

func (stepper) kinds() []string { return []string{event.Run{}.Kind()} }

func (stepper) do(ctx context.Context, b *Base, a event.Event) (event.Body, error) {
	run, ok := a.Body.(event.Run)
	if !ok {
		return event.Error{Code: "unsupported", Text: "cannot " + a.Body.Kind() + " here"}, nil
	}
	sb, err := b.Machine(ctx)
	if err != nil {
		return nil, err
	}
	args := run.Args
	if len(args) == 0 {
		args = []string{"bash", "-c", run.Command}
	}
	var out bytes.Buffer
	dir := run.Dir
	if dir == "" {
		dir = b.Dir()
	}
	exit, err := sb.Exec(ctx, sandbox.Command{Args: args, Dir: dir, User: run.User, Stdout: &out, Limit: maxOutput, Timeout: a.Timeout})
	if err != nil {
		return nil, err
	}
	return event.RunResult{
		Code: exit.Code, Signal: exit.Signal, TimedOut: exit.TimedOut, OOM: exit.OOM,
		Output: strings.ToValidUTF8(out.String(), "\ufffd"), OutBytes: exit.Out, ErrBytes: exit.Err,
		Truncated: exit.Out > maxOutput, Full: exit.Full, WallMS: exit.Wall.Milliseconds(),
	}, nil
}
