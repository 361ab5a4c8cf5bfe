package queue

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/harness"
)

func jobs(arms ...int) []harness.Job {
	var out []harness.Job
	for i, a := range arms {
		out = append(out, harness.Job{Trial: string(rune('a' + i)), Arm: a, Attempt: 1, Fence: 1})
	}
	return out
}

func TestOrderAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(slices.Values(jobs(0, 0, 0)))
		defer q.Close()
		ctx := t.Context()
		a, _ := q.Take(ctx)
		b, _ := q.Take(ctx)
		if a.Trial != "a" || b.Trial != "b" {
			t.Fatal(a.Trial, b.Trial)
		}
		if err := q.Again(ctx, a, time.Hour); err != nil {
			t.Fatal(err)
		}
		c, _ := q.Take(ctx) // the retry is not ready
		q.Done(ctx, b)
		q.Done(ctx, c)
		began := time.Now()
		again, err := q.Take(ctx)
		if err != nil || again.Trial != "a" || again.Fence != 2 || time.Since(began) != time.Hour {
			t.Fatal(again, err, time.Since(began))
		}
		end := make(chan error)
		go func() { _, err := q.Take(ctx); end <- err }()
		synctest.Wait() // it waits: the retry might come again
		select {
		case err := <-end:
			t.Fatal("ended with a job in flight:", err)
		default:
		}
		q.Done(ctx, again)
		if err := <-end; !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
}

func TestDrainAndCancelWakeTakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, how := range []string{"drain", "cancel"} {
			q := New(slices.Values(jobs(0)))
			if _, err := q.Take(t.Context()); err != nil {
				t.Fatal(err)
			}
			cause := errors.New("stop")
			ctx, cancel := context.WithCancelCause(t.Context())
			var n atomic.Int32
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if _, err := q.Take(ctx); err != nil {
						n.Add(1)
					}
				})
			}
			synctest.Wait()
			if how == "drain" {
				q.Drain()
			}
			if how == "cancel" {
				cancel(cause)
				if _, err := q.Take(ctx); !errors.Is(err, cause) {
					t.Error(err)
				}
			}
			wg.Wait()
			if n.Load() != 10 {
				t.Error(how, n.Load())
			}
			cancel(nil)
			q.Close()
		}
	})
}

func TestPause(t *testing.T) {
	q := New(slices.Values(jobs(0, 1, 0, 1, 0)))
	defer q.Close()
	ctx := t.Context()
	first, err := q.Take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	q.Pause(0)
	if err := q.Again(ctx, first, 0); err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		j, err := q.Take(ctx)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
		got = append(got, j.Trial)
		q.Done(ctx, j)
	}
	if !slices.Equal(got, []string{"b", "d"}) {
		t.Errorf("handed out %v of a run whose arm 0 is paused", got)
	}
}

// A name has one holder at a time; jobs that need none pass those that wait, and nobody waits for ever.
func TestExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := [][]string{{"shop"}, {"shop"}, nil, {"shop", "forum"}, {"forum"}, {"forum"}, {"shop"}, nil}
		var all []harness.Job
		for i, ex := range names {
			all = append(all, harness.Job{Trial: string(rune('a' + i)), Attempt: 1, Fence: 1, Exclusive: ex})
		}
		q := New(slices.Values(all))
		defer q.Close()
		var mu sync.Mutex
		held := map[string]string{}
		var order []string
		failed := false
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					j, err := q.Take(t.Context())
					if err != nil {
						if !errors.Is(err, io.EOF) {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					order = append(order, j.Trial)
					for _, n := range j.Exclusive {
						if held[n] != "" {
							t.Errorf("%s and %s hold %s", held[n], j.Trial, n)
						}
						held[n] = j.Trial
					}
					again := j.Trial == "d" && !failed
					failed = failed || again
					mu.Unlock()
					time.Sleep(time.Minute)
					mu.Lock()
					for _, n := range j.Exclusive {
						held[n] = ""
					}
					mu.Unlock()
					if again {
						q.Again(t.Context(), j, time.Second)
					} else {
						q.Done(t.Context(), j)
					}
				}
			})
		}
		wg.Wait()
		if len(order) != 9 {
			t.Errorf("%d were played: %v", len(order), order)
		}
		// d needs both names and came before e, f and g: none of them overtakes it.
		d := slices.Index(order, "d")
		for _, late := range []string{"e", "f", "g"} {
			if slices.Index(order, late) < d {
				t.Errorf("%s overtook d: %v", late, order)
			}
		}
		if slices.Index(order, "c") > 3 || slices.Index(order, "h") > 3 {
			t.Errorf("jobs that need no name waited: %v", order)
		}
	})
}

// Many jobs for one name hold no more than a bounded part of the plan, and a pause lets those of other arms go on.
func TestExclusiveBounded(t *testing.T) {
	n := 0
	q := New(func(yield func(harness.Job) bool) {
		for ; n < 10_000; n++ {
			if !yield(harness.Job{Trial: "x", Arm: n % 2, Exclusive: []string{"one"}}) {
				return
			}
		}
	})
	defer q.Close()
	j, err := q.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Take(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n > 2*maxParked {
		t.Errorf("%d jobs were read ahead", n)
	}
	q.Pause(0)
	q.Done(t.Context(), j)
	if j, err = q.Take(t.Context()); err != nil || j.Arm != 1 {
		t.Errorf("%+v, %v", j, err)
	}
}
