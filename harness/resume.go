package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// takeUp closes the attempt that a crash or a stop left open: its open actions are answered "lost", a verdict says that it was
// cut off. The replies that it and cut-off attempts before it paid for are kept for this attempt, which gets them again where
// it asks the same, so that at most the calls in flight are paid twice.
func (a *attempt) takeUp(ctx context.Context) error {
	n := a.job.Interrupted
	calls, replies, open, next, err := a.entries(ctx, n)
	if err != nil && !errors.Is(err, record.ErrNotOpen) {
		return fmt.Errorf("reading the attempt that was cut off: %w", err)
	}
	if len(a.job.Evidence) == 0 {
		a.replay = &replay{replies: map[replayKey]replayed{}}
		a.replay.load(calls, replies)
		for _, p := range a.job.Prior {
			calls, replies, _, _, err := a.entries(ctx, p)
			if errors.Is(err, record.ErrNotOpen) {
				continue
			}
			if err != nil {
				return fmt.Errorf("reading an attempt that was cut off: %w", err)
			}
			a.replay.load(calls, replies)
		}
	}
	old := record.Entry{Trial: a.job.Trial, Attempt: n, Fence: a.job.Fence}
	for _, id := range open {
		e := event.New(event.FromEnvironment, event.Lost{Why: "the run was cut off"})
		e.ID, e.Cause, e.Time, e.Mono = next, id.ID, a.began.UTC(), id.Mono
		e.Actor, e.Call = id.Actor, id.Call
		next++
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
		Status: record.Canceled, Phase: "session", Class: "interrupted", Text: "the run was cut off during this attempt"}}
	for _, c := range calls {
		if c.Error != "" {
			continue
		}
		u := event.Usage{In: c.Usage.In, Out: c.Usage.Out, Cached: c.Usage.Cached, CacheWrite: c.Usage.CacheWrite, Reasoning: c.Usage.Reasoning, Cost: c.Usage.Cost}
		if c.Reply != "" {
			v.Turns++ // its tokens count where the reply is used in the end: in the attempt that takes it over
		}
		if c.From == "" {
			add(&v.Spent, u)
		}
	}
	old.Kind = record.KindVerdict
	if old.Data, err = json.Marshal(v); err != nil {
		return err
	}
	return a.journal.Append(ctx, old)
}

// entries goes through one attempt's entries.
func (a *attempt) entries(ctx context.Context, n int) (calls []record.Call, replies map[string]event.Reply, open []event.Event, next int64, err error) {
	replies = map[string]event.Reply{}
	for entry, err := range a.journal.Attempt(ctx, a.job.Trial, n) {
		if err != nil {
			return nil, nil, nil, 0, err
		}
		switch entry.Kind {
		case record.KindCall:
			var c record.Call
			if err := json.Unmarshal(entry.Data, &c); err != nil {
				return nil, nil, nil, 0, err
			}
			calls = append(calls, c)
		case record.KindEvent:
			e, err := a.Codec.Decode(entry.Data)
			if err != nil {
				return nil, nil, nil, 0, err
			}
			next = e.ID + 1
			switch e.Body.Class() {
			case event.Action:
				e.Body = nil
				open = append(open, e)
			case event.Observation:
				open = slices.DeleteFunc(open, func(o event.Event) bool { return o.ID == e.Cause })
			}
			if st, ok := e.Body.(event.Stored); ok && st.K == "reply" {
				if e.Body, err = (&sessionLog{a: a}).load(ctx, st); err != nil {
					continue // a reply that is lost is asked for again
				}
			}
			if r, ok := e.Body.(event.Reply); ok {
				replies[r.ID] = r
			}
		}
	}
	return calls, replies, open, next, nil
}
