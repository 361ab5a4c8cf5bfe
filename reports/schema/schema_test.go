package schema

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

var when = time.Date(2026, 11, 21, 10, 0, 7, 120_000_000, time.UTC)

func entry(t interface{ Fatal(...any) }, e event.Event) *record.Entry {
	e.Time = when
	data, err := event.Default.Append(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	return &record.Entry{V: 1, Seq: 9, Time: when, Trial: "t", Attempt: 1, Kind: record.KindEvent, Data: data}
}

// Reading by hand and reading with encoding/json give the same, whatever the texts are.
func TestByHand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		str := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`[a-z"\\/\n\t ]{0,40}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.SampledFrom([]string{"", "\\", "\"", "\\\"", "\x00\x1b[2J", "<&>\u2028", "\u202e", "😀",
				"{\"a\":[1,2]}", "]}"}),
		)
		num := rapid.Int64()
		var cost *float64
		if rapid.Bool().Draw(t, "priced") {
			cost = ptr(rapid.Float64Range(-1e6, 1e6).Draw(t, "cost"))
		}
		usage := event.Usage{In: num.Draw(t, "in"), Out: num.Draw(t, "out"), Cached: 3, Cost: cost}
		var body event.Body
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			body = event.Run{Command: str.Draw(t, "command"), Args: rapid.SliceOfN(str, 0, 3).Draw(t, "args"),
				Dir: str.Draw(t, "dir")}
		case 1:
			body = event.RunResult{Code: -1, Signal: str.Draw(t, "signal"), Output: str.Draw(t, "output"),
				Stderr: str.Draw(t, "stderr"), TimedOut: true, OutBytes: num.Draw(t, "bytes"),
				Blob: &event.Blob{SHA256: "ab", Size: 3}}
		case 2:
			r := event.Reply{ID: str.Draw(t, "id"), Model: str.Draw(t, "model"), Reasoning: str.Draw(t, "reasoning"),
				Usage: usage, Opaque: json.RawMessage(`{"x":["]"]}`)}
			for range rapid.IntRange(0, 3).Draw(t, "parts") {
				r.Parts = append(r.Parts, event.Part{Text: str.Draw(t, "text")})
				r.Calls = append(r.Calls,
					event.ReplyCall{ID: "c", Name: str.Draw(t, "name"), Args: str.Draw(t, "call")})
			}
			body = r
		case 3:
			body = event.Message{Parts: event.Text(str.Draw(t, "said"))}
		}
		ev := event.New(event.FromAgent, body)
		ev.ID, ev.Actor, ev.Cause, ev.Mono, ev.Timeout = num.Draw(t, "event"), str.Draw(t, "actor"), 4, time.Second,
			time.Minute
		ev.Call = &event.Call{Reply: str.Draw(t, "reply"), ID: str.Draw(t, "callid"), Name: "n", Index: 1, Of: 2}
		e := entry(t, ev)

		var hand, std envelope
		if !hand.scan(e.Data) {
			t.Fatalf("not read by hand: %s", e.Data)
		}
		if err := json.Unmarshal(e.Data, &std); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(std, hand); d != "" {
			t.Fatalf("envelope (-json +hand):\n%s", d)
		}
		b := scanBody(hand.Class, hand.Kind, hand.Body)
		if b == nil {
			return
		}
		want, err := event.Default.DecodeBody(class(std.Class), std.Kind, std.Body)
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := want.(event.Reply); ok {
			r.Opaque = nil
			want = r
		}
		if d := cmp.Diff(want, b); d != "" {
			t.Fatalf("body (-json +hand):\n%s", d)
		}
	})
}

func TestCallByHand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := record.Call{
			Role: rapid.String().Draw(t, "role"), N: 3, Try: 2, Model: "m", Error: rapid.String().Draw(t, "error"),
			HTTP: 429, Start: when, Latency: 17, Waited: 5,
			Usage: record.Usage{In: 5, Cost: ptr(0.25)}, Raw: json.RawMessage(`{"a":"}","b":[{}]}`), Sent: "s",
			From: "tape",
		}
		data, _ := json.Marshal(c)
		var hand, std record.Call
		if !scanModelCall(data, &hand) || json.Unmarshal(data, &std) != nil {
			t.Fatalf("not read: %s", data)
		}
		if d := cmp.Diff(std, hand); d != "" {
			t.Fatalf("(-json +hand):\n%s", d)
		}
	})
}

// A damaged entry is never read as something else: the hand says no, or says what encoding/json
// says.
func FuzzByHand(f *testing.F) {
	ev := event.New(event.FromAgent, event.RunResult{Output: "a\"b\\c\n", Code: 3})
	f.Add([]byte(entry(f, ev).Data))
	f.Add([]byte(`{"id":1,"body":{"a":[1,"]"]},"x":null}`))
	f.Add([]byte(`{"ID":1}`))
	f.Add([]byte(` { } `))
	f.Fuzz(func(t *testing.T, data []byte) {
		var hand, std envelope
		ok := hand.scan(data)
		if err := json.Unmarshal(data, &std); err != nil || !ok {
			return
		}
		// Of a member that is there twice, encoding/json merges the two.
		seen := map[string]bool{}
		object(data, func(k, _ []byte) bool { ok = ok && !seen[string(k)]; seen[string(k)] = true; return true })
		if !ok || strings.Contains(string(data), "call") {
			return
		}
		if d := cmp.Diff(std, hand); d != "" {
			t.Errorf("%q (-json +hand):\n%s", data, d)
		}
	})
}

// value is a text, or "" where it is null.
func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func add(t *testing.T, b *Builder, e *record.Entry) *Batch {
	t.Helper()
	var out Batch
	if err := b.Add(e, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func TestEventColumns(t *testing.T) {
	b := NewBuilder("run")
	row := func(body event.Body) Event {
		e := event.New(event.FromEnvironment, body)
		e.ID, e.Cause = 2, 1
		return add(t, b, entry(t, e)).Events[0]
	}
	if r := row(event.Unknown{K: "vendor.x", C: event.Action, Raw: json.RawMessage(`{"a":1}`)}); r.Kind != "vendor.x" ||
		*r.Data != `{"a":1}` {
		t.Errorf("unknown: %+v", r)
	}
	if r := row(event.Stored{K: "run", C: event.Observation, Blob: event.Blob{SHA256: "ee", Size: 1 << 20}}); len(
		r.Blobs) != 1 || r.ExitCode != nil {
		t.Errorf("stored: %+v", r)
	}
	if r := row(event.RunResult{}); *r.ExitCode != 0 || *r.Output != "" || r.Stderr != nil || *r.TimedOut {
		t.Errorf("a result of nothing is not unknown: %+v", r)
	}
	if r := row(event.Cell{Code: "1+1"}); *r.Command != "1+1" || r.Class != "action" {
		t.Errorf("a cell: %+v", r)
	}
	if r := row(event.CellResult{Parts: []event.Part{{Text: "a"}, {Blob: &event.Blob{SHA256: "ee", Type: "image/png"}}},
		Error: true, Suffix: "s", Dir: "/d", OutBytes: 1}); *r.Output != "a" || !*r.Failed || *r.Text != "s" || *r.Dir != "/d" ||
		*r.OutBytes != 1 || *r.Truncated || len(r.Blobs) != 1 || r.ExitCode != nil {
		t.Errorf("the result of a cell: %+v", r)
	}
	if r := row(event.Error{Code: "c", Text: "t"}); *r.Code != "c" || *r.Text != "t" || !*r.Failed || *r.Cause != 1 {
		t.Errorf("error: %+v", r)
	}
}

func TestBadEntries(t *testing.T) {
	b := NewBuilder("run")
	for _, e := range []record.Entry{
		{Seq: 4, Trial: "t", Kind: record.KindEvent, Data: json.RawMessage(`{`)},
		{Seq: 4, Trial: "t", Kind: record.KindEvent,
			Data: json.RawMessage(`{"id":1,"class":"action","kind":"run","body":{"command":7}}`)},
		{Seq: 4, Trial: "t", Kind: record.KindCall, Data: json.RawMessage(`[]`)},
		{Seq: 4, Trial: "t", Kind: record.KindVerdict, Attempt: 1, Data: json.RawMessage(`{}`)},
	} {
		var out Batch
		err := b.Add(&e, &out)
		if err == nil || !strings.Contains(err.Error(), "journal entry 4") ||
			!strings.Contains(err.Error(), "trial t") {
			t.Errorf("%s: %v", e.Data, err)
		}
		if len(out.Events)+len(out.Calls)+len(out.Trials) > 0 {
			t.Errorf("%s made a row", e.Data)
		}
	}
}

func TestTextBounds(t *testing.T) {
	long := strings.Repeat("ü", MaxText)
	if c := clean(long); len(c) > MaxText+20 || !utf8.ValidString(c) || !strings.HasSuffix(c, "[cut]") {
		t.Errorf("%d bytes, %q", len(c), c[len(c)-20:])
	}
	if c := clean("a\xff\xfeb\x00"); c != "a\uFFFDb\x00" {
		t.Errorf("%q", c)
	}
}

// Changes are rows of their own; an entry of an older journal has none, and a damaged one no half.
func TestChanges(t *testing.T) {
	b := NewBuilder("run")
	add := func(kind, data string) (Batch, error) {
		var out Batch
		err := b.Add(&record.Entry{Seq: 7, Trial: "t", Attempt: 2, Kind: kind, Data: json.RawMessage(data)}, &out)
		return out, err
	}
	row := func(stage *int32, kind string) Change {
		return Change{Run: "run", Trial: "t", Attempt: 2, Stage: stage, Kind: kind, Seq: 7}
	}
	folder, rest := row(ptr(int32(1)), "folder"), row(ptr(int32(1)), "other_folders")
	folder.Path, folder.Work = ptr("/app/\uFFFD\x1b"), ptr(true)
	folder.Created, folder.Changed, folder.Removed = ptr(int64(3)), ptr(int64(0)), ptr(int64(1))
	rest.Created, rest.Changed, rest.Removed = ptr(int64(0)), ptr(int64(9)), ptr(int64(0))
	opened, looked := row(ptr(int32(1)), "path"), row(nil, "path")
	opened.Path, opened.Work, opened.Used = ptr("/bin/x"), ptr(false), ptr("opened")
	looked.Path, looked.Work, looked.Used = ptr("/app/conftest.py"), ptr(true), ptr("looked_up")
	for _, c := range []struct {
		kind, data string
		want       []Change
	}{
		{record.KindEvidence, `{"stage":1,"end":"answered","data":{"changes":[1]},"changes":[{"folder":"/app/` + "\xff" +
			`\u001b","work":true,"created":3,"removed":1},{"changed":9}]}`, []Change{folder, rest}},
		{record.KindEvidence, `{"stage":0,"end":"answered"}`, nil},
		{record.KindResult, `{"stage":1,"scores":[],"uses":[{"path":"/bin/x","use":"opened"}]}`, []Change{opened}},
		{record.KindAmend, `{"reward":1,"confirmation":{"state":"confirmed","slipped":["/app/conftest.py"],"uses":[` +
			`{"path":"/app/conftest.py","use":"looked_up","work":true}]}}`, []Change{looked}},
		{record.KindAmend, `{"reward":1,"confirmation":{"state":"confirmed","slipped":["/app/conftest.py"]}}`, nil},
	} {
		got, err := add(c.kind, c.data)
		if d := cmp.Diff(c.want, got.Changes); d != "" || err != nil {
			t.Errorf("%s %s: %v\n%s", c.kind, c.data, err, d)
		}
	}
	for _, data := range []string{`{"stage":1,"changes":[{"folder":"/a","created":1},{"folder":7}]}`,
		`{"stage":1,"changes":[{"created":1e30}]}`, `{"stage":1,"changes":{}}`} {
		if got, err := add(record.KindEvidence, data); err == nil || got.Changes != nil {
			t.Errorf("%s: %+v", data, got.Changes)
		}
	}
}

// What is open is what a later builder has to see.
func TestLow(t *testing.T) {
	b := NewBuilder("run")
	if b.Low(7) != 7 {
		t.Error("nothing is open")
	}
	open := func(seq int64, trial string, n int) *Batch {
		return add(t, b, &record.Entry{Seq: seq, Time: when, Trial: trial, Attempt: n, Kind: record.KindAttempt,
			Data: json.RawMessage(`{"arm_name":"a","repeat":1}`)})
	}
	open(3, "x", 1)
	open(5, "y", 1)
	if b.Low(9) != 3 {
		t.Errorf("low %d", b.Low(9))
	}
	open(6, "x", 1) // the same attempt under a new lease
	if b.Low(9) != 3 {
		t.Errorf("low %d after a new lease", b.Low(9))
	}
	if out := open(7, "x", 2); len(out.Attempts) != 1 || out.Attempts[0].Status != nil || out.Attempts[0].Attempt != 1 {
		t.Errorf("the attempt that was killed: %+v", out.Attempts)
	}
	out := add(t, b, &record.Entry{Seq: 8, Time: when, Trial: "y", Attempt: 1, Kind: record.KindVerdict,
		Data: json.RawMessage(`{"final":true,"status":"scored","reward":0.5,"usage":{"cost":null}}`)})
	if len(out.Trials) != 1 || *out.Trials[0].Reward != 0.5 || out.Trials[0].Cost != nil || out.Trials[0].Arm != "a" {
		t.Errorf("%+v", out.Trials)
	}
	if b.Low(9) != 7 {
		t.Errorf("low %d", b.Low(9))
	}
}

// What an action brought is in the row of its observation, whichever other entries come between; a
// run of an older evalrun has it only as a score.
func TestReward(t *testing.T) {
	b := NewBuilder("run")
	var out Batch
	seq := int64(0)
	add := func(trial, kind string, data any) {
		t.Helper()
		raw, ok := data.(json.RawMessage)
		if !ok {
			raw, _ = json.Marshal(data)
		}
		seq++
		if err := b.Add(&record.Entry{V: 1, Seq: seq, Time: when, Trial: trial, Attempt: 1, Kind: kind, Data: raw},
			&out); err != nil {
			t.Fatal(err)
		}
	}
	note := func(trial string, id, cause int64, body event.Body) {
		t.Helper()
		e := event.New(event.FromAgent, body)
		e.ID, e.Cause = id, cause
		add(trial, record.KindEvent, json.RawMessage(entry(t, e).Data))
	}
	for _, trial := range []string{"a", "b"} {
		add(trial, record.KindAttempt, record.Attempt{Attempt: 1})
		add(trial, record.KindStage, record.Stage{Goal: "buy " + trial})
		note(trial, 0, -1, event.Browse{Code: `click("1")`})
		note(trial, 1, -1, event.Run{Command: "x"})
	}
	add("a", record.KindReward, record.Reward{Action: 0, Reward: ptr(1.0)})
	add("a", record.KindReward, record.Reward{Action: 1, Reward: ptr(0.25)})
	add("b", record.KindReward, record.Reward{Action: 1, Reward: ptr(0.5),
		Info: json.RawMessage(`{"cumulative":3,"raw_reward":-1}`)})
	note("a", 2, 0, event.Browsed{URL: "u", Action: `click("1")`, Error: "Error: no",
		Pages: []event.BrowserPage{{URL: "v"}, {URL: "u", Title: "U"}}, Active: 1,
		Screenshot: &event.Blob{SHA256: "ab", Size: 2}})
	note("b", 2, 1, event.RunResult{})
	note("a", 3, 1, event.RunResult{})
	add("a", record.KindReward, record.Reward{Event: 3, Reward: ptr(9.0)})
	add("a", record.KindVerdict, record.Verdict{Final: true, Status: record.Scored})

	type got struct {
		Trial             string
		ID                int64
		Reward, Sum, Raw  *float64
		Command, URL, Err string
	}
	var have []got
	for _, e := range out.Events {
		if e.Class != "observation" {
			continue
		}
		have = append(have, got{e.Trial, e.ID, e.Reward, e.Sum, e.RawReward, value(e.Command), value(e.URL),
			value(e.Error)})
	}
	want := []got{{"a", 2, ptr(1.0), ptr(1.0), nil, `click("1")`, "u", "Error: no"},
		{"b", 2, ptr(0.5), ptr(3.0), ptr(-1.0), "", "", ""}, {"a", 3, ptr(0.25), ptr(1.25), nil, "", "", ""}}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
	if len(out.Scores) != 4 || *out.Scores[0].Event != 2 || *out.Scores[1].Event != 2 || *out.Scores[2].Event != 3 ||
		*out.Scores[3].Event != 3 {
		t.Errorf("%+v", out.Scores)
	}
	if len(out.Trials) != 1 || value(out.Trials[0].Goal) != "buy a" {
		t.Errorf("%+v", out.Trials)
	}
}

// The driver is the one that made the machines. A task without a machine has none, whatever the
// run's is; of what failed earlier it is the run's.
func TestDriver(t *testing.T) {
	for _, x := range []struct {
		v    record.Verdict
		want string
	}{
		{record.Verdict{Final: true, Status: record.Scored, Driver: "local"}, "local"},
		{record.Verdict{Final: true, Status: record.Scored}, ""},
		{record.Verdict{Final: true, Status: record.Infra}, "docker"},
	} {
		b := NewBuilder("run")
		var out Batch
		for i, e := range []record.Entry{{Kind: record.KindAttempt}, {Kind: record.KindVerdict}} {
			e.V, e.Seq, e.Time, e.Trial, e.Attempt = 1, int64(i+1), when, "a", 1
			if e.Data, _ = json.Marshal(x.v); i == 0 {
				e.Data, _ = json.Marshal(record.Attempt{Attempt: 1, Driver: "docker"})
			}
			if err := b.Add(&e, &out); err != nil {
				t.Fatal(err)
			}
		}
		if len(out.Trials) != 1 || value(out.Trials[0].Driver) != x.want || value(out.Attempts[0].Driver) != x.want {
			t.Errorf("%+v: %+v", x.v, out.Trials)
		}
	}
}
