package launch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/price"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/record"
)

// priced returns an error if a limit on money cannot be enforced because a model's price is
// unknown.
func (r *Ready) priced() error {
	var errs []error
	check := func(who, limit string, m *config.Model, at string) {
		if m == nil || replays(m) {
			return
		}
		p := priceOf(m)
		var missing []string
		if p == nil || p.In == nil {
			missing = append(missing, price.In)
		}
		if p == nil || p.Out == nil {
			missing = append(missing, price.Out)
		}
		if missing != nil {
			key := r.Eff.ModelKey(m.Name, at) + ".price"
			errs = append(errs, r.Eff.Wrong(key,
				fmt.Sprintf("%s: %s cannot be kept: the price of model %s is not known (%s)", who, limit, m.Name,
					strings.Join(missing, ", ")),
				"set "+key+": {in: USD, out: USD} for a million tokens, 0 where it is free"))
		}
	}
	whole := r.Eff.Budget != nil && r.Eff.Budget.Cost > 0
	for i := range r.Eff.Arms {
		if r.o.Grade { // agents do not run
			break
		}
		switch a := &r.Eff.Arms[i]; {
		case a.Limits != nil && a.Limits.Cost > 0:
			check("arm "+a.Name, "limits.cost", a.Model, "model")
		case whole:
			check("arm "+a.Name, "budget.cost", a.Model, "model")
		}
	}
	if whole {
		for _, name := range slices.Sorted(maps.Keys(r.Eff.Roles)) {
			check("role "+name, "budget.cost", r.Eff.Roles[name], "roles."+name)
		}
	}
	return errors.Join(errs...)
}

func priceOf(m *config.Model) *model.Price {
	_, name, _ := strings.Cut(m.Name, "/")
	t, err := priceTable(m, name)
	if err != nil {
		t = price.Default()
	}
	return t.Lookup(name)
}

// settle writes the usage of attempts whose process was killed to the journal.
func settle(ctx context.Context, j *journal.Journal, state *journal.State) error {
	for id, t := range state.All() {
		if t.Open > 0 {
			if err := harness.Settle(ctx, j, id, int(t.Open), t.Fence); err != nil {
				return err
			}
		}
	}
	return j.Sync(ctx)
}

// spent adds up in w what earlier processes of the run paid for, including losses. The journal must
// be settled.
func spent(dir string, losses []record.Loss, w *harness.Whole, dearest float64) {
	p := plus(accounted(dir, dearest), notedIn(losses))
	for _, l := range losses {
		if l.Spent == nil { // computed when a process resumes the run
			p = larger(p, l.Known)
		}
	}
	w.SpentTokens, w.SpentCost, w.SpentEstimated = p.Tokens, p.USD, p.Estimated
}

// dearest returns the highest price of all models of the run, which limits and budgets assume.
func (r *Ready) dearest() (usd float64) {
	count := func(m *config.Model) {
		if m != nil {
			if d := price.Dearest(priceOf(m)); d != nil {
				usd = max(usd, *d)
			}
		}
	}
	for _, a := range r.Eff.Arms {
		count(a.Model)
	}
	for _, m := range r.Eff.Roles {
		count(m)
	}
	return usd
}

// keepBudget stores the budget given to a command in run, where later commands find it. It replaces
// the configuration's.
func (r *Ready) keepBudget(run *record.Run) {
	if r.o.Budget == "" {
		return
	}
	usd := 0.0
	if b := r.Eff.Budget; b != nil {
		usd = b.Cost
	}
	run.Budget = &usd
}

// An Estimate is what a run may cost. It is not a strict bound: a limit is checked before each
// call, and calls in flight may exceed it.
type Estimate struct {
	Trials int      `json:"trials"`
	USD    *float64 `json:"usd"` // bound by limits; nil if there is none
	Why    string   `json:"why"`
}

// Cost estimates the run's highest cost from its limits and prices.
func (r *Ready) Cost() Estimate {
	e := Estimate{Trials: len(r.Plan.Tasks) * r.Plan.Repeats * len(r.Eff.Arms)}
	sum, dearest := 0.0, 0.0
	var unknown []string
	models := 0
	for _, a := range r.Eff.Arms {
		if a.Model == nil {
			continue
		}
		models++
		c, ok := most(a)
		if !ok {
			unknown = append(unknown, a.Name)
			continue
		}
		sum += c * float64(len(r.Plan.Tasks)*r.Plan.Repeats)
		dearest = max(dearest, c)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Eff.Roles)) {
		if m := r.Eff.Roles[name]; m != nil && !replays(m) {
			if d := price.Dearest(priceOf(m)); d == nil || *d > 0 {
				unknown = append(unknown, "role "+name)
			}
		}
	}
	sum += dearest * float64(max(0, r.retry().Budget))
	budget := 0.0
	if r.Eff.Budget != nil {
		budget = r.Eff.Budget.Cost
	}
	switch {
	case models == 0 && unknown == nil:
		e.USD, e.Why = &sum, "no arm has a model"
	case budget > 0 && (unknown != nil || budget < sum):
		e.USD, e.Why = &budget, "budget.cost ends the run; calls in flight at that moment come on top"
	case unknown != nil:
		e.Why = "not bounded for " + strings.Join(unknown, ", ") +
			": set limits.cost, or limits.tokens with a known price, or budget.cost"
	default:
		e.USD, e.Why = &sum, "limits × prices, retries included; the last call of an attempt may pass its limit"
	}
	return e
}

// most returns the highest cost of one attempt of an arm by its limits and prices, without the call
// that reaches a limit. ok is false if there is no bound.
func most(a config.Arm) (float64, bool) {
	p := priceOf(a.Model)
	if replays(a.Model) || p != nil && p.In != nil && p.Out != nil && *price.Dearest(p) == 0 {
		return 0, true
	}
	if a.Limits == nil {
		return 0, false
	}
	bound, ok := a.Limits.Cost, a.Limits.Cost > 0
	if p != nil && p.In != nil && p.Out != nil && a.Limits.Tokens > 0 {
		c := float64(a.Limits.Tokens) * *price.Dearest(p) / 1e6
		if !ok || c < bound {
			bound, ok = c, true
		}
	}
	return bound, ok
}
