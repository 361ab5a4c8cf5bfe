package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// takeUp closes the attempt that a crash or a stop left open. It answers open actions with a Lost
// observation and writes a "canceled" verdict with the attempt's usage, as far as no Spent entry
// has it.
func (a *attempt) takeUp(ctx context.Context) error {
	n := a.job.Interrupted
	was, err := a.past(ctx, n)
	if err != nil && !errors.Is(err, record.ErrNotOpen) {
		return fmt.Errorf("reading the attempt that was cut off: %w", err)
	}
	old := record.Entry{Trial: a.job.Trial, Attempt: n, Fence: a.job.Fence}
	for _, id := range was.open {
		e := event.New(event.FromEnvironment, event.Lost{Why: "the run was cut off"})
		e.ID, e.Cause, e.Time, e.Mono = was.next, id.ID, a.began.UTC(), id.Mono
		e.Actor, e.Call = id.Actor, id.Call
		was.next++
		data, err := a.Codec.Append(nil, e)
		if err != nil {
			return err
		}
		old.Kind, old.Data = record.KindEvent, data
		if err := a.journal.Append(ctx, old); err != nil {
			return err
		}
	}
	v := record.Verdict{Status: record.Canceled, Error: &record.Fault{
		Status: record.Canceled, Phase: "session", Class: "interrupted",
		Text: "the run was cut off during this attempt"}}
	took, turns, err := sumCalls(a.journal.Attempt(ctx, a.job.Trial, n))
	if err != nil && !errors.Is(err, record.ErrNotOpen) {
		return fmt.Errorf("reading the attempt that was cut off: %w", err)
	}
	v.Turns = turns
	v.Usage, v.Other, v.Spent = took.Usage, took.Other, took.Spent
	old.Kind = record.KindVerdict
	if old.Data, err = json.Marshal(v); err != nil {
		return err
	}
	return a.journal.Append(ctx, old)
}

// remember loads the replies that earlier attempts paid for. This attempt reuses them where its
// requests are the same, so that at most the calls in flight are paid for twice.
func (a *attempt) remember(ctx context.Context) error {
	attempts := a.job.Prior
	if a.job.Interrupted > 0 {
		attempts = append([]int{a.job.Interrupted}, attempts...)
	}
	if len(attempts) == 0 {
		return nil
	}
	a.replay = &replay{replies: map[replayKey]replayed{}}
	for _, n := range attempts {
		was, err := a.past(ctx, n)
		if errors.Is(err, record.ErrNotOpen) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading attempt %d: %w", n, err)
		}
		a.replay.load(was.calls)
	}
	return nil
}

// An ended is what the journal holds of an attempt that is over.
type ended struct {
	calls []paidCall
	open  []event.Event // actions without an observation
	next  int64         // ID of the next event
}

// A paidCall is a try of a call, with its reply if there is one.
type paidCall struct {
	record.Call
	note *event.Reply
}

// past reads one attempt's entries. A call belongs to the last reply with its ID recorded before
// it: older versions did not number calls across stages, so several replies of an attempt may share
// an ID and several calls a number. The numbers that past returns are unique.
func (a *attempt) past(ctx context.Context, n int) (was ended, err error) {
	replies := map[string]*event.Reply{}
	numbers := map[roleKey]*numbering{}
	for entry, err := range a.journal.Attempt(ctx, a.job.Trial, n) {
		if err != nil {
			return ended{}, err
		}
		switch entry.Kind {
		case record.KindCall:
			var c record.Call
			// an unreadable entry must not end the run; the model is called again
			if json.Unmarshal(entry.Data, &c) != nil {
				continue
			}
			k := roleKey{actor: c.Actor, role: c.Role}
			if numbers[k] == nil {
				numbers[k] = &numbering{last: -1}
			}
			c.N = numbers[k].of(&c)
			was.calls = append(was.calls, paidCall{c, replies[c.Reply]})
		case record.KindEvent:
			e, err := a.Codec.Decode(entry.Data)
			if err != nil { // its ID is used, and it may have answered an action
				var head struct{ ID, Cause *int64 }
				if json.Unmarshal(entry.Data, &head) == nil && head.ID != nil {
					was.next = *head.ID + 1
					was.open = slices.DeleteFunc(was.open,
						func(o event.Event) bool { return head.Cause != nil && o.ID == *head.Cause })
				}
				continue
			}
			was.next = e.ID + 1
			switch e.Body.Class() {
			case event.Action:
				e.Body = nil
				was.open = append(was.open, e)
			case event.Observation:
				was.open = slices.DeleteFunc(was.open, func(o event.Event) bool { return o.ID == e.Cause })
			}
			if st, ok := e.Body.(event.Stored); ok && st.K == "reply" {
				if e.Body, err = (&sessionLog{a: a}).load(ctx, st); err != nil {
					// For a reply that nothing acted on, a crash may leave the event without its
					// blob.
					if !errors.Is(err, fs.ErrNotExist) && !a.AcceptLoss {
						return ended{}, err
					}
					a.Slog.Warn("a model's reply is lost and is asked for again", "trial", a.job.Trial, "attempt", n,
						"err", err)
					clear(replies)
					continue
				}
			}
			if r, ok := e.Body.(event.Reply); ok {
				replies[r.ID] = &r
			}
		}
	}
	return was, nil
}

// A numbering gives the calls of one actor and role unique, increasing numbers.
type numbering struct{ last, shift int }

func (n *numbering) of(c *record.Call) int {
	if c.Try <= 1 && c.N+n.shift <= n.last { // the recorder started again at 0
		n.shift = n.last + 1 - c.N
	}
	n.last = c.N + n.shift
	return n.last
}
