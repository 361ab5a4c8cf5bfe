package schema

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// envelope is an event as encoded by its codec. It is decoded here instead of by the codec, because
// a row needs only the body's fields and events of unregistered kinds must be accepted too.
type envelope struct {
	ID        int64           `json:"id"`
	Time      time.Time       `json:"time"`
	MonoUS    int64           `json:"mono_us"`
	Source    string          `json:"source"`
	Actor     string          `json:"actor"`
	Cause     *int64          `json:"cause"`
	Call      *event.Call     `json:"call"`
	TimeoutMS int64           `json:"timeout_ms"`
	Class     string          `json:"class"`
	Kind      string          `json:"kind"`
	Body      json.RawMessage `json:"body"`
	Blob      *event.Blob     `json:"blob"` // replaces a body that is too large
}

func (b *Builder) event(e *record.Entry, out *Batch) error {
	var w envelope
	if !w.scan(e.Data) {
		w = envelope{}
		if err := json.Unmarshal(e.Data, &w); err != nil {
			return err
		}
	}
	out.Events = append(out.Events, Event{
		Run: b.run, Trial: clean(e.Trial), Attempt: int32(e.Attempt), ID: w.ID, Time: w.Time.UTC(), MonoUS: w.MonoUS,
		Source: w.Source, Actor: w.Actor, Class: w.Class, Kind: w.Kind, Cause: w.Cause, Seq: e.Seq,
	})
	r := &out.Events[len(out.Events)-1]
	if c := w.Call; c != nil {
		r.Reply, r.CallID, r.Name = optional(c.Reply), optional(c.ID), optional(c.Name)
		r.CallIndex, r.CallOf = ptr(int32(c.Index)), ptr(int32(c.Of))
	}
	if w.TimeoutMS > 0 {
		r.TimeoutMS = ptr(w.TimeoutMS)
	}
	if w.Cause != nil {
		b.join(e, r, *w.Cause, out)
	}
	if w.Blob != nil {
		r.blob(RoleBody, w.Blob)
		return nil
	}
	body := scanBody(w.Class, w.Kind, w.Body)
	if body == nil {
		var err error
		if body, err = event.Default.DecodeBody(class(w.Class), w.Kind, w.Body); err != nil {
			out.Events = out.Events[:len(out.Events)-1]
			return fmt.Errorf("event %d: %w", w.ID, err)
		}
	}
	r.fill(body)
	return nil
}

func class(s string) event.Class {
	c, _ := event.ParseClass(s) // an unknown class has no registered kinds
	return c
}

// line returns a line's number, which a model wrote.
func line(n int) int32 { return int32(max(math.MinInt32, min(n, math.MaxInt32))) }

// fill copies the fields of a body to the columns.
func (r *Event) fill(body event.Body) {
	switch b := body.(type) {
	case event.Run:
		r.Command, r.Args, r.Dir, r.User = optional(b.Command), cleanAll(b.Args), optional(b.Dir), optional(b.User)
		if b.Input {
			r.Code = ptr("input")
		}
	case event.RunResult:
		r.ExitCode, r.Signal, r.TimedOut, r.OOM = ptr(int32(b.Code)), optional(b.Signal), &b.TimedOut, &b.OOM
		r.Output, r.Stderr = ptr(clean(b.Output)), optional(b.Stderr)
		r.OutBytes, r.ErrBytes, r.Truncated = &b.OutBytes, &b.ErrBytes, &b.Truncated
		r.Dir, r.WallMS = optional(b.Dir), &b.WallMS
		r.Text = optional(b.Prefix + b.Suffix)
		if b.Running {
			r.Code = ptr("running")
		}
		r.blob(RoleOutput, b.Blob)
	case event.Read:
		r.Path = optional(b.Path)
		for _, n := range b.Lines {
			r.Lines = append(r.Lines, line(n))
		}
	case event.Edit:
		r.Command, r.Path, r.Text, r.Old = optional(b.Command), optional(b.Path), optional(b.Text), optional(b.Old)
		if b.Command == event.EditInsert {
			r.Lines = []int32{line(b.Line)}
		}
	case event.Write:
		r.Path, r.Text = optional(b.Path), optional(b.Text)
		for _, n := range b.Lines {
			r.Lines = append(r.Lines, line(n))
		}
	case event.Viewed:
		r.Path, r.Output, r.Failed = optional(b.Path), ptr(clean(b.Text)), &b.Error
		r.blob(RoleOutput, b.Blob)
	case event.Edited:
		r.Path, r.Output, r.Failed = optional(b.Path), ptr(clean(b.Text)), &b.Error
	case event.Glob:
		r.Path, r.Text, r.Arguments = optional(b.Path), optional(b.Pattern), ptr(arguments(b))
	case event.Grep:
		r.Path, r.Text, r.Arguments = optional(b.Path), optional(b.Pattern), ptr(arguments(b))
	case event.Found:
		r.Path, r.Output, r.Failed = optional(b.Path), ptr(clean(b.Text)), &b.Error
	case event.ToolCall:
		r.Name, r.Arguments = optional(b.Name), optional(string(b.Args))
	case event.ToolResult:
		if b.Name != "" {
			r.Name = optional(b.Name)
		}
		r.parts(b.Parts)
		r.Failed, r.Data = &b.Error, optional(string(b.Data))
	case event.Think:
		r.Text = ptr(clean(b.Thought))
	case event.Finish:
		r.Text, r.Data = ptr(clean(b.Message)), optional(string(b.Outputs))
		if b.GaveUp {
			r.Code = ptr("gave_up")
		}
	case event.Invalid:
		r.Name, r.Arguments, r.Text = optional(b.Name), optional(b.Args), ptr(clean(b.Why))
	case event.Ack:
		r.Text = optional(b.Text)
	case event.Error:
		r.Code, r.Text, r.Failed = optional(b.Code), ptr(clean(b.Text)), ptr(true)
	case event.Lost:
		r.Text = ptr(clean(b.Why))
	case event.Message:
		r.parts(b.Parts)
	case event.System:
		r.Text, r.Args = ptr(clean(b.Text)), cleanAll(b.Tools)
	case event.Reply:
		r.Reply, r.Role, r.Model, r.Stop = optional(b.ID), optional(b.Role), optional(b.Model), optional(b.Stop)
		r.parts(b.Parts)
		r.Reasoning = optional(b.Reasoning)
		for _, c := range b.Calls {
			r.Calls = append(r.Calls, EventCall{clean(c.ID), clean(c.Name), clean(c.Args)})
		}
		if !b.Usage.Silent(len(b.Parts) == 0 && len(b.Calls) == 0 && b.Reasoning == "") {
			r.TokensIn, r.TokensOut = ptr(b.Usage.In), ptr(b.Usage.Out)
		}
		r.Cost = b.Usage.Cost
	case event.Put:
		r.Dir, r.OutBytes = optional(b.Dir), &b.Bytes
	case event.NetworkRefused:
		r.Role, r.Host, r.Code, r.Count = optional(b.Role), optional(b.Host), optional(b.Why), &b.Count
		if b.Port != 0 {
			r.Port = ptr(int32(b.Port))
		}
	case event.Late:
		r.Code, r.Data = optional(b.Was), optional(string(b.Body))
	case event.Info:
		r.Code, r.Text, r.Data = optional(b.What), optional(b.Text), optional(string(b.Data))
	case event.Browse:
		r.Command = optional(b.Code)
	case event.BrowseURL:
		r.URL = optional(b.URL)
	case event.Browsed:
		r.browsed(&b)
	case event.Unknown:
		r.Data = optional(string(b.Raw))
	default: // a kind registered later: keep everything
		if raw, err := json.Marshal(body); err == nil {
			r.Data = optional(string(raw))
		}
	}
}

func (r *Event) parts(ps []event.Part) {
	r.Text = ptr(clean(event.PlainText(ps)))
	for _, p := range ps {
		r.blob(RolePart, p.Blob)
	}
}

func (r *Event) blob(role string, b *event.Blob) {
	if b != nil {
		r.Blobs = append(r.Blobs, Blob{b.SHA256, clean(b.Type), b.Size, role})
	}
}

// browsed fills in a browser observation. Frequently used fields have columns; the rest is in data.
func (r *Event) browsed(b *event.Browsed) {
	r.Command, r.URL, r.Focused = optional(b.Action), optional(b.URL), optional(b.Focused)
	r.Error, r.Failed = optional(b.Error), ptr(b.Error != "")
	for i, p := range b.Pages {
		r.Pages = append(r.Pages, Page{clean(p.URL), clean(p.Title)})
		if i == b.Active {
			r.Title = ptr(clean(p.Title))
		}
	}
	var said []string
	for _, m := range b.Chat {
		said = append(said, m.Role+": "+m.Text)
	}
	r.Text = optional(strings.Join(said, "\n"))
	r.blob(RoleScreenshot, b.Screenshot)
	r.blob(RoleMarks, b.Marks)
	r.blob(RoleAX, b.AX)
	r.blob(RoleDOM, b.DOM)
	r.blob(RoleProperties, b.Properties)
	for i := range b.Downloads {
		r.blob(RoleDownload, b.Downloads[i].Blob)
	}
	rest := struct {
		Step       int                     `json:"step"`
		Done       bool                    `json:"done"`
		Elapsed    float64                 `json:"elapsed"`
		Chat       []event.BrowserChat     `json:"chat,omitempty"`
		Log        []event.BrowserLog      `json:"log,omitempty"`
		LogDropped int                     `json:"log_dropped,omitempty"`
		Downloads  []event.BrowserDownload `json:"downloads,omitempty"`
	}{b.Step, b.Done, b.Elapsed, b.Chat, b.Log, b.LogDropped, b.Downloads}
	if raw, err := json.Marshal(rest); err == nil {
		r.Data = optional(string(raw))
	}
}

// arguments returns an action as JSON.
func arguments(b event.Body) string {
	raw, err := json.Marshal(b)
	if err != nil {
		return "" // it is made of strings
	}
	return clean(string(raw))
}
