// Package progress displays the progress of a run: as a bar on a terminal, otherwise as a line
// every 10 seconds or 5 %, or as JSON lines for programs. [Reporter.Observe] and [Reporter.Making]
// only record what they are told; a separate goroutine draws, so that a slow terminal does not slow
// down trials.
package progress

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rivo/uniseg"
	"github.com/schollz/progressbar/v3"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
)

// Modes of a reporter.
const (
	Auto  = "auto" // Bar on a terminal, otherwise Plain
	Bar   = "bar"
	Plain = "plain"
	JSON  = "json"
	None  = "none"
)

// Modes lists all modes.
var Modes = []string{Auto, Bar, Plain, JSON, None}

// Options are the options of a reporter.
type Options struct {
	Mode     string
	Terminal bool // W is a terminal
	Color    bool
	What     string // unit that is counted; default "trials"
	Total    int    // number of trials in the plan
	Done     int    // trials that were already decided when the run was resumed
	W        io.Writer
	// Waiting returns the external reason why the run is slow or stalled, or "". It is called for
	// each update.
	Waiting func() string
	// Width returns the width of the terminal, into which the bar must fit; a second line would not
	// be erased. It is called for each update. It may be nil, or return 0, if the width is unknown.
	Width func() int
}

// A Reporter displays progress. Observe may be called from several goroutines, the other methods
// from one.
type Reporter struct {
	Options
	began time.Time
	stop  chan struct{}
	over  chan struct{}

	mu               sync.Mutex
	c                counts
	news             []string        // lines to print before the next update
	reportedFailures map[string]bool // kinds of failure that were reported
	ends             []time.Time     // times of the latest decisions
	now              []making        // images in progress, oldest first

	bar       *progressbar.ProgressBar
	wide      int // width of the bar
	lastLine  time.Time
	lastShare int // in steps of 5 %
	lastDone  int
	lines     int
}

type counts struct {
	done, running   int
	fresh           int // decided by this process
	scored          int
	sum             float64
	failed          map[record.Status]int
	retries         int
	open            int // trials that ended undecided
	cost            float64
	costed, unknown bool
	ebb             bool    // no more trials are started
	rate            float64 // recent decisions per second; 0 if unknown
	making          []string
	waiting         string
}

// New starts displaying progress. Close stops it.
func New(o Options) *Reporter {
	if o.Mode == Auto || o.Mode == "" {
		o.Mode = Plain
		if o.Terminal && (o.Width == nil || o.Width() == 0 || o.Width() >= leastColumns) {
			o.Mode = Bar
		}
	}
	if o.What == "" {
		o.What = "trials"
	}
	r := &Reporter{Options: o, began: time.Now(), stop: make(chan struct{}), over: make(chan struct{})}
	r.c.failed = map[record.Status]int{}
	r.reportedFailures = map[string]bool{}
	r.c.done = o.Done
	r.lastLine = r.began
	if o.Total > 0 {
		r.lastShare = o.Done * 20 / o.Total
	}
	if o.Mode == Bar {
		r.wide = wideBar
		if n := r.columns(); n > 0 && n < 80 {
			r.wide = narrowBar
		}
		r.bar = progressbar.NewOptions(o.Total,
			progressbar.OptionSetWriter(o.W), progressbar.OptionSetWidth(r.wide), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
			progressbar.OptionEnableColorCodes(o.Color),
			progressbar.OptionSetRenderBlankState(true), progressbar.OptionSpinnerType(14))
	}
	go r.run()
	return r
}

func (r *Reporter) run() {
	defer close(r.over)
	if r.Mode == None {
		<-r.stop
		return
	}
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			r.draw(false)
		case <-r.stop:
			r.draw(true)
			return
		}
	}
}

// failing are the statuses for which the first failure of each kind is printed. Skipped trials were
// reported before.
var failing = map[record.Status]bool{record.Infra: true, record.Provider: true, record.Grader: true}

// Close draws the final state and stops the reporter.
func (r *Reporter) Close() {
	close(r.stop)
	<-r.over
}

// Observe implements harness.Config.Observe.
func (r *Reporter) Observe(p harness.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.c
	switch p.Kind {
	case "started":
		c.running++
	case "canceled":
		c.running--
	case "verdict":
		c.running--
		v := p.Verdict
		if v.Usage.Cost != nil {
			c.cost += *v.Usage.Cost
			c.costed = true
		} else if v.Usage.Calls > 0 {
			c.unknown = true
		}
		// report each kind once: the reason matters more than the count
		if v.Error != nil && failing[v.Status] && !r.reportedFailures[string(v.Status)+v.Error.Class] {
			r.reportedFailures[string(v.Status)+v.Error.Class] = true
			again := ""
			switch {
			case p.Open:
				again = "; the trial stays open"
			case !v.Final:
				again = "; it is tried again"
			}
			text := []rune(v.Error.Text)
			if len(text) > 300 {
				text = append(text[:300], '…')
			}
			r.say(fmt.Sprintf("first failure of its kind (%s, %s): %s%s", v.Status, v.Error.Class, string(text), again))
		}
		switch {
		case p.Open:
			c.open++
			return
		case !v.Final:
			c.retries++
			return
		}
		c.done++
		c.fresh++
		r.ends = append(r.ends, time.Now())
		if n := len(r.ends) - max(leastEnds, 2*c.running); n > 0 {
			r.ends = slices.Delete(r.ends, 0, n)
		}
		if v.Status == record.Scored {
			c.scored++
			if v.Reward != nil {
				c.sum += *v.Reward
			}
		} else {
			c.failed[v.Status]++
		}
	case "paused":
		r.say(fmt.Sprintf("arm %s is paused: %s", p.Arm.Name, p.Text))
	case "note":
		r.say(p.Text)
	}
}

// Earlier adds the results of earlier processes of the run: the number of scored trials, the sum of
// their rewards, and the cost of attempts. known and hidden say whether some costs are known and
// some unknown. It may be called while the reporter draws.
func (r *Reporter) Earlier(scored int, sum, cost float64, known, hidden bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.c
	c.scored += scored
	c.sum += sum
	c.cost += cost
	c.costed, c.unknown = c.costed || known, c.unknown || hidden
}

// Drain records that no more trials are started, and returns how many are still running.
func (r *Reporter) Drain() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.c.ebb = true
	return r.c.running
}

// Say prints a line between updates.
func (r *Reporter) Say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say(text)
}

func (r *Reporter) say(text string) {
	if len(r.news) < 100 {
		r.news = append(r.news, Clean(text))
	}
}

func (r *Reporter) draw(last bool) {
	r.mu.Lock()
	c := r.c
	failed := make(map[record.Status]int, len(c.failed))
	for k, v := range c.failed {
		failed[k] = v
	}
	c.failed, c.rate = failed, r.rate()
	for _, m := range r.now {
		c.making = append(c.making, m.text)
	}
	news := r.news
	r.news = nil
	r.mu.Unlock()
	if r.Waiting != nil && !last {
		c.waiting = Clean(r.Waiting())
	}

	switch r.Mode {
	case Bar:
		if len(news) > 0 {
			r.bar.Clear()
			for _, n := range news {
				fmt.Fprintln(r.W, n)
			}
		}
		r.bar.Describe(r.fit(r.line(c, false)))
		r.bar.Set(c.done)
		if last {
			r.bar.Exit()
			fmt.Fprintln(r.W)
		}
	case Plain:
		for _, n := range news {
			fmt.Fprintln(r.W, n)
		}
		if r.due(c, last) {
			fmt.Fprintln(r.W, r.line(c, true))
		}
	case JSON:
		for _, n := range news {
			r.encode(map[string]any{"type": "note", "text": n})
		}
		if r.due(c, last) {
			r.encode(r.object(c))
		}
	}
}

// Width of the bar itself, and on a narrow terminal. Below leastColumns lines are printed instead.
const (
	wideBar      = 24
	narrowBar    = 8
	leastColumns = 40
)

func (r *Reporter) columns() int {
	if r.Width == nil {
		return 0
	}
	return r.Width()
}

// fit truncates the text before a bar, so that the whole line fits into the terminal.
func (r *Reporter) fit(text string) string {
	n := r.columns()
	if n <= 0 {
		return text
	}
	rest := fmt.Sprintf(" 100%% |%*s| (%d/%d) ", r.wide, "", r.Total, r.Total)
	return cutColumns(text, max(0, n-1-len(rest)))
}

// cutColumns truncates text to n terminal columns.
func cutColumns(text string, n int) string {
	if uniseg.StringWidth(text) <= n {
		return text
	}
	var b strings.Builder
	w := 0
	for g := uniseg.NewGraphemes(text); g.Next() && w+g.Width() < n; w += g.Width() {
		b.WriteString(g.Str())
	}
	if n > 0 {
		b.WriteString("…")
	}
	return b.String()
}

// due reports whether to print a line: 10 s after the last one, at each 5 %, and at the end.
func (r *Reporter) due(c counts, last bool) bool {
	now := time.Now()
	share := 0
	if r.Total > 0 {
		share = c.done * 20 / r.Total
	}
	if !last && now.Sub(r.lastLine) < 10*time.Second && share == r.lastShare {
		return false
	}
	if !last && now.Sub(r.lastLine) < time.Second { // do not flood the output of a quick run
		return false
	}
	// the same line has been printed already
	if last && c.done == r.lastDone && c.running == 0 && r.lines > 0 {
		return false
	}
	r.lastLine, r.lastShare, r.lastDone = now, share, c.done
	r.lines++
	return true
}

func (r *Reporter) encode(v any) {
	b, err := json.Marshal(v)
	if err == nil {
		r.W.Write(append(b, '\n'))
	}
}

// leastEnds is the minimum number of recent decisions from which the rate is computed. More are
// used while many trials run, which may end together. Older decisions may be from much faster arms
// that have finished.
const leastEnds = 16

// rate returns the recent number of decisions per second.
func (r *Reporter) rate() float64 {
	since := r.began
	n := len(r.ends)
	if n > 0 && n < r.c.fresh {
		since = r.ends[0]
		n--
	}
	s := time.Since(since).Seconds()
	if n == 0 || s < 0.2 {
		return 0
	}
	return float64(n) / s
}

func (r *Reporter) eta(c counts) (time.Duration, bool) {
	rate := c.rate
	if rate == 0 || r.Total <= c.done || c.ebb { // trials that are not started will not finish
		return 0, false
	}
	return time.Duration(float64(r.Total-c.done) / rate * float64(time.Second)), true
}

var failures = []record.Status{record.Infra, record.Provider, record.Grader, record.Canceled, record.Skipped, notMade}

func (r *Reporter) line(c counts, count bool) string {
	var parts []string
	if count {
		share := ""
		if r.Total > 0 {
			share = fmt.Sprintf(" (%d %%)", c.done*100/r.Total)
		}
		parts = append(parts, fmt.Sprintf("%s  %d of %d %s%s", time.Now().Format("15:04:05"), c.done, r.Total, r.What,
			share))
	}
	parts = append(parts, fmt.Sprintf("%d running", c.running))
	if c.scored > 0 {
		parts = append(parts, fmt.Sprintf("mean %.3f", c.sum/float64(c.scored)))
	}
	for _, s := range failures {
		if n := c.failed[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", s, n))
		}
	}
	if c.retries > 0 {
		parts = append(parts, fmt.Sprintf("retried %d", c.retries))
	}
	if c.open > 0 {
		parts = append(parts, fmt.Sprintf("left open %d", c.open))
	}
	if rate := c.rate; rate >= 1 {
		parts = append(parts, fmt.Sprintf("%.1f/s", rate))
	} else if rate > 0 {
		parts = append(parts, fmt.Sprintf("%.1f/min", rate*60))
	}
	switch {
	case c.costed && c.unknown:
		parts = append(parts, fmt.Sprintf("≥ $%.2f", c.cost))
	case c.costed:
		parts = append(parts, fmt.Sprintf("$%.2f", c.cost))
	case c.unknown:
		parts = append(parts, "$?")
	}
	if d, ok := r.eta(c); ok {
		parts = append(parts, "ETA "+Short(d))
	}
	if n := len(c.making); n > 0 {
		text := c.making[0]
		if n > 1 {
			text += fmt.Sprintf(" (and %d more)", n-1)
		}
		parts = append(parts, text)
	}
	if c.waiting != "" {
		parts = append(parts, c.waiting)
	}
	return strings.Join(parts, "  ")
}

func (r *Reporter) object(c counts) map[string]any {
	o := map[string]any{"type": "progress", "time": time.Now().UTC().Format(time.RFC3339), "done": c.done,
		"total": r.Total, "running": c.running,
		"scored": c.scored, "retries": c.retries, "failed": c.failed, "per_second": c.rate}
	if c.scored > 0 {
		o["mean"] = c.sum / float64(c.scored)
	}
	if c.costed {
		o["cost_usd"] = c.cost
	}
	if c.open > 0 {
		o["open"] = c.open
	}
	if len(c.making) > 0 {
		o["making"] = c.making
	}
	if c.waiting != "" {
		o["waiting"] = c.waiting
	}
	if d, ok := r.eta(c); ok {
		o["eta_seconds"] = int64(d.Seconds())
	}
	return o
}

// Short formats a duration: "42s", "3m10s", "2h05m".
func Short(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Clean removes control characters and bidirectional overrides from text of tasks, models and
// programs before it reaches a terminal. Newlines become spaces.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < 0x20 || r >= 0x7f && r < 0xa0, slices.Contains(bidi, r):
			return -1
		}
		return r
	}, s)
}

var bidi = []rune{0x061c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069}
