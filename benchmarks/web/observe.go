package web

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// Bounds of what a page can put into an event; all of it may be hostile. What agents read of a page
// is in the blobs.
const (
	maxURL    = 8 << 10
	maxTitle  = 1 << 10
	maxAction = 64 << 10
	maxError  = 64 << 10
	maxChat   = 64 << 10
	maxLog    = 200 // messages
	maxPages  = 100
)

// record stores an observation in e.last. The caller sets Done.
func (e *Episode) record(ctx context.Context, o *browsergym.Observation) error {
	b := event.Browsed{
		URL: cut(o.URL, maxURL), Active: o.Active, Focused: cut(o.Focused, maxTitle),
		Action: cut(o.LastAction, maxAction), Error: cut(o.LastError, maxError),
		Elapsed: o.Elapsed, Step: e.steps,
	}
	for i, u := range o.URLs {
		if i == maxPages {
			break
		}
		b.Pages = append(b.Pages, event.BrowserPage{URL: cut(u, maxURL), Title: cut(o.Titles[i], maxTitle)})
	}
	for _, m := range o.Chat[min(e.chatSeen, len(o.Chat)):] {
		b.Chat = append(b.Chat, event.BrowserChat{Role: m.Role, Text: cut(m.Text, maxChat), Time: m.Time})
	}
	e.chatSeen = len(o.Chat)
	e.end.recordChat(o.Chat)

	if err := e.blobs(ctx, o, &b); err != nil {
		return fmt.Errorf("keeping an observation: %w", err)
	}
	if c := e.env.Context(); c != nil {
		all, dropped := c.Messages()
		if n := len(all) - maxLog; n > 0 {
			all, dropped = all[:maxLog], dropped+n
		}
		for _, m := range all {
			x := event.BrowserLog{Kind: m.Kind, Text: strings.ToValidUTF8(m.Text, "�"), URL: cut(m.URL, maxURL)}
			if e.c.Hide == nil || !e.c.Hide(x) {
				b.Log = append(b.Log, x)
			}
		}
		b.LogDropped = dropped
		var err error
		if b.Downloads, err = e.files.take(ctx, e.c.Host.Log(), c.Downloads()); err != nil {
			return fmt.Errorf("keeping a download: %w", err)
		}
	}
	e.last = b
	return nil
}

// blobs puts what is large beside the event. The log keeps equal contents once.
func (e *Episode) blobs(ctx context.Context, o *browsergym.Observation, b *event.Browsed) (err error) {
	log := e.c.Host.Log()
	put := func(kind string, content []byte) *event.Blob {
		if err != nil {
			return nil
		}
		var x event.Blob
		if x, err = log.PutBlob(ctx, kind, bytes.NewReader(content)); err != nil {
			return nil
		}
		return &x
	}
	asJSON := func(v any) []byte {
		raw, merr := json.Marshal(v)
		if err == nil {
			err = merr
		}
		return raw
	}
	if len(o.Screenshot) > 0 {
		b.Screenshot = put("image/png", o.Screenshot)
		if e.c.Record.SOM && o.Properties != nil {
			var marked []byte
			if marked, err = Marked(o.Screenshot, o.Properties); err == nil {
				b.Marks = put("image/png", marked)
			}
		}
	}
	if o.AX != nil {
		b.AX = put("application/json", asJSON(o.AX))
	}
	if o.DOM != nil {
		b.DOM = put("application/json", asJSON(o.DOM))
	}
	if o.Properties != nil {
		b.Properties = put("application/json", asJSON(o.Properties))
	}
	return err
}

// Marked draws the marks of elements over a screenshot.
func Marked(screenshot []byte, p *obs.Properties) ([]byte, error) {
	img, err := png.Decode(bytes.NewReader(screenshot))
	if err != nil {
		return nil, fmt.Errorf("reading a screenshot: %w", err)
	}
	var out bytes.Buffer
	enc := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := enc.Encode(&out, obs.Overlay(img, p, obs.OverlayOptions{})); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// goalOf is the goal as agents read it. Pictures that it carries within itself become blobs; of
// others the address stands there.
func (e *Episode) goalOf(ctx context.Context, items []browsergym.Item) (agent.Goal, error) {
	var g agent.Goal
	for _, i := range items {
		if i.Type == "text" {
			g.Parts = append(g.Parts, event.Part{Text: i.Text})
			continue
		}
		kind, content, ok := dataURL(i.Image)
		if !ok {
			g.Parts = append(g.Parts, event.Part{Text: "Image: " + i.Image})
			continue
		}
		b, err := e.c.Host.Log().PutBlob(ctx, kind, bytes.NewReader(content))
		if err != nil {
			return g, fmt.Errorf("keeping the goal's picture: %w", err)
		}
		g.Parts = append(g.Parts, event.Part{Blob: &b})
	}
	return g, nil
}

// dataURL reads a picture out of its address.
func dataURL(s string) (kind string, content []byte, ok bool) {
	rest, ok := strings.CutPrefix(s, "data:")
	head, body, ok2 := strings.Cut(rest, ",")
	kind, is64 := strings.CutSuffix(head, ";base64")
	if !ok || !ok2 || !is64 || !strings.HasPrefix(kind, "image/") {
		return "", nil, false
	}
	content, err := base64.StdEncoding.DecodeString(body)
	return kind, content, err == nil
}

// cut is the beginning of s, of at most n bytes and whole characters.
func cut(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}
