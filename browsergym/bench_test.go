package browsergym_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// BenchmarkStep does full steps on a small page. Beside the time it tells how many calls of the
// browser a step takes. scripts/bench sets them beside bare calls.
func BenchmarkStep(b *testing.B) {
	br, base := launch(b), pages(b)
	for _, picture := range []bool{true, false} {
		e := play(b, browsergym.Options{Browser: br, NoScreenshot: !picture}, func(seed uint32) browsergym.Task {
			return &browsergym.MiniWoB{Name: "press-it", Base: base, Seed: seed}
		})
		bid := bidOf(b, reset(b, e, 1), "red")
		for _, action := range []string{"noop(0)", "hover('" + bid + "')", "focus('" + bid + "')"} {
			b.Run(fmt.Sprintf("%s/screenshot=%v", action, picture), func(b *testing.B) {
				var mu sync.Mutex
				calls := 0
				br.Trace(func(cdp.Traced) { mu.Lock(); calls++; mu.Unlock() })
				defer br.Trace(nil)
				var took []time.Duration
				for b.Loop() {
					t := time.Now()
					if r := step(b, e, action); r.Observation.LastError != "" {
						b.Fatal(r.Observation.LastError)
					}
					took = append(took, time.Since(t))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "median-ms")
				b.ReportMetric(float64(calls)/float64(len(took)), "calls/op")
			})
		}
	}
}

// BenchmarkReset begins episodes.
func BenchmarkReset(b *testing.B) {
	br, base := launch(b), pages(b)
	e := play(b, browsergym.Options{Browser: br}, func(seed uint32) browsergym.Task {
		return &browsergym.MiniWoB{Name: "press-it", Base: base, Seed: seed}
	})
	for b.Loop() {
		reset(b, e, 1)
	}
}
