package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// A tally counts, by field, what equals the recordings, and why the rest differs.
type tally struct {
	verbose bool
	out     io.Writer

	mu          sync.Mutex
	rows        map[string]*row
	causes      map[string]map[string]int // cause → field → count
	unexplained int
	again       int // number of replayed episodes
}

type row struct{ n, equal int }

func newTally(verbose bool, out io.Writer) *tally {
	if out == nil {
		out = os.Stdout
	}
	return &tally{verbose: verbose, out: out, rows: map[string]*row{}, causes: map[string]map[string]int{}}
}

// A difference is one field of one observation next to the recorded one; they may be equal.
type difference struct{ field, got, want string }

// add counts a field. If it differs, cause returns the reason.
func (c *tally) add(where string, d difference, cause func(difference) string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rows[d.field]
	if r == nil {
		r = &row{}
		c.rows[d.field] = r
	}
	r.n++
	if d.got == d.want {
		r.equal++
		return
	}
	why := cause(d)
	if why == "" {
		c.unexplained++
	} else {
		if c.causes[why] == nil {
			c.causes[why] = map[string]int{}
		}
		c.causes[why][d.field]++
	}
	if why == "" || c.verbose {
		fmt.Fprintf(c.out, "%s: %s [%s]\n%s\n", where, d.field, why, firstDifference(d.got, d.want))
	}
}

// merge adds the counts of another tally.
func (c *tally) merge(d *tally, told string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for f, r := range d.rows {
		if c.rows[f] == nil {
			c.rows[f] = &row{}
		}
		c.rows[f].n += r.n
		c.rows[f].equal += r.equal
	}
	for why, fields := range d.causes {
		if c.causes[why] == nil {
			c.causes[why] = map[string]int{}
		}
		for f, n := range fields {
			c.causes[why][f] += n
		}
	}
	c.unexplained += d.unexplained
	c.again += d.again
	fmt.Fprint(c.out, told)
}

// print writes the tables.
func (c *tally) print(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all, texts row
	line := func(name string, r row) {
		fmt.Fprintf(w, "%-20s %8d %8d %8.2f%%\n", name, r.n, r.equal, 100*float64(r.equal)/float64(max(r.n, 1)))
	}
	fmt.Fprintf(w, "%-20s %8s %8s %9s\n", "field", "n", "equal", "share")
	for _, f := range slices.Sorted(maps.Keys(c.rows)) {
		r := *c.rows[f]
		line(f, r)
		all = row{all.n + r.n, all.equal + r.equal}
		if strings.HasPrefix(f, "text ") {
			texts = row{texts.n + r.n, texts.equal + r.equal}
		}
	}
	if texts.n > 0 {
		line("(texts)", texts)
	}
	line("(all)", all)
	if len(c.causes) > 0 {
		fmt.Fprintln(w, "\ndifferences by cause (docs/fidelity.md)")
	}
	for _, why := range slices.Sorted(maps.Keys(c.causes)) {
		n, fields := 0, ""
		for _, f := range slices.Sorted(maps.Keys(c.causes[why])) {
			n += c.causes[why][f]
			fields += fmt.Sprintf(", %s %d", f, c.causes[why][f])
		}
		fmt.Fprintf(w, "%6d  %s: %s\n", n, why, fields[2:])
	}
	fmt.Fprintf(w, "%6d  without a cause\n", c.unexplained)
	if c.again > 0 {
		fmt.Fprintf(w, "%6d  times an episode was played again, since a difference had no cause\n", c.again)
	}
	fmt.Fprintln(w)
}

// firstDifference shows where two texts start to differ, with some context.
func firstDifference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	from := max(0, i-80)
	return fmt.Sprintf("  at byte %d\n  got  %q\n  want %q", i, got[from:min(len(got), i+120)],
		want[from:min(len(want), i+120)])
}
