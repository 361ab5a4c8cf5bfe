package executor

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// ends are the ends of calls by their number on the wire.
var ends = []sandbox.ShellEnd{sandbox.ShellCompleted, sandbox.ShellQuiet, sandbox.ShellTimeout, sandbox.ShellBusy,
	sandbox.ShellIdle, sandbox.ShellExited}

// Shell makes one call of a persistent shell, as specified by [sandbox.Sheller]. ShellResult.OOM is
// set in containers only.
func (c *Client) Shell(ctx context.Context, call sandbox.ShellCall) (sandbox.ShellResult, error) {
	var none sandbox.ShellResult
	if err := ctx.Err(); err != nil {
		return none, c.wrap(ctx, "shell", err)
	}
	req := execproto.Shell{
		Name: call.Shell, ID: call.ID, Op: uint64(call.Op), Text: call.Text, Dir: call.Dir, User: call.User,
		Env: environ(call.Env), Limit: call.Limit, FullLimit: call.FullLimit, Timeout: call.Timeout, Quiet: call.Quiet,
	}
	// A session may have to start first, twice.
	over := c.checkAfter(ctx, call.Timeout)
	defer over()
	st, err := c.s.Open(execproto.KindShell, req.Encode())
	if err != nil {
		return none, c.wrap(ctx, "shell", err)
	}
	defer c.killAtEnd(ctx, st)()
	w := call.Stdout
	for {
		m, err := st.Recv()
		if err != nil {
			st.Reset()
			return none, c.wrap(ctx, "shell", err)
		}
		switch m.Kind {
		case execproto.KindData:
			if w != nil {
				if n, err := w.Write(m.Body); err != nil || n < len(m.Body) {
					w = io.Discard
				}
			}
		case execproto.KindResult:
			st.Finish()
			d := execproto.NewDec(m.Body)
			if err := d.Result(); err != nil {
				return none, c.wrap(ctx, "shell", err)
			}
			x := d.ShellResult()
			if err := d.Err(); err != nil {
				return none, c.wrap(ctx, "shell", err)
			}
			if ctx.Err() != nil {
				return none, c.wrap(ctx, "shell", ctx.Err())
			}
			if x.End >= uint64(len(ends)) {
				return none, c.wrap(ctx, "shell", fmt.Errorf("%w: end %d", execproto.ErrMalformed, x.End))
			}
			return sandbox.ShellResult{
				End: ends[x.End], Code: min(max(x.Code, -1), 255), Signal: short(x.Signal, 32), Dir: short(x.Dir, 4096),
				Full: short(x.Full, 4096), Out: max(x.Out, 0), OOM: x.OOM, Began: x.Began, Wall: max(x.Wall, 0),
			}, nil
		}
	}
}

// killAtEnd makes the executor kill what a stream runs when ctx ends, until the returned function is
// called. The executor says when it has done so; if it does not in time, the stream is interrupted.
func (c *Client) killAtEnd(ctx context.Context, st *execproto.Stream) (over func()) {
	backup := make(chan *time.Timer, 1)
	stop := context.AfterFunc(ctx, func() {
		var e execproto.Enc
		e.Int(-1)
		st.Send(execproto.KindSignal, e)
		backup <- time.AfterFunc(graceKill, func() {
			if c.checkAlive() {
				st.Interrupt(errNoEnd)
			}
		})
	})
	return func() {
		if !stop() {
			(<-backup).Stop()
		}
	}
}
