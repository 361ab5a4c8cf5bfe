package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/reporttest"
)

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", name, d)
	}
}

func sample(t *testing.T, o reporttest.Options) *Results {
	t.Helper()
	ended := reporttest.Epoch.Add(time.Minute)
	run := &record.Run{Version: "v0.1.0", Driver: "fake", Started: reporttest.Epoch, Ended: &ended, Reason: "done",
		Limits: map[string]string{"memory": "per process"}}
	r, err := Collect(reporttest.Plan(o), run, reporttest.Control(reporttest.Entries(o)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSummary(t *testing.T) {
	s := sample(t, reporttest.Options{}).Summary("runs/sample")
	var b bytes.Buffer
	for name, f := range map[string]func() error{
		"summary.txt":    func() error { return s.Text(&b, Style{}) },
		"summary-80.txt": func() error { return s.Text(&b, Style{Width: 80}) },
		"summary.md":     func() error { return s.Markdown(&b) },
		"summary.json":   func() error { return s.JSON(&b) },
		"summary-color.txt": func() error {
			return s.Text(&b, Style{Color: true, Width: 120})
		},
	} {
		b.Reset()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
	}
	b.Reset()
	s.Text(&b, Style{Width: 80})
	for l := range strings.Lines(b.String()) {
		if strings.HasPrefix(l, "large-") && !strings.Contains(l, ":") &&
			utf8.RuneCountInString(strings.TrimRight(l, "\n")) > 80 {
			t.Errorf("wider than 80: %s", l)
		}
	}
}

// The numbers of the summary, counted by hand from the journal.
func TestSummaryCounts(t *testing.T) {
	o := reporttest.Options{Tasks: 30, Repeats: 3}
	r := sample(t, o)
	s := r.Summary("")
	type trial struct {
		v   record.Verdict
		arm string
	}
	trials := map[string]*trial{}
	arms := map[string]string{}
	tokens := map[string]int64{}
	for e := range reporttest.Entries(o) {
		switch e.Kind {
		case record.KindAttempt:
			var a record.Attempt
			json.Unmarshal(e.Data, &a)
			arms[e.Trial] = a.ArmName
		case record.KindVerdict:
			var v record.Verdict
			json.Unmarshal(e.Data, &v)
			tokens[arms[e.Trial]] += v.Usage.In + v.Usage.Out
			if v.Final {
				trials[e.Trial] = &trial{v, arms[e.Trial]}
			}
		case record.KindAmend:
			var a record.Amend
			json.Unmarshal(e.Data, &a)
			trials[e.Trial].v.Reward = a.Reward
		}
	}
	for _, a := range s.Arms {
		n, scored, sum := 0, 0, 0.0
		for _, x := range trials {
			if x.arm != a.Arm {
				continue
			}
			n++
			if x.v.Status == record.Scored {
				scored++
				sum += *x.v.Reward
			}
		}
		if a.Planned != 90 || a.Decided != n || a.Scored != scored || *a.TokensIn+*a.TokensOut != tokens[a.Arm] {
			t.Errorf("%s: %+v, want %d decided, %d scored, %d tokens", a.Arm, a, n, scored, tokens[a.Arm])
		}
		if d := *a.Mean - sum/float64(scored); d > 1e-12 || d < -1e-12 {
			t.Errorf("%s: mean %v, want %v", a.Arm, *a.Mean, sum/float64(scored))
		}
		if d := *a.MeanPlanned - sum/90; d > 1e-12 || d < -1e-12 {
			t.Errorf("%s: mean of planned %v, want %v", a.Arm, *a.MeanPlanned, sum/90)
		}
		total := a.Scored
		for _, k := range a.Excluded {
			total += k
		}
		if total != a.Planned {
			t.Errorf("%s: %d scored and %v excluded are not %d", a.Arm, a.Scored, a.Excluded, a.Planned)
		}
		if (a.Cost == nil) != (a.Model == "acme/small") {
			t.Errorf("%s: cost %v of a model whose price is known only for the large one", a.Arm, a.Cost)
		}
	}
	if s.Amended != 1 {
		t.Errorf("%d amended", s.Amended)
	}
	for _, p := range s.Problems {
		if p.Status == string(record.Infra) {
			t.Errorf("a trial that was run again is still a problem: %+v", p)
		}
	}
}

func TestUnfinished(t *testing.T) {
	o := reporttest.Options{}
	first := func(yield func(record.Entry, error) bool) {
		n := 0
		for e := range reporttest.Entries(o) {
			if n++; n > 300 || !yield(e, nil) {
				return
			}
		}
	}
	r, err := Collect(reporttest.Plan(o), nil, first)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Summary("")
	if s.Decided == 0 || s.Decided == s.Planned || s.Arms[0].Excluded["pending"] == 0 {
		t.Errorf("%+v", s)
	}
	var b bytes.Buffer
	if err := s.Text(&b, Style{}); err != nil || !strings.Contains(b.String(), "pending") {
		t.Errorf("%v\n%s", err, b.String())
	}

	// Nothing has happened yet.
	r, _ = Collect(reporttest.Plan(o), nil, func(func(record.Entry, error) bool) {})
	b.Reset()
	if err := r.Summary("").Text(&b, Style{Width: 60}); err != nil {
		t.Error(err)
	}
	if err := r.Summary("").JSON(&b); err != nil {
		t.Error(err)
	}
}

func TestDamagedEntries(t *testing.T) {
	o := reporttest.Options{}
	entries := func(yield func(record.Entry, error) bool) {
		yield(record.Entry{}, errors.New("control.jsonl, line 3: bad checksum"))
		yield(record.Entry{Seq: 1, Kind: record.KindVerdict, Trial: "nobody", Data: json.RawMessage(`{}`)}, nil)
		yield(record.Entry{Seq: 2, Kind: record.KindVerdict, Trial: "nobody", Data: json.RawMessage(`[]`)}, nil)
		yield(record.Entry{Seq: 3, Kind: record.KindAttempt, Trial: "x", Attempt: 1,
			Data: json.RawMessage(`{"arm":"nobody's"}`)}, nil)
		reporttest.Entries(o)(yield)
	}
	r, err := Collect(reporttest.Plan(o), nil, entries)
	for _, want := range []string{"line 3", "no attempt is open", "not in the plan"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	s := r.Summary("")
	if s.Decided != s.Planned {
		t.Errorf("%d of %d decided", s.Decided, s.Planned)
	}
	if !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "cannot be read") }) {
		t.Errorf("warnings: %q", s.Warnings)
	}
}

func TestCompare(t *testing.T) {
	o := reporttest.Options{Tasks: 40, Repeats: 1}
	r := sample(t, o)
	pairs, err := Sides([]*Results{r}, []string{"runs/sample"}, "", "")
	if err != nil || len(pairs) != 2 {
		t.Fatal(len(pairs), err)
	}
	cs := Compare(pairs)
	var b bytes.Buffer
	for i := range cs {
		if err := cs[i].Text(&b, Style{Width: 100}); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n----\n\n")
	}
	golden(t, "compare.txt", b.String())
	b.Reset()
	if err := cs[0].Markdown(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "compare.md", b.String())
	b.Reset()
	if err := ComparisonsJSON(&b, cs); err != nil {
		t.Fatal(err)
	}
	golden(t, "compare.json", b.String())
}

// What else differs is said loudly.
func TestCompareGuard(t *testing.T) {
	o := reporttest.Options{Plain: true, Tasks: 10}
	a, b := sample(t, o), sample(t, o)
	if c := Compare([][2]Side{{{a, 0, "a"}, {b, 0, "b"}}})[0]; c.Warnings != nil || len(c.Flipped) != 0 ||
		c.Evidence.Diff != 0 {
		t.Errorf("a run against itself: %+v", c)
	}
	p := b.Plan
	p.Tasks = p.Tasks[:9]
	p.Tasks[2].Digest = "changed"
	p.Benchmarks[0].Digest = "sha256:other"
	p.Repeats = 1
	p.Arms[0].Def = json.RawMessage(`{"agent":"codeact","model":"acme/small","prompt":"terse","limits":{"steps":10,"time_ns":90000000000}}`)
	b, err := Collect(p, &record.Run{Version: "v0.2.0", Driver: "local",
		Limits: map[string]string{"memory": "512MiB", "network": "none"}, Digests: map[string]string{"prices": "x"}},
		func(func(record.Entry, error) bool) {})
	if err != nil {
		t.Fatal(err)
	}
	c := Compare([][2]Side{{{a, 0, "a"}, {b, 0, "b"}}})[0]
	all := strings.Join(c.Warnings, "\n")
	for _, want := range []string{"1 task of other content", "the digest of benchmark toy",
		"11 trials planned by one side only", "B for 9", "repeats differ", "the sandbox driver differs: fake and local",
		"v0.1.0 and v0.2.0", "the limit memory", "the digest of prices", "limits.steps: none and 10",
		"limits.time: none and 1m30s"} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "network") {
		t.Errorf("a network of none differs from none:\n%s", all)
	}
	var buf bytes.Buffer
	if err := c.Text(&buf, Style{}); err != nil || !strings.Contains(buf.String(), "nothing to compare") {
		t.Errorf("%v\n%s", err, buf.String())
	}
	if err := c.Markdown(&buf); err != nil {
		t.Error(err)
	}
}

// A score that was got by playing a trial again is told: it may have been played again for its
// score.
func TestReplayed(t *testing.T) {
	plan := reporttest.Plan(reporttest.Options{Plain: true, Tasks: 4})
	data := func(v any) json.RawMessage {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	one := 1.0
	play := func(yield func(record.Entry, error) bool, arm, task, attempt int, status record.Status) {
		a, x := plan.Arms[arm], plan.Tasks[task]
		id := record.TrialID(a.ID, x.Digest, 1)
		v := record.Verdict{Final: true, Status: status, OOMs: int64(attempt - 1)}
		if status == record.Scored {
			v.Reward = &one
		}
		yield(record.Entry{Kind: record.KindAttempt, Trial: id, Attempt: attempt,
			Data: data(record.Attempt{Arm: a.ID, Benchmark: x.Benchmark, Task: x.ID, Digest: x.Digest, Repeat: 1,
				Attempt: attempt})}, nil)
		yield(record.Entry{Kind: record.KindVerdict, Trial: id, Attempt: attempt, Data: data(v)}, nil)
	}
	r, err := Collect(plan, nil, func(yield func(record.Entry, error) bool) {
		play(yield, 0, 0, 1, record.Scored)
		play(yield, 0, 0, 2, record.Infra) // and so it stays one that had a score
		play(yield, 0, 0, 3, record.Scored)
		play(yield, 0, 1, 1, record.Infra)
		play(yield, 0, 1, 2, record.Scored)
		play(yield, 1, 0, 1, record.Scored)
		play(yield, 1, 1, 1, record.Scored)
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "1 trial with a score was played again"
	told := func(ws []string) int {
		n := 0
		for _, w := range ws {
			if strings.Contains(w, want) {
				n++
			}
		}
		return n
	}
	if s := r.Summary(""); s.Replayed != 1 || told(s.Warnings) != 1 {
		t.Errorf("%d were played again, warnings %q", s.Replayed, s.Warnings)
	} else if s.OOM != 2 || !strings.Contains(strings.Join(s.Warnings, "\n"),
		"2 trials with a score ran into the memory limit") {
		t.Errorf("%d ran into a limit, warnings %q", s.OOM, s.Warnings)
	}
	if c := Compare([][2]Side{{{r, 0, "a"}, {r, 1, "b"}}})[0]; told(c.Warnings) != 1 ||
		!strings.Contains(strings.Join(c.Warnings, "\n"), "A: "+want) {
		t.Errorf("warnings %q", c.Warnings)
	}
}

func TestSides(t *testing.T) {
	o := reporttest.Options{Plain: true, Tasks: 4}
	one := func(names ...string) *Results {
		r := sample(t, o)
		r.Plan.Arms = r.Plan.Arms[:len(names)]
		for i, n := range names {
			r.Plan.Arms[i].Name = n
		}
		return r
	}
	for _, c := range []struct {
		runs []*Results
		a, b string
		want string // a>b …, or the error
	}{
		{[]*Results{one("x", "y", "z")}, "", "", "x>y x>z"},
		{[]*Results{one("x", "y", "z")}, "y", "", "y>x y>z"},
		{[]*Results{one("x", "y", "z")}, "", "z", "x>z"},
		{[]*Results{one("x", "y", "z")}, "", "x", "y>x"},
		{[]*Results{one("x", "y", "z")}, "z", "x", "z>x"},
		{[]*Results{one("x", "y"), one("y", "x")}, "", "", "x>x y>y"},
		{[]*Results{one("x", "y"), one("y", "x")}, "x", "", "x>x"},
		{[]*Results{one("x"), one("y"), one("z")}, "", "", "x>y x>z"},
		{[]*Results{one("x"), one("x", "z")}, "x", "z", "x>z"},
		{[]*Results{one("x")}, "", "", `compare: the run has one arm only ("x"); name a second run`},
		{[]*Results{one("x", "y")}, "q", "", `compare: no arm is called "q"; there are "x", "y"`},
		{[]*Results{one("x", "y"), one("p", "q")}, "", "",
			`compare: the runs have no arm in common; name two with -a and -b: there are "p", "q", "x", "y"`},
		{nil, "", "", "compare: no run given"},
	} {
		pairs, err := Sides(c.runs, make([]string, len(c.runs)), c.a, c.b)
		var got []string
		for _, p := range pairs {
			got = append(got, p[0].arm().Name+">"+p[1].arm().Name)
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = err.Error()
		}
		if text != c.want {
			t.Errorf("-a %q -b %q: %s, want %s", c.a, c.b, text, c.want)
		}
	}
}

func TestGates(t *testing.T) {
	r := sample(t, reporttest.Options{})
	f := func(x float64) *float64 { return &x }
	var lines []string
	for _, g := range r.Gates([]Gate{
		{Min: f(0.1)},
		{Arm: "small-terse", Metric: "mean", Min: f(0.99)},
		{Arm: "small-terse", Metric: "mean_planned", Max: f(0.01)},
		{Arm: "large-full", Metric: "coverage", Min: f(0.5)},
		{Arm: "small-terse", Metric: "cost", Max: f(100)},
		{Arm: "large-full", Metric: "cost", Max: f(100)},
		{Arm: "large-full", Metric: "difference", Than: "small-terse", Min: f(-1)},
		{Arm: "large-full", Metric: "difference", Than: "who", Min: f(-1)},
		{Arm: "who", Min: f(0)},
		{Arm: "large-full", Metric: "median", Min: f(0)},
	}) {
		lines = append(lines, g.Text(Style{}))
	}
	golden(t, "gates.txt", strings.Join(lines, "\n")+"\n")
}

func TestStory(t *testing.T) {
	o := reporttest.Options{}
	plan := reporttest.Plan(o)
	kinds := map[string]string{} // trials worth telling
	n := 0
	for rep := 1; rep <= 2; rep++ {
		for _, task := range plan.Tasks {
			for _, a := range plan.Arms {
				id := record.TrialID(a.ID, task.Digest, rep)
				switch n {
				case 3:
					kinds["hostile"] = id
				case 4:
					kinds["browse"] = id
				case 5:
					kinds["retried"] = id
				case 6:
					kinds["amended"] = id
				case 9:
					kinds["killed"] = id
				case 15:
					kinds["broke"] = id
				case 21:
					kinds["rerun"] = id
				case 25:
					kinds["badcall"] = id
				}
				n++
			}
		}
	}
	for name, id := range kinds {
		var b bytes.Buffer
		if err := Story(&b, Style{Width: 100}, plan, id, reporttest.Entries(o), nil); err != nil {
			t.Fatal(err)
		}
		golden(t, "story-"+name+".txt", b.String())
		clean(t, b.String())
	}
	var b bytes.Buffer
	if err := Story(&b, Style{}, plan, kinds["broke"], func(func(record.Entry, error) bool) {}, nil); err != nil ||
		!strings.Contains(b.String(), "no attempt has begun") {
		t.Errorf("%v\n%s", err, b.String())
	}
	// Of an attempt that was cut off nobody counted anything.
	b.Reset()
	verdict, _ := json.Marshal(record.Verdict{Status: record.Canceled,
		Error: &record.Fault{Status: record.Canceled, Phase: "session", Class: "interrupted", Text: "it was cut off"}})
	cut := record.Entry{Kind: record.KindVerdict, Trial: kinds["broke"], Attempt: 1, Data: verdict}
	err := Story(&b, Style{}, plan, kinds["broke"], func(yield func(record.Entry, error) bool) { yield(cut, nil) }, nil)
	if s := b.String(); err != nil || !strings.Contains(s, "it was cut off") || strings.Contains(s, "0 steps") ||
		strings.Contains(s, "  \n") {
		t.Errorf("%v\n%s", err, s)
	}
	b.Reset()
	if err := StoryJSON(&b, kinds["broke"], reporttest.Entries(o)); err != nil || strings.Count(b.String(), "\n") < 10 {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestFind(t *testing.T) {
	plan := reporttest.Plan(reporttest.Options{})
	id := record.TrialID(plan.Arms[1].ID, plan.Tasks[3].Digest, 2)
	for _, w := range []string{id, id[:12]} {
		if got, err := Find(plan, w); got != id || err != nil {
			t.Errorf("Find(%q) = %s, %v", w, got, err)
		}
	}
	if _, err := Find(plan, "toy/task-03"); err == nil || !strings.Contains(err.Error(), "means 6 trials") ||
		!strings.Contains(err.Error(), id) {
		t.Errorf("error: %v", err)
	}
	for _, w := range []string{"", "nobody\x1b[2J"} {
		if _, err := Find(plan, w); err == nil || !strings.Contains(err.Error(), "no trial") ||
			strings.Contains(err.Error(), "\x1b") {
			t.Errorf("Find(%q): %v", w, err)
		}
	}
}

// clean fails when a terminal could obey something in s.
func clean(t interface{ Errorf(string, ...any) }, s string) {
	if !utf8.ValidString(s) {
		t.Errorf("not UTF-8: %q", s)
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			t.Errorf("%U in %q", r, s)
			return
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":                         "plain\ttext\n",
		"größer 界 👍🏽 é":                         "größer 界 👍🏽 é",
		"\x1b[31mred\x1b[0m":                    "red",
		"\x1b]0;title\x07x":                     "]0;titlex",
		"\x1b]8;;http://e.vil\x1b\\x":           "]8;;http://e.vil\\x",
		"a\x9b31mb":                             "a\uFFFD31mb", // a lone byte, no C1
		"a\u009b31mb":                           "a31mb",
		"a\x00b\x08\x7f":                        "ab",
		"10%\r20%\r\n30%":                       "10%\n20%\n30%",
		"\u202eevil\u2066x\u200f":               "evilx",
		"bad \xff\xfe utf8":                     "bad \uFFFD\uFFFD utf8",
		"\x1b[" + strings.Repeat("1", 99) + "m": "[" + strings.Repeat("1", 99) + "m",
		"\x1b[31":                               "[31",
		"\x1b":                                  "",
		"tag\U000E0041s":                        "tags",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		clean(t, Clean(s))
		if c := Clean(s); Clean(c) != c {
			t.Errorf("cleaning twice changes %q", c)
		}
	})
}

// Hostile names get nowhere: no escape codes in text, no broken tables in Markdown.
func TestHostileNames(t *testing.T) {
	o := reporttest.Options{Plain: true, Tasks: 3}
	evil := "x|y\n| z\x1b[2J`<script>\u202e"
	plan := reporttest.Plan(o)
	for i := range plan.Tasks {
		plan.Tasks[i].ID += evil
	}
	for i := range plan.Arms {
		plan.Arms[i].Name += evil
	}
	plan.Run, plan.Name = evil, evil
	r, err := Collect(plan, nil, iter.Seq2[record.Entry, error](reporttest.Entries(o)))
	if err != nil {
		t.Fatal(err)
	}
	s := r.Summary(evil)
	var text, md bytes.Buffer
	s.Text(&text, Style{})
	s.Markdown(&md)
	pairs, _ := Sides([]*Results{r}, []string{evil}, "", "")
	for _, c := range Compare(pairs) {
		c.Text(&text, Style{})
		c.Markdown(&md)
	}
	Story(&text, Style{}, plan, s.Slowest[0].ID, reporttest.Entries(o), nil)
	clean(t, text.String())
	clean(t, md.String())
	if strings.Contains(md.String(), "<script>") || strings.Contains(md.String(), "\n| z") {
		t.Errorf("Markdown:\n%s", md.String())
	}
}

// A grade that is given later counts; one that says the same changes nothing, one of a trial whose
// grading had failed makes it evidence.
func TestAmend(t *testing.T) {
	num := func(x float64) *float64 { return &x }
	r := &Results{}
	s := slot{reward: 1, status: status(place(statuses, record.Scored)), end: end(place(ends, record.Answered))}
	r.amend(&s, &record.Amend{Reward: num(1), Status: record.Scored, End: record.Answered})
	if s.amended || s.reward != 1 {
		t.Errorf("the same grade: %+v", s)
	}
	r.amend(&s, &record.Amend{Reward: num(0), Flags: []string{"odd"}, Status: record.Scored, End: record.Answered})
	if refs := r.flags; !s.amended || s.reward != 0 || s.flags != 1 || refs[0] != "odd" {
		t.Errorf("another grade: %+v, %v", s, refs)
	}
	s = slot{reward: 1, status: status(place(statuses, record.Scored)), end: end(place(ends, record.Answered))}
	r.amend(&s, &record.Amend{Reward: num(0), Confirmation: &record.Confirmation{State: record.Unconfirmed, Zero: true}})
	if s.amended || s.reward != 0 || opinions[s.opinion] != record.Unconfirmed {
		t.Errorf("a second opinion: %+v", s)
	}
	s = slot{reward: 1, status: status(place(statuses, record.Scored)), end: end(place(ends, record.Answered))}
	r.amend(&s, &record.Amend{Reward: num(0), Status: record.Scored, End: record.Answered,
		Confirmation: &record.Confirmation{State: record.Confirmed}})
	if !s.amended {
		t.Errorf("graded again, with a second opinion: %+v", s)
	}
	s = slot{reward: math.NaN(), status: status(place(statuses, record.Grader)), fault: 3}
	r.amend(&s, &record.Amend{Reward: num(0.5), Status: record.Scored, End: record.Limit})
	if !s.amended || statuses[s.status] != record.Scored || ends[s.end] != record.Limit || s.fault != 0 ||
		s.reward != 0.5 {
		t.Errorf("a grading that had failed: %+v", s)
	}
}

// Unconfirmed scores can be listed, and a comparison that has some says so.
func TestUnconfirmed(t *testing.T) {
	a, b := played(t, 4, 2, 2), played(t, 4, 2, 2)
	var out strings.Builder
	if TrialsText(&out, Style{}, a.Trials(TrialFilter{})); strings.Contains(out.String(), "second opinion") {
		t.Errorf("a column without content:\n%s", out.String())
	}
	b.slots[0].opinion = uint8(place(opinions, record.Unconfirmed))
	b.slots[1].opinion = uint8(place(opinions, record.Inapplicable))
	rows := b.Trials(TrialFilter{Status: []string{record.Unconfirmed}})
	if len(rows) != 1 || rows[0].Opinion != record.Unconfirmed {
		t.Errorf("%+v", rows)
	}
	out.Reset()
	if TrialsText(&out, Style{}, b.Trials(TrialFilter{})); !strings.Contains(out.String(), "second opinion") ||
		!strings.Contains(out.String(), "not applicable") {
		t.Errorf("%s", out.String())
	}
	a.Plan.Config, b.Plan.Config = []byte(`{"integrity":"require"}`), []byte(`{"integrity":"confirm"}`)
	a.slots[0].opinion, a.slots[0].reward = uint8(place(opinions, record.Unconfirmed)), 0
	a.slots[1].opinion = uint8(place(opinions, record.Pending))
	b.slots[2].opinion = uint8(place(opinions, record.Unknown))
	for _, c := range Compare([][2]Side{{{Results: a, Arm: 0}, {Results: b, Arm: 0}}}) {
		for _, want := range []string{"1 of 4 scores of A is unconfirmed, and counts 0 (integrity: require)",
			"the second opinion on 1 of 4 scores of A is pending, and it counts as it is",
			"1 of 4 scores of B is unconfirmed, and counts as it is",
			"the second opinion on 1 of 4 scores of B is not known, and it counts as it is",
			"integrity differs: require and confirm"} {
			if !slices.Contains(c.Warnings, want) {
				t.Errorf("%q is not in %q", want, c.Warnings)
			}
		}
	}

	// The summary says what to do next, and which grades rest on nothing but the agent's files.
	b.slots[1].used = true
	b.slots[3].opinion = uint8(place(opinions, record.Pending))
	out.Reset()
	s := b.Summary("runs/r")
	if err := s.Text(&out, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 not applicable (in 1 of them the verifier used files that the agent changed)",
		"evalrun show runs/r --status unconfirmed,not_known,not_applicable",
		"evalrun tasks check", "evalrun resume runs/r"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	for _, g := range b.Gates([]Gate{{Arm: b.Plan.Arms[0].Name, Metric: "unconfirmed", Max: new(float64)},
		{Arm: b.Plan.Arms[0].Name, Metric: "mean_confirmed", Min: &b.slots[0].reward},
		{Arm: b.Plan.Arms[1].Name, Metric: "unconfirmed", Max: new(float64)},
		{Arm: b.Plan.Arms[1].Name, Metric: "mean_confirmed", Min: new(float64)}}) {
		if g.Passed != (g.Arm == b.Plan.Arms[1].Name) || g.Value == nil {
			t.Errorf("%+v", g)
		}
	}
}

// The headline of a page is the grade as it is, with the second opinion.
func TestStoryPageHeadline(t *testing.T) {
	one := 1.0
	at := func(kind string, data any) record.Entry {
		b, _ := json.Marshal(data)
		return record.Entry{Trial: "t", Attempt: 1, Kind: kind, Data: b}
	}
	verdict := record.Verdict{Final: true, Status: record.Scored, End: record.Answered, Reward: &one,
		Confirmation: &record.Confirmation{State: record.Pending}}
	for _, c := range []struct {
		amend *record.Amend
		want  string
	}{
		{nil, `class="verdict good">scored · answered · reward 1 · second opinion: pending<`},
		{&record.Amend{Reward: new(float64), Flags: []string{"odd"}, Confirmation: &record.Confirmation{
			State: record.Unconfirmed}},
			`class="verdict">scored · answered · reward 0 · second opinion: unconfirmed · flags odd<`},
		{&record.Amend{Reward: &one, Confirmation: &record.Confirmation{State: record.Unconfirmed}},
			`class="verdict">scored · answered · reward 1 · second opinion: unconfirmed<`},
		{&record.Amend{Reward: &one, Confirmation: &record.Confirmation{State: record.Inapplicable}},
			`class="verdict good">scored · answered · reward 1 · second opinion: not applicable<`},
		{&record.Amend{Reward: new(float64), Status: record.Scored, End: record.Answered},
			`class="verdict">scored · answered · reward 0<`},
	} {
		var b strings.Builder
		err := StoryPage(&b, &record.Plan{}, "t", func(yield func(record.Entry, error) bool) {
			if yield(at(record.KindVerdict, verdict), nil) && c.amend != nil {
				yield(at(record.KindAmend, c.amend), nil)
			}
		}, nil)
		if err != nil || !strings.Contains(b.String(), c.want) {
			t.Errorf("%v: no %s in %s", err, c.want, b.String())
		}
	}
}

// A comparison says how many trials people were in.
func TestTouched(t *testing.T) {
	a, b := played(t, 4, 2, 2), played(t, 4, 2, 2)
	b.slots[0].flags = b.flagBits([]string{"other", record.Touched})
	b.slots[1].flags = b.flagBits([]string{"other"})
	for _, c := range Compare([][2]Side{{{Results: a, Arm: 0}, {Results: b, Arm: 0}}}) {
		const want = "B: in 1 of its trials a person was in the agent's sandbox (flag touched)"
		if !slices.Contains(c.Warnings, want) || len(c.Warnings) != 1 {
			t.Errorf("%q", c.Warnings)
		}
	}
}

// played are results of so many tasks of which the first arm got a right and the second b, counted
// from both ends of the list.
func played(t *testing.T, tasks, a, b int) *Results {
	t.Helper()
	plan := reporttest.Plan(reporttest.Options{Plain: true, Tasks: tasks, Repeats: 1})
	for i := range plan.Tasks {
		plan.Tasks[i].Cluster = ""
	}
	plan.Repeats = 1
	r, err := Collect(plan, nil, func(yield func(record.Entry, error) bool) {
		for arm := range 2 {
			for i := range plan.Tasks {
				reward := 0.0
				if arm == 0 && i < a || arm == 1 && i >= tasks-b {
					reward = 1
				}
				x, task := plan.Arms[arm], plan.Tasks[i]
				id := record.TrialID(x.ID, task.Digest, 1)
				attempt, _ := json.Marshal(
					record.Attempt{Arm: x.ID, Benchmark: task.Benchmark, Task: task.ID, Digest: task.Digest, Repeat: 1,
						Attempt: 1})
				verdict, _ := json.Marshal(
					record.Verdict{Final: true, Status: record.Scored, End: record.Answered, Reward: &reward})
				yield(record.Entry{Kind: record.KindAttempt, Trial: id, Attempt: 1, Data: attempt}, nil)
				yield(record.Entry{Kind: record.KindVerdict, Trial: id, Attempt: 1, Data: verdict}, nil)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Headlines, and the gates that decide with them.
func TestHeadlines(t *testing.T) {
	for _, c := range []struct {
		tasks, a, b int
		headline    string
		passed      bool // the gate "difference at least 0"
		why         string
	}{
		{4, 4, 0, "too few tasks to tell: 4, and a difference can show from 5 on", false, "too few tasks to tell"},
		{6, 6, 0, "A is better by 100.0 points (95 % interval 21.9 to 100.0)", false, "is below 0"},
		{6, 0, 6, "B is better by 100.0 points (95 % interval 21.9 to 100.0)", true,
			"difference to small-terse +1.000"},
		{20, 3, 1, "no difference is shown", true, "is not shown to be below 0"},
		{20, 12, 1, "A is better by 55.0 points (95 % interval 22.7 to 75.7)", false, "is below 0"},
	} {
		r := played(t, c.tasks, c.a, c.b)
		got := Compare([][2]Side{{{r, 0, "a"}, {r, 1, "b"}}})[0]
		if h := got.Verdict(); h != c.headline {
			t.Errorf("%d of %d and %d: %q, want %q", c.a, c.tasks, c.b, h, c.headline)
		}
		zero := 0.0
		g := r.Gates([]Gate{{Arm: r.Plan.Arms[1].Name, Metric: "difference", Than: r.Plan.Arms[0].Name, Min: &zero}})[0]
		if g.Passed != c.passed || !strings.Contains(g.Why, c.why) {
			t.Errorf("%d of %d and %d: gate %+v, want %v and %q", c.a, c.tasks, c.b, g, c.passed, c.why)
		}
	}
	// Of several comparisons each has the level at which they hold together.
	r := played(t, 20, 12, 1)
	sides := [2]Side{{r, 0, "a"}, {r, 1, "b"}}
	cs := Compare([][2]Side{sides, sides, sides})
	if h := cs[2].Verdict(); !strings.HasPrefix(h, "A is better by 55.0 points (98.3 % interval ") {
		t.Error(h)
	}
	for level, want := range map[float64]string{0.95: "95 %", 0.975: "97.5 %", 1 - 0.05/100: "99.95 %",
		1 - 0.05/1000: "99.995 %"} {
		got := cs[0].Evidence
		got.Interval.Level = level
		if s := percentLevel(got); s != want {
			t.Errorf("%v: %s, want %s", level, s, want)
		}
	}
}
