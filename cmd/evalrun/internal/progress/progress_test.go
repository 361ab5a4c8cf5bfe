package progress

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
)

// A buffer may be looked at while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}

func (b *buffer) Len() int { return len(b.String()) }

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func scored(reward, cost float64) harness.Progress {
	return harness.Progress{Kind: "verdict",
		Verdict: &record.Verdict{Final: true, Status: record.Scored, Reward: &reward,
			Usage: record.Usage{Calls: 1, Cost: &cost}}}
}

func failed(s record.Status, final bool) harness.Progress {
	return harness.Progress{Kind: "verdict", Verdict: &record.Verdict{Final: final, Status: s}}
}

var started = harness.Progress{Kind: "started"}

func TestPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf buffer
		r := New(Options{Mode: Auto, Total: 1000, Done: 100, W: &buf})
		r.Observe(started)
		r.Observe(started)
		r.Observe(scored(1, 0.25))
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if buf.Len() > 0 {
			t.Errorf("after 9 s: %q", buf.String())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := buf.String(); strings.Count(got, "\n") != 1 ||
			!strings.Contains(got, "101 of 1000 trials (10 %)  1 running  mean 1.000  ") ||
			!strings.Contains(got, "$0.25  ETA ") {
			t.Errorf("after 11 s: %q", got)
		}
		buf.Reset()
		for range 49 {
			r.Observe(started)
			r.Observe(failed(record.Infra, true))
		}
		r.Observe(failed(record.Provider, false))
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if got := buf.String(); !strings.Contains(got,
			"150 of 1000 trials (15 %)  0 running  mean 1.000  infra 49  retried 1  ") {
			t.Errorf("at 15 %%: %q", got)
		}
		buf.Reset()
		r.Say("hello\x1b[31m\nthere")
		r.Close()
		// the last line has not changed
		if got := buf.String(); !strings.HasPrefix(got, "hello[31m there\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("at the end: %q", got)
		}
	})
}

func TestJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf buffer
		r := New(Options{Mode: JSON, Total: 2, W: &buf})
		r.Observe(scored(0.5, 1))
		time.Sleep(2 * time.Second)
		r.Close()
		for line := range strings.Lines(buf.String()) {
			var o struct {
				Type        string
				Done, Total int
				Mean        float64
				CostUSD     float64 `json:"cost_usd"`
			}
			if err := json.Unmarshal([]byte(line), &o); err != nil || o.Type != "progress" || o.Done != 1 ||
				o.Total != 2 || o.Mean != 0.5 || o.CostUSD != 1 {
				t.Errorf("%s: %+v, %v", line, o, err)
			}
		}
	})
}

func TestNoneAndBar(t *testing.T) {
	var buf buffer
	r := New(Options{Mode: None, Total: 2, W: &buf})
	r.Observe(scored(1, 0))
	r.Close()
	if buf.Len() > 0 {
		t.Errorf("none wrote %q", buf.String())
	}
	r = New(Options{Mode: Auto, Terminal: true, Total: 4, W: &buf})
	r.Observe(started)
	r.Observe(scored(1, 0))
	r.Say("a note")
	r.Close()
	if got := buf.String(); !strings.Contains(got, "a note\n") || !strings.Contains(got, "1/4") ||
		!strings.Contains(got, "mean 1.000") {
		t.Errorf("bar wrote %q", got)
	}
}

// What is made meanwhile stands on the line, cleaned and bounded, until it is over.
func TestMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf buffer
		r := New(Options{Mode: Plain, What: "images", Total: 9, W: &buf})
		line := func() string {
			buf.Reset()
			time.Sleep(11 * time.Second)
			synctest.Wait()
			return strings.TrimSpace(buf.String())
		}
		r.Begun()
		r.Making("a", "building image for a\x1b[2J: step 1/7")
		r.Making("b", strings.Repeat("b", 500))
		r.Making("a", "building image for a\x1b[2J: step 2/7")
		if got := line(); !strings.HasSuffix(got,
			"0 of 9 images (0 %)  1 running  building image for a[2J: step 2/7 (and 1 more)") {
			t.Errorf("two at once: %q", got)
		}
		r.Making("a", "")
		r.Making("nobody", "")
		if n := r.Made(false); n != 1 {
			t.Errorf("%d are through", n)
		}
		if got := line(); !strings.Contains(got, "  0 running  failed 1  ") ||
			!strings.HasSuffix(got, "  "+strings.Repeat("b", 71)+"…") {
			t.Errorf("a long one: %q", got)
		}
		r.Making("b", "")
		if got := line(); strings.Contains(got, "bbb") {
			t.Errorf("nothing is made: %q", got)
		}
		r.Close()
	})
	var buf buffer
	r := New(Options{Mode: JSON, Total: 2, W: &buf})
	r.Making("a", "building image for a")
	r.Close()
	if !strings.Contains(buf.String(), `"making":["building image for a"]`) {
		t.Errorf("as JSON: %s", buf.String())
	}
	buf.Reset()
	r = New(Options{Mode: Bar, Total: 2, W: &buf})
	r.Making("a", "building image for a")
	r.Close()
	if !strings.Contains(buf.String(), "building image for a") {
		t.Errorf("as a bar: %q", buf.String())
	}
}

// Why the run waits stands on the line as long as it does, and trials that were left open are
// counted apart from retries.
func TestWaiting(t *testing.T) {
	for _, mode := range []string{Plain, JSON} {
		synctest.Test(t, func(t *testing.T) {
			var buf buffer
			var why atomic.Value // the reporter asks from a goroutine of its own
			why.Store("openai/m throttles:\x1b[2J 3 calls wait")
			r := New(Options{Mode: mode, Total: 9, W: &buf, Waiting: func() string { return why.Load().(string) }})
			r.Observe(started)
			open := failed(record.Provider, false)
			open.Open = true
			r.Observe(open)
			time.Sleep(11 * time.Second)
			synctest.Wait()
			if got := buf.String(); !strings.Contains(got, "openai/m throttles:[2J 3 calls wait") ||
				!strings.Contains(got, "left open 1") && !strings.Contains(got, `"open":1`) ||
				strings.Contains(got, "retried") {
				t.Errorf("%s", got)
			}
			why.Store("")
			buf.Reset()
			time.Sleep(11 * time.Second)
			synctest.Wait()
			if got := buf.String(); got == "" || strings.Contains(got, "throttles") ||
				strings.Contains(got, "waiting") {
				t.Errorf("nothing waits: %s", got)
			}
			r.Close()
		})
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf buffer
		r := New(Options{Mode: Plain, Total: 10, W: &buf})
		for range 3 {
			r.Observe(started)
		}
		r.Observe(scored(1, 0))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if !strings.Contains(buf.String(), "ETA") {
			t.Errorf("no ETA: %s", buf.String())
		}
		buf.Reset()
		if n := r.Drain(); n != 2 {
			t.Errorf("%d run, want 2", n)
		}
		time.Sleep(11 * time.Second)
		r.Close()
		if strings.Contains(buf.String(), "ETA") || buf.Len() == 0 {
			t.Errorf("what is not begun has no ETA: %s", buf.String())
		}
	})
}
