package text

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/stats"
)

// JSON writes summary.json.
func (s *Summary) JSON(w io.Writer) error { return encode(w, s) }

func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// classes are the classes of trials that are not evidence, in display order.
var classes = []string{string(record.Infra), string(record.Provider), string(record.Grader), string(record.Canceled),
	string(record.Skipped), "pending"}

// Text writes the summary for a terminal.
func (s *Summary) Text(w io.Writer, st Style) error {
	p := &printer{w: w}
	p.f("%s\n", st.bold("run "+line(s.Run)))
	p.f("%s\n\n", s.head())
	rows := s.Arms
	if len(s.Benchmarks) > 0 {
		rows = append(append([]ArmSummary{}, s.Arms...), s.Benchmarks...)
	}
	dropped := p.table(st, "", s.columns(rows))
	if dropped != nil {
		p.f("%s\n", st.dim(fmt.Sprintf("(too narrow for: %s)", strings.Join(dropped, ", "))))
	}
	p.f("\n")
	for _, a := range s.Arms {
		t := a.remarks(s)
		if slices.Contains(dropped, "excluded") && len(a.Excluded) > 0 {
			t = strings.TrimSuffix("excluded "+a.excluded()+" · "+t, " · ")
		}
		if t != "" {
			p.f("%s: %s\n", line(a.Arm), t)
		}
	}
	for _, sentence := range append(s.opinionSteps(), legend(s)...) {
		p.f("%s\n", st.dim(sentence))
	}
	for _, g := range s.Gates {
		p.f("%s\n", g.Text(st))
	}
	for _, x := range s.Warnings {
		p.f("%s %s\n", st.warn("warning:"), line(x))
	}
	s.problemsText(p, st)
	if len(s.Slowest) > 0 {
		p.f("\nslowest\n")
		for _, t := range s.Slowest {
			p.f("  %8s  %s\n            %s\n", duration(time.Duration(t.WallMS)*time.Millisecond), t.String(),
				st.dim(s.show(t)))
		}
	}
	return p.err
}

func (s *Summary) head() string {
	parts := []string{fmt.Sprintf("%d of %s decided", s.Decided, plural(s.Planned, "trial")),
		"coverage " + percent(s.Coverage)}
	if s.Driver != "" {
		parts = append(parts, "sandbox "+s.sandbox())
	}
	if s.WorkedMS != nil {
		parts = append(parts, "took "+duration(time.Duration(*s.WorkedMS)*time.Millisecond))
	}
	if s.Reason != "" && s.Reason != "done" {
		parts = append(parts, "ended: "+line(s.Reason))
	}
	return strings.Join(parts, " · ")
}

// sandbox names the drivers and, if there are several, the number of trials of each.
func (s *Summary) sandbox() string {
	if len(s.Drivers) == 0 {
		return line(s.Driver)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Drivers)) {
		text := line(name)
		if len(s.Drivers) > 1 {
			text += fmt.Sprintf(" (%s)", plural(s.Drivers[name], "trial"))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func (s *Summary) columns(rows []ArmSummary) []*column {
	cols := []*column{
		{head: "arm"}, {head: "benchmark"}, {head: "planned", right: true}, {head: "evidence", right: true},
		{head: "excluded", drop: 2},
		{head: "mean", right: true}, {head: "95 % interval"}, {head: "mean (all)", right: true},
		{head: "steps", right: true, drop: 6}, {head: "tokens", right: true, drop: 5},
		{head: "cost", right: true, drop: 3},
		{head: "wall", right: true, drop: 4}, {head: "active", right: true, drop: 7},
	}
	for _, a := range rows {
		iv := unknown
		if a.Interval != nil {
			iv = fmt.Sprintf("%.3f – %.3f", a.Interval.Low, a.Interval.High)
		}
		for i, x := range []string{
			line(a.Arm), line(a.Benchmark), fmt.Sprint(a.Planned), fmt.Sprint(a.Scored), a.excluded(), score(a.Mean),
			iv, score(a.MeanPlanned),
			one(a.Steps), a.tokens(), dollars(a.Cost), millis(a.WallMS), millis(a.ActiveMS),
		} {
			cols[i].cells = append(cols[i].cells, x)
		}
	}
	if len(s.Benchmarks) == 0 {
		cols = append(cols[:1], cols[2:]...)
	}
	return cols
}

func (a *ArmSummary) excluded() string {
	var parts []string
	for _, c := range classes {
		if n := a.Excluded[c]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c))
		}
	}
	if parts == nil {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// remarks describes what the table does not show.
func (a *ArmSummary) remarks(s *Summary) string {
	var parts []string
	for _, e := range ends[1:] {
		if n := a.Ends[string(e)]; n > 0 && (e != record.Answered || len(a.Ends) > 1) {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(e), "_", " ")))
		}
	}
	if a.BadCalls > 0 {
		parts = append(parts, plural(int(a.BadCalls), "bad call"))
	}
	if a.Abandoned > 0 {
		parts = append(parts, plural(a.Abandoned, "trial")+" abandoned (did not stop when told)")
	}
	if a.Left > 0 {
		parts = append(parts, plural(a.Left, "trial")+" with processes left running")
	}
	if a.Refused > 0 {
		parts = append(parts, plural(a.Refused, "trial")+" had connections refused by the network policy")
	}
	if text := a.opinions(); text != "" {
		parts = append(parts, text)
	}
	var flags []string
	for _, f := range slices.Sorted(maps.Keys(a.Flags)) {
		if n := a.Flags[f]; n > 0 {
			flags = append(flags, fmt.Sprintf("%d %s", n, line(f)))
		}
	}
	if flags != nil {
		parts = append(parts, "flags: "+strings.Join(flags, ", "))
	}
	if a.Further > 0 {
		parts = append(parts, plural(int(a.Further), "more attempt"))
	}
	if a.PassAtK != nil {
		t := fmt.Sprintf("pass@%d %.3f, pass^%d %.3f", s.Repeats, *a.PassAtK, s.Repeats, *a.PassHatK)
		if s.Success != nil {
			t += fmt.Sprintf(" (right: reward ≥ %.4g)", *s.Success)
		}
		parts = append(parts, t)
	} else if a.PassWhy != "" {
		parts = append(parts, fmt.Sprintf("no pass@%d: %s", s.Repeats, a.PassWhy))
	}
	if a.OtherCost != nil && *a.OtherCost > 0 {
		parts = append(parts, "benchmark's models "+dollars(a.OtherCost))
	}
	return strings.Join(parts, " · ")
}

// opinions describes the second opinions on scores.
func (a *ArmSummary) opinions() string {
	var parts []string
	for _, state := range opinions[1:] {
		if n := a.Opinions[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ReplaceAll(state, "_", " ")))
		}
		if n := a.NotApplicableUsed; n > 0 && state == record.Inapplicable {
			parts[len(parts)-1] += fmt.Sprintf(" (in %d of them the verifier used files that the agent changed)", n)
		}
	}
	if parts == nil {
		return ""
	}
	text := "second opinions: " + strings.Join(parts, ", ")
	if a.MeanConfirmed != nil {
		text += ", mean with the unconfirmed as 0: " + score(a.MeanConfirmed)
	}
	return text
}

// opinionSteps says what to do about second opinions.
func (s *Summary) opinionSteps() (out []string) {
	var list []string
	all := map[string]int{}
	for _, a := range s.Arms {
		for state, n := range a.Opinions {
			all[state] += n
		}
		if a.NotApplicableUsed > 0 {
			list = []string{record.Inapplicable}
		}
	}
	for _, state := range []string{record.Unknown, record.Unconfirmed} {
		if all[state] > 0 {
			list = slices.Insert(list, 0, state)
		}
	}
	run := quote(cmp.Or(s.Path, s.Run))
	if list != nil {
		out = append(out, fmt.Sprintf("Scores that no second opinion confirms: evalrun show %s --status %s", run,
			strings.Join(list, ",")))
	}
	if all[record.Unknown] > 0 {
		out = append(out, "What is not known may be after evalrun tasks check; then: evalrun resume "+run)
	}
	if all[record.Pending] > 0 {
		out = append(out, "Pending second opinions are asked for by: evalrun resume "+run)
	}
	return out
}

// legend explains the numbers, one sentence each.
func legend(s *Summary) []string {
	how := map[string]bool{}
	for _, a := range s.Arms {
		how[a.Method] = true
	}
	out := []string{
		`"mean" is over the trials that are evidence; "mean (all)" is over all planned trials, and those without evidence count 0.`,
		`Steps and times are means of the trials that are evidence; tokens and cost are sums over all attempts.`,
	}
	var from []string
	for _, m := range []struct{ name, text string }{
		{stats.ByMidP, "from how many trials have the score 1"},
		{stats.ByEffective, "from the scores, where repeats of a task do not count as so many tasks"},
		{stats.ByT, "from how far the scores of tasks are apart"},
		{stats.ByWilson, "from the number of tasks alone where all scores are the same"},
	} {
		if how[m.name] {
			from = append(from, m.text)
		}
	}
	if from != nil {
		out = append(out, fmt.Sprintf("The interval says where the mean over all tasks like these lies, with %.0f %% "+
			"confidence. It is computed %s (docs/statistics.md).",
			100*Level, strings.Join(from, ", or ")))
	}
	return out
}

func (s *Summary) problemsText(p *printer, st Style) {
	if len(s.Problems) == 0 {
		return
	}
	p.f("\ntrouble\n")
	for i, x := range s.Problems {
		if i == 10 {
			p.f("  … and %s more\n", plural(len(s.Problems)-10, "kind"))
			break
		}
		what := st.bad(fmt.Sprintf("%4d × %s", x.Count, line(x.kind())))
		if x.Messages == nil {
			p.f("  %s\n            %s\n", strings.TrimSuffix(what+": "+middle(line(x.Text), 200), ": "),
				st.dim(s.show(x.Trial)))
			continue
		}
		p.f("  %s\n", what)
		shown, more := x.shown()
		for _, m := range shown {
			p.f("       %4d × %s\n                %s\n", m.Count, middle(line(m.Text), 200), st.dim(s.show(m.Trial)))
		}
		if more > 0 {
			p.f("              and %d more\n", more)
		}
	}
}

func (t TrialRef) String() string {
	return fmt.Sprintf("%s · %s/%s #%d", line(t.Arm), line(t.Benchmark), line(t.Task), t.Repeat)
}

func (s *Summary) show(t TrialRef) string { return showCommand(s.Path, s.Run, t.ID) }

// Markdown writes summary.md, for CI pages.
func (s *Summary) Markdown(w io.Writer) error {
	p := &printer{w: w}
	title := s.Run
	if s.Name != "" {
		title = s.Name
	}
	p.f("## %s\n\n%s\n\n", md(title), md(s.head()))
	p.f("| arm | planned | evidence | excluded | mean | 95 %% interval | mean (all) | steps | tokens | cost | wall " +
		"| active |\n")
	p.f("|---|--:|--:|---|--:|---|--:|--:|--:|--:|--:|--:|\n")
	for _, a := range append(append([]ArmSummary{}, s.Arms...), s.Benchmarks...) {
		name := md(a.Arm)
		if a.Benchmark != "" {
			name += " / " + md(a.Benchmark)
		}
		iv := unknown
		if a.Interval != nil {
			iv = fmt.Sprintf("%.3f – %.3f", a.Interval.Low, a.Interval.High)
		}
		p.f("| %s | %d | %d | %s | **%s** | %s | %s | %s | %s | %s | %s | %s |\n", name, a.Planned, a.Scored,
			a.excluded(), score(a.Mean), iv,
			score(a.MeanPlanned), one(a.Steps), a.tokens(), dollars(a.Cost), millis(a.WallMS), millis(a.ActiveMS))
	}
	p.f("\n")
	for _, a := range s.Arms {
		if t := a.remarks(s); t != "" {
			p.f("- %s: %s\n", md(a.Arm), md(t))
		}
	}
	p.f("\n<sub>%s</sub>\n", md(strings.Join(append(s.opinionSteps(), legend(s)...), " ")))
	for i, g := range s.Gates {
		if i == 0 {
			p.f("\n| gate | | |\n|---|---|---|\n")
		}
		word := "**failed**"
		if g.Passed {
			word = "passed"
		}
		p.f("| %s | %s | %s |\n", md(g.Arm), word, md(g.Why))
	}
	for _, x := range s.Warnings {
		p.f("\n> **warning:** %s\n", md(x))
	}
	if len(s.Problems) > 0 {
		p.f("\n| trouble | trials | message | look |\n|---|--:|---|---|\n")
		for i, x := range s.Problems {
			if i == 10 {
				break
			}
			shown, more := x.shown()
			for _, m := range shown {
				p.f("| %s | %d | %s | `%s` |\n", md(x.kind()), m.Count, md(middle(m.Text, 200)),
					strings.NewReplacer("`", "", "|", "").Replace(s.show(m.Trial)))
			}
			if more > 0 {
				p.f("| %s | %d | others | |\n", md(x.kind()), more)
			}
		}
	}
	return p.err
}

// tokens formats the number of tokens of the arm's models, in and out.
func (a *ArmSummary) tokens() string {
	if a.TokensIn == nil {
		return unknown
	}
	return count(*a.TokensIn + *a.TokensOut)
}
