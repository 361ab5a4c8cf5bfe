package ledger

import (
	"slices"

	"github.com/evalrun/evalrun/harness/record"
)

// A Grade is the result of a trial: its final verdict with the amendments after it.
type Grade struct {
	Status record.Status
	End    record.End
	Limit  string
	Reward *float64
	Scores []record.Score
	Flags  []string
	// Confirmation is nil if the grade needs no second opinion.
	Confirmation *record.Confirmation
}

// GradeOf returns the grade of a verdict. Only a scored trial has a reward.
func GradeOf(v *record.Verdict) Grade {
	g := Grade{Status: v.Status, End: v.End, Limit: v.Limit, Reward: v.Reward, Scores: v.Scores, Flags: v.Flags,
		Confirmation: v.Confirmation}
	if v.Status != record.Scored {
		g.Reward = nil
	}
	return g
}

// Amend replaces the grade by an amendment's. An amendment without a status corrects only the
// score. An agent that broke stays broken.
func (g *Grade) Amend(a *record.Amend) {
	g.Reward, g.Scores, g.Flags, g.Confirmation = a.Reward, a.Scores, a.Flags, a.Confirmation
	if a.Status != "" {
		g.Status, g.End, g.Limit = a.Status, a.End, a.Limit
	}
}

// Complete reports whether a trial decided by v can be graded from its evidence, that is, whether
// the evidence of all its stages was stored. A verdict without a score says how many stages there
// were; before version 2 of the journal, only the evidence marked Last can tell. A score with no
// stages means that the agent took down its sandbox.
func Complete(v *record.Verdict, stages []record.Evidence) bool {
	n := len(stages)
	return n > 0 && (v.Status == record.Scored && v.Stages > 0 || stages[n-1].Last || v.Stages == n)
}

// Same reports whether two grades are equal.
func (g Grade) Same(o Grade) bool {
	return g.Status == o.Status && slices.Equal(g.Flags, o.Flags) &&
		(g.Reward == nil) == (o.Reward == nil) && (g.Reward == nil || *g.Reward == *o.Reward)
}
