package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
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
		q := New(100, Stream{Jobs: slices.Values(jobs(0, 0, 0))})
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
		synctest.Wait() // Take waits, because the job in flight might be retried
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
			q := New(100, Stream{Jobs: slices.Values(jobs(0))})
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
	q := New(100, Stream{Jobs: slices.Values(jobs(0, 1, 0, 1, 0))})
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

// A name has one holder at a time. Jobs without names pass those that wait, and none waits forever.
func TestExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := [][]string{{"shop"}, {"shop"}, nil, {"shop", "forum"}, {"forum"}, {"forum"}, {"shop"}, nil}
		var all []harness.Job
		for i, ex := range names {
			all = append(all, harness.Job{Trial: string(rune('a' + i)), Attempt: 1, Fence: 1, Exclusive: ex})
		}
		q := New(100, Stream{Jobs: slices.Values(all)})
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
		// d needs both names and came before e, f and g, so none of them overtakes it.
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

// Many jobs for one name hold at most a bounded part of the plan, and a pause lets those of other
// arms continue.
func TestExclusiveBounded(t *testing.T) {
	n := 0
	q := New(100, Stream{Jobs: func(yield func(harness.Job) bool) {
		for ; n < 10_000; n++ {
			if !yield(harness.Job{Trial: "x", Arm: n % 2, Exclusive: []string{"one"}}) {
				return
			}
		}
	}})
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

// many returns n jobs of an arm.
func many(arm, n int) iter.Seq[harness.Job] {
	return func(yield func(harness.Job) bool) {
		for i := range n {
			if !yield(harness.Job{Trial: fmt.Sprintf("%d/%d", arm, i), Arm: arm, Attempt: 1, Fence: 1}) {
				return
			}
		}
	}
}

// playing hands jobs of a queue to players for some time and counts the jobs done by arm. play
// returns how long a job takes.
func playing(t *testing.T, q *Memory, whole time.Duration, play func(harness.Job)) map[int]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), whole)
	defer cancel()
	var mu sync.Mutex
	done := map[int]int{}
	var wg sync.WaitGroup
	for {
		j, err := q.Take(ctx)
		if err != nil {
			break
		}
		wg.Go(func() {
			play(j)
			q.Done(ctx, j)
			if ctx.Err() == nil {
				mu.Lock()
				done[j.Arm]++
				mu.Unlock()
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	out := maps.Clone(done)
	go wg.Wait()
	return out
}

// A slow arm gets its share of the workers, and no more while others have work. The plan is read
// only as far as needed.
func TestSharedAmongArms(t *testing.T) {
	for _, c := range []struct {
		name     string
		accounts []string
		slow     int // arms, the last ones
		part     float64
	}{
		{"two arms", []string{"", ""}, 1, 0.5},
		{"two accounts", []string{"x", "y"}, 1, 0.5},
		{"three slow arms of an account", []string{"x", "y", "y", "y"}, 3, 0.5},
		{"four arms of an account", []string{"x", "x", "x", "x"}, 3, 0.25},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fast := len(c.accounts) - c.slow
				read := make([]atomic.Int32, len(c.accounts))
				var streams []Stream
				for arm, account := range c.accounts {
					streams = append(streams, Stream{account, func(yield func(harness.Job) bool) {
						for j := range many(arm, 1_000_000) {
							read[arm].Add(1)
							if !yield(j) {
								return
							}
						}
					}})
				}
				q := New(16, streams...)
				const hours = 2*time.Hour + time.Second/2
				got := playing(t, q, hours, func(j harness.Job) {
					if j.Arm < fast {
						time.Sleep(time.Second)
					} else {
						time.Sleep(20 * time.Minute)
					}
				})
				if alone := 16 * hours.Seconds(); float64(got[0]) < c.part*alone*0.999 {
					t.Errorf("%d trials of the fast arm in %v: %.0f %% of what it has alone", got[0], hours,
						100*float64(got[0])/alone)
				}
				for arm := range read {
					if n := int(read[arm].Load()) - got[arm]; n > 17 {
						t.Errorf("%d trials of arm %d were read ahead", n, arm)
					}
				}
				time.Sleep(time.Hour)
				q.Close()
			})
		})
	}
}

// A waiting job has no worker. Jobs that continue may outnumber the workers, but never by more than
// two to one, and no account is left without a job.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(12, Stream{"a", many(0, 1000)}, Stream{"b", many(1, 1000)}, Stream{"slow", many(2, 1000)},
			Stream{"fast", many(3, 1_000_000)})
		calm := make(chan struct{})
		time.AfterFunc(10*time.Minute, func() { close(calm) })
		var mu sync.Mutex
		alive, most := map[int]int{}, 0
		got := playing(t, q, time.Hour, func(j harness.Job) {
			mu.Lock()
			alive[j.Arm]++
			sum := 0
			for _, n := range alive {
				sum += n
			}
			most = max(most, sum)
			mu.Unlock()
			switch j.Arm {
			case 0, 1:
				select {
				case <-calm:
				default:
					done := q.Waits(j)
					inner := q.Waits(j) // of another actor
					<-calm
					inner()
					done()
				}
				time.Sleep(3 * time.Hour)
			case 2:
				time.Sleep(3 * time.Hour)
			case 3:
				time.Sleep(time.Second)
			}
			mu.Lock()
			alive[j.Arm]--
			mu.Unlock()
		})
		mu.Lock()
		defer mu.Unlock()
		if most <= 12 || most > 24 {
			t.Errorf("%d jobs were in flight at once", most)
		}
		if got[3] < 3*3600 {
			t.Errorf("the fast arm had %d trials, fewer than its part of the workers plays", got[3])
		}
		mu.Unlock()
		time.Sleep(4 * time.Hour) // the players end
		mu.Lock()
		q.Close()
	})
}

// An account never has more jobs in flight than there are workers, even if some wait.
func TestWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(4, Stream{"a", many(0, 100)}, Stream{"a", many(1, 100)})
		defer q.Close()
		for range 4 {
			j, err := q.Take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			q.Waits(j)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if j, err := q.Take(ctx); err == nil {
			t.Errorf("%s was handed out", j.Trial)
		}
	})
}
