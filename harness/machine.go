package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// machineEnv is an env whose episode has a sandbox. It implements agent.Machine for agents that are
// programs, and for oracles.
type machineEnv struct {
	*env
	m benchmarks.Machiner
}

func (e *machineEnv) Dir() string { return e.m.Dir() }

// A command's output up to maxShown bytes is stored in the event. Larger output is stored as a blob
// of at most maxKept bytes, and the event holds the beginning.
const (
	maxShown = 32 << 10
	maxKept  = 64 << 20
)

func (e *machineEnv) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	act := event.New(event.FromAgent, event.Run{Args: c.Args, Dir: c.Dir, User: c.User})
	act.Timeout = c.Timeout
	act, err := e.begin(ctx, act)
	if err != nil {
		return sandbox.Exit{}, err
	}
	keep := context.WithoutCancel(ctx)
	began := time.Now()
	sb, err := e.m.Machine(ctx)
	var exit sandbox.Exit
	out := &capture{log: e.a.log, ctx: keep, next: c.Stdout}
	errw := &capture{log: e.a.log, ctx: keep, next: c.Stderr}
	apart := c.Stderr != nil
	if err == nil {
		c.Stdout = out
		if apart {
			c.Stderr = errw
		}
		exit, err = sb.Exec(ctx, c)
		e.a.ran(err)
	}
	e.a.times(func(t *record.Times) { t.Tool += time.Since(began) })
	blob, berr := out.close()
	errBlob, eerr := errw.close()
	if err == nil {
		err = berr
	}
	if err == nil {
		err = eerr
	}
	if err != nil {
		code := "internal"
		if ctx.Err() != nil {
			code = "stopped"
		}
		if _, e2 := e.end(keep, act, event.Error{Code: code, Text: err.Error()}); e2 != nil {
			return exit, e2
		}
		return exit, e.failed(ctx, err)
	}
	res := event.RunResult{
		Code: exit.Code, Signal: exit.Signal, TimedOut: exit.TimedOut, OOM: exit.OOM, Output: out.text(),
		OutBytes: exit.Out, ErrBytes: exit.Err,
		Truncated: blob != nil || errBlob != nil, Full: exit.Full, Blob: blob, WallMS: exit.Wall.Milliseconds(),
	}
	if apart {
		res.Stderr = errw.text()
	}
	_, err = e.end(keep, act, res)
	if err == nil {
		err = e.output(res)
		if err != nil {
			err = e.keepError(err)
		}
	}
	return exit, err
}

func (e *machineEnv) Put(ctx context.Context, dir string, src fs.FS) error {
	if err := e.check(); err != nil {
		return err
	}
	sb, err := e.m.Machine(ctx)
	if err != nil {
		return e.failed(ctx, err)
	}
	note := event.Put{Dir: dir}
	if err := fs.WalkDir(src, ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		note.Files++
		if i, err := d.Info(); err == nil {
			note.Bytes += i.Size()
		}
		return nil
	}); err != nil {
		return fmt.Errorf("put %s: %w", dir, err)
	}
	if err := sb.Put(ctx, dir, src); err != nil {
		return e.failed(ctx, err)
	}
	if _, err := e.a.log.Append(ctx, event.New(event.FromAgent, note)); err != nil {
		return e.keepError(err)
	}
	return nil
}

// failed returns the error to report for a sandbox failure. It is kept as the env's failure, unless
// ctx has ended, which interrupts any operation.
func (e *machineEnv) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return e.keepError(err)
}

func (e *machineEnv) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	sb, err := e.m.Machine(ctx)
	if err != nil {
		return nil, e.failed(ctx, err)
	}
	return sb.Get(ctx, name)
}

func (e *machineEnv) Listen(ctx context.Context, port int) (net.Listener, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	sb, err := e.m.Machine(ctx)
	if err != nil {
		return nil, e.failed(ctx, err)
	}
	l, ok := sandbox.As[sandbox.Listener](sb)
	if !ok {
		return nil, &sandbox.Unsupported{Driver: e.a.Driver, What: "listening inside the sandbox"}
	}
	return l.Listen(ctx, port)
}

// A capture passes output on to next and stores it: the beginning in memory and, if there is more,
// all of it in a blob.
type capture struct {
	log  *sessionLog
	ctx  context.Context
	next io.Writer
	head bytes.Buffer
	n    int64
	pipe *io.PipeWriter
	done chan struct{}
	blob event.Blob
	err  error
}

func (c *capture) Write(p []byte) (int, error) {
	c.keep(p)
	if c.next != nil {
		return c.next.Write(p)
	}
	return len(p), nil
}

func (c *capture) keep(p []byte) {
	c.n += int64(len(p))
	if c.pipe == nil {
		if c.head.Len()+len(p) <= maxShown {
			c.head.Write(p)
			return
		}
		r, w := io.Pipe()
		c.pipe, c.done = w, make(chan struct{})
		go func() {
			defer close(c.done)
			c.blob, c.err = c.log.PutBlob(c.ctx, "text/plain", r)
			r.CloseWithError(c.err)
		}()
		c.pipe.Write(c.head.Bytes())
	}
	if left := maxKept - (c.n - int64(len(p))); left > 0 {
		c.pipe.Write(p[:min(int64(len(p)), left)]) // an error comes from the store, and close returns it
	}
}

// close finishes the blob and returns it, or nil if there is none.
func (c *capture) close() (*event.Blob, error) {
	if c.pipe == nil {
		return nil, nil
	}
	c.pipe.Close()
	<-c.done
	if c.err != nil {
		return nil, c.err
	}
	return &c.blob, nil
}

// text returns the stored beginning as valid UTF-8 without NUL.
func (c *capture) text() string {
	return strings.ReplaceAll(strings.ToValidUTF8(c.head.String(), "\uFFFD"), "\x00", "\uFFFD")
}
