package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/webtext"
)

// answer executes one request. Its error ends the stage; errors in the request itself are reported
// to the program.
func (t *talk) answer(ctx context.Context, m message) error {
	if m.ID < 1 {
		return &Failure{Text: fmt.Sprintf("line %d of its output: %q needs an id, a number from 1, and has none", m.n,
			m.Type)}
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
		b, told := t.reportable(err)
		if !told {
			return err
		}
		out = errorMsg{Type: typeError, ID: m.ID, Error: b}
	}
	b, err := line(out)
	if err != nil {
		return fmt.Errorf("encoding an answer to line %d: %w", m.n, err)
	}
	// A write error shows at the next read: the program has gone, or its time limit will end it.
	if _, err := t.p.stdin.Write(b); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// reportable returns the error message for the program, if the program may see the error.
func (t *talk) reportable(err error) (errBody, bool) {
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
	// the event only says where the page's content is stored, so add the text
	if b, ok := obs.Body.(event.Browsed); ok {
		if res.Text, err = webtext.Look(t.s.Log, b).Text(ctx, webtext.TextOptions{}); err != nil {
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

// action decodes a body, strictly if its kind is one of the shared kinds.
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
		if err == nil && !b.Session && (b.Command == "") == (len(b.Args) == 0) {
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

// parseCall converts a call of a tool to the tool's action, as for an agent inside evalrun.
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
		ID: r.ID, Role: q.Role, Model: r.Model, Parts: r.Parts, Reasoning: r.Reasoning, Calls: r.Calls, Stop: r.Stop,
		Usage: r.Usage, Opaque: r.Opaque,
	}
	l := budget(t.s)
	res.Left = &l
	return res, nil
}

// ours lists the kinds of notes that record evalrun's own actions. Agents may not write them.
var ours = map[string]bool{"reply": true, "put": true, "late": true, "lagged": true}

func (t *talk) note(ctx context.Context, m message) (res resultMsg, err error) {
	var q noteMsg
	if r := strict(m.line, &q); r != nil {
		return res, r
	}
	if q.Kind == "" || ours[q.Kind] {
		return res, refuse("note: kind %q is not for agents; use info, message, system, or a kind of your own such "+
			"as vendor.kind", q.Kind)
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
	// Only blobs named in this session's events may be read, because the store is shared by the
	// whole run.
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
				continue // the program's own notes may name any blob
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
		case event.Viewed:
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
			return agent.Answer{}, &Failure{
				Text: fmt.Sprintf("line %d of its output: finish: an answer is text; it has a blob", m.n)}
		}
	}
	err := t.stays
	if err == nil {
		e := event.New(event.FromAgent, event.Finish{Message: q.Answer.Text(), Outputs: q.Answer.Outputs,
			GaveUp: q.Answer.GaveUp != ""})
		e.Actor = t.s.Actor
		_, err = t.s.Step(ctx, e)
	}
	if errors.Is(err, agent.ErrDone) {
		err = nil
	}
	// The program may clean up; then it is stopped.
	t.p.stdin.Close()
	select {
	case <-t.p.gone:
		if t.p.err == nil && (t.p.exit.Code != 0 || t.p.exit.Signal != "") {
			t.s.Slog.Debug("agent program after finish", "exit", "it "+t.p.exit.How(0))
		}
	case <-time.After(exitGrace):
	case <-ctx.Done():
	}
	return q.Answer, err
}
