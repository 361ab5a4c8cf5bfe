package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/attach"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/internal/termsafe"
	"github.com/evalrun/evalrun/reports/text"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

type shellOptions struct {
	command, user, service string
	look, raw              bool
	args                   []string // the command, with its program
}

func (a *app) shellCommand() *cli.Command {
	var o shellOptions
	return &cli.Command{
		Name:      "shell",
		Usage:     "open a shell in the sandbox of a running trial, or in a fresh one of its task",
		ArgsUsage: "RUN TRIAL [-- COMMAND…]",
		Description: `If the trial is running, the shell is in its sandbox, beside the agent, whose time goes on. The trial's log notes who was
there, when, and what was typed (also passwords), and the trial gets the flag touched. The shell ends with the agent.
--look opens a copy of the sandbox instead, which the trial does not notice, where the driver can copy (docker).

If the trial is not running, the shell is in a fresh sandbox, as the trial's agent would find it. It belongs to no run,
nothing is recorded, and it is removed at the end.

TRIAL is a trial id, the beginning of one, or a task. A command after --, or with -c, runs without a terminal. The exit
code is that of the shell or command; 128+N if signal N ended it, 137 also if it was cut off. To leave a shell that does
not answer, type Enter, ~ and a dot.

What the sandbox writes is hostile: only text, colours and cursor movements reach your terminal, unless --raw is given.

Examples:
   evalrun shell runs/2026-11-21T093000Z-nightly 3f2a
   evalrun shell out 3f2a --look
   evalrun shell out 3f2a -c 'ps aux; df -h'
   evalrun shell out my-task -- cat /etc/os-release`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "command", Aliases: []string{"c"}, Usage: "run `TEXT` with sh, without a terminal",
				Destination: &o.command},
			&cli.BoolFlag{Name: "look", Usage: "open a copy of the running sandbox; the trial is not touched",
				Destination: &o.look},
			&cli.StringFlag{Name: "user", Usage: "be `USER` inside; default: the user of the agent's commands",
				Destination: &o.user},
			&cli.StringFlag{Name: "service", Usage: "enter the sidecar `NAME` of the sandbox", Destination: &o.service},
			&cli.BoolFlag{Name: "raw", Usage: "pass on all output as it is", Destination: &o.raw},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error { return a.shell(ctx, cmd, &o) },
	}
}

func (a *app) shell(ctx context.Context, cmd *cli.Command, o *shellOptions) error {
	args := cmd.Args().Slice()
	if len(args) < 2 {
		return usage("see "+cmd.FullName()+" --help", "%s needs a run folder and a trial", cmd.FullName())
	}
	path, word := args[0], args[1]
	if o.args = args[2:]; o.command != "" {
		if len(o.args) > 0 {
			return usage("", "-c and a command after -- exclude each other")
		}
		o.args = []string{"sh", "-c", o.command}
	}
	d, err := rundir.View(path)
	if err != nil {
		return folderError(err)
	}
	live, err := launch.LiveTrials(d)
	if err != nil && !errors.Is(err, attach.ErrNoSocket) {
		return &exitError{ExitUsage, err, ""}
	}
	trial, running, err := whichTrial(d.Plan(), live, word)
	if err != nil {
		return &exitError{ExitUsage, err, ""}
	}
	p, err := a.person(ctx, o)
	if err != nil {
		return err
	}
	defer p.close()
	switch {
	case o.look && running == nil:
		return usage("without --look, the shell is in a fresh sandbox of its task", "trial %s is not running, so there is nothing "+
			"to look at", trial)
	case o.look:
		return p.done(p.look(*running, o))
	case running != nil:
		return p.done(p.enter(d, *running, o))
	}
	return p.done(p.fresh(d, trial, o))
}

// whichTrial returns the trial that a word means; a running one is preferred.
func whichTrial(plan *record.Plan, live []harness.LiveTrial, word string) (id string, running *harness.LiveTrial,
	err error) {
	var hits []harness.LiveTrial
	for _, t := range live {
		_, task, _ := strings.Cut(t.Task, "/")
		if strings.HasPrefix(t.Trial, word) || t.Task == word || task == word {
			hits = append(hits, t)
		}
	}
	switch len(hits) {
	case 0:
	case 1:
		return hits[0].Trial, &hits[0], nil
	default:
		var lines []string
		for _, t := range hits[:min(len(hits), 12)] {
			lines = append(lines, fmt.Sprintf("  %s  %s · %s #%d", t.Trial, t.Arm, t.Task, t.Repeat))
		}
		return "", nil, fmt.Errorf("%q means %d running trials; name one:\n%s", word, len(hits), strings.Join(lines, "\n"))
	}
	id, err = text.Find(plan, word)
	if err != nil && len(plan.Arms) > 0 { // a fresh sandbox is that of the first arm
		for _, t := range plan.Tasks {
			if t.ID == word || t.Benchmark+"/"+t.ID == word {
				return record.TrialID(plan.Arms[0].ID, t.Digest, 1), nil, nil
			}
		}
	}
	return id, nil, err
}

// A person is the user's side of a shell.
type person struct {
	a           *app
	ctx         context.Context
	cancel      context.CancelCauseFunc
	interactive bool
	stdin       *os.File
	out, errs   io.Writer
	safe        []*termsafe.Writer // of out and errs; empty with raw
	mu          sync.Mutex
	restore     func() // of the terminal; nil: it is as it was
	begun       bool
}

var (
	errSignal = errors.New("stopped by a signal")
	errLeft   = errors.New("you have left")
)

// person prepares the user's terminal.
func (a *app) person(ctx context.Context, o *shellOptions) (*person, error) {
	p := &person{a: a, interactive: len(o.args) == 0, out: a.Stdout, errs: a.Stderr}
	p.stdin, _ = a.Stdin.(*os.File)
	if p.interactive && (!a.OutTTY || p.stdin == nil || !term.IsTerminal(int(p.stdin.Fd()))) {
		return nil, usage("run one command with -c, or after --", "an interactive shell needs a terminal")
	}
	if !o.raw {
		for _, w := range []*io.Writer{&p.out, &p.errs} {
			t := termsafe.NewWriter(*w)
			p.safe = append(p.safe, t)
			*w = t
		}
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	s := &stopper{todo: make(chan os.Signal, 2), over: make(chan struct{})}
	a.stop.Store(s)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-s.todo:
			case <-hup:
			case <-s.over:
				signal.Stop(hup)
				return
			}
			p.cook()
			p.cancel(errSignal)
		}
	}()
	context.AfterFunc(p.ctx, func() {
		if a.stop.CompareAndSwap(s, nil) {
			close(s.over)
		}
	})
	return p, nil
}

func (p *person) close() {
	p.cook()
	p.cancel(nil)
}

// cook gives the terminal back as it was.
func (p *person) cook() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.restore != nil {
		p.restore()
		p.restore = nil
	}
}

// A seat is where a command runs: what is typed goes there.
type seat struct {
	keys   io.WriteCloser
	resize func(sandbox.TerminalSize)
	leave  func()
}

// begins connects the user's terminal with a command that begins.
func (p *person) begins(s seat, format string, args ...any) {
	for i, x := range args {
		if s, ok := x.(string); ok { // names of tasks and arms are from others
			args[i] = progress.Clean(s)
		}
	}
	p.a.say(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun = true; p.ctx.Err() != nil || p.stdin == nil {
		s.keys.Close()
		return
	}
	if !p.interactive {
		go func() {
			_, _ = io.Copy(s.keys, p.stdin)
			s.keys.Close()
		}()
		return
	}
	fd := int(p.stdin.Fd())
	was, err := term.MakeRaw(fd)
	if err != nil {
		p.cancel(err)
		return
	}
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-sizes:
				s.resize(size())
			case <-over:
				return
			}
		}
	}()
	p.restore = func() {
		signal.Stop(sizes)
		close(over)
		for _, t := range p.safe[:min(len(p.safe), 1)] {
			p.a.Stdout.Write(t.Reset())
		}
		_ = term.Restore(fd, was)
	}
	go func() {
		k := &keys{w: s.keys, line: true, leave: s.leave}
		_, _ = io.Copy(k, p.stdin) // ends with the program
	}()
}

// size returns the size of the user's terminal.
func size() sandbox.TerminalSize {
	w, h, err := term.GetSize(1)
	if err != nil {
		return sandbox.TerminalSize{Rows: 24, Cols: 80}
	}
	return sandbox.TerminalSize{Rows: uint16(h), Cols: uint16(w)}
}

// keys passes on what is typed, and leaves at ~. after Enter.
type keys struct {
	w     io.Writer
	line  bool // nothing was typed after Enter
	tilde bool
	leave func()
}

func (k *keys) Write(b []byte) (int, error) {
	var out []byte
	for _, c := range b {
		switch {
		case k.tilde && c == '.':
			k.leave()
			return 0, errLeft
		case k.tilde:
			k.tilde = false
			if out = append(out, '~'); c != '~' { // ~~ is one
				out = append(out, c)
			}
		case k.line && c == '~':
			k.tilde = true
		default:
			out = append(out, c)
		}
		k.line = c == '\r' || c == '\n'
	}
	_, err := k.w.Write(out)
	return len(b), err
}

// kindOfTerminal is the variable TERM inside: one that images know, and whose sequences pass.
func (a *app) kindOfTerminal() string {
	switch t, _ := a.Env("TERM"); t {
	case "", "dumb":
		return "dumb"
	case "linux", "vt100", "vt220", "xterm", "screen", "tmux", "rxvt":
		return "xterm"
	}
	return "xterm-256color"
}

// An outcome is how a command has ended.
type outcome struct {
	code   int
	signal string
	err    error
}

// done returns what the program ends with.
func (p *person) done(x outcome) error {
	for _, t := range p.safe {
		if err := t.Close(); x.err == nil {
			x.err = err
		}
	}
	p.cook()
	left := context.Cause(p.ctx)
	switch {
	case errors.Is(left, errSignal):
		return &exitError{ExitStopped, nil, ""}
	case errors.Is(left, errLeft):
		p.a.say("you have left; the shell was ended")
		return &exitError{cutOff, nil, ""}
	case x.err != nil && p.begun:
		return &exitError{cutOff, fmt.Errorf("the shell ended: %w", x.err), ""}
	case x.err != nil:
		return &exitError{ExitUsage, x.err, ""}
	case x.signal != "":
		return &exitError{128 + signalNumber(x.signal), nil, ""}
	case x.code != 0:
		return &exitError{x.code, nil, ""}
	}
	return nil
}

// cutOff is the exit code of a shell that was cut off: that of a command that was killed.
const cutOff = 128 + int(syscall.SIGKILL)

// signalNumber returns a signal's number by its name.
func signalNumber(name string) int {
	names := []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL",
		"SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM"}
	return slices.Index(names, name) + 1
}

// enter runs the command in the sandbox of a running trial.
func (p *person) enter(d *rundir.Dir, t harness.LiveTrial, o *shellOptions) outcome {
	c, err := launch.Enter(d)
	if err != nil {
		return outcome{err: err}
	}
	defer c.Close()
	defer context.AfterFunc(p.ctx, func() { c.Close() })()
	req := attach.Request{Op: "enter", Trial: t.Trial, Service: o.service, User: o.user, Args: o.args,
		Terminal: p.interactive, Term: p.a.kindOfTerminal(), Size: size()}
	s := seat{keys: input{c}, resize: func(s sandbox.TerminalSize) { _ = c.Resize(s) }, leave: func() { p.cancel(errLeft) }}
	reply, err := c.Do(req, p.out, p.errs, func() {
		p.begins(s, "in the sandbox of trial %s (%s, %s), beside its agent. What you type is recorded, and the trial is "+
			"flagged %s%s", t.Trial, t.Task, t.Arm, record.Touched, p.howToLeave())
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errors.New("the evalrun that plays this run does not answer")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		err = errors.New("the evalrun that plays this run has ended")
	case err == nil && reply.Error != "":
		err = errors.New(reply.Error)
	}
	return outcome{reply.Code, reply.Signal, err}
}

func (p *person) howToLeave() string {
	if !p.interactive {
		return ""
	}
	return ". Leave with exit; if it does not answer, with Enter ~ ."
}

// input closes only the input of a client.
type input struct{ *attach.Client }

func (i input) Close() error { return i.CloseInput() }

// visit returns the command for a sandbox of this process, and the seat for it.
func (p *person) visit(o *shellOptions) (harness.Visit, seat) {
	r, w := io.Pipe()
	context.AfterFunc(p.ctx, func() { r.CloseWithError(io.ErrClosedPipe) })
	sizes := make(chan sandbox.TerminalSize)
	return harness.Visit{Service: o.service, User: o.user, Args: o.args, Terminal: p.interactive,
			Term: p.a.kindOfTerminal(), Size: size(), Resize: sizes, Stdin: r, Stdout: p.out, Stderr: p.errs},
		seat{keys: w, leave: func() { p.cancel(errLeft) }, resize: func(s sandbox.TerminalSize) {
			select {
			case sizes <- s:
			case <-p.ctx.Done():
			}
		}}
}

// fresh runs the command in a fresh sandbox.
func (p *person) fresh(d *rundir.Dir, trial string, o *shellOptions) outcome {
	v, s := p.visit(o)
	x, err := launch.Fresh(p.ctx, d, trial, v, p.a.options(), func(task string) {
		p.begins(s, "trial %s is not running: this is a fresh sandbox of %s, which is removed at the end%s", trial,
			task, p.howToLeave())
	})
	return outcome{x.Code, x.Signal, err}
}

// look runs the command in a copy of the sandbox of a running trial.
func (p *person) look(t harness.LiveTrial, o *shellOptions) outcome {
	if t.Machine == "" {
		return outcome{err: fmt.Errorf("trial %s: %w", t.Trial, harness.ErrNotNow)}
	}
	v, s := p.visit(o)
	x, err := launch.Look(p.ctx, t, v, p.a.options(), func() {
		p.begins(s, "a copy of the sandbox of trial %s (%s, %s) as it is now; it is removed at the end%s", t.Trial, t.Task,
			t.Arm, p.howToLeave())
	})
	return outcome{x.Code, x.Signal, err}
}

// trialWords returns the trials of the run on the command line, running ones first.
func trialWords(cmd *cli.Command) (out []word) {
	d, err := rundir.View(cmd.Args().First())
	if err != nil {
		return nil
	}
	live, _ := launch.LiveTrials(d)
	for _, t := range live {
		out = append(out, word{t.Trial, progress.Clean("running: " + t.Task + ", " + t.Arm)})
	}
	for _, t := range d.Plan().Tasks {
		out = append(out, word{t.ID, ""})
	}
	return out
}
