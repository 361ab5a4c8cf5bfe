package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
)

// A Pick selects decided trials to regrade. An empty field selects all.
type Pick struct {
	Trials  []string // trial IDs
	Tasks   []string // globs of task IDs
	Arms    []string // arm names
	Flags   []string // trials with any of these flags
	Changed bool     // include trials whose task has changed since they ran
}

// A Grade is the current grade of a trial.
type Grade struct {
	Status record.Status `json:"status"`
	Reward *float64      `json:"reward"`
	Flags  []string      `json:"flags,omitempty"`
}

func gradeOf(g ledger.Grade) Grade { return Grade{g.Status, g.Reward, g.Flags} }

// A Regraded is the result for one picked trial.
type Regraded struct {
	Trial     string `json:"trial"`
	Arm       string `json:"arm"`
	Benchmark string `json:"benchmark"`
	Task      string `json:"task"`
	Repeat    int    `json:"repeat"`
	Was       Grade  `json:"was"`
	Is        *Grade `json:"is,omitempty"`   // new grade; nil if the old one stays
	Changed   bool   `json:"changed"`        // Is differs from Was
	Live      bool   `json:"live,omitempty"` // the grading needs the live session
	Lost      bool   `json:"lost,omitempty"` // the evidence is damaged or missing
	Why       string `json:"why,omitempty"`  // why there is no new grade
}

// A RegradeOutcome is the result of a regrading.
type RegradeOutcome struct {
	Picked  int             `json:"picked"`           // picked trials that are decided
	Graded  int             `json:"graded"`           // trials with a new grade
	Changed int             `json:"changed"`          // trials whose new grade differs
	Live    int             `json:"live"`             // trials that cannot be regraded without the live session
	Bare    int             `json:"bare"`             // trials without stored evidence
	Failed  int             `json:"failed"`           // trials whose grading failed
	Lost    int             `json:"lost,omitempty"`   // trials whose evidence is damaged or missing
	Stopped bool            `json:"stopped"`          // stopped before all trials were regraded
	Reason  string          `json:"reason,omitempty"` // why it stopped, if not asked to: budget, usage
	Ended   harness.Summary `json:"-"`                // details of Reason
	Trials  []Regraded      `json:"trials"`           // trials with something to report
	Parquet error           `json:"-"`
}

// A decision is what the journal holds of a decided trial.
type decision struct {
	attempt  int
	fence    int64
	seq      int64 // number of the verdict's entry
	grade    ledger.Grade
	own      ledger.Grade // of the verdict
	evidence int          // attempt whose evidence was graded; 0 if the evidence of some stage is missing
}

// decisions reads the current grades of the decided trials, including amendments.
func decisions(dir string) map[string]*decision {
	type standing struct {
		ledger.Trial
		kept []record.Evidence // without their data
		*decision
	}
	trials := map[string]*standing{}
	for e, err := range journal.Control(dir) {
		if err != nil { // damaged lines were reported when the journal was opened
			continue
		}
		t := trials[e.Trial]
		if t == nil {
			t = &standing{}
			trials[e.Trial] = t
		}
		had, l := t.Evidence, ledger.Of(&e)
		switch t.Apply(&l) {
		case ledger.Began:
			t.decision = nil
		case ledger.Kept:
			var ev struct{ Last bool }
			if json.Unmarshal(e.Data, &ev) != nil {
				continue
			}
			if had != t.Evidence {
				t.kept = nil
			}
			t.kept = append(t.kept, record.Evidence{Last: ev.Last})
		case ledger.Decided:
			var v record.Verdict
			if json.Unmarshal(e.Data, &v) != nil {
				continue
			}
			own := ledger.GradeOf(&v)
			t.decision = &decision{attempt: e.Attempt, fence: e.Fence, seq: e.Seq, grade: own, own: own}
			if t.Evidence > 0 && ledger.Complete(&v, t.kept) {
				t.evidence = int(t.Evidence)
			}
		case ledger.Amended:
			var a record.Amend
			if t.decision != nil && json.Unmarshal(e.Data, &a) == nil {
				t.grade.Amend(&a)
			}
		}
	}
	out := map[string]*decision{}
	for id, t := range trials {
		if t.decision != nil {
			out[id] = t.decision
		}
	}
	return out
}

// gradings yields the picked trials with their evidence, which is read as each one is yielded.
func (r *Ready) gradings(dir string, of map[string]*decision, jobs map[string]harness.Job) iter.Seq[harness.Claimed] {
	return func(yield func(harness.Claimed) bool) {
		open := map[string][]record.Evidence{}
		for e, err := range journal.Control(dir) {
			d := of[e.Trial]
			if err != nil || d == nil || e.Seq > d.seq {
				continue
			}
			job, picked := jobs[e.Trial]
			if !picked {
				continue
			}
			switch {
			case e.Kind == record.KindEvidence && e.Attempt == d.evidence:
				var ev record.Evidence
				if json.Unmarshal(e.Data, &ev) == nil {
					open[e.Trial] = append(open[e.Trial], ev)
				}
			case e.Seq == d.seq && open[e.Trial] != nil:
				job.Evidence, job.Attempt, job.Fence = open[e.Trial], d.attempt, d.fence
				delete(open, e.Trial)
				if !yield(harness.Claimed{Job: job, Grade: d.grade, Own: d.own}) {
					return
				}
			}
		}
	}
}

// picked returns the trials that a pick selects, as jobs without evidence.
func (r *Ready) picked(p Pick, of map[string]*decision) map[string]harness.Job {
	out := map[string]harness.Job{}
	fits := func(globs []string, id string) bool {
		return len(globs) == 0 || slices.ContainsFunc(globs, func(g string) bool { return plan.Match(g, id) })
	}
	for j := range r.variants(plan.Jobs(r.Plan, nil, nil)) {
		d := of[j.Trial]
		switch {
		case d == nil,
			len(p.Trials) > 0 && !slices.Contains(p.Trials, j.Trial),
			len(p.Arms) > 0 && !slices.Contains(p.Arms, r.Plan.Arms[j.Arm].Name),
			len(p.Flags) > 0 && !slices.ContainsFunc(p.Flags,
				func(f string) bool { return slices.Contains(d.grade.Flags, f) }),
			!fits(p.Tasks, j.Task.ID):
		default:
			out[j.Trial] = j
		}
	}
	return out
}

// Regrade grades stored evidence again. Each new grade is durable before Observe is called for it.
func (r *Ready) Regrade(ctx context.Context, d *rundir.Dir, p Pick, c Control) (out RegradeOutcome, err error) {
	st, err := r.openStore(d)
	if err != nil {
		return out, err
	}
	defer func() {
		perr, jerr := st.Close()
		out.Parquet, err = perr, errors.Join(err, jerr)
	}()
	cfg, err := r.config(st.state, d)
	if err != nil {
		return out, err
	}
	if r.o.Budget != "" {
		run, err := d.Run()
		if err != nil {
			return out, err
		}
		r.keepBudget(run)
		if err := d.WriteRun(run); err != nil {
			return out, err
		}
	}
	if cfg.References, err = openReferences(); err != nil {
		return out, err
	}
	cfg.Blobs, cfg.Drain = st.blobs, c.Drain
	r.reapDead(ctx, nil)
	of := decisions(d.Journal())
	jobs := r.picked(p, of)
	out.Picked = len(jobs)
	for id, j := range jobs {
		if of[id].evidence == 0 {
			delete(jobs, id)
			out.Bare++
			if len(p.Trials) > 0 { // the trial was requested by ID
				out.Trials = append(out.Trials,
					r.regraded(j, of[id], nil,
						"its evidence was not kept, or not of all its stages: "+string(of[id].grade.Status)))
			}
		}
	}
	if c.Begun != nil {
		c.Begun(len(jobs))
	}
	seen := 0
	sum, err := r.oraclesFirst(&cfg, r.gradings(d.Journal(), of, jobs), func(jobs iter.Seq[harness.Claimed]) (
		harness.Summary, error) {
		o := harness.Regrading{Why: "graded again by evalrun " + r.o.Version, Changed: p.Changed}
		return harness.Regrade(ctx, cfg, o, jobs, st.journal, func(g harness.Regraded) {
			seen++
			was := of[g.Job.Trial]
			v := g.Verdict
			switch {
			case g.Lost != nil:
				out.Lost++
				x := r.regraded(g.Job, was, nil, g.Lost.Error())
				x.Lost = true
				out.Trials = append(out.Trials, x)
				v.Status = record.Infra
			case v.Status == record.Scored:
				is := ledger.GradeOf(&v)
				out.Graded++
				if x := r.regraded(g.Job, was, &is, ""); x.Changed {
					out.Changed++
					out.Trials = append(out.Trials, x)
				}
			case g.Live:
				out.Live++
				x := r.regraded(g.Job, was, nil, v.Error.Text)
				x.Live = true
				out.Trials = append(out.Trials, x)
			case v.Status == record.Canceled:
				seen--
			default:
				out.Failed++
				out.Trials = append(out.Trials, r.regraded(g.Job, was, nil, v.Error.Text))
			}
			if c.Observe != nil {
				v.Final = true // there are no retries
				if g.Live {
					v.Status = record.Skipped
				}
				c.Observe(harness.Progress{Kind: "started", Job: g.Job, Arm: &r.arms[g.Job.Arm]})
				c.Observe(harness.Progress{Kind: "verdict", Job: g.Job, Arm: &r.arms[g.Job.Arm], Verdict: &v})
			}
		})
	})
	out.Stopped = seen < len(jobs)
	if out.Stopped {
		out.Reason, out.Ended = sum.Reason, sum
	}
	r.reapOwn(ctx)
	slices.SortFunc(out.Trials, func(a, b Regraded) int {
		return slices.Compare([]string{a.Task, a.Arm, fmt.Sprintf("%06d", a.Repeat)},
			[]string{b.Task, b.Arm, fmt.Sprintf("%06d", b.Repeat)})
	})
	return out, err
}

func (r *Ready) regraded(j harness.Job, was *decision, is *ledger.Grade, why string) Regraded {
	x := Regraded{Trial: j.Trial, Arm: r.Plan.Arms[j.Arm].Name, Benchmark: j.Task.Benchmark, Task: j.Task.ID,
		Repeat: j.Repeat, Was: gradeOf(was.grade), Why: why}
	if is != nil {
		g := gradeOf(*is)
		x.Is, x.Changed = &g, !is.Same(was.grade)
	}
	return x
}
