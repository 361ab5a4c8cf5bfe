package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// gradeAll grades every stage from its evidence alone, after the agent's sandboxes are closed.
func (a *attempt) gradeAll(ctx context.Context, evs []record.Evidence) ([]benchmarks.Result, cause) {
	if err := a.acquire(ctx, a.needs.GraderRoom()); err != nil {
		return nil, phaseFault(ctx, "grade", err)
	}
	if ctx.Err() != nil { // grading has not started, so it can be canceled
		a.release()
		return nil, canceled("grade", context.Cause(ctx))
	}
	defer a.release()
	var out []benchmarks.Result
	for _, rec := range evs {
		ev, err := a.evidence(ctx, &rec)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, storage(fmt.Errorf("%w: evidence of trial %s: %w", record.ErrMissing, a.job.Trial, err))
		}
		if err != nil {
			return nil, phaseFault(ctx, "grade", err)
		}
		if len(a.job.Evidence) > 0 {
			if err := a.kept(ctx, ev); err != nil {
				return nil, storage(err)
			}
		}
		if rec.Left != nil && a.left == nil {
			a.left = rec.Left
		}
		res, c := a.grade(ctx, rec.Refused, ev, nil)
		if c.Fault != nil {
			return nil, c
		}
		out = append(out, res)
	}
	return out, cause{}
}

// classNeedsLive is the fault class of a grading that needs the live session.
const classNeedsLive = "needs_live"

func needsLive(err error) cause {
	return cause{Fault: &record.Fault{Status: record.Grader, Phase: "grade", Class: classNeedsLive, Text: err.Error()},
		Again: true}
}

// grade grades one stage and records the result. refused says why the agent's leftovers could not
// be collected; it is "" if they were.
func (a *attempt) grade(
	ctx context.Context, refused string, ev benchmarks.Evidence, live benchmarks.Episode,
) (res benchmarks.Result, c cause) {
	if a.grading != nil && (live != nil || len(a.needs.Grader) > 0) {
		select {
		case a.grading <- struct{}{}:
			defer func() { <-a.grading }()
		case <-ctx.Done():
			return res, canceled("grade", context.Cause(ctx))
		}
	}
	// The evidence was paid for, so a grading that has started continues after the run is stopped.
	ctx, cancel := a.outlive(ctx)
	defer cancel()
	var given benchmarks.Result // copied on success only, so that a late result is ignored
	err := a.phase(ctx, "grade", max(a.Phases.Grade, a.needs.Grade), func(ctx context.Context) (err error) {
		if refused != "" {
			given = refusedResult(refused)
			return nil
		}
		h := &host{a: a, role: "grader"}
		defer h.within(func(t *record.Times) *time.Duration { return &t.Grade })()
		given, err = a.bench.Grade(ctx, h, a.task, ev, live)
		return err
	})
	a.refusals(live)
	if cut := a.wasCut(); cut != nil { // a grade that a grader gave after losing its model does not count
		return res, canceled("grade", cut)
	}
	if errors.Is(err, benchmarks.ErrNeedsLive) {
		return res, needsLive(err)
	}
	why := a.leavings(err)
	// The limit was reached by what the agent left in the grader's sandbox.
	if why == "" && errors.Is(err, sandbox.ErrSandboxOOM) {
		why = "the grader's machine ran out of memory"
	}
	if why != "" {
		given, err = refusedResult(why), nil
	}
	if err != nil {
		return res, phaseFault(ctx, "grade", err)
	}
	return a.graded(ctx, ev.Stage, given)
}

// graded records the result of one stage.
func (a *attempt) graded(ctx context.Context, stage int, res benchmarks.Result) (benchmarks.Result, cause) {
	if err := valid(res); err != nil {
		return res, phaseFault(ctx, "grade", err)
	}
	a.tidy(&res)
	rec := record.Result{Stage: stage, Scores: res.Scores, Tests: res.Tests, Flags: res.Flags, Uses: a.maskUses(res.Uses)}
	if a.regrading != nil {
		a.keepResult(rec)
	}
	if err := a.writeResult(context.WithoutCancel(ctx), rec); err != nil {
		return res, phaseFault(ctx, "grade", err)
	}
	return res, cause{}
}

// outlive returns a context that survives a stop of the run but ends on a journal failure, after
// which the grade could not be stored.
func (r *runner) outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		err := r.err
		r.mu.Unlock()
		if err != nil {
			cancel(err)
		}
	})
	return out, func() { stop(); cancel(nil) }
}

// valid checks that a grader returned exactly one primary score and only finite numbers.
func valid(r benchmarks.Result) error {
	primary := 0
	for _, s := range r.Scores {
		if s.Primary {
			primary++
		}
		if s.Value != nil && !(math.Abs(*s.Value) <= benchmarks.MaxScore) { // also true for NaN
			return fmt.Errorf("the grader's score %q is not a number up to %g", s.Name, benchmarks.MaxScore)
		}
	}
	if primary != 1 {
		return fmt.Errorf("the grader gave %d primary scores, not one", primary)
	}
	if len(r.Scores) > benchmarks.MaxScores || len(r.Flags) > maxFlags {
		return fmt.Errorf("the grader gave %d scores and %d flags, more than %d and %d", len(r.Scores), len(r.Flags),
			benchmarks.MaxScores, maxFlags)
	}
	return nil
}

// reduce combines the stages' results into the verdict.
func (a *attempt) reduce(ctx context.Context, evs []record.Evidence, results []benchmarks.Result) cause {
	if len(evs) == 0 {
		return cause{Fault: &record.Fault{Status: record.Infra, Phase: "session", Class: "internal",
			Text: "the episode had no stage"}}
	}
	res := results[0]
	if red, ok := a.bench.Benchmark.(benchmarks.Reducer); ok {
		var err error
		if res, err = red.Reduce(a.task, results); err != nil {
			return cause{Fault: &record.Fault{Status: record.Grader, Phase: "grade", Class: "internal",
				Text: err.Error()}}
		}
		if err := valid(res); err != nil {
			return cause{Fault: &record.Fault{Status: record.Grader, Phase: "grade", Class: "internal",
				Text: "all stages together: " + err.Error()}}
		}
		a.tidy(&res)
	} else if len(results) > 1 {
		res = mean(results)
	}
	last := evs[len(evs)-1]
	a.verdict = record.Verdict{Status: record.Scored, End: last.End, Limit: last.Limit, Scores: brief(res.Scores),
		Flags: res.Flags, Stages: len(evs)}
	v := &a.verdict
	if slices.ContainsFunc(evs, func(e record.Evidence) bool { return e.Touched }) {
		v.Flags = append(slices.Clone(v.Flags), record.Touched)
	}
	if p := res.Primary(); p != nil {
		v.Reward = p.Value
	}
	if v.Reward != nil && *v.Reward > 0 {
		v.Confirmation = a.maskOpinion(benchmarks.Confirmation(results))
	}
	if last.Error != "" {
		v.Error = &record.Fault{Status: record.Scored, Phase: "agent", Class: "broke", Text: last.Error}
	}
	ev, err := a.evidence(context.WithoutCancel(ctx), &last)
	if err != nil {
		return phaseFault(ctx, "grade", err)
	}
	v.Answer = cut(ev.Answer.Text(), 4<<10)
	return cause{End: last.End}
}

// brief returns scores with texts shortened for a verdict. The result entries hold the full texts.
func brief(scores []record.Score) []record.Score {
	out := slices.Clone(scores)
	for i := range out {
		s := &out[i]
		s.Name, s.Text, s.Why = cut(s.Name, 1<<10), cut(s.Text, 4<<10), cut(s.Why, 4<<10)
	}
	return out
}

// mean averages the primary scores. A stage without a score counts as 0.
func mean(results []benchmarks.Result) benchmarks.Result {
	var out benchmarks.Result
	sum := 0.0
	for i, r := range results {
		for _, s := range r.Scores {
			if s.Primary && s.Value != nil {
				sum += *s.Value
			}
			s.Primary = false
			s.Name = "stage" + strconv.Itoa(i+1) + "." + s.Name
			out.Scores = append(out.Scores, s)
		}
		out.Tests = append(out.Tests, r.Tests...)
		for _, f := range r.Flags {
			if !slices.Contains(out.Flags, f) {
				out.Flags = append(out.Flags, f)
			}
		}
	}
	m := sum / float64(len(results))
	out.Scores = append([]record.Score{{Name: "mean", Primary: true, Value: &m}}, out.Scores...)
	return out
}
