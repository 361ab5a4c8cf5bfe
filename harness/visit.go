package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Live lends the sandboxes of running trials to people. The zero value is ready for use, by one run
// at a time.
type Live struct {
	mu  sync.Mutex
	all map[string]*attempt // by trial
}

// A LiveTrial is a trial that is running.
type LiveTrial struct {
	Trial   string `json:"trial"`
	Attempt int    `json:"attempt"`
	Task    string `json:"task"` // "benchmark/task"
	Arm     string `json:"arm"`
	Repeat  int    `json:"repeat"`
	// Machine and Driver name the agent's sandbox while the agent is at work in it; "": nobody can
	// enter now.
	Machine string `json:"machine,omitempty"`
	Driver  string `json:"driver,omitempty"`
	// User and Dir are those of its commands.
	User string `json:"user,omitempty"`
	Dir  string `json:"dir,omitempty"`
}

// A Visit is one command that a person runs in a sandbox, such as an interactive shell.
type Visit struct {
	By      string   // who, for the record
	Service string   // the sidecar; "": the agent's own sandbox
	User    string   // as in a [sandbox.Command]
	Args    []string // empty: a shell
	// Terminal says that the command gets a terminal. Without one, Stderr is apart from Stdout.
	Terminal       bool
	Term           string // kind of the person's terminal, for the variable TERM
	Size           sandbox.TerminalSize
	Resize         <-chan sandbox.TerminalSize
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

var (
	// ErrNotLive means that a trial is not running in this process.
	ErrNotLive = errors.New("the trial is not running")
	// ErrNotNow means that a trial is running, but nobody may enter its sandbox now.
	ErrNotNow = errors.New("nobody can enter its sandbox now")
	// errSentOut ends visits when the agent has ended: what follows is graded.
	errSentOut = errors.New("the agent has ended, so its sandbox is closed to others")
)

const (
	maxVisits  = 16              // at once, of a trial
	sendingOut = 5 * time.Second // how long an attempt waits for visits to end
	maxTyped   = 256 << 10       // how much of what is typed in a visit is recorded
	typedNote  = 8 << 10         // how much of it is one note
	typedDelay = 2 * time.Second // after which it is recorded, if it is less
)

// guests are the visits of an attempt.
type guests struct {
	mu   sync.Mutex
	m    benchmarks.Machiner             // nil: nobody may enter
	ends map[int]context.CancelCauseFunc // of the visits, by number
	wg   sync.WaitGroup
	n    int // visits so far
}

// join makes a running attempt known until leave is called.
func (l *Live) join(a *attempt) (leave func()) {
	if l == nil {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]*attempt{}
	}
	l.all[a.job.Trial] = a
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.all[a.job.Trial] == a {
			delete(l.all, a.job.Trial)
		}
	}
}

// Trials returns the running trials, in the order of their tasks.
func (l *Live) Trials() []LiveTrial {
	l.mu.Lock()
	var all []*attempt
	for _, a := range l.all {
		all = append(all, a)
	}
	l.mu.Unlock()
	var out []LiveTrial
	for _, a := range all {
		t := LiveTrial{Trial: a.job.Trial, Attempt: a.job.Attempt, Task: a.job.Task.Benchmark + "/" + a.job.Task.ID,
			Arm: a.arm.Name, Repeat: a.job.Repeat}
		a.guests.mu.Lock()
		m := a.guests.m
		a.guests.mu.Unlock()
		if m != nil {
			if sb := m.Started(); sb != nil {
				t.Machine, t.Driver = sb.ID(), a.driverName()
				if len(a.needs.Agent) > 0 {
					t.User, t.Dir = a.needs.Agent[0].User, a.needs.Agent[0].Dir
				}
			}
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b LiveTrial) int {
		return strings.Compare(a.Task+"\x00"+a.Trial, b.Task+"\x00"+b.Trial)
	})
	return out
}

func (a *attempt) driverName() string {
	if a.DriverOf != nil && len(a.needs.Agent) > 0 {
		return a.DriverOf(a.needs.Agent[0])
	}
	return a.Driver
}

// Enter runs a command in the agent's sandbox of a running trial. The trial is then marked as
// touched, and its log says who did what and when; began is called once that is durable, before the
// command runs. When the agent ends, so does the command.
func (l *Live) Enter(ctx context.Context, trial string, v Visit, began func()) (sandbox.Exit, error) {
	l.mu.Lock()
	a := l.all[trial]
	l.mu.Unlock()
	if a == nil {
		return sandbox.Exit{}, ErrNotLive
	}
	sb, n, ctx, done, err := a.admit(ctx)
	if err != nil {
		return sandbox.Exit{}, err
	}
	defer done()
	if _, err = v.in(sb); err != nil {
		return sandbox.Exit{}, err
	}
	a.mu.Lock()
	a.touched = true
	a.mu.Unlock()
	keep := context.WithoutCancel(ctx)
	note := func(what, text string, more map[string]any) error {
		data := map[string]any{"by": v.By, "visit": n, "did": what}
		for k, x := range more {
			data[k] = x
		}
		raw, err := json.Marshal(data)
		if err != nil {
			return err
		}
		_, err = a.log.Append(keep, event.New(event.FromEnvironment,
			event.Info{What: record.Touched, Text: v.By + " " + text, Data: raw}))
		return err
	}
	facts := map[string]any{"terminal": v.Terminal}
	if v.User != "" {
		facts["user"] = v.User
	}
	if v.Service != "" {
		facts["service"] = v.Service
	}
	text := "opened a shell in the sandbox"
	if len(v.Args) > 0 {
		text, facts["args"] = "ran in the sandbox: "+cut(strings.Join(v.Args, " "), 4<<10), v.Args
	}
	if err := note("entered", text, facts); err != nil {
		return sandbox.Exit{}, err
	}
	// Not log.Sync: it would stop the agent's clock.
	if err := a.sync(keep); err != nil {
		return sandbox.Exit{}, err
	}
	began()
	var keys *typed
	if v.Stdin != nil {
		keys = &typed{r: v.Stdin, mask: a.Mask, note: func(text string) error { return note("typed", "typed: "+text, nil) }}
		v.Stdin = keys
	}
	exit, err := v.Run(ctx, sb)
	if keys != nil {
		keys.close()
	}
	end := map[string]any{"code": exit.Code}
	switch text = fmt.Sprintf("left (exit code %d)", exit.Code); {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
		text, end = "was cut off: "+err.Error(), nil
	case err != nil:
		text, end = "was cut off: "+cut(err.Error(), maxText), nil
	case exit.Signal != "":
		text = "left (" + exit.Signal + ")"
	}
	if nerr := note("left", text, end); err == nil && nerr != nil && !errors.Is(nerr, event.ErrClosed) {
		err = nerr
	}
	return exit, err
}

// admit begins a visit. The context ends when the agent does.
func (a *attempt) admit(ctx context.Context) (sandbox.Sandbox, int, context.Context, func(), error) {
	g := &a.guests
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m == nil {
		return nil, 0, nil, nil, fmt.Errorf("%w: its agent is not at work in one", ErrNotNow)
	}
	sb := g.m.Started()
	switch {
	case sb == nil:
		return nil, 0, nil, nil, fmt.Errorf("%w: its agent has not used one yet", ErrNotNow)
	case len(g.ends) >= maxVisits:
		return nil, 0, nil, nil, fmt.Errorf("%w: %d others are in it", ErrNotNow, len(g.ends))
	}
	ctx, end := context.WithCancelCause(ctx)
	g.n++
	n := g.n
	if g.ends == nil {
		g.ends = map[int]context.CancelCauseFunc{}
	}
	g.ends[n] = end
	g.wg.Add(1)
	return sb, n, ctx, func() {
		end(nil)
		g.mu.Lock()
		delete(g.ends, n)
		g.mu.Unlock()
		g.wg.Done()
	}, nil
}

// receive lets people enter the sandbox of m until the returned function is called. That function
// waits for the visits to end, but not for long.
func (a *attempt) receive(m benchmarks.Machiner) (closed func()) {
	g := &a.guests
	g.mu.Lock()
	g.m = m
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		g.m = nil
		left := len(g.ends)
		for _, end := range g.ends {
			end(errSentOut)
		}
		g.mu.Unlock()
		if left == 0 {
			return
		}
		gone := make(chan struct{})
		go func() {
			g.wg.Wait()
			close(gone)
		}()
		select {
		case <-gone:
		case <-time.After(sendingOut):
			a.Slog.Warn("a visit in a sandbox does not end", "trial", a.job.Trial)
		}
	}
}

// in returns the sandbox that the visit is in: sb or one of its services.
func (v *Visit) in(sb sandbox.Sandbox) (sandbox.Sandbox, error) {
	if v.Service == "" {
		return sb, nil
	}
	if g, ok := sandbox.As[sandbox.Group](sb); ok {
		if side, ok := g.Service(v.Service); ok {
			return side, nil
		}
	}
	return nil, fmt.Errorf("the sandbox has no service %q", v.Service)
}

// shell is the interactive shell of a visit: bash, or what the image has.
var shell = []string{"sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh"}

// Run runs the command in sb, or in the visit's service of it.
func (v *Visit) Run(ctx context.Context, sb sandbox.Sandbox) (sandbox.Exit, error) {
	sb, err := v.in(sb)
	if err != nil {
		return sandbox.Exit{}, err
	}
	args := v.Args
	if len(args) == 0 {
		args = shell
	}
	if !v.Terminal {
		return sb.Exec(ctx, sandbox.Command{Args: args, User: v.User, Stdin: v.Stdin, Stdout: v.Stdout,
			Stderr: v.Stderr, FullLimit: -1})
	}
	t, ok := sandbox.As[sandbox.Terminaler](sb)
	if !ok {
		return sandbox.Exit{}, errors.New("sandboxes of this kind have no terminals; run a command without one: -- COMMAND")
	}
	return t.Terminal(ctx, sandbox.Terminal{Args: args, User: v.User, Env: map[string]string{"TERM": v.Term},
		Size: v.Size, Resize: v.Resize, Stdin: v.Stdin, Stdout: v.Stdout})
}

// A typed reader records what is read from r.
type typed struct {
	r    io.Reader
	mask *Masker
	note func(text string) error

	mu    sync.Mutex
	buf   []byte // not recorded yet
	kept  int
	lost  int64 // bytes that are not recorded, because they are too many
	timer *time.Timer
	over  bool
}

func (t *typed) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.add(p[:n])
	}
	return n, err
}

func (t *typed) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	n := min(len(p), maxTyped-t.kept)
	t.kept += n
	t.lost += int64(len(p) - n)
	// A terminal sends CR for Enter, also within a secret of several lines.
	t.buf = append(t.buf, bytes.ReplaceAll(p[:n], []byte("\r"), []byte("\n"))...)
	switch {
	case len(t.buf) >= typedNote:
		t.flush(false)
	case t.timer == nil && len(t.buf) > 0:
		t.timer = time.AfterFunc(typedDelay, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.timer = nil; !t.over {
				t.flush(false)
			}
		})
	}
}

// flush records what was typed: whole lines if it is not the last time, and no part of a secret.
func (t *typed) flush(last bool) {
	for len(t.buf) > 0 {
		n := len(t.buf)
		if !last {
			n = t.mask.complete(t.buf)
		}
		n = min(n, typedNote)
		switch i := bytes.LastIndexByte(t.buf[:n], '\n'); {
		case last && n == len(t.buf):
		case i >= 0:
			n = i + 1
		case len(t.buf) < typedNote:
			return
		}
		if n = t.mask.around(t.buf, n); n == 0 {
			return
		}
		_ = t.note(string(t.buf[:n])) // a failure of the journal ends the run
		t.buf = append(t.buf[:0:0], t.buf[n:]...)
	}
}

// close records the rest.
func (t *typed) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.timer != nil {
		t.timer.Stop()
	}
	t.flush(true)
	if t.lost > 0 {
		_ = t.note(fmt.Sprintf("%d bytes more, which are not recorded", t.lost))
	}
}

func (a *attempt) isTouched() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.touched
}
