package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
)

// A rejoined is the session of an interrupted attempt that goes on; see
// docs/decisions/0001-interrupted-attempts.md.
type rejoined struct {
	h     *host
	ep    benchmarks.Episode
	agent agent.Agent
	open  []event.Event // actions without an observation
	out   int64         // bytes of observations shown
	held  undo
}

// rejoin takes up the interrupted attempt, and reports whether it goes on. It writes nothing, and if
// it fails it leaves the sandboxes to discard.
func (a *attempt) rejoin(ctx context.Context) bool {
	job, began := *a.job, a.began
	back, err := a.find(ctx)
	if err == nil {
		a.back = back
		return true
	}
	a.Slog.Info("an interrupted attempt does not go on in its sandbox, and begins anew",
		"trial", a.job.Trial, "attempt", a.job.Interrupted, "why", err)
	*a.job, a.began = job, began
	a.log, a.numbers, a.lease, a.t = nil, nil, nil, record.Times{}
	a.before, a.steps, a.turns, a.bad, a.spent = 0, 0, 0, 0, 0
	a.used, a.taken, a.others, a.paidFor = record.Usage{}, record.Usage{}, record.Usage{}, record.Usage{}
	a.theirs, a.networks, a.proxied, a.inside, a.acted, a.touched = nil, nil, false, false, false, false
	a.seed = seed(a.Seed, a.job.Trial, a.job.Attempt)
	return false
}

// discard removes the sandboxes of the interrupted attempt.
func (a *attempt) discard(ctx context.Context) {
	if a.Discard != nil {
		a.Discard(ctx, a.job.Trial, a.job.Interrupted)
	}
}

func (a *attempt) find(ctx context.Context) (_ *rejoined, err error) {
	bench, ok := a.bench.Benchmark.(benchmarks.Resumer)
	if !ok || len(a.job.Evidence) > 0 || a.Provider == nil {
		return nil, errors.New("this benchmark cannot continue an episode, or the agent has ended")
	}
	var was left
	if err := was.read(ctx, a); err != nil {
		return nil, err
	}
	task, err := a.read(ctx)
	if err != nil {
		return nil, err
	}
	needs, err := a.bench.Needs(task, a.bench.Options)
	if err == nil && (needs.Browser || needs.Skip != "") {
		err = errors.New("it has a browser, or cannot run here")
	}
	if err != nil {
		return nil, err
	}
	ag, err := a.arm.Agent(a.bench.Benchmark, task)
	if err != nil {
		return nil, err
	}
	if r, ok := ag.(agent.Restorer); !ok || !r.Restores() {
		return nil, errors.New("its agent cannot be restored from the log")
	}
	r := &rejoined{agent: ag, open: was.open, out: was.out}
	defer func() {
		if err != nil {
			r.held.all()
		}
	}()
	a.job.Attempt = a.job.Interrupted
	a.task, a.needs = task, needs
	was.restore(a)
	specs := needs.Agent
	if needs.GradeLive {
		specs = append(slices.Clone(specs), needs.GraderRoom()...)
	}
	if err := a.acquire(ctx, specs); err != nil {
		return nil, err
	}
	r.held.add(func() {
		if err := a.release(); err != nil {
			a.Slog.Warn("closing a session's machines", "trial", a.job.Trial, "err", err)
		}
	})
	r.h = &host{a: a, role: "agent", left: was.machines}
	a.setFinding(true)
	defer a.setFinding(false)
	err = a.phase(ctx, "start", a.Phases.Start, func(ctx context.Context) (err error) {
		defer r.h.within(starting)()
		o := a.bench.Options
		o.Repeat, o.Round = a.job.Repeat, a.job.Round
		r.ep, err = bench.Resume(ctx, r.h, task, o, a.log)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.held.add(func() {
		if err := a.closeEpisode(ctx, r.ep); err != nil {
			a.Slog.Warn("closing an episode", "trial", a.job.Trial, "err", err)
		}
	})
	if len(r.h.left) > 0 {
		return nil, errors.New("not all of its machines were taken up")
	}
	a.job.Interrupted, a.job.Why = 0, record.Reattached
	return r, nil
}

func (a *attempt) setFinding(on bool) {
	a.mu.Lock()
	a.finding = on
	a.mu.Unlock()
}

// noteBack records that the attempt goes on.
func (a *attempt) noteBack(ctx context.Context) error {
	note := event.New(event.FromEnvironment, event.Info{What: record.Reattached,
		Text: "evalrun was cut off; this attempt goes on in its sandbox"})
	if _, err := a.log.Append(ctx, note); err != nil {
		return err
	}
	return a.sync(ctx)
}

// maskedIn reports whether a reply has the text that replaces secrets. The agent was given the secret.
func maskedIn(r event.Reply) (bool, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	mask, err := json.Marshal(Masked)
	return bytes.Contains(raw, bytes.Trim(mask, `"`)), err
}

// A left is what the journal holds of an attempt that is to go on.
type left struct {
	machines           []record.Machine
	open               []event.Event
	next               int64
	mono               time.Duration // of the last event
	out                int64
	steps, turns, bad  int64
	used, taken        record.Usage
	others, paidFor    record.Usage
	spent              float64
	before             int64
	touched            bool
	numbers            map[roleKey]int
	waited             time.Duration // for the model's provider
	begun, stage, last time.Time
}

// read reads the attempt's entries. An error says why the attempt cannot go on.
func (l *left) read(ctx context.Context, a *attempt) error {
	l.numbers = map[roleKey]int{}
	replies := map[string]bool{} // by ID: whether the call is recorded
	for e, err := range a.journal.Attempt(ctx, a.job.Trial, a.job.Interrupted) {
		if err != nil {
			return err
		}
		l.last = e.Time
		switch e.Kind {
		case record.KindAttempt:
			var at record.Attempt
			if err := json.Unmarshal(e.Data, &at); err != nil {
				return err
			}
			if at.Regrade {
				return errors.New("it only grades")
			}
			if l.begun.IsZero() {
				l.begun = e.Time
			}
		case record.KindStage:
			if !l.stage.IsZero() {
				return errors.New("it is not in its first stage")
			}
			l.stage = e.Time
		case record.KindEvidence, record.KindReward:
			return errors.New("it has collected evidence, or rewards")
		case record.KindMachine:
			var m record.Machine
			if err := json.Unmarshal(e.Data, &m); err != nil {
				return err
			}
			l.machines = append(l.machines, m)
		case record.KindSpent:
			l.before += l.used.Tokens()
			l.used, l.others, l.paidFor = record.Usage{}, record.Usage{}, record.Usage{}
		case record.KindCall:
			var c record.Call
			if err := json.Unmarshal(e.Data, &c); err != nil {
				return err
			}
			l.call(&c)
			replies[c.Reply] = true
		case record.KindEvent:
			ev, err := a.Codec.Decode(e.Data)
			if err != nil {
				return err
			}
			if st, ok := ev.Body.(event.Stored); ok {
				if ev.Body, err = (&sessionLog{a: a}).load(ctx, st); err != nil {
					return err
				}
			}
			if r, ok := ev.Body.(event.Reply); ok {
				if !replies[r.ID] {
					replies[r.ID] = false
				}
				if masked, err := maskedIn(r); masked || err != nil {
					return errors.Join(err, errors.New("a secret was masked in a model's reply"))
				}
			}
			if err := l.event(ev); err != nil {
				return err
			}
		}
	}
	if l.stage.IsZero() {
		return errors.New("its agent had not started")
	}
	for id, recorded := range replies {
		if !recorded {
			return fmt.Errorf("what reply %s cost is not recorded", id)
		}
	}
	return nil
}

func (l *left) call(c *record.Call) {
	k := roleKey{c.Actor, c.Role, c.Other}
	l.numbers[k] = c.N
	if c.Reply != "" {
		l.numbers[k]++
	}
	l.waited += c.Waited
	switch {
	case c.From == "attempt" && !c.Other:
		l.taken.Add(c.Usage)
	case c.From == "attempt":
	case c.Other:
		l.others.Add(c.Usage)
	default:
		l.used.Add(c.Usage)
	}
	if c.From == "" {
		l.paidFor.Add(c.Usage)
	}
	if !c.Other {
		l.spent += c.Usage.USD()
		if c.Reply != "" {
			l.turns++
		}
	}
}

func (l *left) event(e event.Event) error {
	if e.Actor != "" {
		return errors.New("its agent has delegates")
	}
	l.next, l.mono = e.ID+1, e.Mono
	if i, ok := e.Body.(event.Info); ok && i.What == record.Touched {
		l.touched = true
	}
	switch e.Body.Class() {
	case event.Action:
		l.steps++
		l.open = append(l.open, e)
		if _, ok := e.Body.(event.Invalid); ok {
			l.bad++
		}
	case event.Observation:
		l.out += shown(e.Body)
		l.open = slices.DeleteFunc(l.open, func(o event.Event) bool { return o.ID == e.Cause })
		if b, ok := e.Body.(event.Error); ok && b.Code == "unknown_tool" {
			l.bad++
		}
	}
	return nil
}

// restore sets the state of the attempt.
func (l *left) restore(a *attempt) {
	now := time.Now()
	a.began = now.Add(-l.last.Sub(l.begun))
	a.seed = seed(a.Seed, a.job.Trial, a.job.Attempt)
	a.log = newLog(a)
	a.log.start, a.log.next = now.Add(-l.mono), l.next
	for _, e := range l.open {
		a.log.open[e.ID] = struct{}{}
	}
	a.numbers, a.before = l.numbers, l.before
	a.steps, a.turns, a.bad = l.steps, l.turns, l.bad
	a.used, a.taken, a.others, a.paidFor, a.spent = l.used, l.taken, l.others, l.paidFor, l.spent
	a.touched = l.touched
	a.t.Agent = l.last.Sub(l.stage)
	a.t.Working = max(0, a.t.Agent-l.waited) // the journal does not say more exactly
	if l.steps > 0 {
		a.entered(true)
	}
}
