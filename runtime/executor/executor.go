// Package executor is the host's side of the program that evalrun runs inside every sandbox. That
// program starts commands, carries their streams, moves files, connects to ports and kills
// processes, all over one byte channel (a socket pair, or the streams of a container). Drivers
// create a [Client] for each sandbox and forward the sandbox's methods to it; [Of] returns it.
//
// The other side is package internal/server, and package execproto is the protocol. Everything that
// the channel delivers is hostile: a command that has taken over the executor can lie about its own
// sandbox, and must not be able to do more. So frames are limited in size, each stream in memory,
// and a peer that violates the protocol loses its channel.
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

// Main runs the executor and does not return, if this process was started as one. Otherwise it
// returns at once. Programs that are their own executor call it first in main, and tests that use
// real sandboxes in TestMain.
func Main() { server.Main() }

// Config is the configuration that the executor gets at its start. See [execproto.Config].
type Config = execproto.Config

// A Client is a connection to one executor. Its methods are safe for concurrent use.
type Client struct {
	s    *execproto.Session
	id   string // of the sandbox, for errors
	name string // of the driver, for errors

	gone  func() error                     // why the executor ended, if that is known
	stuck func(ctx context.Context) string // see Options.Hung
	grace time.Duration
	disk  bool
	once  sync.Once     // of hang
	edits chan struct{} // has a token while a file is being changed

	mu        sync.Mutex
	running   map[string]*execproto.Stream // by the command's ID
	listeners map[uint32]*listener
	hung      *hung // set once, when the executor was given up
}

// Options of a client.
type Options struct {
	Driver, ID string // for errors
	Config     Config
	// Disk says that the sandbox's disk has a limit of its own. Without one, a full disk is the
	// host's failure.
	Disk bool
	// Gone returns the reason why the executor has ended, or nil. It is called after the channel
	// broke.
	Gone func() error
	// Hung kills a sandbox whose executor does not respond, and returns what helps to find the
	// reason: the executor's stacks and the states of its threads. It is called at most once and
	// returns soon after ctx ends.
	Hung func(ctx context.Context) string
	// Grace is the time that the executor has to answer a ping after a call has exceeded its limit.
	// Default: 6 s.
	Grace time.Duration
	// Start limits how long a new executor may take to set up the sandbox. Default: 1 min.
	Start time.Duration
}

// Container is the argument with which a driver starts the executor as process 1 of a container.
// Its channel is the container's standard input and output, without a terminal. The program must be
// called "evalrun-init".
const Container = server.Container

// OwnPids is the maximum number of processes and threads of evalrun in a sandbox: process 1, and a
// supervisor for each command. Drivers add it to the limit of processes.
const OwnPids = 40

// New connects to an executor over rw and sends it its configuration. The client owns rw, also if
// New fails.
func New(ctx context.Context, rw io.ReadWriteCloser, o Options) (*Client, error) {
	c := newClient(rw, o, 0)
	o.Config.Version = execproto.Version
	hello, cancel := context.WithTimeoutCause(ctx, orDefault(o.Start, startLimit), errNoAnswer)
	defer cancel()
	if _, err := c.request(hello, execproto.KindHello, o.Config.Encode()); err != nil {
		c.Close()
		if h := c.hungError(); h != nil { // not wrapping ErrGone: there never was a sandbox
			return nil, &sandbox.Error{Op: "create", ID: c.id, Err: fmt.Errorf("%w: %s", context.Cause(hello), h.why),
				Detail: h.detail}
		}
		return nil, err
	}
	if o.Config.Orphan > 0 {
		go c.heartbeat(o.Config.Orphan)
	}
	return c, nil
}

func newClient(rw io.ReadWriteCloser, o Options, end byte) *Client {
	c := &Client{
		id: o.ID, name: o.Driver, gone: o.Gone, stuck: o.Hung, grace: orDefault(o.Grace, grace), disk: o.Disk,
		edits: make(chan struct{}, 1), running: map[string]*execproto.Stream{}, listeners: map[uint32]*listener{},
	}
	c.s = execproto.NewSession(rw, execproto.Options{Host: true, MaxFrame: execproto.MaxReply, End: end,
		Accept: c.accept})
	go c.s.Serve()
	return c
}

// heartbeat sends heartbeats, so that the executor knows that its owner is alive.
func (c *Client) heartbeat(orphan time.Duration) {
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

// Of returns the executor's client of any driver's sandbox, also of one that is wrapped. It is for
// what [sandbox.Sandbox] has no method for. Where it has one, call that one: drivers add what only
// they know, such as control groups.
func Of(sb sandbox.Sandbox) (*Client, bool) {
	h, ok := sandbox.As[interface{ Executor() *Client }](sb)
	if !ok {
		return nil, false
	}
	return h.Executor(), true
}

// Close closes the channel. The executor then ends with all its processes, unless it runs in a
// container, whose streams belong to the engine. There it lives until the driver removes the
// container, its Orphan time is over, or another host reattaches. Close may be called again.
func (c *Client) Close() error { return c.s.Close() }

// Done is closed when the channel has ended: by Close, by the end of the sandbox, or because the
// other side violated the protocol.
func (c *Client) Done() <-chan struct{} { return c.s.Done() }

// Ping waits for a response of the executor itself. That needs no process and no memory inside, so
// it works in a sandbox whose commands have used up both.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.s.Ping(ctx.Done()); err != nil {
		return c.wrap(ctx, "ping", err)
	}
	return nil
}

// wrap turns an error into one that says who is responsible: the context, the other side, or the
// channel.
func (c *Client) wrap(ctx context.Context, op string, err error) error {
	if h := c.hungError(); h != nil {
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
	return &sandbox.Error{Op: op, ID: c.id, Err: err, Inside: inside, Permanent: inside &&
		errors.Is(err, fs.ErrNotExist)}
}

func (c *Client) broken(err error) bool {
	return errors.Is(err, execproto.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, fs.ErrClosed) || c.s.Err() != nil
}

// request sends one request and returns the body of the result.
func (c *Client) request(ctx context.Context, kind byte, body []byte) (*execproto.Dec, error) {
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

// result reads messages up to the result.
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
	// graceKill is the time that the executor has to kill the processes of a command after its
	// timeout, or after its context has ended.
	graceKill = 15 * time.Second
)

var errNoEnd = errors.New("the executor did not end the command in time")

// Exec runs a command as specified by sandbox.Sandbox. Exit.OOM is set in containers only, where
// the control groups are visible from inside; other drivers add it.
func (c *Client) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	return c.exec(ctx, cmd, execKind{})
}

// An execKind is what is special about a command.
type execKind struct {
	entry   bool    // it is the ENTRYPOINT
	lookups *[]byte // it is traced; see execproto.Lookup
	files   bool    // it is a file operation; see FileOp
}

func (c *Client) exec(ctx context.Context, cmd sandbox.Command, kind execKind) (sandbox.Exit, error) {
	if len(cmd.Args) == 0 && !kind.files {
		return sandbox.Exit{}, &sandbox.Error{Op: "exec", ID: c.id, Err: errors.New("a command without a program")}
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Exit{}, c.wrap(ctx, "exec", err)
	}
	req := execproto.Exec{
		ID: cmd.ID, Args: cmd.Args, Dir: cmd.Dir, User: cmd.User, Env: environ(cmd.Env),
		Stdin: cmd.Stdin != nil, Merge: cmd.Stderr == nil, Discard: cmd.Stdout == nil,
		Limit: cmd.Limit, FullLimit: cmd.FullLimit, Timeout: cmd.Timeout, Entry: kind.entry,
		Trace: kind.lookups != nil, Files: kind.files,
	}
	over := c.checkAfter(ctx, cmd.Timeout)
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
	// When the context ends, the executor kills the command and reports its end. If it does not
	// report in time, stop waiting.
	late := func() {
		if c.checkAlive() {
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
		// feed ends with the stream or with its next Read; a Read that blocks cannot be
		// interrupted.
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
		case execproto.KindLookups:
			if kind.lookups != nil && len(*kind.lookups) < maxLookups {
				*kind.lookups = append(*kind.lookups, m.Body...)
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

// exit converts the executor's report, limiting what it may claim.
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

// Signal sends sig to the process group of a running command that this client has started with this
// ID. It does not wait.
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

// Exit returns the result of the command with this ID, whichever host has started it. It waits for
// one that is still running. known is false if no such command was started. The executor remembers
// the last few thousand results.
func (c *Client) Exit(ctx context.Context, id string) (x sandbox.Exit, known bool, err error) {
	var e execproto.Enc
	e.String(id)
	d, err := c.request(ctx, execproto.KindRemember, e)
	if err != nil {
		return x, false, c.wrap(ctx, "exit", err)
	}
	if !d.Bool() {
		return x, false, nil
	}
	return exit(d.Exit()), true, nil
}

// KillAll kills all processes that Exec ever started, with their descendants. It does not kill what
// [Client.Start] started. When it returns nil, no other process runs inside.
func (c *Client) KillAll(ctx context.Context) error {
	if _, err := c.request(ctx, execproto.KindKillAll, nil); err != nil {
		return c.wrap(ctx, "kill all", err)
	}
	return nil
}

// KillEverything kills what KillAll kills, and the ENTRYPOINT with its descendants. It is for
// callers that only want to read files afterwards, and do not trust the ENTRYPOINT's processes.
func (c *Client) KillEverything(ctx context.Context) error {
	var e execproto.Enc
	e.Bool(true)
	if _, err := c.request(ctx, execproto.KindKillAll, e); err != nil {
		return c.wrap(ctx, "kill all", err)
	}
	return nil
}

// Stats returns what the executor can see. In a container whose engine shows the control groups
// inside, that is everything but the disk; elsewhere it is the processes, the disk and the CPU time
// of processes that have ended. Drivers add the values of their control groups.
func (c *Client) Stats(ctx context.Context) (sandbox.Stats, error) {
	d, err := c.request(ctx, execproto.KindStats, nil)
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
