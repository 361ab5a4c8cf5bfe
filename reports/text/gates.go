package text

import (
	"cmp"
	"fmt"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/stats"
)

// A Gate is a threshold that a run must meet.
type Gate struct {
	Arm    string // name or ID; "" means every arm
	Metric string // mean (default), mean_confirmed, mean_planned, unconfirmed, coverage, cost, difference
	Than   string // for difference: the arm that Arm is compared with
	Min    *float64
	Max    *float64
}

// A GateResult is the result of a gate for one arm.
type GateResult struct {
	Arm    string   `json:"arm"`
	Metric string   `json:"metric"`
	Than   string   `json:"than,omitempty"`
	Value  *float64 `json:"value"`
	Passed bool     `json:"passed"`
	Why    string   `json:"why"`
}

// Gates evaluates gates. An unknown value (the mean without evidence, an unknown price) does not
// pass. Differences are computed by [Compare], all together, and corrected for their number. A gate
// on a difference fails only if the difference is shown to be out of bounds, not merely by chance,
// and it does not pass if there are too few tasks to tell.
func (r *Results) Gates(gs []Gate) []GateResult {
	var out []GateResult
	differences := r.differences(gs)
	for _, g := range gs {
		if g.Metric == "" {
			g.Metric = "mean"
		}
		if g.Arm != "" {
			out = append(out, r.gate(g, r.armNamed(g.Arm), differences))
			continue
		}
		for i := range r.Plan.Arms {
			out = append(out, r.gate(g, i, differences))
		}
	}
	return out
}

// differences compares every two arms that a gate names, all together.
func (r *Results) differences(gs []Gate) map[[2]int]*Comparison {
	var pairs [][2]Side
	out := map[[2]int]*Comparison{}
	for _, g := range gs {
		than, arm := r.armNamed(g.Than), r.armNamed(g.Arm)
		if _, seen := out[[2]int{than, arm}]; g.Metric != "difference" || than < 0 || arm < 0 || seen {
			continue
		}
		out[[2]int{than, arm}] = nil
		pairs = append(pairs, [2]Side{{Results: r, Arm: than}, {Results: r, Arm: arm}})
	}
	for i, c := range Compare(pairs) {
		out[[2]int{pairs[i][0].Arm, pairs[i][1].Arm}] = &c
	}
	return out
}

func (r *Results) gate(g Gate, arm int, differences map[[2]int]*Comparison) GateResult {
	res := GateResult{Arm: g.Arm, Metric: g.Metric, Than: g.Than}
	if arm < 0 {
		res.Why = fmt.Sprintf("no arm is called %q", g.Arm)
		return res
	}
	res.Arm = r.Plan.Arms[arm].Name
	switch a := r.arm(arm, -1); g.Metric {
	case "mean":
		res.Value = a.Mean
	case "mean_confirmed":
		res.Value = cmp.Or(a.MeanConfirmed, a.Mean)
	case "unconfirmed":
		res.Value = ptr(float64(a.Opinions[record.Unconfirmed]))
	case "mean_planned":
		res.Value = a.MeanPlanned
	case "coverage":
		res.Value = a.Coverage
	case "cost":
		res.Value = a.Cost
	case "difference":
		return res.difference(g, differences[[2]int{r.armNamed(g.Than), arm}])
	default:
		res.Why = fmt.Sprintf("there is no metric %q; there are mean, mean_confirmed, mean_planned, unconfirmed, "+
			"coverage, cost, difference",
			g.Metric)
		return res
	}
	switch v := res.Value; {
	case v == nil:
		res.Why = g.Metric + " is not known"
	case g.Min != nil && *v < *g.Min:
		res.Why = fmt.Sprintf("%s %.4g is below %.4g", g.Metric, *v, *g.Min)
	case g.Max != nil && *v > *g.Max:
		res.Why = fmt.Sprintf("%s %.4g is above %.4g", g.Metric, *v, *g.Max)
	default:
		res.Passed, res.Why = true, fmt.Sprintf("%s %.4g", g.Metric, *v)
	}
	return res
}

func (res GateResult) difference(g Gate, c *Comparison) GateResult {
	name := "difference to " + g.Than
	var p *stats.Paired
	if c != nil {
		p = c.Evidence
		if c.LeftOut > 0 {
			name += fmt.Sprintf(" (without %s graded by different versions of their task)", plural(c.LeftOut, "pair"))
		}
	}
	if p == nil || p.Interval == nil {
		res.Why = name + " is not known"
		return res
	}
	res.Value = &p.Diff
	low, high := bounds(p, signed, ">0", "<0")
	text := fmt.Sprintf("%s %s (%s interval %s … %s)", name, signed(p.Diff), percentLevel(p), low, high)
	iv := p.Interval
	switch {
	case p.Verdict == stats.TooFew:
		res.Why = fmt.Sprintf("%s: %s", text, headline(p))
	case g.Min != nil && (iv.High < *g.Min || iv.High == 0 && *g.Min == 0 && p.Verdict == stats.ABetter):
		res.Why = fmt.Sprintf("%s is below %.4g", text, *g.Min)
	case g.Max != nil && (iv.Low > *g.Max || iv.Low == 0 && *g.Max == 0 && p.Verdict == stats.BBetter):
		res.Why = fmt.Sprintf("%s is above %.4g", text, *g.Max)
	case g.Min != nil && p.Diff < *g.Min:
		res.Passed, res.Why = true, fmt.Sprintf("%s is not shown to be below %.4g", text, *g.Min)
	case g.Max != nil && p.Diff > *g.Max:
		res.Passed, res.Why = true, fmt.Sprintf("%s is not shown to be above %.4g", text, *g.Max)
	default:
		res.Passed, res.Why = true, text
	}
	return res
}

// Text formats the result as one line for a terminal.
func (res GateResult) Text(st Style) string {
	word := st.bad("failed")
	if res.Passed {
		word = st.good("passed")
	}
	return fmt.Sprintf("gate %s: %s: %s", word, line(res.Arm), line(res.Why))
}
