package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/harness/record"
)

// ErrBudget is returned for a model call that is not made because the run's budget is used up.
// ErrUsage ends the run: a limit depends on a model's usage, but the usage is unknown. Both leave
// attempts open for a resume.
var (
	ErrBudget = errors.New("the run's budget is used up")
	ErrUsage  = errors.New("what a model took cannot be counted")
)

// spend adds usage to the run's total and ends the run if its budget is used up.
func (r *runner) spend(u record.Usage) {
	r.mu.Lock()
	r.tokens += u.Tokens()
	r.cost += u.USD()
	r.estimated += u.Estimated()
	over := r.over()
	r.mu.Unlock()
	if over {
		r.end("budget")
	}
}

// over reports whether the budget is used up. The caller holds the lock.
func (r *runner) over() bool {
	w := r.Whole
	return w.Cost > 0 && reached(r.cost, w.Cost) || w.Tokens > 0 && r.tokens >= w.Tokens
}

// reached compares dollars with a tolerance, because ten times 0.1 adds up to slightly less than 1.
func reached(usd, limit float64) bool { return usd >= limit*(1-1e-9) }

// may is called right before each request to a provider. It returns ErrBudget once the budget is
// used up, so that only the calls in flight are still paid for.
func (r *runner) may() error {
	r.mu.Lock()
	over := r.over()
	r.mu.Unlock()
	if !over {
		return nil
	}
	r.end("budget")
	return ErrBudget
}

// cutOff ends the attempt without a verdict, even if the agent or the grader ignores the error.
func (a *attempt) cutOff(err error) error {
	a.mu.Lock()
	if a.cut == nil {
		a.cut = err
	}
	e := a.cur
	a.mu.Unlock()
	if e != nil {
		_ = e.keepError(err)
	}
	return err
}

// wasCut returns the error that cut off the attempt, or nil.
func (a *attempt) wasCut() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cut
}

// allow returns a LimitError if the arm may not make another call.
func (a *attempt) allow() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.arm.Limits
	switch {
	case l.Turns > 0 && a.turns >= l.Turns:
		return &agent.LimitError{Kind: agent.LimitTurns, Max: fmt.Sprint(l.Turns)}
	case l.Tokens > 0 && a.gave() >= l.Tokens:
		return &agent.LimitError{Kind: agent.LimitTokens, Max: fmt.Sprint(l.Tokens)}
	case l.Cost > 0 && reached(a.spent, l.Cost):
		return &agent.LimitError{Kind: agent.LimitCost, Max: fmt.Sprintf("$%g", l.Cost)}
	}
	return nil
}

// gave returns the tokens used by the arm's models in this trial. The caller holds the lock.
func (a *attempt) gave() int64 { return a.before + a.used.Tokens() + a.taken.Tokens() }

// paid counts a reply. A reply from an earlier attempt or a tape counts towards the trial's limits
// but not towards the run's spending. An error says that a limit cannot be enforced; the run has
// then been ended.
func (a *attempt) paid(resp *model.Response, other bool) error {
	u := usage(resp)
	a.mu.Lock()
	switch {
	case other && resp.From != "attempt":
		a.others.Add(u)
	case other: // counted in the attempt that paid for it
	case resp.From == "attempt":
		a.taken.Add(u)
	default:
		a.used.Add(u)
	}
	if !other {
		a.turns++
		a.spent += u.USD()
	}
	if resp.From == "" {
		a.paidFor.Add(u)
	}
	a.mu.Unlock()
	if resp.From != "" {
		return nil
	}
	a.spend(u)
	return a.countable(resp.Usage, resp.Silent(), resp.Model, other)
}

// charged counts a try without a reply and returns its usage: what the provider reports or, if it
// reports nothing, an upper bound. Therefore the budget is exceeded by at most the calls in flight.
// A call that the end of the run interrupts is such a call and is not counted, as after a kill.
func (a *attempt) charged(t *model.Try, other bool) (u record.Usage) {
	var c *model.Charge
	if !errors.As(t.Err, &c) || c.Bound && a.stopped() {
		return u
	}
	if c.Bound {
		usd, _ := c.Usage.USD()
		u.Lost = &record.Lost{Tries: 1, Tokens: c.Usage.In + c.Usage.Out, USD: usd}
	} else {
		u = usage(&model.Response{Usage: c.Usage})
		u.Calls, u.Silent = 0, 0
	}
	a.mu.Lock()
	if other {
		a.others.Add(u)
	} else {
		a.used.Add(u)
		a.spent += u.USD()
	}
	a.paidFor.Add(u)
	a.mu.Unlock()
	a.spend(u)
	// An error has already ended the run, so no further request is made.
	_ = a.countable(c.Usage, c.Usage.In <= 0, t.Model, other)
	return u
}

// countable ends the run if a limit on money or tokens cannot be enforced because the price or the
// usage is unknown.
func (a *attempt) countable(u event.Usage, silent bool, name string, other bool) error {
	var keys []string
	limits := a.arm.Limits
	if other {
		limits = Limits{}
	}
	if _, ok := u.USD(); !ok {
		keys = kept(keys, "limits.cost", limits.Cost > 0)
		keys = kept(keys, "budget.cost", a.Whole.Cost > 0)
	}
	if silent {
		keys = kept(keys, "limits.tokens", limits.Tokens > 0)
		keys = kept(keys, "budget.tokens", a.Whole.Tokens > 0)
	}
	if keys == nil {
		return nil
	}
	why := "its service does not say how many tokens a reply took"
	if !silent {
		why = "its price is not known"
	}
	err := fmt.Errorf("%w: %s cannot be kept for model %s: %s", ErrUsage, keys[0], name, why)
	if a.end("usage") {
		r := a.runner
		r.mu.Lock()
		r.sum.Why = a.Mask.String(err.Error())
		r.mu.Unlock()
	}
	a.stop(err)
	return a.cutOff(err)
}

func kept(keys []string, key string, asked bool) []string {
	if asked {
		keys = append(keys, key)
	}
	return keys
}

func usage(resp *model.Response) record.Usage {
	u := &resp.Usage
	out := record.Usage{Calls: 1, In: u.In, Out: u.Out, Cached: u.Cached, CacheWrite: u.CacheWrite,
		Reasoning: u.Reasoning,
		Cost:      u.Cost, Counted: u.Counted, Unpriced: u.Unpriced}
	if resp.Silent() {
		out.Silent = 1
	}
	return out
}

// sumCalls adds up an attempt's calls, without those whose sum the journal has already in a Spent
// entry. turns counts all replies.
func sumCalls(entries iter.Seq2[record.Entry, error]) (s record.Spent, turns int64, err error) {
	for e, err := range entries {
		if err != nil {
			return s, turns, err
		}
		if e.Kind == record.KindSpent {
			s = record.Spent{} // it has what came before
		}
		if e.Kind != record.KindCall {
			continue
		}
		var c record.Call
		if json.Unmarshal(e.Data, &c) != nil { // an unreadable entry must not end the run
			continue
		}
		if c.Error != "" && c.Usage.None() {
			continue
		}
		if c.Reply != "" && !c.Other {
			turns++
		}
		switch {
		case c.From == "attempt": // counted in the attempt that got it
		case c.Other && s.Other == nil:
			s.Other = new(record.Usage)
			fallthrough
		case c.Other:
			s.Other.Add(c.Usage)
		default:
			s.Usage.Add(c.Usage)
		}
		if c.From == "" {
			s.Spent.Add(c.Usage)
		}
	}
	return s, turns, nil
}

// Settle writes the usage of an attempt whose process was killed, unless that was done before. It
// is called before a run spends more, so that its record is complete. The entry is durable after
// the journal's next Sync.
func Settle(ctx context.Context, j record.Journal, trial string, attempt int, fence int64) error {
	s, _, err := sumCalls(j.Attempt(ctx, trial, attempt))
	if errors.Is(err, record.ErrNotOpen) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("what trial %s took before it was cut off: %w", trial, err)
	}
	return appendSpent(ctx, j, record.Entry{Trial: trial, Attempt: attempt, Fence: fence}, s)
}

// appendSpent appends a Spent entry unless s is empty.
func appendSpent(ctx context.Context, j record.Journal, e record.Entry, s record.Spent) (err error) {
	if s.Usage.None() && s.Other == nil && s.Spent.None() {
		return nil
	}
	e.Kind = record.KindSpent
	if e.Data, err = json.Marshal(s); err != nil {
		return err
	}
	return j.Append(ctx, e)
}

// leave writes the usage of an attempt that ends without a verdict.
func (a *attempt) leave(ctx context.Context) error {
	v := &a.verdict
	err := appendSpent(ctx, a.journal, record.Entry{Trial: a.job.Trial, Attempt: a.job.Attempt, Fence: a.job.Fence},
		record.Spent{Usage: v.Usage, Other: v.Other, Spent: v.Spent})
	// Another process holds the trial.
	if errors.Is(err, record.ErrFenced) || errors.Is(err, record.ErrNotOpen) {
		return nil
	}
	return err
}
