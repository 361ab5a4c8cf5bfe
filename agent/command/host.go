package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/browser"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Bounds of the protocol, as docs/protocol.md says.
const (
	maxLine    = 16 << 20         // bytes of a message from the program
	maxWaiting = 64               // messages that wait to be handled
	maxQueued  = 32 << 20         // their bytes
	maxHistory = 8 << 20          // bytes of the events in start
	maxBlob    = 16 << 20         // bytes of a blob that is sent
	maxText    = 1 << 20          // bytes of a page's text
	startTime  = 60 * time.Second // to say start
	limitGrace = 10 * time.Second // to say finish after a limit
	exitGrace  = 5 * time.Second  // to exit after finish
)

// host is a program beside evalrun that speaks the protocol.
type host struct {
	Config
	machine Machine
	stages  atomic.Int64
}

// Run plays one stage with a program of its own. Whatever way it returns, the program's machine is closed, and with it all that
// the program started.
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
	t := &talk{p: p, s: s, stage: stage, options: a.Options, startTime: a.start}
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

// command gives the program few variables: what it finds of evalrun's own environment is what the configuration names.
func (a *host) command(stage int64, seed uint64) sandbox.Command {
	values := map[string]string{"files": a.Files, "stage": strconv.FormatInt(stage, 10), "seed": strconv.FormatUint(seed, 10)}
	c := sandbox.Command{Env: map[string]string{
		"PATH": os.Getenv("PATH"), "LANG": "C.UTF-8", "EVALRUN_PROTOCOL": strconv.Itoa(Version), // HOME and TMPDIR are the machine's
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

// A program is a running one, with its streams.
type program struct {
	kill   context.CancelFunc
	stdin  *io.PipeWriter
	stdout *io.PipeReader
	stderr *tail
	gone   chan struct{} // closed when it has ended; exit and err are set then
	exit   sandbox.Exit
	err    error
}

func start(ctx context.Context, sb sandbox.Sandbox, c sandbox.Command) *program {
	ctx, kill := context.WithCancel(ctx)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &program{kill: kill, stdin: inW, stdout: outR, stderr: &tail{max: 64 << 10}, gone: make(chan struct{})}
	c.Stdin, c.Stdout, c.Stderr = inR, outW, p.stderr
	// Neither side may be left waiting on a pipe when the other has gone.
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

// stop ends the program and waits for that.
func (p *program) stop() {
	p.kill()
	<-p.gone
}

// A talk is one stage's conversation.
type talk struct {
	p         *program
	s         *agent.Session
	stage     int64
	options   json.RawMessage
	startTime time.Duration
	stays     error // a limit or the end of the episode: only finish may follow
}

// A message from the program, as far as every message is alike.
type message struct {
	Type string `json:"type"`
	ID   int64  `json:"id"`
	line []byte
	n    int // number of the line
}

func (t *talk) run(ctx context.Context) (agent.Answer, error) {
	in := newInput(t.p.stdout)
	go in.read()

	// The first message goes out while the program may be on its way to an early end: what it says counts, not that it cannot
	// be written to.
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
		return agent.Answer{}, &Failure{Text: fmt.Sprintf("it did not say start within %s", d), Stderr: t.p.stderr.last()}
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
		case <-in.flooded: // what it sent before is not carried out any more: there may be a lot
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
		Type: typeStart, Protocol: Version, Goal: t.s.Goal, Stage: t.stage, Actor: t.s.Actor, Seed: t.s.Seed,
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
		return &Failure{Text: fmt.Sprintf("it speaks protocol %d, and this evalrun speaks %d only", h.Protocol, Version)}
	}
	t.s.Slog.Debug("agent program", "name", h.Name, "version", h.Version)
	return nil
}

// over says why there is no further message: the program ended, or what it wrote is no message.
func (t *talk) over(ctx context.Context, in *input, when string) error {
	if in.err != nil && !errors.Is(in.err, io.EOF) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &Failure{Text: in.err.Error(), Stderr: t.p.stderr.last()}
	}
	<-t.p.gone // its output ends with it: a program that closed it by itself is found hanging
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.p.err != nil {
		return t.p.err
	}
	return &Failure{Text: ended(t.p.exit) + " " + when + fmt.Sprintf(", after %d lines of output", in.lines), Stderr: t.p.stderr.last()}
}

func (t *talk) limited() bool { return errors.As(t.stays, new(*agent.LimitError)) }

// answer carries one request out. Its error ends the stage; what the program did wrong in a request is told to it.
func (t *talk) answer(ctx context.Context, m message) error {
	if m.ID < 1 {
		return &Failure{Text: fmt.Sprintf("line %d of its output: %q needs an id, a number from 1, and has none", m.n, m.Type)}
	}
	var res resultMsg
	err := t.stays
	if err == nil || m.Type == typeBlob || m.Type == typeNote {
		switch m.Type {
		case typeStep:
			res, err = t.step(ctx, m)
		case typeModel:
			res, err = t.model(ctx, m)
		case typeNote:
			res, err = t.note(ctx, m)
		case typeBlob:
			res, err = t.blob(ctx, m)
		default:
			err = refuse("no such type of message: %q; known are step, model, note, blob, finish", m.Type)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var out any = &res
	res.Type, res.ID = typeResult, m.ID
	if err != nil {
		b, told := t.tell(err)
		if !told {
			return err
		}
		out = errorMsg{Type: typeError, ID: m.ID, Error: b}
	}
	b, err := line(out)
	if err != nil {
		return fmt.Errorf("encoding an answer to line %d: %w", m.n, err)
	}
	// An error of writing shows at the next read: the program has gone, or will be found hanging by its limit.
	if _, err := t.p.stdin.Write(b); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// tell says whether an error is the program's to know, and how.
func (t *talk) tell(err error) (errBody, bool) {
	var (
		r     *refusal
		limit *agent.LimitError
		mod   *model.Error
	)
	switch {
	case errors.As(err, &r):
		return r.errBody, true
	case errors.As(err, &limit):
		t.stays = err
		return errBody{Class: errLimit, Kind: limit.Kind, Text: limit.Error()}, true
	case errors.Is(err, agent.ErrDone):
		return errBody{Class: errOver, Text: err.Error()}, true
	case errors.As(err, &mod) && (mod.Class == model.Refused || mod.Class == model.Context):
		return errBody{Class: errModel, Kind: mod.Class, Text: mod.Error()}, true
	}
	return errBody{}, false
}

func (t *talk) step(ctx context.Context, m message) (res resultMsg, err error) {
	var q stepMsg
	if r := strict(m.line, &q); r != nil {
		return res, r
	}
	if q.Kind == "" {
		return res, refuse("step: no kind")
	}
	if q.Kind == typeFinish {
		return res, refuse("step: an agent ends with a message of type finish")
	}
	if q.TimeoutMS < 0 {
		return res, refuse("step: timeout_ms: %d is below 0", q.TimeoutMS)
	}
	body, err := action(q.Kind, q.Body)
	if err != nil {
		return res, refuse("step: %s: %s", q.Kind, strings.TrimPrefix(err.Error(), "json: "))
	}
	if call, ok := body.(event.ToolCall); ok {
		if body, err = parseCall(t.s, call); err != nil {
			body = event.Invalid{Name: call.Name, Args: string(call.Args), Why: err.Error()}
		}
	}
	e := event.New(event.FromAgent, body)
	e.Actor, e.Timeout, e.Call = t.s.Actor, time.Duration(q.TimeoutMS)*time.Millisecond, q.Call
	obs, err := t.s.Step(ctx, e)
	switch {
	case errors.Is(err, agent.ErrDone) && obs.Body != nil:
		t.stays, res.Done = agent.ErrDone, true
	case err != nil:
		return res, err
	}
	if res.Event, err = encode(obs); err != nil {
		return res, fmt.Errorf("encoding an observation: %w", err)
	}
	if b, ok := obs.Body.(event.Browsed); ok { // of the page itself the event only says where it is kept
		if res.Text, err = browser.Look(t.s.Log, b).Text(ctx, browser.TextOptions{}); err != nil {
			return res, err
		}
		if len(res.Text) > maxText {
			res.Text = strings.ToValidUTF8(res.Text[:maxText], "") + "\n[cut; the whole tree is in the blob ax]\n"
		}
	}
	l := budget(t.s)
	res.Left = &l
	return res, nil
}

// action decodes a body, strictly where its kind is one of the shared ones.
func action(kind string, raw json.RawMessage) (event.Body, error) {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	switch kind {
	case "run":
		var b event.Run
		err := dec.Decode(&b)
		if err == nil && (b.Command == "") == (len(b.Args) == 0) {
			err = errors.New("want either command or args")
		}
		return b, err
	case "tool":
		var b event.ToolCall
		err := dec.Decode(&b)
		return b, err
	case "think":
		var b event.Think
		err := dec.Decode(&b)
		return b, err
	}
	return event.Default.DecodeBody(event.Action, kind, raw)
}

// parseCall makes a call of a tool the action that the tool means by it, as an agent inside evalrun would.
func parseCall(s *agent.Session, call event.ToolCall) (event.Body, error) {
	for _, tool := range s.Tools() {
		if tool.Name == call.Name {
			if tool.Parse == nil {
				return call, nil
			}
			return tool.Parse(call.Args)
		}
	}
	return nil, fmt.Errorf("no tool is called %q", call.Name)
}

func (t *talk) model(ctx context.Context, m message) (res resultMsg, err error) {
	var q modelMsg
	if r := strict(m.line, &q); r != nil {
		return res, r
	}
	if q.Role == "" {
		q.Role = "main"
	}
	if len(q.Messages) == 0 {
		return res, refuse("model: no messages")
	}
	for i, msg := range q.Messages {
		switch msg.Role {
		case model.System, model.User, model.Assistant, model.ToolRole:
		default:
			return res, refuse("model: messages[%d]: role %q; known are system, user, assistant, tool", i, msg.Role)
		}
	}
	if t.s.Models == nil {
		return res, refuse("model: this arm has no model")
	}
	c, err := t.s.Model(q.Role)
	if err != nil {
		return res, refuse("model: %v", err)
	}
	r, err := c.Generate(ctx, &model.Request{Messages: q.Messages, Tools: q.Tools, Choice: q.Choice, Params: q.Params})
	if err != nil {
		return res, err
	}
	res.Reply = &event.Reply{
		ID: r.ID, Role: q.Role, Model: r.Model, Parts: r.Parts, Reasoning: r.Reasoning, Calls: r.Calls, Stop: r.Stop, Usage: r.Usage, Opaque: r.Opaque,
	}
	l := budget(t.s)
	res.Left = &l
	return res, nil
}

// ours are kinds of notes that say what evalrun did; an agent may not write them.
var ours = map[string]bool{"reply": true, "put": true, "late": true, "lagged": true}

func (t *talk) note(ctx context.Context, m message) (res resultMsg, err error) {
	var q noteMsg
	if r := strict(m.line, &q); r != nil {
		return res, r
	}
	if q.Kind == "" || ours[q.Kind] {
		return res, refuse("note: kind %q is not for agents; use info, message, system, or a kind of your own such as vendor.kind", q.Kind)
	}
	body, err := event.Default.DecodeBody(event.Note, q.Kind, q.Body)
	if err != nil {
		return res, refuse("note: %v", err)
	}
	if len(q.Body) > event.MaxInline {
		return res, refuse("note: body has %d bytes; at most %d are taken", len(q.Body), int64(event.MaxInline))
	}
	e := event.New(event.FromAgent, body)
	e.Actor = t.s.Actor
	e, err = t.s.Log.Append(ctx, e)
	if err != nil {
		return res, err
	}
	res.Event, err = encode(e)
	return res, err
}

func (t *talk) blob(ctx context.Context, m message) (res resultMsg, err error) {
	var q blobMsg
	if r := strict(m.line, &q); r != nil {
		return res, r
	}
	// Only what this session's events name may be read: the store is shared by the whole run.
	b, ok := t.named(q.SHA256)
	if !ok {
		return res, refuse("blob: no event of this session names %q", q.SHA256)
	}
	if b.Size > maxBlob {
		return res, refuse("blob: it has %d bytes; at most %d are sent", b.Size, int64(maxBlob))
	}
	r, err := t.s.Log.OpenBlob(ctx, b)
	if err != nil {
		return res, fmt.Errorf("opening blob %s: %w", b.SHA256, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxBlob))
	if err != nil {
		return res, fmt.Errorf("reading blob %s: %w", b.SHA256, err)
	}
	res.Media, res.Data = b.Type, &data
	return res, nil
}

func (t *talk) named(sum string) (event.Blob, bool) {
	for _, p := range t.s.Goal.Parts {
		if p.Blob != nil && p.Blob.SHA256 == sum {
			return *p.Blob, true
		}
	}
	if len(sum) != 64 {
		return event.Blob{}, false
	}
	for e, err := range t.s.Log.Events(0) {
		if err != nil {
			return event.Blob{}, false
		}
		if e.Source == event.FromAgent && e.Body.Class() != event.Action {
			if _, ok := e.Body.(event.Reply); !ok {
				continue // the program's own notes name what they like
			}
		}
		var parts []event.Part
		switch b := e.Body.(type) {
		case event.Browsed:
			for _, x := range []*event.Blob{b.Screenshot, b.Marks, b.AX, b.DOM, b.Properties} {
				parts = append(parts, event.Part{Blob: x})
			}
			for _, d := range b.Downloads {
				parts = append(parts, event.Part{Blob: d.Blob})
			}
		case event.RunResult:
			parts = []event.Part{{Blob: b.Blob}}
		case event.ToolResult:
			parts = b.Parts
		case event.Message:
			parts = b.Parts
		case event.Reply:
			parts = b.Parts
		}
		for _, p := range parts {
			if p.Blob != nil && p.Blob.SHA256 == sum {
				return *p.Blob, true
			}
		}
	}
	return event.Blob{}, false
}

func (t *talk) finish(ctx context.Context, m message) (agent.Answer, error) {
	var q finishMsg
	if r := strict(m.line, &q); r != nil {
		return agent.Answer{}, &Failure{Text: fmt.Sprintf("line %d of its output: finish: %s", m.n, r.Text)}
	}
	for _, p := range q.Answer.Parts {
		if p.Blob != nil {
			return agent.Answer{}, &Failure{Text: fmt.Sprintf("line %d of its output: finish: an answer is text; it has a blob", m.n)}
		}
	}
	err := t.stays
	if err == nil {
		e := event.New(event.FromAgent, event.Finish{Message: q.Answer.Text(), Outputs: q.Answer.Outputs, GaveUp: q.Answer.GaveUp != ""})
		e.Actor = t.s.Actor
		_, err = t.s.Step(ctx, e)
	}
	if errors.Is(err, agent.ErrDone) {
		err = nil
	}
	// It may put its things away; then it is ended.
	t.p.stdin.Close()
	select {
	case <-t.p.gone:
		if t.p.err == nil && (t.p.exit.Code != 0 || t.p.exit.Signal != "") {
			t.s.Slog.Debug("agent program after finish", "exit", ended(t.p.exit))
		}
	case <-time.After(exitGrace):
	case <-ctx.Done():
	}
	return q.Answer, err
}

// An input reads the program's messages.
type input struct {
	r        *bufio.Reader
	messages chan message  // closed at the end; then err and lines are set
	flooded  chan struct{} // closed when too many messages wait; then err is set
	queued   atomic.Int64  // bytes that wait to be handled
	err      error
	lines    int
}

func newInput(r io.Reader) *input {
	return &input{r: bufio.NewReaderSize(r, 64<<10), messages: make(chan message, maxWaiting), flooded: make(chan struct{})}
}

func (in *input) handled(m message) { in.queued.Add(-int64(len(m.line))) }

func (in *input) read() {
	defer close(in.messages)
	for {
		b, err := in.line()
		if err != nil {
			in.err = err
			return
		}
		m, err := in.parse(b)
		if err != nil {
			in.err = err
			return
		}
		if m.Type == "" {
			continue
		}
		if in.queued.Add(int64(len(b))) > maxQueued && len(in.messages) > 0 {
			defer close(in.flooded)
			in.err = fmt.Errorf("line %d of its output: more than %d MiB of messages wait for their answers; read the answers", in.lines, maxQueued>>20)
			return
		}
		select {
		case in.messages <- m:
		default:
			defer close(in.flooded)
			in.err = fmt.Errorf("line %d of its output: more than %d messages wait for their answers; read the answers", in.lines, maxWaiting)
			return
		}
		if m.Type == typeFinish { // nothing that follows counts
			in.err = io.EOF
			io.Copy(io.Discard, in.r)
			return
		}
	}
}

// line reads one line. The last one may lack its line break.
func (in *input) line() ([]byte, error) {
	var out []byte
	for {
		b, err := in.r.ReadSlice('\n')
		out = append(out, b...)
		if len(out) > maxLine {
			return nil, fmt.Errorf("line %d of its output is longer than %d MiB", in.lines+1, maxLine>>20)
		}
		switch {
		case err == nil:
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(out)) > 0:
		default:
			return nil, err
		}
		in.lines++
		return bytes.TrimRight(out, "\r\n"), nil
	}
}

// parse reads what every message has. An empty line is no message and no mistake.
func (in *input) parse(b []byte) (message, error) {
	m := message{line: b, n: in.lines}
	if len(bytes.TrimSpace(b)) == 0 {
		return m, nil
	}
	const hint = "; its output is for messages alone, print to stderr"
	switch {
	case bytes.IndexByte(b, 0) >= 0:
		return m, fmt.Errorf("line %d of its output has a NUL byte: %s%s", in.lines, excerpt(b), hint)
	case !utf8.Valid(b):
		return m, fmt.Errorf("line %d of its output is not UTF-8: %s%s", in.lines, excerpt(b), hint)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		if !json.Valid(b) {
			return m, fmt.Errorf("line %d of its output is not JSON: %s%s", in.lines, excerpt(b), hint)
		}
		return m, fmt.Errorf("line %d of its output is not a message: %s; a message is an object with type, and id where it is a request", in.lines, excerpt(b))
	}
	if m.Type == "" {
		return m, fmt.Errorf("line %d of its output is a message without type: %s", in.lines, excerpt(b))
	}
	return m, nil
}
