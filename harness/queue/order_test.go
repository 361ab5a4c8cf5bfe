package queue

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/harness"
)

// Trials of a world start when those before them are decided, with whatever result, and all of them
// run; other trials do not wait.
func TestOrder(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			var all []harness.Job
			rounds := 1 + rng.IntN(3)
			for r := 1; r <= rounds; r++ {
				var names []string
				for i := range 12 {
					j := harness.Job{Trial: fmt.Sprintf("r%d t%d", r, i), World: "w", Round: r, Arm: 0, Attempt: 1}
					if rng.IntN(2) == 0 {
						j.Exclusive = []string{[]string{"shop", "forum"}[rng.IntN(2)]}
					}
					for range rng.IntN(3) {
						if len(names) > 0 {
							j.After = append(j.After, names[rng.IntN(len(names))])
						}
					}
					if rng.IntN(4) == 0 {
						j.After = append(j.After, "decided before")
					}
					names = append(names, j.Trial)
					all = append(all, j)
					if rng.IntN(3) == 0 {
						all = append(all, harness.Job{Trial: fmt.Sprintf("free %d %d", r, i), Arm: 1, Attempt: 1})
					}
				}
			}
			part := func(arm int) Stream {
				return Stream{Jobs: func(yield func(harness.Job) bool) {
					for _, j := range all {
						if j.Arm == arm && !yield(j) {
							return
						}
					}
				}}
			}
			q := New(1+rng.IntN(8), part(0), part(1))
			defer q.Close()
			var mu sync.Mutex
			decided := map[string]bool{"decided before": true}
			begun := map[string]bool{}
			byRound := map[int]int{}
			pauseAt := -1
			if seed%5 == 0 {
				pauseAt = rng.IntN(20)
			}
			var wg sync.WaitGroup
			for range 1 + rng.IntN(6) {
				wg.Go(func() {
					for {
						j, err := q.Take(t.Context())
						if err != nil {
							return
						}
						mu.Lock()
						for _, a := range j.After {
							if !decided[a] {
								t.Errorf("%s began before %s was decided", j.Trial, a)
							}
						}
						for r := 1; r < j.Round; r++ {
							if byRound[r] < 12 && pauseAt < 0 {
								t.Errorf("%s began when round %d had %d", j.Trial, r, byRound[r])
							}
						}
						begun[j.Trial] = true
						again := rng.IntN(5) == 0
						wait := time.Duration(rng.IntN(50)) * time.Second
						mu.Unlock()
						time.Sleep(wait)
						if again {
							q.Again(t.Context(), j, wait)
							continue
						}
						mu.Lock()
						decided[j.Trial] = true
						byRound[j.Round]++
						n := len(decided)
						mu.Unlock()
						q.Done(t.Context(), j)
						if n == pauseAt {
							q.Pause(0)
						}
					}
				})
			}
			wg.Wait()
			for _, j := range all {
				if !decided[j.Trial] && (pauseAt < 0 || j.Arm == 1) {
					t.Errorf("seed %d: %s was never played", seed, j.Trial)
				}
			}
			if n := len(q.order.pending); pauseAt < 0 && n > 0 {
				t.Errorf("%d trials are still remembered", n)
			}
		})
	}
}
