// Package jupyter runs cells of Python in a Jupyter kernel, ipykernel, inside a sandbox. The protocol
// is spoken by this process, over the sandbox's ports.
//
// The kernel is in an agent's hands, so what it says is hostile: messages, text and pictures are
// bounded, and what is too much is read and forgotten.
package jupyter

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	_ "embed"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options of a kernel.
type Options struct {
	User, Dir string // of its process
	Env       map[string]string
}

// A Kernel runs the cells of one agent, one at a time. Its process is started with the first cell, and
// again with the next cell after it has ended.
type Kernel struct {
	sb func(context.Context) (sandbox.Sandbox, error)
	o  Options

	mu    sync.Mutex
	p     *process // nil: there is none
	began bool     // there was one
	dir   string   // that the process was last told to change to
	at    place
}

// New returns a kernel whose process is not started yet. If again is true, the agent has had another
// kernel before, and the first result says that this one is new.
func New(sb func(context.Context) (sandbox.Sandbox, error), o Options, again bool) *Kernel {
	return &Kernel{sb: sb, o: o, began: again}
}

// A Cell is code for the kernel.
type Cell struct {
	Code    string
	Dir     string // the directory to change to, if an earlier cell has not named it already; "": none
	Timeout time.Duration
}

// A Result is what a cell did. Its text has at most about 1 MiB, without the middle, and no escape
// codes.
type Result struct {
	Parts    []Part
	Bytes    int64 // length of all text
	Error    bool  // the cell raised an exception, or did not come to its end
	TimedOut bool  // it was interrupted
	Began    bool  // the kernel is a new one, though the agent has had one before
	NoDir    bool  // Cell.Dir could not be entered
	// Ended is why the kernel's process has ended: "ended by SIGKILL"; "": it has not.
	Ended  string
	OOM    bool   // the memory limit has ended it
	Dir    string // the kernel's directory after the cell; "": not known
	Python string // path of its interpreter; "": not known
	Wall   time.Duration
}

// Reasons in Result.Ended.
const (
	NotInterrupted = "not interrupted"   // the interrupt after the timeout did not help
	ByCell         = "ended by the cell" // such as by exit()
)

// A Refused error says why there can be no kernel in a sandbox.
type Refused struct{ Why string }

func (r *Refused) Error() string { return "there is no Jupyter kernel: " + r.Why }

func refused(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// Times that kernels have; tests change them.
var (
	startTime     = 2 * time.Minute  // to start and answer
	askTime       = 5 * time.Second  // to answer questions of ours
	interruptTime = 10 * time.Second // to react to interrupts
	endTime       = 5 * time.Second  // to end
)

// Run runs a cell. What happens to the cell and the kernel is a result. An error is a Refused, the
// cause of ctx, or one of the sandbox. When ctx ends, the kernel is killed with everything that it
// has started.
func (k *Kernel) Run(ctx context.Context, c Cell) (Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	begin := time.Now()
	var res Result
	if k.p != nil && k.p.ended() { // between two cells
		k.drop()
	}
	if k.p == nil {
		p, err := k.start(ctx)
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		if err != nil {
			return Result{}, err
		}
		k.p, k.dir, k.at = p, "", place{}
		res.Began, k.began = k.began, true
	}
	p := k.p
	if c.Dir != "" && c.Dir != k.dir {
		ok := p.silent(ctx, askTime, "__import__('os').chdir("+literal(c.Dir)+")")
		if res.NoDir = !ok; ok {
			k.dir = c.Dir
		}
	}
	out := &output{}
	end, err := p.run(ctx, c, out)
	if err != nil {
		k.drop()
		return Result{}, err
	}
	res.Error, res.TimedOut, res.Ended, res.OOM = end.failed, end.late, end.ended, end.oom
	if end.ended != "" {
		k.drop()
		k.at = place{}
	} else if at, ok := p.where(ctx); ok {
		k.at = at
	}
	if ctx.Err() != nil {
		k.drop()
		return Result{}, context.Cause(ctx)
	}
	res.Parts, res.Bytes = out.done(), out.bytes
	res.Dir, res.Python, res.Wall = k.at.Dir, k.at.Python, time.Since(begin)
	return res, nil
}

// Leave ends the kernel's process. What it has started goes on.
func (k *Kernel) Leave(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p == nil {
		return
	}
	// A kernel that is shut down by a message ends its children.
	if _, err := k.p.send("execute_request", execute("__import__('os')._exit(0)", true), nil); err == nil {
		select {
		case <-k.p.gone:
		case <-ctx.Done():
		case <-time.After(endTime):
		}
	}
	k.drop()
}

// drop ends the process. The caller holds mu.
func (k *Kernel) drop() {
	if k.p != nil {
		k.p.stop()
	}
	k.p = nil
}

// literal returns a text as a Python expression of bytes.
func literal(s string) string {
	return "__import__('base64').b64decode('" + base64.StdEncoding.EncodeToString([]byte(s)) + "')"
}

//go:embed agentskills.py
var skills string

// loadSkills is code that makes the module agentskills. It has no file, since the agent's files are
// its own.
func loadSkills() string {
	return `def _load(source):
    import sys, types
    module = types.ModuleType("agentskills")
    exec(compile(source, "<agentskills>", "exec"), module.__dict__)
    sys.modules["agentskills"] = module
_load(` + literal(skills) + `)
del _load
from agentskills import *`
}

// execute is the content of a request to execute code. A cell cannot ask for input. Cells are not
// numbered, so that the same mistake has the same text each time.
func execute(code string, silent bool) map[string]any {
	return map[string]any{"code": code, "silent": silent, "store_history": false, "allow_stdin": false,
		"stop_on_error": false, "user_expressions": map[string]string{}}
}

// A place is where the kernel is.
type place struct{ Dir, Python string }

// placeExpression has a value that is shown as JSON.
const placeExpression = "__import__('IPython.display').display.JSON({" +
	"'Dir': __import__('os').getcwd(), 'Python': __import__('sys').executable})"

// where asks for the kernel's directory and interpreter.
func (p *process) where(ctx context.Context) (at place, ok bool) {
	content := execute("", true)
	content["user_expressions"] = map[string]string{"at": placeExpression}
	m, ok := p.ask(ctx, askTime, content)
	if !ok {
		return at, false
	}
	var reply struct {
		Values map[string]struct {
			Data map[string]json.RawMessage
		} `json:"user_expressions"`
	}
	if !m.decode(&reply) || json.Unmarshal(reply.Values["at"].Data["application/json"], &at) != nil {
		return at, false
	}
	return at, len(at.Dir) <= maxPath && len(at.Python) <= maxPath
}

const maxPath = 4096

// silent executes code of ours, and reports whether it raised no exception.
func (p *process) silent(ctx context.Context, within time.Duration, code string) bool {
	m, ok := p.ask(ctx, within, execute(code, true))
	return ok && m.status() == "ok"
}

// status of a reply: "ok", "error" …
func (m message) status() string {
	var reply struct{ Status string }
	if !m.decode(&reply) {
		return "error"
	}
	return reply.Status
}

// ask executes code of ours, and returns the reply.
func (p *process) ask(ctx context.Context, within time.Duration, content map[string]any) (message, bool) {
	r, err := p.send("execute_request", content, nil)
	if err != nil {
		return message{}, false
	}
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-r.done:
		return r.reply, true
	case <-p.lost:
	case <-ctx.Done():
	case <-t.C:
	}
	p.forget(r)
	return message{}, false
}

// An end is how a cell has ended.
type end struct {
	failed, late bool
	ended        string // why the process has ended; it is not stopped yet
	oom          bool
}

// run executes a cell.
func (p *process) run(ctx context.Context, c Cell, out *output) (end, error) {
	r, err := p.send("execute_request", execute(c.Code, false), out)
	if err != nil {
		return p.death(ctx)
	}
	defer p.forget(r)
	timeout := time.NewTimer(c.Timeout)
	defer timeout.Stop()
	var e end
	select {
	case <-r.done:
	case <-p.lost:
	case <-ctx.Done():
		return e, context.Cause(ctx)
	case <-timeout.C:
		e.late, e.failed = true, true
		interrupted, err := p.interrupt(ctx, r)
		if !interrupted || err != nil {
			e.ended = NotInterrupted
			return e, err
		}
	}
	select {
	case <-r.done:
	default:
		x, err := p.death(ctx)
		x.late = e.late // it may have died of the interrupt
		return x, err
	}
	var reply struct {
		Status  string
		Payload []struct {
			Source string
			Data   map[string]json.RawMessage
		}
	}
	if !r.reply.decode(&reply) || reply.Status != "ok" {
		e.failed = true
	}
	p.forget(r) // from here on out is ours
	for _, x := range reply.Payload {
		switch x.Source {
		case "page": // such as help
			out.show(x.Data)
		case "ask_exit":
			select {
			case <-p.gone:
			case <-ctx.Done():
			case <-time.After(endTime):
			}
			e.ended = ByCell
		}
	}
	return e, nil
}

// interrupt interrupts a cell whose time is over, several times. It reports whether the cell has
// ended, or the process.
func (p *process) interrupt(ctx context.Context, r *request) (bool, error) {
	const times = 5
	for range times {
		if err := p.key.send(p.control, newID(), "interrupt_request", map[string]any{}); err != nil {
			return false, nil
		}
		select {
		case <-r.done:
			return true, nil
		case <-p.lost:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(interruptTime / times):
		}
	}
	return false, nil
}

// death returns how the process has ended, whose connections are lost.
func (p *process) death(ctx context.Context) (end, error) {
	select {
	case <-p.gone:
	case <-ctx.Done():
		return end{}, context.Cause(ctx)
	case <-time.After(endTime):
		return end{failed: true, ended: "its connection was lost"}, nil
	}
	if p.err != nil {
		return end{}, p.err
	}
	// What it has printed before is still to be read. A child of it may hold the connections open.
	heard := make(chan struct{})
	go func() {
		p.heard.Wait()
		close(heard)
	}()
	select {
	case <-heard:
	case <-time.After(time.Second):
	}
	return end{failed: true, ended: p.exit.How(0), oom: p.exit.OOM}, nil
}

// noKernel makes an error of the sandbox a Refused, if what is in the sandbox is responsible.
func noKernel(err error) error {
	var failed *sandbox.Error
	var no *sandbox.Unsupported
	switch {
	case errors.As(err, &failed) && failed.Inside && !errors.Is(err, sandbox.ErrGone):
		return refused("%s", brief(failed.Err.Error()))
	case errors.As(err, &no):
		return refused("%s", brief(no.Error()))
	}
	return err
}

// brief shortens a text of the sandbox.
func brief(s string) string {
	return strings.TrimSpace(strings.ToValidUTF8(plain(s[:min(len(s), 400)]), "\ufffd"))
}
