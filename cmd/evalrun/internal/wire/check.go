package wire

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/config"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
)

// Tasks plans a configuration without opening anything but its benchmarks: for looking at tasks.
func Tasks(ctx context.Context, eff *config.Effective) (*record.Plan, error) {
	r := &Ready{Eff: eff}
	for _, c := range eff.Benchmarks {
		b, err := OpenBenchmark(c)
		if err != nil {
			return nil, err
		}
		r.benches = append(r.benches, harness.Bench{Benchmark: b})
	}
	if err := r.plan(ctx); err != nil {
		return nil, err
	}
	return r.Plan, nil
}

// A CheckResult says whether a benchmark is sound here.
type CheckResult struct {
	Run      string         `json:"run"`
	Tasks    int            `json:"tasks"`
	Oracle   int            `json:"oracle"` // trials at full score
	Nop      int            `json:"nop"`
	Problems []CheckProblem `json:"problems"`
}

// A CheckProblem is a task that is not sound, or could not be checked.
type CheckProblem struct {
	Benchmark string `json:"benchmark"`
	Task      string `json:"task"`
	Trial     string `json:"trial"`
	What      string `json:"what"`
}

// full is what counts as the full score; graders add up fractions.
const full = 1 - 1e-9

// Check judges a finished run of oracle and nop.
func Check(d *rundir.Dir) (CheckResult, error) {
	p := d.Plan()
	res := CheckResult{Run: d.Path(), Tasks: len(p.Tasks) * p.Repeats, Problems: []CheckProblem{}}
	verdicts := map[string]record.Verdict{}
	for e, err := range journal.Control(d.Journal()) {
		if err != nil {
			return res, err
		}
		if e.Kind != record.KindVerdict {
			continue
		}
		var v record.Verdict
		if err := json.Unmarshal(e.Data, &v); err != nil {
			return res, fmt.Errorf("verdict of trial %s: %w", e.Trial, err)
		}
		if v.Final {
			verdicts[e.Trial] = v
		}
	}
	for _, t := range p.Tasks {
		for rep := 1; rep <= p.Repeats; rep++ {
			for _, a := range p.Arms {
				id := record.TrialID(a.ID, t.Digest, rep)
				v, ok := verdicts[id]
				what := ""
				reached := v.Reward != nil && *v.Reward >= full
				switch {
				case !ok:
					what = a.Name + " was not decided"
				case v.Status != record.Scored:
					what = fmt.Sprintf("%s: %s", a.Name, v.Status)
					if v.Error != nil {
						what += " in " + v.Error.Phase + ": " + v.Error.Text
					}
				case a.Agent == "oracle" && !reached:
					what = fmt.Sprintf("the oracle scores %s", score(v.Reward))
				case a.Agent == "nop" && reached:
					what = "doing nothing earns the full score"
				}
				switch {
				case a.Agent == "oracle" && reached:
					res.Oracle++
				case a.Agent == "nop" && reached:
					res.Nop++
				}
				if what != "" {
					res.Problems = append(res.Problems, CheckProblem{t.Benchmark, t.ID, id, what})
				}
			}
		}
	}
	return res, nil
}

func score(x *float64) string {
	if x == nil {
		return "nothing"
	}
	return fmt.Sprintf("%g", *x)
}
