// Package journaltest tests implementations of record.Journal. An implementation is correct if
// [Run] passes. [Memory] is a journal in memory for other tests.
package journaltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/harness/record"
)

// A Suite describes the journal to test.
type Suite struct {
	// New returns an empty journal.
	New func(t *testing.T) record.Journal
	// All returns all entries of a journal made by New, in order.
	All func(t *testing.T, j record.Journal) []record.Entry
	// Reopen closes the journal and opens it again from its files. It is nil if that is impossible.
	Reopen func(t *testing.T, j record.Journal) record.Journal
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	t.Run("Order", s.order)
	t.Run("Form", s.form)
	t.Run("Fences", s.fences)
	t.Run("Attempts", s.attempts)
	t.Run("Rerun", s.rerun)
	t.Run("Amend", s.amend)
	t.Run("ReadBack", s.readBack)
	t.Run("Concurrent", s.concurrent)
	if s.Reopen != nil {
		t.Run("Reopen", s.reopen)
	}
}

// Entry returns an entry; data is any JSON text.
func Entry(kind, trial string, attempt int, fence int64, data string) record.Entry {
	return record.Entry{Kind: kind, Trial: trial, Attempt: attempt, Fence: fence, Data: json.RawMessage(data)}
}

// Begin returns an attempt entry.
func Begin(trial string, attempt int, fence int64) record.Entry {
	return payload(record.KindAttempt, trial, attempt, fence,
		record.Attempt{Arm: "a", Benchmark: "b", Task: "t", Attempt: attempt})
}

// Verdict returns a verdict entry.
func Verdict(trial string, attempt int, fence int64, final bool, status record.Status) record.Entry {
	v := record.Verdict{Final: final, Status: status}
	if status == record.Scored {
		one := 1.0
		v.End, v.Reward = record.Answered, &one
	}
	return payload(record.KindVerdict, trial, attempt, fence, v)
}

func payload(kind, trial string, attempt int, fence int64, v any) record.Entry {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return Entry(kind, trial, attempt, fence, string(data))
}

func event(trial string, attempt int, fence int64, n int) record.Entry {
	return Entry(record.KindEvent, trial, attempt, fence, fmt.Sprintf(`{"id":%d}`, n))
}

func put(t *testing.T, j record.Journal, es ...record.Entry) {
	t.Helper()
	for _, e := range es {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatalf("append %s of %s/%d: %v", e.Kind, e.Trial, e.Attempt, err)
		}
	}
}

func refused(t *testing.T, j record.Journal, want error, e record.Entry) {
	t.Helper()
	if err := j.Append(t.Context(), e); !errors.Is(err, want) {
		t.Errorf("append %s of %s/%d with fence %d: %v, want %v", e.Kind, e.Trial, e.Attempt, e.Fence, err, want)
	}
}

func durable(t *testing.T, j record.Journal) {
	t.Helper()
	if err := j.Sync(t.Context()); err != nil {
		t.Fatalf("sync: %v", err)
	}
}

func read(t *testing.T, j record.Journal, trial string, attempt int) []record.Entry {
	t.Helper()
	var out []record.Entry
	for e, err := range j.Attempt(t.Context(), trial, attempt) {
		if err != nil {
			t.Fatalf("reading attempt %s/%d: %v", trial, attempt, err)
		}
		out = append(out, e)
	}
	return out
}

func notOpen(t *testing.T, j record.Journal, trial string, attempt int) {
	t.Helper()
	for _, err := range j.Attempt(t.Context(), trial, attempt) {
		if !errors.Is(err, record.ErrNotOpen) {
			t.Errorf("attempt %s/%d: %v, want %v", trial, attempt, err, record.ErrNotOpen)
		}
		return
	}
	t.Errorf("attempt %s/%d: nothing, want %v", trial, attempt, record.ErrNotOpen)
}

// brief returns what identifies each entry in a test.
func brief(es []record.Entry) []string {
	var out []string
	for _, e := range es {
		out = append(out, fmt.Sprintf("%s/%d %s %s", e.Trial, e.Attempt, e.Kind, e.Data))
	}
	return out
}

func same(t *testing.T, what string, got, want []record.Entry) {
	t.Helper()
	if d := cmp.Diff(brief(want), brief(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func (s Suite) order(t *testing.T) {
	j := s.New(t)
	want := []record.Entry{Begin("t1", 1, 1), event("t1", 1, 1, 0), Begin("t2", 1, 2), event("t2", 1, 2, 0),
		event("t1", 1, 1, 1),
		Entry(record.KindEvidence, "t1", 1, 1, `{"stage":0}`), Verdict("t1", 1, 1, true, record.Scored),
		event("t2", 1, 2, 1)}
	put(t, j, want...)
	durable(t, j)
	durable(t, j)
	got := s.All(t, j)
	same(t, "all", got, want)
	for i, e := range got {
		if e.Seq != int64(i)+1 {
			t.Errorf("entry %d has the number %d", i, e.Seq)
		}
	}
}

func (s Suite) form(t *testing.T) {
	j := s.New(t)
	when := time.Date(2026, 11, 21, 10, 0, 7, 123456789, time.FixedZone("x", 3600))
	hostile := "t\"\\\n\x00é<>&\u2028"
	b := Begin(hostile, 1, 1)
	b.Time = when
	b.Seq, b.V = 99, 99
	start := time.Now()
	put(t, j, b)
	put(t, j, Entry(record.KindEvent, hostile, 1, 1, "{\n \"a\": \"x\\ny\",\r\n\t\"b\":[1,\n2]}"))
	put(t, j, Entry(record.KindCall, hostile, 1, 1, ""))
	put(t, j, Entry("vendor.kind", hostile, 1, 1, `"}}"`))
	durable(t, j)
	got := s.All(t, j)
	if len(got) != 4 {
		t.Fatalf("%d entries", len(got))
	}
	for i, e := range got {
		if e.V != record.Version || e.Trial != hostile || e.Attempt != 1 || e.Fence != 1 || e.Seq != int64(i)+1 {
			t.Errorf("entry %d: %+v", i, e)
		}
		if !json.Valid(e.Data) {
			t.Errorf("entry %d: data %q", i, e.Data)
		}
	}
	if want := when.UTC().Truncate(time.Microsecond); !got[0].Time.Equal(want) || got[0].Time.Location() != time.UTC {
		t.Errorf("time %v, want %v", got[0].Time, want)
	}
	if d := got[1].Time.Sub(start); d < -time.Second || d > time.Hour {
		t.Errorf("the journal set the time %v", got[1].Time)
	}
	var v struct {
		A string
		B []int
	}
	if err := json.Unmarshal(got[1].Data, &v); err != nil || v.A != "x\ny" || len(v.B) != 2 {
		t.Errorf("data with line breaks: %s: %v", got[1].Data, err)
	}
	if string(got[2].Data) != "null" {
		t.Errorf("no data: %s", got[2].Data)
	}
}

func (s Suite) fences(t *testing.T) {
	j := s.New(t)
	refused(t, j, record.ErrFenced, event("t", 1, 1, 0)) // the trial is not open
	put(t, j, Begin("t", 1, 5), event("t", 1, 5, 0))
	refused(t, j, record.ErrFenced, event("t", 1, 4, 1))
	refused(t, j, record.ErrFenced, Begin("t", 2, 4))
	put(t, j, event("t", 1, 6, 1)) // a newer lease continues the attempt
	refused(t, j, record.ErrFenced, event("t", 1, 5, 2))
	put(t, j, Verdict("t", 1, 6, true, record.Scored))
	refused(t, j, record.ErrFenced, event("t", 1, 6, 3))
	refused(t, j, record.ErrFenced, event("t", 1, 7, 3))
	refused(t, j, record.ErrFenced, Verdict("t", 1, 7, true, record.Scored))
	refused(t, j, record.ErrFenced, Begin("t", 1, 5)) // a worker that lost its lease long ago
	refused(t, j, record.ErrFenced, Begin("t", 2, 6))
	put(t, j, Begin("u", 1, 1)) // each trial has its own fences
	durable(t, j)
	if n := len(s.All(t, j)); n != 5 {
		t.Errorf("%d entries, want 5: what is refused leaves nothing", n)
	}
}

func (s Suite) attempts(t *testing.T) {
	j := s.New(t)
	put(t, j, Begin("t", 1, 1), event("t", 1, 1, 0))
	refused(t, j, record.ErrNotOpen, event("t", 2, 1, 0))
	refused(t, j, record.ErrNotOpen, Begin("t", 1, 1)) // the attempt has already started
	put(t, j, Verdict("t", 1, 1, false, record.Infra))
	refused(t, j, record.ErrNotOpen, event("t", 1, 1, 1)) // the attempt has ended
	failed := []record.Entry{Begin("t", 1, 1), event("t", 1, 1, 0), Verdict("t", 1, 1, false, record.Infra)}
	same(t, "attempt 1, which failed", read(t, j, "t", 1), failed)
	put(t, j, Begin("t", 2, 1), event("t", 2, 1, 0)) // under the same lease
	put(t, j, Begin("t", 3, 2))                      // under a newer lease, replacing the open attempt
	refused(t, j, record.ErrFenced, event("t", 2, 1, 1))
	refused(t, j, record.ErrNotOpen, event("t", 2, 2, 1))
	same(t, "attempt 2, cut off by attempt 3", read(t, j, "t", 2),
		[]record.Entry{Begin("t", 2, 1), event("t", 2, 1, 0)})
	put(t, j, event("t", 3, 2, 0))
	put(t, j, Begin("t", 3, 3), event("t", 3, 3, 1)) // the same attempt under a newer lease
	same(t, "attempt 3", read(t, j, "t", 3),
		[]record.Entry{Begin("t", 3, 2), event("t", 3, 2, 0), Begin("t", 3, 3), event("t", 3, 3, 1)})
	cut := Verdict("t", 3, 3, false, record.Canceled)
	put(t, j, cut, Begin("t", 4, 4))
	same(t, "attempt 3, canceled", read(t, j, "t", 3),
		[]record.Entry{Begin("t", 3, 2), event("t", 3, 2, 0), Begin("t", 3, 3), event("t", 3, 3, 1), cut})
	same(t, "attempt 1, which failed", read(t, j, "t", 1), failed)
	put(t, j, Verdict("t", 4, 4, true, record.Scored))
	for n := range 4 {
		notOpen(t, j, "t", n+1)
	}
}

func (s Suite) rerun(t *testing.T) {
	j := s.New(t)
	put(t, j, Begin("t", 1, 1), Verdict("t", 1, 1, true, record.Infra))
	put(t, j, Begin("t", 2, 2), event("t", 2, 2, 0), Verdict("t", 2, 2, true, record.Scored))
	refused(t, j, record.ErrFenced, event("t", 2, 2, 1))
}

func (s Suite) amend(t *testing.T) {
	j := s.New(t)
	amend := Entry(record.KindAmend, "t", 1, 0, `{"why":"x"}`)
	refused(t, j, record.ErrNotOpen, amend)
	put(t, j, Begin("t", 1, 1))
	refused(t, j, record.ErrNotOpen, amend)
	put(t, j, Verdict("t", 1, 1, true, record.Scored), amend)
	durable(t, j)
	if n := len(s.All(t, j)); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
}

func (s Suite) readBack(t *testing.T) {
	j := s.New(t)
	put(t, j, Begin("t", 1, 1), Begin("u", 1, 2))
	want := []record.Entry{Begin("t", 1, 1)}
	for i := range 200 {
		put(t, j, event("t", 1, 1, i), event("u", 1, 2, i))
		want = append(want, event("t", 1, 1, i))
		if i%50 == 0 {
			durable(t, j)
			put(t, j, Entry(record.KindStage, "t", 1, 1, `{"index":0}`))
			want = append(want, Entry(record.KindStage, "t", 1, 1, `{"index":0}`))
		}
	}
	same(t, "not synced", read(t, j, "t", 1), want)
	seq := j.Attempt(t.Context(), "t", 1)
	for range seq { // stopping early is allowed, and so is iterating again
		break
	}
	n := 0
	for _, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			put(t, j, event("t", 1, 1, 1000)) // appended after the call, so not yielded
		}
	}
	if n != len(want) {
		t.Errorf("%d entries, want %d", n, len(want))
	}
	notOpen(t, j, "t", 2)
	notOpen(t, j, "v", 1)
	n = 0
	for _, err := range j.Attempt(t.Context(), "t", 1) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 { // a verdict during the iteration does not remove the entries being read
			put(t, j, Verdict("t", 1, 1, true, record.Scored))
		}
	}
	if n != len(want)+1 {
		t.Errorf("%d entries, want %d", n, len(want)+1)
	}
	notOpen(t, j, "t", 1)
}

func (s Suite) concurrent(t *testing.T) {
	j := s.New(t)
	const sessions, steps = 16, 40
	var wg sync.WaitGroup
	errs := make(chan error, sessions)
	for i := range sessions {
		wg.Go(func() {
			trial := fmt.Sprintf("t%d", i)
			ctx := context.Background()
			err := j.Append(ctx, Begin(trial, 1, int64(i)))
			for k := 0; k < steps && err == nil; k++ {
				if err = j.Append(ctx, event(trial, 1, int64(i), k)); err == nil && k%3 == i%3 {
					err = j.Sync(ctx)
				}
			}
			n := 0
			for _, e := range j.Attempt(ctx, trial, 1) {
				if err == nil {
					err = e
				}
				n++
			}
			if err == nil && n != steps+1 {
				err = fmt.Errorf("%s: %d entries read, want %d", trial, n, steps+1)
			}
			if err == nil {
				err = j.Append(ctx, Verdict(trial, 1, int64(i), true, record.Scored))
			}
			if err == nil {
				err = j.Sync(ctx)
			}
			if err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	next := map[string]int{}
	for i, e := range s.All(t, j) {
		if e.Seq != int64(i)+1 {
			t.Fatalf("entry %d has the number %d", i, e.Seq)
		}
		if e.Kind != record.KindEvent {
			continue
		}
		if want := fmt.Sprintf(`{"id":%d}`, next[e.Trial]); string(e.Data) != want {
			t.Fatalf("%s: %s, want %s", e.Trial, e.Data, want)
		}
		next[e.Trial]++
	}
}

func (s Suite) reopen(t *testing.T) {
	j := s.New(t)
	one := []record.Entry{Begin("t", 1, 3), event("t", 1, 3, 0), Entry(record.KindStage, "t", 1, 3, `{"index":0}`),
		event("t", 1, 3, 1)}
	put(t, j, Begin("d", 1, 4), event("d", 1, 4, 0))
	put(t, j, one...)
	put(t, j, Verdict("d", 1, 4, true, record.Scored))
	failed := []record.Entry{Begin("r", 1, 5), Verdict("r", 1, 5, false, record.Provider)}
	put(t, j, failed...)
	// p was decided by a failure that was not the agent's, so it may be retried.
	put(t, j, Begin("p", 1, 5), event("p", 1, 5, 0), event("p", 1, 5, 1), Verdict("p", 1, 5, true, record.Provider))
	before := s.All(t, j)
	j = s.Reopen(t, j)
	if d := cmp.Diff(before, s.All(t, j)); d != "" {
		t.Errorf("after opening again (-before +after):\n%s", d)
	}
	same(t, "the open attempt", read(t, j, "t", 1), one)
	refused(t, j, record.ErrFenced, event("t", 1, 2, 2))
	refused(t, j, record.ErrFenced, Begin("d", 1, 4))
	refused(t, j, record.ErrFenced, Begin("r", 2, 4))
	same(t, "a failed attempt", read(t, j, "r", 1), failed)
	same(t, "the attempt of a failed trial", read(t, j, "p", 1),
		[]record.Entry{event("p", 1, 5, 0), event("p", 1, 5, 1)})
	put(t, j, event("t", 1, 6, 2), Begin("r", 2, 7), event("r", 2, 7, 0))
	same(t, "and on", read(t, j, "t", 1), append(one, event("t", 1, 6, 2)))
	durable(t, j)
	for i, e := range s.All(t, j) {
		if e.Seq != int64(i)+1 {
			t.Fatalf("entry %d has the number %d", i, e.Seq)
		}
	}
}
