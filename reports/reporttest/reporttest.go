// Package reporttest makes the journal of a run that never was, for the tests of the reports:
// several arms, repeats, clusters, every status and end, retries, an attempt that was killed, a
// rerun, an amendment, stages, rewards and hostile texts. The same options give the same journal.
package reporttest

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// Options of a run. The zero value is a small one.
type Options struct {
	Tasks   int  // 12
	Repeats int  // 2
	Calls   int  // tool calls of a trial; 0: one to four
	Plain   bool // every trial is scored at its first attempt, nothing is special
	Seed    uint64
}

// Epoch is when the run began.
var Epoch = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// Plan is what the run set out to do.
func Plan(o Options) *record.Plan {
	o = o.fill()
	p := &record.Plan{
		V: 1, Run: "2026-11-21T100000-sample", Name: "sample", Created: Epoch, Seed: o.Seed, Repeats: o.Repeats,
		Benchmarks: []record.Benchmark{{Name: "toy", Spec: "toy", Digest: "sha256:toy"}},
		Config:     json.RawMessage(`{"limits":{"steps":50,"time":"10m"},"sandbox":{"driver":"fake"}}`),
	}
	for _, a := range []struct{ name, model, prompt string }{{"small-terse", "acme/small", "terse"},
		{"large-terse", "acme/large", "terse"}, {"large-full", "acme/large", "full"}} {
		arm := record.Arm{
			Name: a.name, Agent: "codeact", Model: a.model, Prompt: a.prompt,
			Axes: map[string]string{"model": a.model, "prompt": a.prompt},
			Def:  json.RawMessage(fmt.Sprintf(`{"agent":"codeact","model":%q,"prompt":%q}`, a.model, a.prompt)),
		}
		arm.ID, _ = record.ArmID(arm.Def)
		p.Arms = append(p.Arms, arm)
	}
	for i := range o.Tasks {
		t := record.Task{Benchmark: "toy", ID: fmt.Sprintf("task-%02d", i),
			Tags: []string{[]string{"easy", "hard"}[i%2]}}
		t.Fields = map[string]string{"difficulty": t.Tags[0], "n": fmt.Sprint(i)}
		if i%4 == 0 {
			t.Cluster = "repo-a"
		}
		t.Digest, _ = record.TaskDigest(t.Benchmark, t.ID, map[string]any{"n": i + 1})
		p.Tasks = append(p.Tasks, t)
	}
	return p
}

func (o Options) fill() Options {
	if o.Tasks == 0 {
		o.Tasks = 12
	}
	if o.Repeats == 0 {
		o.Repeats = 2
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	return o
}

// Entries is the run's journal.
func Entries(o Options) iter.Seq2[record.Entry, error] {
	o = o.fill()
	return func(yield func(record.Entry, error) bool) {
		p := Plan(o)
		w := &writer{o: o, yield: yield, now: Epoch, rng: rand.New(rand.NewPCG(o.Seed, 1)), fence: 1}
		n := 0
		for rep := 1; rep <= o.Repeats && !w.stopped; rep++ {
			for ti := range p.Tasks {
				for ai := range p.Arms {
					if w.stopped {
						return
					}
					w.trial(n, &p.Arms[ai], ai, &p.Tasks[ti], ti, rep)
					n++
				}
			}
		}
		if !o.Plain && !w.stopped {
			w.after(p)
		}
	}
}

// All collects a journal.
func All(o Options) []record.Entry {
	var es []record.Entry
	for e := range Entries(o) {
		es = append(es, e)
	}
	return es
}

// Control keeps what a report of results reads: no events, calls and rewards.
func Control(entries iter.Seq2[record.Entry, error]) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for e, err := range entries {
			switch e.Kind {
			case record.KindEvent, record.KindCall, record.KindReward:
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

type writer struct {
	o       Options
	yield   func(record.Entry, error) bool
	stopped bool
	seq     int64
	now     time.Time
	start   time.Time
	rng     *rand.Rand
	fence   int64

	trialID string
	attempt int
	event   int64
}

func (w *writer) put(kind string, data any) {
	if w.stopped {
		return
	}
	raw, ok := data.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(data); err != nil {
			panic(err)
		}
	}
	w.seq++
	w.now = w.now.Add(time.Duration(1000+w.rng.IntN(2000)) * time.Microsecond)
	w.stopped = !w.yield(record.Entry{V: record.Version, Seq: w.seq, Time: w.now, Trial: w.trialID, Attempt: w.attempt,
		Fence: w.fence, Kind: kind, Data: raw}, nil)
}

func (w *writer) note(source string, cause int64, call *event.Call, b event.Body) int64 {
	e := event.New(source, b)
	e.ID, e.Cause, e.Call, e.Time, e.Mono = w.event, cause, call, w.now, w.now.Sub(w.start)
	if b.Class() == event.Action {
		e.Timeout = 5 * time.Minute
	}
	raw, err := event.Default.Append(nil, e)
	if err != nil {
		panic(err)
	}
	w.event++
	w.put(record.KindEvent, json.RawMessage(raw))
	return e.ID
}

func (w *writer) begin(a *record.Arm, t *record.Task, rep, attempt int, why string) {
	w.trialID, w.attempt, w.event = record.TrialID(a.ID, t.Digest, rep), attempt, 0
	w.fence++
	w.start = w.now
	w.put(record.KindAttempt, record.Attempt{
		Arm: a.ID, ArmName: a.Name, Agent: a.Agent, Model: a.Model, Prompt: a.Prompt, Axes: a.Axes,
		Benchmark: t.Benchmark, Task: t.ID,
		Digest: t.Digest, Cluster: t.Cluster, Repeat: rep, Attempt: attempt, Seed: uint64(rep)*1000 + uint64(attempt),
		Why: why, Driver: "fake",
		Queued: 3 * time.Millisecond,
	})
}

func (w *writer) verdict(v record.Verdict) {
	v.Times.Wall = w.now.Sub(w.start)
	v.Times.Agent = v.Times.Wall * 8 / 10
	v.Times.Working = v.Times.Wall * 7 / 10
	w.put(record.KindVerdict, v)
}

func (w *writer) fail(status record.Status, final bool, f record.Fault) {
	f.Status = status
	w.verdict(record.Verdict{Final: final, Status: status, Error: &f})
}

// trial plays one trial; n chooses what becomes of it.
func (w *writer) trial(n int, a *record.Arm, ai int, t *record.Task, ti, rep int) {
	w.begin(a, t, rep, 1, "")
	if w.o.Plain {
		w.play(n, a, ai, ti, record.Answered)
		return
	}
	switch n % 24 {
	case 5: // the machine failed, the second attempt went well
		w.fail(record.Infra, false, record.Fault{Phase: "start", Class: "sandbox",
			Text: "starting the sandbox: no space left on device"})
		w.begin(a, t, rep, 2, "retry")
		w.play(n, a, ai, ti, record.Answered)
	case 9: // killed in the middle, taken up by resume
		w.note(event.FromUser, -1, nil, event.Message{Parts: event.Text("what was the question?")})
		w.begin(a, t, rep, 2, "resume")
		w.play(n, a, ai, ti, record.Answered)
	case 11:
		w.fail(record.Provider, true, record.Fault{Phase: "agent", Class: "rate",
			Text: "acme: 429 too many requests, given up after 6 tries"})
	case 13:
		w.play(n, a, ai, ti, record.Limit)
	case 15:
		w.play(n, a, ai, ti, record.Broke)
	case 17:
		w.play(n, a, ai, ti, record.GaveUp)
	case 19:
		w.fail(record.Skipped, true, record.Fault{Phase: "plan", Class: "needs",
			Text: "needs an image, and there is no Docker here"})
	case 21:
		w.fail(record.Infra, true, record.Fault{Phase: "start", Class: "sandbox",
			Text: "starting the sandbox: cgroup: permission denied"})
	case 23:
		w.fail(record.Grader, true, record.Fault{Phase: "grade", Class: "timeout",
			Text: "grading: no answer from the grader's machine in 60s"})
	default:
		w.play(n, a, ai, ti, record.Answered)
	}
}

// play is a session with its events, calls, grades and verdict.
func (w *writer) play(n int, a *record.Arm, ai, ti int, end record.End) {
	w.put(record.KindStage, record.Stage{Index: 0, Goal: "make it work", Events: 0})
	w.note(event.FromEnvironment, -1, nil,
		event.System{Text: "You are careful.", Tools: []string{"execute_bash", "finish"}})
	w.note(event.FromUser, -1, nil, event.Message{Parts: event.Text("make it work: " + a.Name)})
	calls := w.o.Calls
	if calls == 0 {
		calls = 1 + w.rng.IntN(4)
	}
	var use record.Usage
	cost := 0.0
	steps := int64(0)
	model := func(i int, rcs []event.ReplyCall, stop string) string {
		id := fmt.Sprintf("r%d", i)
		u := event.Usage{In: int64(500 + 100*i), Out: int64(20 + w.rng.IntN(60)), Cached: int64(400 * min(i, 1))}
		c := float64(u.In)*1e-6 + float64(u.Out)*4e-6
		if a.Model != "acme/small" { // whose price nobody knows
			u.Cost = &c
		}
		if i == 1 && n%5 == 0 {
			w.put(record.KindCall, record.Call{Role: "main", N: i, Try: 1, Model: a.Model, Request: "aa", Start: w.now,
				Latency: 12 * time.Millisecond, HTTP: 429, Error: "rate limited", Class: "rate"})
		}
		w.put(record.KindCall, record.Call{
			Role: "main", N: i, Try: 1 + btoi(i == 1 && n%5 == 0), Model: a.Model, Request: "aa", Reply: id, Stop: stop,
			Start:   w.now,
			Latency: time.Duration(100+w.rng.IntN(900)) * time.Millisecond, HTTP: 200,
			ID:    fmt.Sprintf("req_%d_%d", n, i),
			Usage: record.Usage{Calls: 1, In: u.In, Out: u.Out, Cached: u.Cached, Cost: u.Cost},
			Raw:   json.RawMessage(`{"object":"chat.completion"}`),
		})
		w.note(event.FromAgent, -1, nil,
			event.Reply{ID: id, Role: "main", Model: a.Model, Parts: event.Text("Let me look."), Calls: rcs, Stop: stop,
				Usage: u})
		use.Calls++
		use.In, use.Out, use.Cached = use.In+u.In, use.Out+u.Out, use.Cached+u.Cached
		cost += c
		return id
	}
	for i := range calls {
		id := fmt.Sprintf("call_%d", i)
		reply := model(i, []event.ReplyCall{
			{ID: id, Name: "execute_bash", Args: fmt.Sprintf(`{"command":"cat file%d | sort"}`, i)}}, "tool_calls")
		at := w.note(event.FromAgent, -1, &event.Call{Reply: reply, ID: id, Name: "execute_bash", Of: 1},
			event.Run{Command: fmt.Sprintf("cat file%d | sort", i)})
		w.now = w.now.Add(time.Duration(20+w.rng.IntN(200)) * time.Millisecond)
		out := strings.Repeat(fmt.Sprintf("line of file %d\n", i), 3)
		if !w.o.Plain && n%7 == 3 {
			out += "\x1b[31mred\x1b[0m\x00nul \u202eevil\u2066 \xff\xfe\n"
		}
		if !w.o.Plain && n%6 == 2 && i == 0 {
			v := 0.25
			w.put(record.KindReward, record.Reward{Action: at, Reward: &v, Info: json.RawMessage(`{"why":"closer"}`)})
		}
		w.note(event.FromEnvironment, at, nil,
			event.RunResult{Code: btoi(i == 1), Output: out, OutBytes: int64(len(out)), WallMS: int64(w.rng.IntN(200))})
		steps++
	}
	bad := int64(0)
	if !w.o.Plain {
		switch n % 8 {
		case 1:
			reply := model(calls, []event.ReplyCall{{ID: "c", Name: "exec", Args: `{"command": oops`}}, "tool_calls")
			at := w.note(event.FromAgent, -1, &event.Call{Reply: reply, ID: "c", Name: "exec", Of: 1},
				event.Invalid{Name: "exec", Args: `{"command": oops`, Why: "no such tool"})
			w.note(event.FromEnvironment, at, nil,
				event.Error{Code: "unknown_tool", Text: "there is no tool exec; there are execute_bash, finish"})
			bad++
		case 2:
			at := w.note(event.FromAgent, -1, nil, event.Think{Thought: "this is hard"})
			w.note(event.FromEnvironment, at, nil, event.Ack{Of: "think", Text: "noted"})
		case 4:
			steps += w.browse()
		case 3:
			at := w.note(event.FromAgent, -1, nil,
				event.Unknown{K: "vendor.click", C: event.Action, Raw: json.RawMessage(`{"x":1,"y":2}`)})
			w.note(event.FromEnvironment, at, nil,
				event.ToolResult{Name: "click",
					Parts: []event.Part{{Text: "clicked"},
						{Blob: &event.Blob{SHA256: strings.Repeat("ab", 32), Type: "image/png", Size: 1234}}},
					Data: json.RawMessage(`{"ok":true}`)})
		}
	}
	if end != record.Limit && end != record.Broke {
		reply := model(calls+1, []event.ReplyCall{{ID: "f", Name: "finish", Args: `{"message":"done"}`}}, "tool_calls")
		at := w.note(event.FromAgent, -1, &event.Call{Reply: reply, ID: "f", Name: "finish", Of: 1},
			event.Finish{Message: "done", GaveUp: end == record.GaveUp})
		w.note(event.FromEnvironment, at, nil, event.Ack{Of: "finish"})
		steps++
	}
	left := n % 3 / 2
	ev := record.Evidence{Stage: 0, End: end,
		Data: json.RawMessage(`{"stage":0,"answer":{"parts":[{"text":"42"}]},"files":{"out.txt":{"sha256":"` +
			strings.Repeat("cd", 32) + `","size":14000}}}`), Left: &left, Last: true}
	v := record.Verdict{Final: true, Status: record.Scored, End: end, Stages: 1, Steps: steps, Turns: use.Calls,
		BadCalls: bad, Usage: use, Left: &left, Answer: "42"}
	if a.Model != "acme/small" {
		v.Usage.Cost = &cost
	}
	switch end {
	case record.Limit:
		v.Limit, ev.Limit = "turns", "turns"
	case record.Broke:
		ev.Error = "exit status 1"
		v.Error = &record.Fault{Status: record.Scored, Phase: "agent", Class: "panic",
			Text: "the agent ended with exit status 1"}
	}
	// Larger arms and even tasks do better.
	reward := float64(btoi(end == record.Answered && (ti*7+w.attempt+n/36)%10 < 4+2*ai))
	if end == record.Limit {
		v.Abandoned = true
	}
	v.Reward = &reward
	v.Scores = []record.Score{{Name: "correct", Primary: true, Value: &reward, Text: "42",
		Why: "compared with the expected answer"}, {Name: "style", Value: nil, Why: "no opinion"}}
	status := []string{"failed", "passed"}[int(reward)]
	var uses []record.PathUse
	if ti%2 == 1 { // in a container, where changes are looked at
		ev.Changes = []record.FolderChanges{{Folder: "/app", Work: true, Created: 2, Changed: 1},
			{Folder: "/usr/local/bin", Created: 1, Removed: 1}, {Created: 40}}
		uses = []record.PathUse{{Path: "/usr/local/bin/grep", Use: record.Opened}}
	}
	w.put(record.KindEvidence, ev)
	w.put(record.KindResult, record.Result{Stage: 0, Scores: v.Scores, Uses: uses,
		Tests: []record.Test{{Name: "test_basic", Status: "passed"},
			{Name: "test_edge", Status: status, Message: "expected 42"}}})
	w.now = w.now.Add(5 * time.Millisecond)
	if !w.o.Plain && reward == 0 && n%10 == 4 {
		v.Flags = []string{"no_reward"}
	}
	v.Driver, v.Network = "local", "none"
	if ti%2 == 1 {
		v.Driver, v.Network, v.Times.Image = "docker", "allow example.org", 40*time.Millisecond
		v.Images = []record.Image{{Role: "agent", Name: fmt.Sprintf("task-%d", ti),
			Digest: "sha256:" + strings.Repeat("ab", 32)}}
		if !w.o.Plain && n%9 == 1 {
			v.Refused = 3
			w.note(event.FromEnvironment, -1, nil,
				event.NetworkRefused{Role: "agent", Host: "192.0.2.7", Port: 443, Why: "not on the list", Count: 3})
		}
	}
	w.verdict(v)
}

// browse is a look, an action that fails and one that is worth something.
func (w *writer) browse() int64 {
	page := func(n int) event.Browsed {
		blob := func(digits, kind string) *event.Blob {
			return &event.Blob{SHA256: strings.Repeat(digits, 31) + fmt.Sprintf("%02x", n), Type: kind,
				Size: int64(1000 + n)}
		}
		return event.Browsed{
			URL: fmt.Sprintf("http://shop.test/item/%d", n), Active: 1, Focused: "a1", Step: n, Elapsed: float64(n),
			Pages: []event.BrowserPage{{URL: "http://shop.test/", Title: "Shop"},
				{URL: fmt.Sprintf("http://shop.test/item/%d", n), Title: fmt.Sprintf("Item %d \x1b[31m\u202e", n)}},
			Screenshot: blob("01", "image/png"), Marks: blob("02", "image/png"), AX: blob("03", "application/json"),
			DOM: blob("04", "application/json"), Properties: blob("05", "application/json"),
		}
	}
	act := func(code string, reward float64, info string, o event.Browsed) {
		at := w.note(event.FromAgent, -1, nil, event.Browse{Code: code})
		if o.Action = code; code != "" {
			w.put(record.KindReward, record.Reward{Action: at, Reward: &reward, Info: json.RawMessage(info)})
		}
		w.note(event.FromEnvironment, at, nil, o)
	}
	first := page(0)
	first.Chat = []event.BrowserChat{{Role: "assistant", Text: "Hi!"}, {Role: "user", Text: "Buy it."}}
	act("", 0, "", first)
	failed := page(1)
	failed.Error = `ValueError: Could not find element with bid "z9"`
	failed.Log = []event.BrowserLog{{Kind: "console", Text: "price is undefined", URL: failed.URL}}
	act(`click("z9")`, 0, `{"cumulative":0,"raw_reward":-0.1,"terminated":false,"truncated":false}`, failed)
	last := page(2)
	last.Done, last.Downloads = true, []event.BrowserDownload{
		{URL: last.URL, Name: "bill.pdf", State: "completed", Size: 9000,
			Blob: &event.Blob{SHA256: strings.Repeat("06", 32), Type: "application/pdf", Size: 9000}}}
	act("fill(\"a3\", \"2\")\nclick(\"a1\")", 0.5,
		`{"cumulative":0.5,"raw_reward":0.7,"terminated":true,"truncated":false}`, last)
	return 3
}

// after is what people do to a run that has ended: the trials that the machine failed are tried
// again, one grade is corrected.
func (w *writer) after(p *record.Plan) {
	n := 0
	for rep := 1; rep <= w.o.Repeats; rep++ {
		for ti := range p.Tasks {
			for ai := range p.Arms {
				switch {
				case n%24 == 21:
					w.begin(&p.Arms[ai], &p.Tasks[ti], rep, 2, "rerun")
					w.play(n, &p.Arms[ai], ai, ti, record.Answered)
				case n == 6:
					one := 1.0
					w.trialID, w.attempt = record.TrialID(p.Arms[ai].ID, p.Tasks[ti].Digest, rep), 0
					w.put(record.KindAmend,
						record.Amend{Why: "the expected answer was wrong", Reward: &one,
							Scores: []record.Score{{Name: "correct", Primary: true, Value: &one}}})
				}
				n++
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
