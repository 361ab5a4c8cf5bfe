package text

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/stats"
)

// A Side is one arm of one run.
type Side struct {
	Results *Results
	Arm     int // index in Plan.Arms
	Path    string
}

func (s Side) arm() *record.Arm { return &s.Results.Plan.Arms[s.Arm] }

// Sides selects the pairs of arms to compare. If a and b are given, it compares those arms: a from
// the first run that has it, b from the last. For one run, it compares the first arm (or a) with
// each other arm (or with b). For several runs, it compares the arms of the first run (or a) with
// the arms of the same name (or b) in the others. If the runs share no arm names and each has a
// single arm, it compares those.
func Sides(runs []*Results, paths []string, a, b string) (pairs [][2]Side, err error) {
	if len(runs) == 0 {
		return nil, fmt.Errorf("compare: no run given")
	}
	side := func(run int, name string) (Side, bool) {
		i := runs[run].armNamed(name)
		return Side{runs[run], i, paths[run]}, i >= 0
	}
	for _, n := range []string{a, b} {
		if n != "" && !slices.ContainsFunc(runs, func(r *Results) bool { return r.armNamed(n) >= 0 }) {
			return nil, fmt.Errorf("compare: no arm is called %q; there are %s", n, armNames(runs))
		}
	}
	last := len(runs) - 1
	switch {
	case a != "" && b != "":
		var x, y Side
		for i, ok := 0, false; !ok; i++ {
			x, ok = side(i, a)
		}
		for i, ok := last, false; !ok; i-- {
			y, ok = side(i, b)
		}
		return [][2]Side{{x, y}}, nil
	case len(runs) == 1:
		arms := runs[0].Plan.Arms
		if len(arms) < 2 {
			return nil, fmt.Errorf("compare: the run has one arm only (%s); name a second run", armNames(runs))
		}
		base := max(0, runs[0].armNamed(a))
		if a == "" && b == arms[0].Name {
			base = 1
		}
		for i := range arms {
			if i != base && (b == "" || runs[0].armNamed(b) == i) {
				pairs = append(pairs, [2]Side{{runs[0], base, paths[0]}, {runs[0], i, paths[0]}})
			}
		}
	default:
		for i := range runs[0].Plan.Arms {
			base := Side{runs[0], i, paths[0]}
			if a != "" && runs[0].armNamed(a) != i {
				continue
			}
			for j := 1; j <= last; j++ {
				if x, ok := side(j, cmp.Or(b, base.arm().Name)); ok {
					pairs = append(pairs, [2]Side{base, x})
				}
			}
		}
		if pairs == nil && len(runs[0].Plan.Arms) == 1 {
			for j := 1; j <= last; j++ {
				if len(runs[j].Plan.Arms) == 1 {
					pairs = append(pairs, [2]Side{{runs[0], 0, paths[0]}, {runs[j], 0, paths[j]}})
				}
			}
		}
	}
	if pairs == nil {
		return nil, fmt.Errorf("compare: the runs have no arm in common; name two with -a and -b: there are %s",
			armNames(runs))
	}
	return pairs, nil
}

// armNamed returns the index of the arm with a name or ID, or -1.
func (r *Results) armNamed(name string) int {
	return slices.IndexFunc(r.Plan.Arms,
		func(a record.Arm) bool { return name != "" && (a.Name == name || a.ID == name) })
}

func armNames(runs []*Results) string {
	seen := map[string]bool{}
	for _, r := range runs {
		for _, a := range r.Plan.Arms {
			seen[fmt.Sprintf("%q", a.Name)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
}

// A Comparison is the paired difference between two arms. Its JSON form is described in
// docs/schema.md.
type Comparison struct {
	V int          `json:"v"`
	A ComparedSide `json:"a"`
	B ComparedSide `json:"b"`

	// Pairs is the number of (task, repeat) pairs that both sides planned.
	Pairs    int `json:"pairs"`
	Unpaired int `json:"unpaired"` // planned by one side only
	// LeftOut is the number of (task, repeat) that both sides planned but that are not compared,
	// because one side was regraded with a version of the task that the other side was not graded
	// with.
	LeftOut int `json:"left_out"`
	// LostA and LostB are the numbers of pairs in which that side is not evidence.
	LostA int `json:"lost_a"`
	LostB int `json:"lost_b"`

	// Evidence and Planned are corrected by stats.Compare for the number of comparisons made
	// together. They are null if there are no pairs.
	Evidence *stats.Paired `json:"evidence"` // pairs in which both sides are evidence
	Planned  *stats.Paired `json:"planned"`  // all pairs; a side that is not evidence counts as 0

	Flipped  []Flip   `json:"flipped"`
	Differs  []string `json:"differs,omitempty"`  // differences between the arms' definitions
	Warnings []string `json:"warnings,omitempty"` // other possible reasons for the difference
}

// A ComparedSide is one side of a comparison.
type ComparedSide struct {
	Run     string `json:"run"`
	Path    string `json:"path,omitempty"`
	Arm     string `json:"arm"`
	ArmID   string `json:"arm_id"`
	Planned int    `json:"planned"`
	Scored  int    `json:"scored"`
	// Unconfirmed scores count as they are; with integrity: require they are 0.
	Unconfirmed int `json:"unconfirmed,omitempty"`
}

// A Flip is a task on which the arms differ: the mean rewards over the repeats that are evidence on
// both sides, and example trials.
type Flip struct {
	Benchmark string  `json:"benchmark"`
	Task      string  `json:"task"`
	A         float64 `json:"a"`
	B         float64 `json:"b"`
	TrialA    string  `json:"trial_a"`
	TrialB    string  `json:"trial_b"`
}

// ComparisonVersion is the version of a comparison's JSON. It is incremented when a field is
// removed or changes its meaning.
const ComparisonVersion = 2

// Compare compares pairs that were selected together. The results are corrected for the number of
// comparisons.
func Compare(pairs [][2]Side) []Comparison {
	cs := make([]Comparison, len(pairs))
	evidence, planned := make([][]stats.Pairing, len(pairs)), make([][]stats.Pairing, len(pairs))
	for i, p := range pairs {
		cs[i], evidence[i], planned[i] = match(p[0], p[1])
	}
	for i, p := range stats.Compare(evidence, Level) {
		cs[i].Evidence = p
	}
	for i, p := range stats.Compare(planned, Level) {
		cs[i].Planned = p
	}
	return cs
}

// match pairs the trials of two arms by benchmark, task and repeat.
func match(a, b Side) (c Comparison, evidence, planned []stats.Pairing) {
	c = Comparison{V: ComparisonVersion, A: a.compared(), B: b.compared(), Flipped: []Flip{}}
	type key struct{ bench, task string }
	other := map[key]int{}
	for i, t := range b.Results.Plan.Tasks {
		other[key{t.Benchmark, t.ID}] = i
	}
	reps := min(a.Results.repeats(), b.Results.repeats())
	changed := 0
	var apart []string // tasks with repeats that are left out
	for i := range a.Results.Plan.Tasks {
		t := &a.Results.Plan.Tasks[i]
		j, ok := other[key{t.Benchmark, t.ID}]
		if !ok {
			continue
		}
		if t.Digest != b.Results.Plan.Tasks[j].Digest {
			changed++
		}
		f := Flip{Benchmark: t.Benchmark, Task: t.ID}
		n, left := 0, c.LeftOut
		for rep := 1; rep <= reps; rep++ {
			x, y := a.Results.at(a.Arm, i, rep), b.Results.at(b.Arm, j, rep)
			byx, byy := a.Results.gradedBy(&a.Results.slots[x]), b.Results.gradedBy(&b.Results.slots[y])
			if (byx != "" || byy != "") && cmp.Or(byx, t.Digest) != cmp.Or(byy, b.Results.Plan.Tasks[j].Digest) {
				c.LeftOut++
				continue
			}
			rx, ry := a.Results.slots[x].reward, b.Results.slots[y].reward
			okx, oky := !math.IsNaN(rx), !math.IsNaN(ry)
			c.Pairs++
			if !okx {
				c.LostA++
				rx = 0
			}
			if !oky {
				c.LostB++
				ry = 0
			}
			planned = append(planned, stats.Pairing{A: rx, B: ry, Cluster: cluster(t)})
			if !okx || !oky {
				continue
			}
			evidence = append(evidence, stats.Pairing{A: rx, B: ry, Cluster: cluster(t)})
			f.A, f.B = f.A+rx, f.B+ry
			n++
			if f.TrialA == "" || rx != ry {
				f.TrialA, f.TrialB = a.Results.id(x), b.Results.id(y)
			}
		}
		if c.LeftOut > left {
			apart = append(apart, t.Benchmark+"/"+t.ID)
		}
		if n > 0 && f.A != f.B {
			f.A, f.B = f.A/float64(n), f.B/float64(n)
			c.Flipped = append(c.Flipped, f)
		}
	}
	slices.SortFunc(c.Flipped, func(x, y Flip) int {
		return cmp.Or(cmp.Compare(x.B-x.A, y.B-y.A), cmp.Compare(x.Benchmark, y.Benchmark), cmp.Compare(x.Task, y.Task))
	})
	c.Unpaired = c.A.Planned + c.B.Planned - 2*(c.Pairs+c.LeftOut)
	c.guard(a, b, changed, apart)
	return c, evidence, planned
}

func (s Side) compared() ComparedSide {
	out := ComparedSide{Run: s.Results.Plan.Run, Path: s.Path, Arm: s.arm().Name, ArmID: s.arm().ID}
	for _, sl := range s.Results.slots[s.Results.at(s.Arm, 0, 1):s.Results.at(s.Arm+1, 0, 1)] {
		out.Planned++
		if statuses[sl.status] == record.Scored {
			out.Scored++
		}
		if opinions[sl.opinion] == record.Unconfirmed {
			out.Unconfirmed++
		}
	}
	return out
}
