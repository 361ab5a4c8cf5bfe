package memory_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/memory"
	"github.com/evalrun/evalrun/agent/model"
)

func TestText(t *testing.T) {
	tests := map[string]event.Body{
		"out\n[exit code 0]":                         event.RunResult{Output: "out\n"},
		"(no output)\n[exit code 1]":                 event.RunResult{Code: 1},
		"out\n[standard error]\noh\n[exit code 2]":   event.RunResult{Code: 2, Output: "out", Stderr: "oh"},
		"(no output)\n[ended by signal SIGSEGV]":     event.RunResult{Code: -1, Signal: "SIGSEGV"},
		"x\n[exit code 0]\n[working directory /tmp]": event.RunResult{Output: "x", Dir: "/tmp"},
		"Error: no":                       event.Error{Text: "no"},
		"No result: closed":               event.Lost{Why: "closed"},
		`{"a":1}`:                         event.Unknown{K: "x", C: event.Observation, Raw: []byte(`{"a":1}`)},
		"The tool reports an error.\nbad": event.ToolResult{Error: true, Parts: event.Text("bad")},
		`{"rows":3}`:                      event.ToolResult{Data: []byte(`{"rows":3}`)},
		"Done.":                           event.Ack{Of: "think"},
		"a\n[stopped: the command took longer than its time limit]": event.RunResult{Code: -1, TimedOut: true,
			Signal: "SIGKILL", Output: "a"},
		"a\n[the output had 9 bytes; its middle was left out]\n[all of it is in /tmp/f]\n[exit code 0]": event.RunResult{
			Output: "a", Truncated: true, OutBytes: 9, Full: "/tmp/f"},
	}
	for want, body := range tests {
		if got := memory.Text(body); got != want {
			t.Errorf("%#v:\n%s\nwant\n%s", body, got, want)
		}
	}
}

// A model gets the picture that was viewed, and of a PDF only what it is.
func TestViewedImage(t *testing.T) {
	for kind, n := range map[string]int{"image/png": 2, "application/pdf": 1} {
		b := event.Blob{SHA256: "ab", Type: kind}
		parts := memory.Parts(event.Viewed{Text: "what it is\n", Blob: &b}, 100)
		if len(parts) != n || parts[0].Text != "what it is\n" || n == 2 && parts[1].Blob.Type != kind {
			t.Errorf("%s: %+v", kind, parts)
		}
	}
}

func TestCut(t *testing.T) {
	if got := memory.Cut("0123456789", 4); got != "01\n[… 6 characters left out …]\n89" {
		t.Errorf("%q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s") + rapid.SampledFrom([]string{"", "\xff", "ü"}).Draw(t, "end")
		limit := rapid.IntRange(0, 20).Draw(t, "limit")
		got := memory.Cut(s, limit)
		if !utf8.ValidString(got) {
			t.Fatalf("Cut(%q, %d) = %q is not valid", s, limit, got)
		}
		if len(s) <= limit && utf8.ValidString(s) && got != s {
			t.Fatalf("Cut(%q, %d) = %q", s, limit, got)
		}
		if len(got) > limit*3+60 {
			t.Fatalf("Cut(%q, %d) has %d bytes", s, limit, len(got))
		}
	})
}

// However a log goes on, each call of a reply has exactly one tool message, right behind it and in
// order.
func TestPairing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c memory.Conversation
		id := int64(0)
		var open []int64
		var reply event.Reply
		next := 0
		add := func(e event.Event) int64 {
			e.ID = id
			id++
			c.Add(e)
			return e.ID
		}
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				reply, next = event.Reply{ID: rapid.StringMatching("r[0-9]{6}").Draw(t, "reply"), Role: "main"}, 0
				for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
					reply.Calls = append(reply.Calls, event.ReplyCall{ID: string(rune('a' + i)), Name: "x"})
				}
				add(event.New(event.FromAgent, reply))
			case 1:
				add(event.New(event.FromAgent, event.Reply{ID: "c", Role: "condenser", Parts: event.Text("no")}))
			case 2:
				if next < len(reply.Calls) {
					a := event.New(event.FromAgent, event.Run{Command: "x"})
					a.Call = &event.Call{Reply: reply.ID, Index: next}
					next++
					open = append(open, add(a))
				}
			case 3:
				if len(open) > 0 {
					o := event.New(event.FromEnvironment, event.RunResult{})
					o.Cause, open = open[0], open[1:]
					add(o)
				}
			case 4:
				add(event.New(event.FromUser, event.Message{Parts: event.Text("go on")}))
			case 5: // an action of nobody's call
				open = append(open, add(event.New(event.FromUser, event.Run{Command: "y"})))
			}
		}
		msgs := c.Messages()
		for i := 0; i < len(msgs); i++ {
			m := msgs[i]
			if m.Role == model.ToolRole {
				t.Fatalf("message %d is a tool message out of place", i)
			}
			for k, call := range m.Calls {
				i++
				if i >= len(msgs) || msgs[i].Role != model.ToolRole || msgs[i].CallID != call.ID ||
					len(msgs[i].Parts) == 0 {
					t.Fatalf("call %d of message %d has no tool message behind it", k, i)
				}
			}
		}
	})
}

func TestForeignActions(t *testing.T) {
	var c memory.Conversation
	a := event.New(event.FromUser, event.Run{Command: "make"})
	a.ID = 0
	o := event.New(event.FromEnvironment, event.RunResult{Output: "built"})
	o.ID, o.Cause = 1, 0
	c.Add(a)
	c.Add(o)
	msgs := c.Messages()
	if len(msgs) != 1 || msgs[0].Role != model.User || !strings.Contains(event.PlainText(msgs[0].Parts), "make") {
		t.Errorf("%+v", msgs)
	}
}
