package text

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/reports/stats"
)

// ComparisonsJSON writes comparisons as JSON.
func ComparisonsJSON(w io.Writer, cs []Comparison) error {
	return encode(w, struct {
		V           int          `json:"v"`
		Comparisons []Comparison `json:"comparisons"`
	}{ComparisonVersion, cs})
}

// flipsShown is the maximum number of flipped tasks shown on a terminal in each direction.
const flipsShown = 15

// Text writes the comparison for a terminal.
func (c *Comparison) Text(w io.Writer, st Style) error {
	p := &printer{w: w}
	p.f("A  %s\nB  %s\n", c.A.String(), c.B.String())
	for _, d := range c.Differs {
		p.f("   %s\n", st.dim("differs in "+line(d)))
	}
	p.f("\n")
	for _, x := range c.Warnings {
		p.f("%s %s\n", st.warn("WARNING:"), line(x))
	}
	if c.Warnings != nil {
		p.f("\n")
	}
	if c.Evidence == nil {
		p.f("%s\n", st.bad("nothing to compare: no task is evidence on both sides"))
		return p.err
	}
	p.table(st, "", c.columns())
	p.f("\n%s\n", st.bold(c.Verdict()))
	for _, n := range c.notes() {
		p.f("%s\n", st.dim(n))
	}
	c.flips(p, st)
	return p.err
}

func (s ComparedSide) String() string {
	return fmt.Sprintf("%s  (%s; %d planned, %d evidence)", line(s.Arm), line(s.Run), s.Planned, s.Scored)
}

func (c *Comparison) columns() []*column {
	cols := []*column{
		{head: "over"}, {head: "pairs", right: true}, {head: "A", right: true}, {head: "B", right: true},
		{head: "B − A", right: true},
		{head: percentLevel(c.Evidence) + " interval"}, {head: "SE", right: true, drop: 2},
		{head: "correlation", right: true, drop: 1},
	}
	for _, r := range []struct {
		name string
		p    *stats.Paired
	}{{"evidence on both sides", c.Evidence}, {"all planned", c.Planned}} {
		if r.p == nil {
			continue
		}
		iv := unknown
		if r.p.Interval != nil {
			low, high := bounds(r.p, signed, ">0", "<0")
			iv = low + " … " + high
			if percentLevel(r.p) != percentLevel(c.Evidence) {
				iv += " (" + percentLevel(r.p) + ")"
			}
		}
		for i, x := range []string{
			r.name, fmt.Sprint(r.p.N), fmt.Sprintf("%.3f", r.p.MeanA), fmt.Sprintf("%.3f", r.p.MeanB), signed(r.p.Diff),
			iv, score(r.p.SE), score(r.p.Corr),
		} {
			cols[i].cells = append(cols[i].cells, x)
		}
	}
	return cols
}

func signed(x float64) string {
	if x > -0.0005 && x < 0.0005 {
		return "0.000"
	}
	return strings.Replace(fmt.Sprintf("%+.3f", x), "-", "−", 1)
}

// bounds formats the ends of the interval. If a difference is shown and an end would print as 0, it
// prints above or below instead.
func bounds(p *stats.Paired, show func(float64) string, above, below string) (low, high string) {
	low, high = show(p.Interval.Low), show(p.Interval.High)
	if p.Verdict == stats.BBetter && low == show(0) {
		low = above
	}
	if p.Verdict == stats.ABetter && high == show(0) {
		high = below
	}
	return low, high
}

// percentLevel formats the interval's confidence level with as many digits as needed to distinguish
// it from 100 %.
func percentLevel(p *stats.Paired) string {
	level := Level
	if p.Interval != nil {
		level = p.Interval.Level
	}
	for digits := 1; ; digits++ {
		s := strconv.FormatFloat(100*level, 'f', digits, 64)
		if digits > 9 || !strings.HasPrefix(s, "100") {
			return strings.TrimSuffix(s, ".0") + " %"
		}
	}
}

// Verdict describes the comparison in one sentence.
func (c *Comparison) Verdict() string {
	if c.Evidence == nil {
		return "nothing to compare"
	}
	return headline(c.Evidence)
}

func headline(p *stats.Paired) string {
	points := func(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) }
	switch p.Verdict {
	case stats.BBetter:
		low, high := bounds(p, points, "above 0", "")
		return fmt.Sprintf("B is better by %s points (%s interval %s to %s)", points(p.Diff), percentLevel(p), low,
			high)
	case stats.ABetter:
		low, high := bounds(p, func(x float64) string { return points(-x + 0) }, "", "above 0")
		return fmt.Sprintf("A is better by %s points (%s interval %s to %s)", points(-p.Diff), percentLevel(p), high,
			low)
	case stats.TooFew:
		return fmt.Sprintf("too few tasks to tell: %d, and a difference can show from %d on", p.Clusters, p.Needed)
	}
	return "no difference is shown"
}

// tests are the names of the statistical tests in the text.
var tests = map[string]string{
	stats.McNemarTest: "McNemar's test, mid-p", stats.ScoreTest: "score test over tasks",
	stats.TTest: "t test over tasks",
}

func (c *Comparison) notes() (ns []string) {
	e := c.Evidence
	if e.P != nil {
		n := fmt.Sprintf("%s (%s", pvalue(*e.P), tests[e.Test])
		if e.Test == stats.McNemarTest {
			n += fmt.Sprintf("; only A right: %d, only B right: %d", e.OnlyA, e.OnlyB)
		}
		n += ")"
		if e.Together > 1 {
			n += fmt.Sprintf("; corrected for %d comparisons made together (Holm): %s", e.Together, pvalue(*e.Holm))
		}
		ns = append(ns, n)
	}
	switch {
	case e.Detectable != nil:
		ns = append(ns, fmt.Sprintf("smallest difference that would be seen (80 %% power): %.1f points",
			*e.Detectable*100))
	case e.Verdict != stats.TooFew:
		ns = append(ns, "smallest difference that would be seen: not known, since all tasks differ by the same")
	}
	if e.Clusters < e.N {
		ns = append(ns, fmt.Sprintf("%d pairs in %d clusters: repeats of a task, and tasks about one thing, are not "+
			"independent", e.N, e.Clusters))
	}
	if c.Planned != nil && e.Verdict != c.Planned.Verdict && e.Verdict != stats.TooFew {
		ns = append(ns, "the two denominators disagree: what is no evidence decides")
	}
	return ns
}

func pvalue(p float64) string {
	if p < 0.001 {
		return "p < 0.001"
	}
	return fmt.Sprintf("p = %.3f", p)
}

func (c *Comparison) flips(p *printer, st Style) {
	if len(c.Flipped) == 0 {
		p.f("\nno task flipped\n")
		return
	}
	worse := 0
	for worse < len(c.Flipped) && c.Flipped[worse].B < c.Flipped[worse].A {
		worse++
	}
	show := func(title string, fs []Flip, paint func(string) string) {
		if len(fs) == 0 {
			return
		}
		p.f("\n%s (%d)\n", title, len(fs))
		for i, f := range fs {
			if i == flipsShown && !st.Full {
				p.f("  … and %d more\n", len(fs)-i)
				break
			}
			p.f("  %s  %s\n", paint(fmt.Sprintf("%.2f → %.2f", f.A, f.B)), line(f.Benchmark)+"/"+line(f.Task))
			p.f("               %s\n               %s\n", st.dim(c.A.show(f.TrialA)), st.dim(c.B.show(f.TrialB)))
		}
	}
	show("worse in B", c.Flipped[:worse], st.bad)
	show("better in B", c.Flipped[worse:], st.good)
}

func (s ComparedSide) show(trial string) string { return showCommand(s.Path, s.Run, trial) }

// Markdown writes the comparison for CI pages.
func (c *Comparison) Markdown(w io.Writer) error {
	p := &printer{w: w}
	p.f("## %s → %s\n\n", md(c.A.Arm), md(c.B.Arm))
	p.f("- A: %s\n- B: %s\n\n", md(c.A.String()), md(c.B.String()))
	for _, x := range c.Warnings {
		p.f("> **WARNING:** %s\n>\n", md(x))
	}
	if c.Evidence == nil {
		p.f("\nNothing to compare: no task is evidence on both sides.\n")
		return p.err
	}
	p.f("\n**%s**\n\n", md(c.Verdict()))
	cols := c.columns()
	var heads, rules []string
	for _, x := range cols {
		heads = append(heads, x.head)
		rules = append(rules, "---")
	}
	p.f("| %s |\n|%s|\n", strings.Join(heads, " | "), strings.Join(rules, "|"))
	for i := range cols[0].cells {
		var cells []string
		for _, x := range cols {
			cells = append(cells, x.cells[i])
		}
		p.f("| %s |\n", strings.Join(cells, " | "))
	}
	p.f("\n")
	for _, n := range c.notes() {
		p.f("- %s\n", md(n))
	}
	if len(c.Flipped) > 0 {
		p.f("\n| flipped | A | B |\n|---|--:|--:|\n")
		for i, f := range c.Flipped {
			if i == 50 {
				p.f("| … %d more | | |\n", len(c.Flipped)-i)
				break
			}
			p.f("| %s/%s | %.2f | %.2f |\n", md(f.Benchmark), md(f.Task), f.A, f.B)
		}
	}
	return p.err
}
