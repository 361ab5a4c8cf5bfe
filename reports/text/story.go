package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// Find returns the ID of the trial that word identifies: by its ID or a prefix of it, or by a task
// (id, or benchmark/id) that has only one trial. If word is ambiguous, the error lists the matching
// trials.
func Find(plan *record.Plan, word string) (string, error) {
	var hits []string
	var names []string
	n := 0
	for _, t := range plan.Tasks {
		for _, a := range plan.Arms {
			for rep := 1; rep <= max(1, plan.Repeats); rep++ {
				id := record.TrialID(a.ID, t.Digest, rep)
				if id == word {
					return id, nil
				}
				if word == "" || !strings.HasPrefix(id, word) && t.ID != word && t.Benchmark+"/"+t.ID != word {
					continue
				}
				if n++; n <= 12 {
					hits = append(hits, id)
					names = append(names,
						fmt.Sprintf("  %s  %s · %s/%s #%d", id, line(a.Name), line(t.Benchmark), line(t.ID), rep))
				}
			}
		}
	}
	switch n {
	case 0:
		return "", fmt.Errorf("no trial %q in this run: give a trial's ID, the beginning of one, or a task's id",
			line(word))
	case 1:
		return hits[0], nil
	}
	if n > len(names) {
		names = append(names, fmt.Sprintf("  … and %d more", n-len(names)))
	}
	return "", fmt.Errorf("%q means %d trials; name one:\n%s", line(word), n, strings.Join(names, "\n"))
}

// Story writes everything that the journal contains about one trial, for a terminal: attempts,
// events in order, grades and verdicts. entries may be those of the whole run; Story keeps only one
// of them in memory at a time. open returns a stored text by its SHA-256; if it is nil, such texts
// are only named.
func Story(w io.Writer, st Style, plan *record.Plan, trial string, entries iter.Seq2[record.Entry, error],
	open func(sum string) (io.ReadCloser, error)) error {
	t := &storyWriter{printer: printer{w: w}, st: st, trial: trial, open: open}
	t.head(plan)
	var damaged error
	for e, err := range entries {
		switch {
		case err != nil:
			damaged = errors.Join(damaged, err)
		case e.Trial == trial:
			t.entry(&e)
		}
		if t.err != nil {
			return t.err
		}
	}
	if !t.seen {
		t.f("\nno attempt has begun yet\n")
	}
	if damaged != nil {
		t.f("\n%s %s\n", st.warn("warning:"), line(damaged.Error()))
	}
	return t.err
}

// StoryJSON writes the trial's entries unchanged, one per line.
func StoryJSON(w io.Writer, trial string, entries iter.Seq2[record.Entry, error]) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for e, err := range entries {
		if err == nil && e.Trial == trial {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// A storyWriter writes entries in the order in which it receives them.
type storyWriter struct {
	printer
	st      Style
	trial   string
	seen    bool
	start   time.Time
	mono    time.Duration   // of the newest event
	rewards []record.Reward // their observations follow
	// graded holds the scores of the last stage.
	graded []record.Score
	answer string // from the last stage's evidence
	driver string // the run's driver when the attempt started
	page   bool   // writing an HTML page, which shows pictures itself
	open   func(sum string) (io.ReadCloser, error)
}

func (t *storyWriter) head(plan *record.Plan) {
	for _, task := range plan.Tasks {
		for _, a := range plan.Arms {
			for rep := 1; rep <= max(1, plan.Repeats); rep++ {
				if record.TrialID(a.ID, task.Digest, rep) != t.trial {
					continue
				}
				t.f("%s  %s · %s/%s · repeat %d\n", t.st.bold("trial "+t.trial), line(a.Name), line(task.Benchmark),
					line(task.ID), rep)
				t.f("%s\n", t.st.dim(strings.Join(
					words("agent", a.Agent, "model", a.Model, "prompt", a.Prompt, "tags",
						strings.Join(task.Tags, ", ")), " · ")))
				return
			}
		}
	}
	t.f("%s\n", t.st.bold("trial "+t.trial))
}

// words joins names and values and omits those without a value.
func words(pairs ...string) (out []string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, strings.TrimSpace(pairs[i]+" "+line(pairs[i+1])))
		}
	}
	return out
}

func (t *storyWriter) entry(e *record.Entry) {
	var err error
	switch e.Kind {
	case record.KindAttempt:
		err = decode(e, t.attempt)
	case record.KindEvent:
		var ev event.Event
		if ev, err = event.Default.Decode(e.Data); err == nil {
			t.event(&ev)
		}
	case record.KindCall:
		err = decode(e, t.call)
	case record.KindReward:
		err = decode(e, func(_ *record.Entry, r *record.Reward) {
			if r.Event == 0 { // the observation follows
				t.rewards = append(t.rewards, *r)
				return
			}
			t.mark(e.Time, "reward", fmt.Sprintf("%s for event %d", number(r.Reward), r.Event), t.st.dim)
			t.body(string(r.Info), 3)
		})
	case record.KindStage:
		err = decode(e, func(_ *record.Entry, s *record.Stage) {
			t.mark(e.Time, fmt.Sprintf("stage %d", s.Index+1), line(s.Name), t.st.bold)
			t.body(s.Goal, 20)
		})
	case record.KindEvidence:
		err = decode(e, t.evidence)
	case record.KindResult:
		err = decode(e, t.result)
	case record.KindVerdict:
		err = decode(e, t.verdict)
	case record.KindAmend:
		err = decode(e, func(_ *record.Entry, a *record.Amend) {
			t.f("\n%s %s: reward %s: %s\n", t.st.warn("amended"), e.Time.UTC().Format(time.DateTime), number(a.Reward),
				line(a.Why))
			t.opinion(a.Confirmation)
			for i := range a.Results {
				t.result(e, &a.Results[i])
			}
			if len(a.Flags) > 0 {
				t.f("  flags %s\n", line(strings.Join(a.Flags, ", ")))
			}
		})
	}
	if err != nil {
		t.f("  %s\n", t.st.bad(fmt.Sprintf("entry %d (%s) cannot be read: %s", e.Seq, line(e.Kind), line(err.Error()))))
	}
}

// opinion tells of a second opinion.
func (t *storyWriter) opinion(c *record.Confirmation) {
	if c == nil {
		return
	}
	text := "second opinion: " + strings.ReplaceAll(line(c.State), "_", " ")
	switch c.State {
	case record.Confirmed:
		text = t.st.good(text)
	case record.Unconfirmed:
		text = t.st.bad(text)
	}
	if c.Why != "" {
		text += ": " + line(c.Why)
	}
	t.f("  %s\n", text)
	for _, p := range c.Slipped {
		t.f("    %s\n", line(p))
	}
}

func decode[T any](e *record.Entry, f func(*record.Entry, *T)) error {
	var x T
	if err := json.Unmarshal(e.Data, &x); err != nil {
		return err
	}
	f(e, &x)
	return nil
}

func (t *storyWriter) attempt(e *record.Entry, a *record.Attempt) {
	t.seen, t.start, t.answer, t.rewards, t.driver = true, e.Time, "", nil, a.Driver
	if a.Why == record.Reattached { // its clock goes on
		t.start = e.Time.Add(-t.mono)
	}
	parts := words("", a.Why)
	if a.Regrade {
		parts = append(parts, "grades earlier evidence")
	}
	parts = append(parts, fmt.Sprintf("seed %d", a.Seed), "began "+e.Time.UTC().Format("2006-01-02 15:04:05.000 UTC"))
	t.f("\n%s  %s\n", t.st.bold(fmt.Sprintf("attempt %d", e.Attempt)), t.st.dim(strings.Join(parts, " · ")))
}

// mark starts an item: time, kind, and the rest of the line.
func (t *storyWriter) mark(at time.Time, what, text string, paint func(string) string) {
	t.item(at.Sub(t.start), what, text, paint)
}

func (t *storyWriter) item(since time.Duration, what, text string, paint func(string) string) {
	what = line(what)
	if text != "" {
		// pad before colouring, because colour codes have no width
		what = fmt.Sprintf("%-10s", what)
		text = " " + text
	}
	t.f("%s  %s%s\n", t.st.dim(fmt.Sprintf("%+10.3fs", since.Seconds())), paint(what), text)
}

const indent = "               "

// body prints a text below an item, truncated to its first and last lines.
func (t *storyWriter) body(s string, lines int) {
	s = strings.TrimRight(Clean(s), "\n \t")
	if s == "" {
		return
	}
	ls := strings.Split(s, "\n")
	width := 0
	if t.st.Width > 0 && !t.st.Full {
		width = max(20, t.st.Width-len(indent)-2)
	}
	print := func(ls []string) {
		for _, l := range ls {
			l = strings.ReplaceAll(l, "\t", "    ")
			if width > 0 {
				l = cut(l, width)
			} else if !t.st.Full {
				l = cut(l, 500)
			}
			t.f("%s%s %s\n", indent, t.st.dim("│"), l)
		}
	}
	if t.st.Full || len(ls) <= lines+1 {
		print(ls)
		return
	}
	tail := lines / 3
	print(ls[:lines-tail])
	t.f("%s%s\n", indent, t.st.dim(fmt.Sprintf("┊ … %s …", plural(len(ls)-lines, "more line"))))
	print(ls[len(ls)-tail:])
}

// top splits off the first line of an agent's action, which is shown next to the time.
func (t *storyWriter) top(s string) (first, rest string, more bool) {
	first, rest, more = strings.Cut(Clean(s), "\n")
	if !t.st.Full {
		first = cut(first, 500)
	}
	return first, rest, more
}

func (t *storyWriter) call(e *record.Entry, c *record.Call) {
	if c.Error == "" && c.Try == 1 && c.From == "" {
		return // the reply event shows everything relevant
	}
	text := fmt.Sprintf("%s call %d, try %d: ", line(c.Role), c.N, c.Try)
	switch {
	case c.Error != "":
		text += modelWords(line(c.Class))
		// The error text repeats class and status; show them once.
		said := strings.TrimPrefix(c.Error, "model: "+c.Class)
		if c.HTTP != 0 {
			status := fmt.Sprintf(" (HTTP %d)", c.HTTP)
			text += status
			said = strings.ReplaceAll(said, status, "")
		}
		if said = strings.TrimPrefix(said, ": "); said != "" {
			text += ": " + line(cut(said, 300))
		}
	case c.From != "":
		text += "taken from " + line(c.From)
	default:
		text += "answered"
	}
	if c.Waited > 0 {
		text += ", after waiting " + duration(c.Waited)
	}
	paint := t.st.dim
	if c.Error != "" {
		paint = t.st.bad
	}
	t.mark(e.Time, "model", text, paint)
}

func (t *storyWriter) evidence(e *record.Entry, ev *record.Evidence) {
	text := string(ev.End)
	if ev.Limit != "" {
		text += " (" + ev.Limit + ")"
	}
	if ev.Left != nil && *ev.Left > 0 {
		text += ", left " + plural(*ev.Left, "process") + " running"
	}
	t.mark(e.Time, "evidence", line(text), t.st.bold)
	t.body(ev.Error, 10)
	for i, w := range ev.Work {
		if i == fewLines && !t.st.Full {
			t.f("%s  … %s\n", indent, plural(len(ev.Work)-i, "more path"))
			break
		}
		t.f("%swork %s %s\n", indent, line(w.Path), t.st.dim("("+line(w.From)+")"))
	}
	t.found(ev.Data, ev.Work != nil)
}

// found prints the content of evidence: the answer, files with their sizes, and the benchmark's
// data, without the member work if its paths were printed.
func (t *storyWriter) found(data json.RawMessage, work bool) {
	var x struct {
		Stage  int `json:"stage"`
		Answer struct {
			Parts   []event.Part    `json:"parts"`
			Outputs json.RawMessage `json:"outputs"`
			GaveUp  string          `json:"gave_up"`
		} `json:"answer"`
		Files   map[string]event.Blob `json:"files"`
		Rewards []float64             `json:"rewards"`
		Data    json.RawMessage       `json:"data"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&x); err != nil { // written by another version: print it unchanged
		t.body(string(data), 12)
		return
	}
	if t.answer = event.PlainText(x.Answer.Parts); len(x.Answer.Parts) > 0 {
		t.f("%sanswer\n", indent)
		t.parts(x.Answer.Parts)
	}
	if x.Answer.GaveUp != "" {
		t.f("%sgave up: %s\n", indent, line(cut(x.Answer.GaveUp, 300)))
	}
	if len(x.Answer.Outputs) > 0 {
		t.f("%soutputs\n", indent)
		t.body(string(x.Answer.Outputs), fewLines)
	}
	for _, name := range slices.Sorted(maps.Keys(x.Files)) {
		b := x.Files[name]
		t.f("%sfile %s, %s %s\n", indent, line(name), bytesOf(b.Size), t.st.dim("blobs/"+blobPath(b.SHA256)))
		t.stored(b)
	}
	if len(x.Rewards) > 0 {
		t.f("%srewards %s\n", indent, strings.Trim(fmt.Sprint(x.Rewards), "[]"))
	}
	var members map[string]json.RawMessage
	if work && json.Unmarshal(x.Data, &members) == nil {
		delete(members, "work")
		if x.Data, _ = json.Marshal(members); len(members) == 0 {
			return
		}
	}
	t.body(string(x.Data), fewLines)
}

// maxStored limits a stored text that is printed.
const maxStored = 1 << 20

// stored prints a stored file that is a text.
func (t *storyWriter) stored(b event.Blob) {
	if t.open == nil || !strings.HasPrefix(b.Type, "text/plain") {
		return
	}
	r, err := t.open(b.SHA256)
	if err != nil {
		t.f("%s%s\n", indent, t.st.warn(line(err.Error())))
		return
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxStored))
	if t.body(string(text), fewLines); err != nil {
		t.f("%s%s\n", indent, t.st.warn(line(err.Error())))
	}
}

func (t *storyWriter) result(e *record.Entry, r *record.Result) {
	t.mark(e.Time, "graded", line(strings.Join(r.Flags, ", ")), t.st.bold)
	t.scores(r.Scores)
	t.graded = r.Scores
	passed := 0
	for _, x := range r.Tests {
		if x.Status == "passed" {
			passed++
		}
	}
	if len(r.Tests) > 0 {
		t.f("%stests: %d of %d passed\n", indent, passed, len(r.Tests))
	}
	shown := 0
	for _, x := range r.Tests {
		if x.Status == "passed" && !t.st.Full {
			continue
		}
		if shown++; shown > 20 && !t.st.Full {
			t.f("%s  …\n", indent)
			break
		}
		paint := t.st.bad
		if x.Status == "passed" {
			paint = t.st.good
		}
		t.f("%s  %s %s\n", indent, paint(line(x.Status)), line(x.Name))
		t.body(x.Message, 6)
	}
}

func (t *storyWriter) scores(ss []record.Score) {
	for _, s := range ss {
		name := line(s.Name)
		if s.Primary {
			name = t.st.bold(name)
		}
		t.f("%s%s = %s", indent, name, number(s.Value))
		for _, x := range words("read as", cut(line(s.Text), 120), "because", cut(line(s.Why), 300)) {
			t.f(" · %s", x)
		}
		t.f("\n")
	}
}

func (t *storyWriter) verdict(e *record.Entry, v *record.Verdict) {
	text := string(v.Status)
	if v.End != "" {
		text += " · " + string(v.End)
	}
	if v.Limit != "" {
		text += " (" + v.Limit + ")"
	}
	paint := t.st.bad
	if v.Status == record.Scored {
		text += " · reward " + number(v.Reward)
		if v.Reward != nil && *v.Reward > 0 {
			paint = t.st.good
		}
	}
	if !v.Final {
		text += " · another attempt follows"
	}
	t.f("\n%s  %s\n", t.st.bold(fmt.Sprintf("verdict of attempt %d", e.Attempt)), paint(line(text)))
	if v.Error != nil {
		t.f("  %s\n", t.st.bad(line(faultWords(v.Error.Status, v.Error.Phase, v.Error.Class))))
		t.body(v.Error.Text, 20)
		if v.Error.Detail != "" {
			t.f("  %s\n", t.st.dim("[the whole output: blobs/"+blobPath(v.Error.Detail)+"]"))
		}
	}
	var facts []string
	if v.Error == nil || v.Error.Class != "interrupted" { // otherwise the steps were not counted
		facts = append(facts, plural(int(v.Steps), "step"))
	}
	if u := v.Used(); v.Turns > 0 || u.Calls > 0 {
		facts = append(facts, plural(int(v.Turns), "model reply"),
			fmt.Sprintf("%s tokens in (%s cached), %s out", count(u.In), count(u.Cached), count(u.Out)),
			"cost "+dollars(u.Cost))
	}
	if v.BadCalls > 0 {
		facts = append(facts, plural(int(v.BadCalls), "bad call"))
	}
	if v.Abandoned {
		facts = append(facts, "did not stop when told")
	}
	if v.Left != nil && *v.Left > 0 {
		facts = append(facts, "left "+plural(*v.Left, "process")+" running")
	}
	if v.MaxMemory != nil {
		facts = append(facts, fmt.Sprintf("at most %d MiB of memory", *v.MaxMemory>>20))
	}
	t.opinion(v.Confirmation)
	facts = append(facts, words("flags", strings.Join(v.Flags, ", "))...)
	driver := v.Driver
	if driver == "" && v.Status != record.Scored { // it failed before it had a machine
		driver = t.driver
	}
	facts = append(facts, words("sandbox", driver, "network", v.Network)...)
	if v.Refused > 0 {
		facts = append(facts, plural(int(v.Refused), "connection")+" refused by the network policy")
	}
	if len(facts) > 0 {
		t.f("  %s\n", strings.Join(facts, " · "))
	}
	for _, i := range v.Images {
		text := strings.Join(words("image of the "+i.Role, i.Name, "", cut(i.Digest, 19)), " · ")
		if i.Log != "" {
			text += " · built here: blobs/" + blobPath(i.Log)
		}
		t.f("  %s\n", t.st.dim(text))
	}
	var times []string
	for _, x := range []struct {
		name string
		d    time.Duration
	}{
		{"wall", v.Times.Wall}, {"images", v.Times.Image}, {"waited for room", v.Times.Queue}, {"start", v.Times.Start},
		{"agent", v.Times.Agent}, {"working", v.Times.Working},
		{"model", v.Times.Model}, {"back-off", v.Times.Backoff}, {"tools", v.Times.Tool}, {"grading", v.Times.Grade},
		{"closing", v.Times.Close},
	} {
		if x.d >= time.Millisecond {
			times = append(times, x.name+" "+duration(x.d))
		}
	}
	if len(times) > 0 {
		t.f("  %s\n", t.st.dim(strings.Join(times, " · ")))
	}
	// the scores of a single stage were just printed
	if !slices.EqualFunc(v.Scores, t.graded, sameScore) {
		t.scores(v.Scores)
	}
	// otherwise it was just printed as evidence
	if v.Answer != "" && !strings.HasPrefix(t.answer, v.Answer) {
		t.f("  answer\n")
		t.body(v.Answer, 12)
	}
}

func sameScore(a, b record.Score) bool {
	return a.Name == b.Name && number(a.Value) == number(b.Value) && a.Text == b.Text && a.Why == b.Why
}

func number(x *float64) string {
	if x == nil {
		return "none"
	}
	return fmt.Sprintf("%.4g", *x)
}
