// Package executor is the host's side of the program that evalrun runs inside every sandbox: it
// starts commands, carries their streams, moves files, connects to ports and kills, all over one
// byte channel (a socket pair, the streams of a container). Drivers make a [Client] for each
// sandbox and forward the sandbox's methods to it; [Of] finds it again.
//
// The other side is package server; package execproto is what both speak. What comes over the
// channel is taken as hostile: whoever has broken out of a command into the executor can lie about
// his own sandbox, and nothing else. Frames are bounded, memory is bounded for each stream, and a
// peer that breaks the rules loses its channel.
package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/executor/internal/server"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Main makes the program able to be its own executor. It returns at once, unless this process was
// started as one; then it never does. Call it first in main, and in TestMain of packages that use
// real sandboxes.
func Main() { server.Main() }

// Config is what an executor is told at its start. See [execproto.Config].
type Config = execproto.Config

// A Client speaks to one executor. Its methods may be called from several goroutines.
type Client struct {
	s    *execproto.Session
	id   string // of the sandbox, for errors
	name string // of the driver, for errors

	gone  func() error                     // what is known of the executor's end
	stuck func(ctx context.Context) string // see Options.Hung
	grace time.Duration
	disk  bool
	once  sync.Once // of hang

	mu        sync.Mutex
	running   map[string]*execproto.Stream // by the command's ID
	listeners map[uint32]*listener
	hung      *hung // set once, when the executor was given up
}

// Options of a client.
type Options struct {
	Driver, ID string // for errors
	Config     Config
	// Disk: the machine's disk has a limit of its own. Where it has none, a full disk is the
	// host's.
	Disk bool
	// Gone says more about an executor that has ended, or returns nil. It is called after the
	// channel broke.
	Gone func() error
	// Hung ends a machine whose executor does not answer, and returns what can be learned of the
	// reason: the executor's stacks, the states of its threads. It is called at most once and
	// returns soon after ctx ends.
	Hung func(ctx context.Context) string
	// Grace is how long the executor may take to answer a ping once the limit of a call has passed;
	// 0: 6 s.
	Grace time.Duration
	// Start limits how long a fresh executor may take to set up the machine; 0: 1 min.
	Start time.Duration
}

// Container is the argument with which a driver starts the executor as process 1 of a container;
// its channel is the container's standard input and output (no terminal), and a program by the name
// of "evalrun-init" is what it must be called.
const Container = server.Container

// OwnPids is how many processes and threads of ours may be in a machine beside what its commands
// start: process 1, and a supervisor for each command. Drivers add it to a limit that counts them
// all.
const OwnPids = 40

// New starts to speak over rw and tells the executor its configuration. The client owns rw from now
// on, also on error.
func New(ctx context.Context, rw io.ReadWriteCloser, o Options) (*Client, error) {
	c := newClient(rw, o, 0)
	o.Config.Version = execproto.Version
	hello, cancel := context.WithTimeoutCause(ctx, or(o.Start, startLimit), errNoAnswer)
	defer cancel()
	if _, err := c.ask(hello, execproto.KindHello, o.Config.Encode()); err != nil {
		c.Close()
		if h := c.givenUp(); h != nil { // not as an error that wraps ErrGone: there never was a sandbox
			return nil, &sandbox.Error{Op: "create", ID: c.id, Err: fmt.Errorf("%w: %s", context.Cause(hello), h.why),
				Detail: h.detail}
		}
		return nil, err
	}
	if o.Config.Orphan > 0 {
		go c.assure(o.Config.Orphan)
	}
	return c, nil
}

func newClient(rw io.ReadWriteCloser, o Options, end byte) *Client {
	c := &Client{
		id: o.ID, name: o.Driver, gone: o.Gone, stuck: o.Hung, grace: or(o.Grace, grace), disk: o.Disk,
		running: map[string]*execproto.Stream{}, listeners: map[uint32]*listener{},
	}
	c.s = execproto.NewSession(rw, execproto.Options{Host: true, MaxFrame: execproto.MaxReply, End: end,
		Accept: c.accept})
	go c.s.Serve()
	return c
}

// assure tells the executor that its owner lives.
func (c *Client) assure(orphan time.Duration) {
	t := time.NewTicker(max(orphan/3, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-c.s.Done():
			return
		case <-t.C:
			if c.s.Ping(c.s.Done()) != nil {
				return
			}
		}
	}
}

// Of finds the executor of any driver's sandbox, through wrappers. The driver's own methods do more
// than the client's (they know its control groups, and how it ended); the client is for what
// [sandbox.Sandbox] has no word for.
func Of(sb sandbox.Sandbox) (*Client, bool) {
	h, ok := sandbox.As[interface{ Executor() *Client }](sb)
	if !ok {
		return nil, false
	}
	return h.Executor(), true
}

// Close ends the channel. The executor, and all that runs below it, ends with it where the channel
// itself does: in a container, whose streams belong to its engine, it lives until its driver
// removes it, its Orphan time is over or another host comes. Close may be called again.
func (c *Client) Close() error { return c.s.Close() }

// Done is closed when the channel has ended: by Close, by the machine's end, or because the other
// side broke the rules.
func (c *Client) Done() <-chan struct{} { return c.s.Done() }

// Ping waits for a sign of life of the executor itself. It needs no process and no memory inside,
// so it answers from a machine whose commands have taken all of both.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.s.Ping(ctx.Done()); err != nil {
		return c.wrap(ctx, "ping", err)
	}
	return nil
}

// wrap says whose fault an error is: the context's, the other side's report, or the channel's.
func (c *Client) wrap(ctx context.Context, op string, err error) error {
	if h := c.givenUp(); h != nil {
		err = h
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), h)
		}
		return &sandbox.Error{Op: op, ID: c.id, Err: err, Detail: h.detail}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w", context.Cause(ctx))
		return &sandbox.Error{Op: op, ID: c.id, Err: err}
	}
	if u := (*execproto.Unsupported)(nil); errors.As(err, &u) {
		return &sandbox.Unsupported{Driver: c.name, What: u.What}
	}
	if errors.Is(err, execproto.ErrProtocol) || errors.Is(err, execproto.ErrMalformed) {
		return &sandbox.Error{Op: op, ID: c.id, Err: fmt.Errorf("%w: its executor broke the protocol", sandbox.ErrGone)}
	}
	if c.broken(err) {
		if c.gone != nil {
			if why := c.gone(); why != nil {
				return &sandbox.Error{Op: op, ID: c.id, Err: why}
			}
		}
		return &sandbox.Error{Op: op, ID: c.id, Err: sandbox.ErrGone}
	}
	inside := errors.As(err, new(*execproto.Failure)) && (c.disk || !errors.Is(err, syscall.ENOSPC))
	return &sandbox.Error{Op: op, ID: c.id, Err: err, Inside: inside, Lasting: inside && errors.Is(err, fs.ErrNotExist)}
}

func (c *Client) broken(err error) bool {
	return errors.Is(err, execproto.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, fs.ErrClosed) || c.s.Err() != nil
}

// ask sends one request and returns the body of its result.
func (c *Client) ask(ctx context.Context, kind byte, body []byte) (*execproto.Dec, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	st, stop, err := c.open(ctx, kind, body)
	if err != nil {
		return nil, err
	}
	defer stop()
	d, err := result(st)
	if err != nil && ctx.Err() != nil {
		st.Reset()
		return nil, err
	}
	st.Finish()
	return d, err
}

// result takes messages until the last.
func result(st *execproto.Stream) (*execproto.Dec, error) {
	for {
		m, err := st.Recv()
		if err != nil {
			return nil, err
		}
		if m.Kind == execproto.KindResult {
			d := execproto.NewDec(m.Body)
			return d, d.Result()
		}
	}
}

const (
	// graceKill is how long after a command's time-out, or its context's end, the executor may take
	// to kill the tree.
	graceKill = 15 * time.Second
)

var errNoEnd = errors.New("the executor did not end the command in time")

// Exec runs a command as sandbox.Sandbox's Exec promises. Exit.OOM is known in containers only,
// where the machine's control groups are seen from inside; elsewhere drivers add it.
func (c *Client) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	return c.exec(ctx, cmd, false)
}

func (c *Client) exec(ctx context.Context, cmd sandbox.Command, entry bool) (sandbox.Exit, error) {
	if len(cmd.Args) == 0 {
		return sandbox.Exit{}, &sandbox.Error{Op: "exec", ID: c.id, Err: errors.New("a command without a program")}
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Exit{}, c.wrap(ctx, "exec", err)
	}
	req := execproto.Exec{
		ID: cmd.ID, Args: cmd.Args, Dir: cmd.Dir, User: cmd.User, Env: environ(cmd.Env),
		Stdin: cmd.Stdin != nil, Merge: cmd.Stderr == nil, Discard: cmd.Stdout == nil,
		Limit: cmd.Limit, FullLimit: cmd.FullLimit, Timeout: cmd.Timeout, Entry: entry,
	}
	over := c.bound(ctx, cmd.Timeout)
	defer over()
	st, err := c.s.Open(execproto.KindExec, req.Encode())
	if err != nil {
		return sandbox.Exit{}, c.wrap(ctx, "exec", err)
	}
	if cmd.ID != "" {
		c.mu.Lock()
		c.running[cmd.ID] = st
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			if c.running[cmd.ID] == st {
				delete(c.running, cmd.ID)
			}
			c.mu.Unlock()
		}()
	}
	// When the context ends, the executor kills the tree and says so; if it does not, we no longer
	// wait.
	late := func() {
		if c.alive() {
			st.Interrupt(errNoEnd)
		}
	}
	var mu sync.Mutex
	var backup *time.Timer
	if cmd.Timeout > 0 {
		backup = time.AfterFunc(cmd.Timeout+graceKill, late)
	}
	stop := context.AfterFunc(ctx, func() {
		var e execproto.Enc
		e.Int(-1)
		st.Send(execproto.KindSignal, e)
		mu.Lock()
		defer mu.Unlock()
		if backup != nil {
			backup.Stop()
		}
		backup = time.AfterFunc(graceKill, late)
	})
	defer func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		if backup != nil {
			backup.Stop()
		}
	}()
	if cmd.Stdin != nil {
		// It ends with the stream, or with its next Read: nobody can end a Read that blocks.
		go feed(st, cmd.Stdin)
	}
	out := [2]io.Writer{cmd.Stdout, cmd.Stderr}
	for {
		m, err := st.Recv()
		if err != nil {
			st.Reset()
			return sandbox.Exit{}, c.wrap(ctx, "exec", err)
		}
		switch m.Kind {
		case execproto.KindData, execproto.KindErr:
			w := &out[m.Kind-execproto.KindData]
			if *w == nil {
				continue
			}
			if n, err := (*w).Write(m.Body); err != nil || n < len(m.Body) {
				*w = nil
				if out[0] == nil && out[1] == nil {
					st.Send(execproto.KindQuiet, nil)
				}
			}
		case execproto.KindResult:
			st.Finish()
			d := execproto.NewDec(m.Body)
			if err := d.Result(); err != nil {
				return sandbox.Exit{}, c.wrap(ctx, "exec", err)
			}
			x := d.Exit()
			if err := d.Err(); err != nil {
				return sandbox.Exit{}, c.wrap(ctx, "exec", err)
			}
			if ctx.Err() != nil {
				return sandbox.Exit{}, c.wrap(ctx, "exec", ctx.Err())
			}
			return exit(x), nil
		}
	}
}

// exit takes over what the executor says, as far as it is possible at all.
func exit(x execproto.Exit) sandbox.Exit {
	return sandbox.Exit{
		Code: min(max(x.Code, -1), 255), Signal: short(x.Signal, 32), Full: short(x.Full, 4096), TimedOut: x.TimedOut,
		Out: max(x.Out, 0), Err: max(x.Err, 0), Wall: max(x.Wall, 0), CPU: max(x.CPU, 0), MaxRSS: max(x.MaxRSS, 0),
		OOM: x.OOM,
	}
}

func short(s string, n int) string { return s[:min(len(s), n)] }

func feed(st *execproto.Stream, r io.Reader) {
	b := make([]byte, 16<<10)
	for {
		n, err := r.Read(b)
		if n > 0 && st.Send(execproto.KindData, b[:n]) != nil {
			return
		}
		if err != nil {
			st.Send(execproto.KindEOF, nil)
			return
		}
	}
}

func environ(m map[string]string) []string {
	if len(m) == 0 {
		return nil
	}
	out := make([]string, 0, len(m))
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// Signal sends sig to the process group of a running command with this ID, if this client has
// started it. It does not wait.
func (c *Client) Signal(id string, sig syscall.Signal) error {
	c.mu.Lock()
	st := c.running[id]
	c.mu.Unlock()
	if st == nil {
		return &sandbox.Error{Op: "signal", ID: c.id, Err: fmt.Errorf("no command %q is running", id)}
	}
	var e execproto.Enc
	e.Int(int64(sig))
	return st.Send(execproto.KindSignal, e)
}

// Exit returns what became of the command with this ID, whichever host has started it: known is
// false if none was ever started (nor ever will be by a host before this one). It waits for one
// that still runs. The last few thousand ends are remembered.
func (c *Client) Exit(ctx context.Context, id string) (x sandbox.Exit, known bool, err error) {
	var e execproto.Enc
	e.String(id)
	d, err := c.ask(ctx, execproto.KindRemember, e)
	if err != nil {
		return x, false, c.wrap(ctx, "exit", err)
	}
	if !d.Bool() {
		return x, false, nil
	}
	return exit(d.Exit()), true, nil
}

// KillAll ends all that Exec ever started, with all that came of it, however it tried to stay; what
// [Client.Start] started is spared. When it returns nil, nothing else runs inside.
func (c *Client) KillAll(ctx context.Context) error {
	if _, err := c.ask(ctx, execproto.KindKillAll, nil); err != nil {
		return c.wrap(ctx, "kill all", err)
	}
	return nil
}

// KillEverything ends what KillAll ends and ENTRYPOINT too, with all that came of it: for who has
// done with the machine but wants to read its files, which may be those of a program that somebody
// has put into a process of ENTRYPOINT's.
func (c *Client) KillEverything(ctx context.Context) error {
	var e execproto.Enc
	e.Bool(true)
	if _, err := c.ask(ctx, execproto.KindKillAll, e); err != nil {
		return c.wrap(ctx, "kill all", err)
	}
	return nil
}

// Stats is what the executor itself can see: in a container all but the disk, where its engine
// shows the control groups inside; elsewhere processes, disk and the time of processes that have
// ended. Drivers add what their control groups say.
func (c *Client) Stats(ctx context.Context) (sandbox.Stats, error) {
	d, err := c.ask(ctx, execproto.KindStats, nil)
	if err != nil {
		return sandbox.Stats{}, c.wrap(ctx, "stats", err)
	}
	w := d.Stats()
	if err := d.Err(); err != nil {
		return sandbox.Stats{}, c.wrap(ctx, "stats", err)
	}
	known := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	pids := int(w.Pids)
	return sandbox.Stats{
		Pids: &pids, Disk: known(w.Disk), Memory: known(w.Memory), MaxMemory: known(w.MaxMemory),
		OOMKills: known(w.OOMKills),
		CPU:      (*time.Duration)(known(w.CPU)), Throttled: (*time.Duration)(known(w.Throttled)),
	}, nil
}
