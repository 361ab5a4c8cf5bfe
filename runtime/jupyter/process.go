package jupyter

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	_ "embed"

	"github.com/evalrun/evalrun/internal/tail"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A process is a running kernel and the connections to it.
type process struct {
	key                   key
	shell, iopub, control *wire
	lost                  chan struct{} // closed when a connection has ended, or the process
	loseOnce              sync.Once
	heard                 sync.WaitGroup // listeners

	end    context.CancelFunc // kills it
	gone   chan struct{}      // closed when it has ended
	exit   sandbox.Exit       // after gone
	err    error              // of the sandbox, after gone
	stderr tail.Buffer

	mu       sync.Mutex
	requests map[string]*request // that are not done
}

// A request is executed by the kernel. It is done when its reply is here and the kernel says that
// all output of it was sent.
type request struct {
	id    string
	out   *output // nil: what it prints is not kept
	reply message
	// replied, and idle: see above
	replied, idle bool
	done          chan struct{}
}

// lateIdle is how long a reply waits for the kernel to say that it is idle.
const lateIdle = 2 * time.Second

func newID() string { return rand.Text() }

// send sends a request on the shell channel.
func (p *process) send(kind string, content any, out *output) (*request, error) {
	r := &request{id: newID(), out: out, done: make(chan struct{})}
	p.mu.Lock()
	p.requests[r.id] = r
	p.mu.Unlock()
	if err := p.key.send(p.shell, r.id, kind, content); err != nil {
		p.forget(r)
		p.lose()
		return nil, err
	}
	return r, nil
}

// forget ends the interest in a request. Its output does not change any more.
func (p *process) forget(r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.requests, r.id)
}

// listen reads the messages of a connection until it ends.
func (p *process) listen(w *wire, take func(*request, message)) {
	defer p.lose()
	for {
		m, ok, err := p.key.read(w)
		if err != nil {
			return
		}
		if !ok {
			continue
		}
		p.mu.Lock()
		if r := p.requests[m.parent]; r != nil {
			take(r, m)
		}
		p.mu.Unlock()
	}
}

// published takes a message of the iopub channel: output, or the kernel's state.
func (p *process) published(r *request, m message) {
	if r.out == nil {
		return
	}
	if state := r.out.add(m); state == "idle" {
		r.idle = true
		p.check(r)
	}
}

// answered takes a reply of the shell channel.
func (p *process) answered(r *request, m message) {
	if r.replied || !strings.HasSuffix(m.kind, "_reply") {
		return
	}
	r.replied, r.reply = true, m
	if r.out != nil && !r.idle {
		time.AfterFunc(lateIdle, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.finish(r)
		})
	}
	p.check(r)
}

// check finishes a request that is done. One without output needs no more than its reply.
func (p *process) check(r *request) {
	if r.replied && (r.idle || r.out == nil) {
		p.finish(r)
	}
}

func (p *process) finish(r *request) {
	if p.requests[r.id] == r {
		delete(p.requests, r.id)
		close(r.done)
	}
}

func (p *process) lose() { p.loseOnce.Do(func() { close(p.lost) }) }

// ended reports whether the process, or its connection, has ended.
func (p *process) ended() bool {
	select {
	case <-p.lost:
		return true
	default:
		return false
	}
}

// stop kills the process with what it has started, and closes the connections.
func (p *process) stop() {
	p.end()
	for _, w := range []*wire{p.shell, p.iopub, p.control} {
		if w != nil {
			w.c.Close()
		}
	}
	<-p.gone
	p.heard.Wait()
}

//go:embed launch.py
var launch string

// pythons are the interpreters that are tried.
var pythons = []string{"python3", "python"}

// start starts a kernel.
func (k *Kernel) start(ctx context.Context) (*process, error) {
	sb, err := k.sb(ctx)
	if err != nil {
		return nil, err
	}
	d, ok := sandbox.As[sandbox.Dialer](sb)
	if !ok {
		return nil, refused("this sandbox has no ports")
	}
	late := refused("it did not start within %v", startTime)
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, late)
	defer cancel()
	for _, dir := range []string{k.o.Dir, "/"} { // the agent may have removed its directory
		for _, python := range pythons {
			p, err := k.launch(ctx, sb, d, python, dir)
			if err == nil || !errors.Is(err, errNoProgram) {
				if err != nil && context.Cause(ctx) == late {
					err = late
				}
				return p, err
			}
		}
	}
	return nil, refused("the sandbox has no Python: neither %s can be started", strings.Join(pythons, " nor "))
}

var errNoProgram = errors.New("no such program, or no such directory")

// launch starts a kernel with an interpreter, connects to it, and loads our functions into it.
func (k *Kernel) launch(ctx context.Context, sb sandbox.Sandbox, d sandbox.Dialer, python, dir string,
) (*process, error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	p := &process{key: key(rand.Text()), lost: make(chan struct{}), end: end, gone: make(chan struct{}),
		requests: map[string]*request{}}
	said := &line{done: make(chan struct{})}
	go func() {
		p.exit, p.err = sb.Exec(life, sandbox.Command{Args: []string{python, "-c", launch}, User: k.o.User, Dir: dir,
			Env: k.o.Env, Stdin: strings.NewReader(string(p.key) + "\n"), Stdout: said, Stderr: &p.stderr, FullLimit: -1})
		close(p.gone)
		p.lose()
	}()
	err := p.connect(ctx, d, python, said)
	if err != nil {
		p.stop()
		return nil, err
	}
	p.silent(ctx, askTime, loadSkills())
	return p, nil
}

// connect waits for the ports that the launcher says, and connects to them.
func (p *process) connect(ctx context.Context, d sandbox.Dialer, python string, said *line) error {
	select {
	case <-said.done:
	case <-p.gone:
		switch {
		case p.err != nil:
			return noKernel(p.err)
		case p.exit.Code == 126 || p.exit.Code == 127:
			return errNoProgram
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var ports struct {
		Shell, Iopub, Control int
		Error                 string
	}
	switch err := json.Unmarshal(said.bytes(), &ports); {
	case err == nil && ports.Error != "":
		return refused("%s cannot start ipykernel, which `%[1]s -m pip install ipykernel` installs: %s", python,
			brief(ports.Error))
	case err != nil:
		return refused("the kernel did not start: %s", brief(p.stderr.String()))
	}
	for _, c := range []struct {
		to     **wire
		socket string
		port   int
		take   func(*request, message)
	}{
		{&p.iopub, "SUB", ports.Iopub, p.published},
		{&p.shell, "DEALER", ports.Shell, p.answered},
		{&p.control, "DEALER", ports.Control, func(*request, message) {}},
	} {
		n, err := d.Dial(ctx, c.port)
		if err != nil {
			return noKernel(err)
		}
		stop := context.AfterFunc(ctx, func() { n.Close() })
		w, err := handshake(n, c.socket)
		if !stop() {
			return context.Cause(ctx)
		}
		if err != nil {
			n.Close()
			return refused("%s", brief(err.Error()))
		}
		*c.to = w
		p.heard.Go(func() { p.listen(w, c.take) })
	}
	return p.ready(ctx)
}

// ready waits until the kernel answers, and until what it publishes arrives, which may begin later.
func (p *process) ready(ctx context.Context) error {
	for {
		r, err := p.send("kernel_info_request", map[string]any{}, &output{})
		if err != nil {
			return refused("the connection was lost: %s", brief(err.Error()))
		}
		select {
		case <-r.done:
			if r.idle {
				return nil
			}
		case <-time.After(time.Second):
		case <-p.lost:
			return refused("the kernel has ended while it started: %s", brief(p.stderr.String()))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		p.forget(r)
	}
}

// A line keeps the first line that is written to it.
type line struct {
	mu   sync.Mutex
	b    []byte
	over bool
	done chan struct{} // closed when the line is complete
}

func (l *line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		first, _, ok := bytes.Cut(p, []byte("\n"))
		l.b = append(l.b, first[:min(len(first), max(4<<10-len(l.b), 0))]...)
		if ok {
			l.over = true
			close(l.done)
		}
	}
	return len(p), nil
}

func (l *line) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b
}
