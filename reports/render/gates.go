package render

import "fmt"

// A Gate is a threshold that a run has to pass.
type Gate struct {
	Arm    string // name or ID; "": every arm
	Metric string // mean (default), mean_planned, coverage, cost, difference
	Than   string // of difference: the arm that Arm is compared with
	Min    *float64
	Max    *float64
}

// A GateResult is what became of a gate for one arm.
type GateResult struct {
	Arm    string   `json:"arm"`
	Metric string   `json:"metric"`
	Than   string   `json:"than,omitempty"`
	Value  *float64 `json:"value"`
	Passed bool     `json:"passed"`
	Why    string   `json:"why"`
}

// Gates judges gates. What is not known (the mean of no evidence, an unknown price) does not pass.
func (r *Results) Gates(gs []Gate) []GateResult {
	var out []GateResult
	for _, g := range gs {
		if g.Metric == "" {
			g.Metric = "mean"
		}
		if g.Arm != "" {
			out = append(out, r.gate(g, r.armNamed(g.Arm)))
			continue
		}
		for i := range r.Plan.Arms {
			out = append(out, r.gate(g, i))
		}
	}
	return out
}

func (r *Results) gate(g Gate, arm int) GateResult {
	res := GateResult{Arm: g.Arm, Metric: g.Metric, Than: g.Than}
	if arm < 0 {
		res.Why = fmt.Sprintf("no arm is called %q", g.Arm)
		return res
	}
	res.Arm = r.Plan.Arms[arm].Name
	name := g.Metric
	switch a := r.arm(arm, -1); g.Metric {
	case "mean":
		res.Value = a.Mean
	case "mean_planned":
		res.Value = a.MeanPlanned
	case "coverage":
		res.Value = a.Coverage
	case "cost":
		res.Value = a.Cost
	case "difference":
		name += " to " + g.Than
		if than := r.armNamed(g.Than); than >= 0 {
			if c := Compare(Side{Results: r, Arm: than}, Side{Results: r, Arm: arm}); c.Evidence != nil {
				res.Value = &c.Evidence.Diff
			}
		}
	default:
		res.Why = fmt.Sprintf("there is no metric %q; there are mean, mean_planned, coverage, cost, difference", g.Metric)
		return res
	}
	switch v := res.Value; {
	case v == nil:
		res.Why = name + " is not known"
	case g.Min != nil && *v < *g.Min:
		res.Why = fmt.Sprintf("%s %.4g is below %.4g", name, *v, *g.Min)
	case g.Max != nil && *v > *g.Max:
		res.Why = fmt.Sprintf("%s %.4g is above %.4g", name, *v, *g.Max)
	default:
		res.Passed, res.Why = true, fmt.Sprintf("%s %.4g", name, *v)
	}
	return res
}

// Text is one line for a terminal.
func (g GateResult) Text(st Style) string {
	word := st.bad("failed")
	if g.Passed {
		word = st.good("passed")
	}
	return fmt.Sprintf("gate %s: %s: %s", word, line(g.Arm), line(g.Why))
}
