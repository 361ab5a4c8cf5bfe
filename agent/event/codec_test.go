package event

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func cost(f float64) *float64 { return &f }

// all holds one event of each shared kind.
func all() []Event {
	bodies := []Body{
		Run{Command: "ls -la && echo <done>", Dir: "/w", User: "u"},
		Read{Path: "/w/f", Lines: []int{2, -1}},
		Edit{Command: EditReplace, Path: "/w/f", Text: "new", Old: "old"},
		Glob{Pattern: "**/*.go", Path: "/w"},
		Grep{Pattern: "a.b", Path: "/w", Include: "*.go", IgnoreCase: true},
		Found{Of: "glob", Path: "/w", Hits: 1, Text: "/w/a.go\n"}, Found{Of: "grep", Path: "/w", More: true, Error: true},
		Viewed{Path: "/w/f", Text: "     2\tx\n"},
		Viewed{Path: "/w/i", Text: "An image.\n", Blob: &Blob{SHA256: "ab", Type: "image/png", Size: 1}},
		Viewed{Path: "/w/f", Text: "x\n", LineCount: 9, Truncated: true},
		Edited{Of: "edit", Path: "/w/f", Text: "no", Error: true, New: true}, Edited{Of: "write", Path: "/w/f"},
		Write{Path: "f", Text: "x\n", Lines: []int{1, -1}},
		ToolCall{Name: "search", Args: json.RawMessage(`{"q":"go"}`)},
		Think{Thought: "hm"},
		Finish{Message: "done", Outputs: json.RawMessage(`{"a":1}`)},
		Invalid{Name: "x", Args: "{not json", Why: "arguments are not JSON"},
		RunResult{Code: -1, Signal: "SIGKILL", TimedOut: true, Output: "a\x00b\u202eü", OutBytes: 4, Truncated: true,
			Full: "/f", Blob: &Blob{SHA256: "ab", Size: 9}},
		ToolResult{Name: "search", Parts: []Part{{Text: "x"}, {Blob: &Blob{SHA256: "cd", Type: "image/png", Size: 3}}},
			Error: true},
		Ack{Of: "think"}, Ack{Of: "finish"},
		Error{Code: "timeout", Text: "took too long"},
		Lost{Why: "cut off"},
		Message{Parts: Text("hello")},
		System{Text: "you are", Tools: []string{"execute_bash"}},
		Reply{ID: "main/0", Role: "main", Model: "m", Parts: Text("t"),
			Calls: []ReplyCall{{ID: "c1", Name: "execute_bash", Args: "{"}},
			Usage: Usage{In: 3, Out: 4, Cost: cost(0.5)}, Opaque: json.RawMessage(`{"s":"x"}`)},
		Put{Dir: "/w", Files: 2, Bytes: 10},
		NetworkRefused{Role: "agent", Host: "evil.example", Port: 443, Why: "not on the list", Count: 2},
		Late{Action: 3, Was: "run", Body: json.RawMessage(`{}`)},
		Lagged{From: 4, N: 5},
		Info{What: "retry", Text: "again", Data: json.RawMessage(`[1]`)},
		Unknown{K: "vendor.kind", C: Action, Raw: json.RawMessage(`{"b": 1,  "a":[ ]}`)},
		Stored{K: "run", C: Observation, Blob: Blob{SHA256: "ee", Size: 1 << 20}},
	}
	var out []Event
	for i, b := range bodies {
		e := Event{ID: int64(i), Time: time.Date(2026, 11, 21, 10, 0, 7, 120000000, time.UTC), Mono: 7 * time.Second,
			Source: FromAgent, Cause: -1, Body: b}
		if b.Class() == Observation {
			e.Source, e.Cause = FromEnvironment, 0
		}
		if i%2 == 0 {
			e.Actor = "1.2"
			e.Call = &Call{Reply: "main/0", ID: "c1", Name: "execute_bash", Of: 1}
			e.Timeout = 90 * time.Second
		}
		out = append(out, e)
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	for _, e := range all() {
		data, err := Default.Append(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(data) {
			t.Fatalf("not JSON: %s", data)
		}
		got, err := Default.Decode(data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if d := cmp.Diff(e, got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", e.Body.Kind(), d)
		}
		again, err := Default.Append(nil, got)
		if err != nil || string(again) != string(data) {
			t.Errorf("written back as\n%s, was\n%s (%v)", again, data, err)
		}
	}
}

func TestRegister(t *testing.T) {
	c := NewCodec()
	in := `{"id":1,"time":"2026-11-21T10:00:00.000000Z","mono_us":0,"source":"agent","class":"action","kind":"test.jump","body":{"High":3}}`
	e, err := c.Decode([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := e.Body.(Unknown); !ok {
		t.Fatalf("%T", e.Body)
	}
	Register[jump](c, "test.jump")
	if e, err = c.Decode([]byte(in)); err != nil || e.Body != (jump{3}) {
		t.Fatalf("%v, %v", e.Body, err)
	}
	if out, err := c.Append(nil, e); err != nil || string(out) != in {
		t.Errorf("%s, %v", out, err)
	}
}

type jump struct{ High int }

func (jump) Kind() string { return "test.jump" }
func (jump) Class() Class { return Action }

func TestDecodeRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`{`:                         "unexpected end",
		`{"id":1,"kind":"run"}`:     "unknown class",
		`{"id":1,"class":"action"}`: "no kind",
		`{"id":1,"class":"action","kind":"run","body":{"command":7}}`: `action "run"`,
		`{"id":1,"class":"action","kind":"run","body":[]}`:            `action "run"`,
	} {
		if _, err := Default.Decode([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	if _, err := Default.Append(nil, Event{}); err == nil {
		t.Error("an event without a body was encoded")
	}
}

// FuzzDecode: what decodes is encoded to something that decodes to the same bytes.
func FuzzDecode(f *testing.F) {
	for _, e := range all() {
		data, err := Default.Append(nil, e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Default.Decode(data)
		if err != nil {
			return
		}
		one, err := Default.Append(nil, e)
		if err != nil {
			return
		}
		e, err = Default.Decode(one)
		if err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		if two, err := Default.Append(nil, e); err != nil || string(two) != string(one) {
			t.Fatalf("%s\n%s\n%v", one, two, err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	e := all()[5]
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = Default.Append(buf[:0], e); err != nil {
			b.Fatal(err)
		}
	}
}
