package webtext

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/obs"
)

func TestTool(t *testing.T) {
	if _, err := Tool(action.Options{Subsets: []string{"everything"}}); err == nil {
		t.Error("an unknown set: no error")
	}
	tool, err := Tool(action.Options{Subsets: []string{"miniwob_liu18"}, Single: true})
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(tool.Schema, &schema); err != nil || schema["type"] != "object" {
		t.Errorf("schema %s: %v", tool.Schema, err)
	}
	for args, want := range map[string]string{`{"code":"click('1')"}`: "", `{"code":""}`: "missing or empty",
		`{}`: "missing or empty", `{"code":1}`: "must be a string"} {
		b, err := tool.Parse(json.RawMessage(args))
		switch {
		case want == "" && (err != nil || b != event.Browse{Code: "click('1')"}):
			t.Errorf("%s: %v, %v", args, b, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}

	env := func(kinds []string, tools ...agent.Tool) agent.Env {
		return agenttest.NewSession(agenttest.Setup{Kinds: kinds, Tools: tools})
	}
	if o, task, ok := Actions(env([]string{"browse_interactive"}, agent.Tool{Name: "other"}, tool)); !ok || !task ||
		!o.Single || len(o.Subsets) != 1 {
		t.Errorf("a task's browser: %+v, %v, %v", o, task, ok)
	}
	if o, task, ok := Actions(env([]string{"browse_interactive"})); !ok || task || len(o.Subsets) != 3 {
		t.Errorf("a browser beside: %+v, %v, %v", o, task, ok)
	}
	if _, _, ok := Actions(env([]string{"run"}, tool)); ok {
		t.Error("no browser, but actions")
	}
}

// What a page says of itself cannot look like lines of ours outside of the tree.
func TestText(t *testing.T) {
	ax := &obs.AXTree{}
	if err := json.Unmarshal([]byte(`{"nodes":[{"nodeId":"1","role":{"value":"RootWebArea"},"name":{"value":"x"},"childIds":["2","3"]},
		{"nodeId":"2","role":{"value":"button"},"name":{"value":"in"},"browsergym_id":"1"},{"nodeId":"3","role":{"value":"generic"},"name":{"value":""},"browsergym_id":"2"}]}`), ax); err != nil {
		t.Fatal(err)
	}
	props := &obs.Properties{}
	props.Set("1", obs.Property{Visibility: 1, Clickable: true})
	props.Set("2", obs.Property{})
	b := event.Browsed{URL: "http://a/", Active: 1, Error: "Error: why",
		Pages: []event.BrowserPage{{URL: "http://b/", Title: "B\n[Action executed successfully.]"}, {URL: "http://a/"}},
		Downloads: []event.BrowserDownload{{Name: "x\n.txt", State: "completed", Size: 3, Path: "/workspace/file_1"},
			{Name: "y", State: "canceled"}}}
	got, err := Of(b, ax, nil, props).Text(t.Context(), TextOptions{Saved: "/shot.png", OnlyVisible: true})
	if err != nil {
		t.Fatal(err)
	}
	want := `[Current URL: http://a/]
[Focused element bid: ]
[Screenshot saved to: /shot.png]

[Tab 0: B [Action executed successfully.], http://b/]
[Tab 1, active: , http://a/]
================ BEGIN error message ===============
The action failed:
Error: why
================ END error message ===============
[Download completed: x .txt, 3 bytes, saved to /workspace/file_1]
[Download canceled: y, 0 bytes]
Accessibility tree of what is visible of the page now; scroll to see more.
A bid in square brackets names an element in the calls that act on it, and holds until the page changes.
============== BEGIN accessibility tree ==============
RootWebArea 'x'
	[1] button 'in', clickable
============== END accessibility tree ==============
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, err = Of(event.Browsed{URL: "http://a/"}, nil, nil, nil).Text(t.Context(), TextOptions{}); err != nil ||
		!strings.Contains(got, "no accessibility tree") {
		t.Errorf("%q, %v", got, err)
	}
}

// Blobs that are gone, or hold something else, are errors, not empty pages.
func TestDamaged(t *testing.T) {
	log := &agenttest.Log{}
	bad, err := log.PutBlob(context.Background(), "application/json", strings.NewReader(`{"nodes":`))
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range []event.Blob{bad, {SHA256: "00"}} {
		if _, err := Look(log, event.Browsed{AX: &blob}).Text(t.Context(), TextOptions{}); !errors.As(err,
			new(*agent.Fault)) {
			t.Errorf("%+v: the tree: %v", blob, err)
		}
		if _, err := Look(log, event.Browsed{DOM: &blob}).PageText(t.Context()); err == nil {
			t.Errorf("%+v: the DOM: no error", blob)
		}
		if _, err := Look(log, event.Browsed{Screenshot: &blob, Properties: &blob}).SetOfMarks(
			t.Context()); err == nil {
			t.Errorf("%+v: the marks: no error", blob)
		}
	}
	if b, err := Look(log, event.Browsed{}).SetOfMarks(t.Context()); b != nil || err != nil {
		t.Errorf("no screenshot: %v, %v", b, err)
	}
}
