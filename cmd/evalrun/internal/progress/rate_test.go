package progress

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
)

// The time that is left is told by the latest trials: those of a fast arm, which are done, say
// nothing of a slow one.
func TestRateIsOfLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := New(Options{Mode: JSON, Total: 80, W: &out})
		end := func() {
			r.Observe(harness.Progress{Kind: "started"})
			r.Observe(harness.Progress{Kind: "verdict", Verdict: &record.Verdict{Status: record.Scored, Final: true}})
		}
		for range 40 {
			end()
		}
		for range 20 {
			time.Sleep(2 * time.Second)
			end()
		}
		r.Close()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(last, `"eta_seconds":40,`) ||
			!strings.Contains(last, `"per_second":0.5,`) {
			t.Errorf("%s; want 40 s for 20 trials of 2 s", last)
		}
	})
}
