package executor

import (
	"context"
	"errors"
	"io"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Terminal runs a command on a terminal, as specified by [sandbox.Terminaler].
func (c *Client) Terminal(ctx context.Context, t sandbox.Terminal) (sandbox.Exit, error) {
	var none sandbox.Exit
	if len(t.Args) == 0 {
		return none, &sandbox.Error{Op: "terminal", ID: c.id, Err: errors.New("a command without a program")}
	}
	if err := ctx.Err(); err != nil {
		return none, c.wrap(ctx, "terminal", err)
	}
	req := execproto.Terminal{Args: t.Args, Dir: t.Dir, User: t.User, Env: environ(t.Env),
		Rows: uint64(t.Size.Rows), Cols: uint64(t.Size.Cols)}
	st, err := c.s.Open(execproto.KindTerminal, req.Encode())
	if err != nil {
		return none, c.wrap(ctx, "terminal", err)
	}
	defer c.killAtEnd(ctx, st)()
	over := make(chan struct{})
	defer close(over)
	if t.Resize != nil {
		go func() {
			for {
				select {
				case s := <-t.Resize:
					var e execproto.Enc
					e.Int(0)
					e.Uint(uint64(s.Rows))
					e.Uint(uint64(s.Cols))
					st.Send(execproto.KindSignal, e)
				case <-over:
					return
				}
			}
		}()
	}
	if t.Stdin != nil {
		go feed(st, t.Stdin) // as in exec
	}
	w := t.Stdout
	if w == nil {
		w = io.Discard
	}
	for {
		m, err := st.Recv()
		if err != nil {
			st.Reset()
			return none, c.wrap(ctx, "terminal", err)
		}
		switch m.Kind {
		case execproto.KindData:
			if n, err := w.Write(m.Body); err != nil || n < len(m.Body) {
				w = io.Discard
			}
		case execproto.KindResult:
			st.Finish()
			d := execproto.NewDec(m.Body)
			if err := d.Result(); err != nil {
				return none, c.wrap(ctx, "terminal", err)
			}
			x := d.Exit()
			if err := d.Err(); err != nil {
				return none, c.wrap(ctx, "terminal", err)
			}
			if ctx.Err() != nil {
				return none, c.wrap(ctx, "terminal", ctx.Err())
			}
			return exit(x), nil
		}
	}
}
