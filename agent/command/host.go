package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Limits of the protocol, documented in docs/protocol.md.
const (
	maxLine    = 16 << 20         // bytes of a message from the program
	maxWaiting = 64               // messages waiting to be handled
	maxQueued  = 32 << 20         // bytes of those messages
	maxHistory = 8 << 20          // bytes of the events in the start message
	maxBlob    = 16 << 20         // bytes of a blob that is sent
	maxText    = 1 << 20          // bytes of a page's text
	startTime  = 60 * time.Second // time to send start
	limitGrace = 10 * time.Second // time to send finish after a limit
	exitGrace  = 5 * time.Second  // time to exit after finish
)

// host is a program on the host that speaks the protocol.
type host struct {
	Config
	machine Machine
	stages  atomic.Int64
}

// Run plays one stage with a new program. Before it returns, it closes the program's machine, which
// kills every process that the program started.
func (a *host) Run(ctx context.Context, s *agent.Session) (ans agent.Answer, err error) {
	if ctx.Err() != nil {
		return agent.Answer{}, context.Cause(ctx)
	}
	stage := a.stages.Add(1)
	if a.machine == nil {
		return agent.Answer{}, errors.New("no machine for an agent program on the host was given")
	}
	sb, err := a.machine(ctx)
	if err != nil {
		return agent.Answer{}, err
	}
	defer func() {
		if cerr := sb.Close(); cerr != nil {
			s.Slog.Warn("closing the machine of an agent program", "err", cerr)
		}
	}()
	p := start(ctx, sb, a.command(stage, s.Seed))
	t := &talk{p: p, s: s, stage: stage, prompt: a.Prompt, options: a.Options, startTime: a.start}
	ans, err = t.run(ctx)
	p.stop()
	if text, cut := p.stderr.text(); text != "" {
		note := event.New(event.FromAgent, event.Info{What: "agent_stderr", Text: text})
		if cut > 0 {
			note.Body = event.Info{What: "agent_stderr", Text: text, Data: fmt.Appendf(nil, `{"left_out":%d}`, cut)}
		}
		note.Actor = s.Actor
		if _, lerr := s.Log.Append(context.WithoutCancel(ctx), note); lerr != nil && err == nil {
			err = lerr
		}
	}
	return ans, err
}

// command gives the program few variables: of evalrun's own environment it sees only what the
// configuration names.
func (a *host) command(stage int64, seed uint64) sandbox.Command {
	values := map[string]string{"files": a.Files, "stage": strconv.FormatInt(stage, 10),
		"seed": strconv.FormatUint(seed, 10)}
	c := sandbox.Command{Env: map[string]string{
		// HOME and TMPDIR are set by the machine
		"PATH": os.Getenv("PATH"), "LANG": "C.UTF-8", "EVALRUN_PROTOCOL": strconv.Itoa(Version),
	}}
	if lang, ok := os.LookupEnv("LANG"); ok {
		c.Env["LANG"] = lang
	}
	for _, name := range a.PassEnv {
		if v, ok := os.LookupEnv(name); ok {
			c.Env[name] = v
		}
	}
	for k, v := range a.Env {
		c.Env[k] = fill(v, values)
	}
	for _, arg := range a.Config.Run {
		c.Args = append(c.Args, fill(arg, values))
	}
	return c
}

// A program is a running program with its streams.
type program struct {
	kill   context.CancelFunc
	stdin  *io.PipeWriter
	stdout *io.PipeReader
	stderr *tail
	gone   chan struct{} // closed when the program has ended; exit and err are set by then
	exit   sandbox.Exit
	err    error
}

func start(ctx context.Context, sb sandbox.Sandbox, c sandbox.Command) *program {
	ctx, kill := context.WithCancel(ctx)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &program{kill: kill, stdin: inW, stdout: outR, stderr: &tail{max: 64 << 10}, gone: make(chan struct{})}
	c.Stdin, c.Stdout, c.Stderr = inR, outW, p.stderr
	// Close both pipes, so that neither side waits for the other after it has gone.
	context.AfterFunc(ctx, func() {
		inW.CloseWithError(context.Cause(ctx))
		outR.CloseWithError(context.Cause(ctx))
	})
	go func() {
		defer close(p.gone)
		p.exit, p.err = sb.Exec(ctx, c)
		outW.Close()
		inR.Close()
	}()
	return p
}

// stop kills the program and waits for its end.
func (p *program) stop() {
	p.kill()
	<-p.gone
}

// A talk is the conversation of one stage.
type talk struct {
	p         *program
	s         *agent.Session
	stage     int64
	prompt    string
	options   json.RawMessage
	startTime time.Duration
	stays     error // a limit or the end of the episode; only finish may follow
}

// A message holds the fields that all messages from the program have.
type message struct {
	Type string `json:"type"`
	ID   int64  `json:"id"`
	line []byte
	n    int // line number
}

func (t *talk) run(ctx context.Context) (agent.Answer, error) {
	in := newInput(t.p.stdout)
	go in.read()

	// The program may exit early while the first message is being sent. Its own message matters
	// then, not the failed write.
	hello, err := t.hello(ctx)
	if err != nil {
		return agent.Answer{}, err
	}
	sent := make(chan error, 1)
	go func() { _, err := t.p.stdin.Write(hello); sent <- err }()
	d := t.startTime
	if d == 0 {
		d = startTime
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case m, ok := <-in.messages:
		if !ok {
			return agent.Answer{}, t.over(ctx, in, "before it said start")
		}
		if err := t.welcome(m); err != nil {
			return agent.Answer{}, err
		}
	case <-timer.C:
		return agent.Answer{}, &Failure{Text: fmt.Sprintf("it did not say start within %s", d),
			Stderr: t.p.stderr.last()}
	case <-ctx.Done():
		return agent.Answer{}, context.Cause(ctx)
	}
	select {
	case <-sent:
	case <-t.p.gone:
	case <-ctx.Done():
		return agent.Answer{}, context.Cause(ctx)
	}

	var late <-chan time.Time
	for {
		select {
		case <-in.flooded: // do not execute the earlier messages, of which there may be many
			return agent.Answer{}, &Failure{Text: in.err.Error(), Stderr: t.p.stderr.last()}
		default:
		}
		select {
		case m, ok := <-in.messages:
			if !ok {
				err := t.over(ctx, in, "without finish")
				if t.limited() {
					err = t.stays // the limit came first
				}
				return agent.Answer{}, err
			}
			if m.Type == typeFinish {
				return t.finish(ctx, m)
			}
			err := t.answer(ctx, m)
			in.handled(m)
			if err != nil {
				return agent.Answer{}, err
			}
			if t.limited() && late == nil {
				late = time.After(limitGrace)
			}
		case <-late:
			return agent.Answer{}, t.stays
		case <-ctx.Done():
			return agent.Answer{}, context.Cause(ctx)
		}
	}
}

func (t *talk) hello(ctx context.Context) ([]byte, error) {
	m := startMsg{
		Type: typeStart, Protocol: Version, Goal: t.s.Goal, Prompt: t.prompt, Stage: t.stage, Actor: t.s.Actor,
		Seed:  t.s.Seed,
		Kinds: kinds(t.s), Tools: []model.Tool{}, Left: budget(t.s), Options: t.options, History: []json.RawMessage{},
	}
	for _, tool := range t.s.Tools() {
		m.Tools = append(m.Tools, model.Tool{Name: tool.Name, Description: tool.Description, Schema: tool.Schema})
	}
	if t.s.Models != nil {
		if c, err := t.s.Model("main"); err == nil {
			i := c.Info()
			m.Model = &modelInfo{Vendor: i.Vendor, Name: i.Name, Window: i.Window, Images: i.Images, Tools: i.Tools}
		}
	}
	size := 0
	for e, err := range t.s.Log.Events(0) {
		if err != nil {
			return nil, fmt.Errorf("reading the session's log: %w", err)
		}
		b, err := encode(e)
		if err != nil {
			return nil, fmt.Errorf("reading the session's log: %w", err)
		}
		m.History = append(m.History, b)
		for size += len(b); size > maxHistory; m.HistoryFrom++ {
			size -= len(m.History[0])
			m.History = m.History[1:]
		}
	}
	return line(m)
}

func (t *talk) welcome(m message) error {
	if m.Type != typeStart {
		return &Failure{Text: fmt.Sprintf("line %d of its output is %q; the first message must be start", m.n, m.Type)}
	}
	var h hello
	if r := strict(m.line, &h); r != nil {
		return &Failure{Text: fmt.Sprintf("line %d of its output: start: %s", m.n, r.Text)}
	}
	if h.Protocol != Version {
		return &Failure{Text: fmt.Sprintf("it speaks protocol %d, and this evalrun speaks %d only", h.Protocol,
			Version)}
	}
	t.s.Slog.Debug("agent program", "name", h.Name, "version", h.Version)
	return nil
}

// over returns the reason why there is no further message: the program ended, or wrote something
// that is not a message.
func (t *talk) over(ctx context.Context, in *input, when string) error {
	if in.err != nil && !errors.Is(in.err, io.EOF) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &Failure{Text: in.err.Error(), Stderr: t.p.stderr.last()}
	}
	<-t.p.gone // output normally ends with the program; one that closed its output is found hanging
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.p.err != nil {
		return t.p.err
	}
	return &Failure{Text: "it " + t.p.exit.How(0) + " " + when + fmt.Sprintf(", after %d lines of output", in.lines),
		Stderr: t.p.stderr.last()}
}

func (t *talk) limited() bool { return errors.As(t.stays, new(*agent.LimitError)) }
