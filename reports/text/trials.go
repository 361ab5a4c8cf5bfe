package text

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/harness/record"
)

// A TrialFilter selects trials of a run. Empty fields select all.
type TrialFilter struct {
	Status []string // values of [TrialStatuses]
	Arms   []string // names; * matches any text
	Tasks  []string // ids, or benchmark/id; * matches any text
	Flag   string
}

// TrialStatuses are the words for a filter: the statuses of trials; for scored trials passed (the
// full score, or at least [Results.Success]), failed (less) and the states of second opinions; and
// pending, for what a resume goes on with: trials that are not decided, or whose second opinion is
// pending.
var TrialStatuses = slices.Concat([]string{"passed", "failed", record.Confirmed, record.Unconfirmed, record.Unknown,
	record.Inapplicable, string(record.Scored)}, classes)

// A TrialRow is the result of a trial in one row.
type TrialRow struct {
	TrialRef
	Status   string   `json:"status"`
	End      string   `json:"end,omitempty"`
	Reward   *float64 `json:"reward"`
	Steps    int32    `json:"steps"`
	Turns    int32    `json:"turns"`
	Attempts uint16   `json:"attempts"`
	Flags    []string `json:"flags,omitempty"`
	Opinion  string   `json:"second_opinion,omitempty"`
	passed   bool
	// what went wrong; of messages that differ only in numbers, the first one
	Why string `json:"why,omitempty"`
}

// Trials returns the trials that a filter selects, ordered by arm, task and repeat.
func (r *Results) Trials(f TrialFilter) []TrialRow {
	flag := -1
	if f.Flag != "" {
		if flag = slices.Index(r.flags, f.Flag); flag < 0 {
			return nil
		}
	}
	arms, tasks := patterns(f.Arms), patterns(f.Tasks)
	var out []TrialRow
	for i := range r.slots {
		s := &r.slots[i]
		arm, task, _ := r.where(i)
		t := &r.Plan.Tasks[task]
		if flag >= 0 && s.flags&(1<<flag) == 0 || !fits(arms, r.Plan.Arms[arm].Name) ||
			!fits(tasks, t.ID, t.Benchmark+"/"+t.ID) {
			continue
		}
		if row := r.row(i); len(f.Status) == 0 || slices.ContainsFunc(f.Status, row.is) {
			out = append(out, row)
		}
	}
	return out
}

func (r *Results) row(i int) TrialRow {
	s := &r.slots[i]
	row := TrialRow{TrialRef: r.ref(i), Status: string(statuses[s.status]), End: string(ends[s.end]), Steps: s.steps,
		Turns: s.turns, Attempts: s.attempts}
	if s.status == undecided {
		row.Status = "pending"
	}
	if !math.IsNaN(s.reward) {
		row.Reward, row.passed = &s.reward, s.reward >= 1-1e-9
		if r.Success != nil {
			row.passed, _ = r.success(s.reward)
		}
	}
	for j, name := range r.flags {
		if s.flags&(1<<j) != 0 {
			row.Flags = append(row.Flags, name)
		}
	}
	row.Opinion = opinions[s.opinion]
	if s.fault > 0 {
		row.Why = r.faults[s.fault-1].text
	}
	return row
}

// is reports whether the trial has a status, given as a word of a filter.
func (t *TrialRow) is(status string) bool {
	switch status {
	case "passed":
		return t.passed
	case "failed":
		return t.Status == string(record.Scored) && !t.passed
	}
	return t.Status == status || t.Opinion == status
}

// patterns converts names to regular expressions; * matches any text.
func patterns(names []string) (out []*regexp.Regexp) {
	for _, n := range names {
		out = append(out, regexp.MustCompile("(?s)^"+
			strings.ReplaceAll(regexp.QuoteMeta(strings.ToValidUTF8(n, "\ufffd")), `\*`, ".*")+"$"))
	}
	return out
}

func fits(patterns []*regexp.Regexp, names ...string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns,
		func(p *regexp.Regexp) bool { return slices.ContainsFunc(names, p.MatchString) })
}

// Flags returns all flags of the run's trials, sorted.
func (r *Results) Flags() []string { return slices.Sorted(slices.Values(r.flags)) }

// TrialsText writes trials as a table for a terminal.
func TrialsText(w io.Writer, st Style, rows []TrialRow) error {
	p := &printer{w: w}
	cols := []*column{{head: "trial"}, {head: "arm"}, {head: "task"}, {head: "repeat", right: true, drop: 4},
		{head: "status"}, {head: "end", drop: 3},
		{head: "reward", right: true}, {head: "second opinion", drop: 2},
		{head: "steps", right: true, drop: 5}, {head: "wall", right: true, drop: 6},
		{head: "flags", drop: 2}, {head: "why", drop: 1}}
	whys, opinions := false, false
	for _, t := range rows {
		reward := unknown
		if t.Reward != nil {
			reward = fmt.Sprintf("%.3f", *t.Reward)
		}
		why := line(t.Why)
		if !st.Full {
			why = cut(why, 100)
		}
		whys, opinions = whys || why != "", opinions || t.Opinion != ""
		wall := float64(t.WallMS)
		for i, x := range []string{t.ID, line(t.Arm), line(t.Benchmark) + "/" + line(t.Task), fmt.Sprint(t.Repeat),
			t.Status, t.End, reward, strings.ReplaceAll(t.Opinion, "_", " "), fmt.Sprint(t.Steps), millis(&wall),
			line(strings.Join(t.Flags, ", ")), why} {
			cols[i].cells = append(cols[i].cells, x)
		}
	}
	if !whys {
		cols = cols[:len(cols)-1]
	}
	if !opinions {
		cols = slices.DeleteFunc(cols, func(c *column) bool { return c.head == "second opinion" })
	}
	if dropped := p.table(st, "", cols); dropped != nil {
		p.f("%s\n", st.dim(fmt.Sprintf("(too narrow for: %s)", strings.Join(dropped, ", "))))
	}
	return p.err
}

// TrialsJSON writes trials as JSON, one per line.
func TrialsJSON(w io.Writer, rows []TrialRow) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, t := range rows {
		if err := enc.Encode(t); err != nil {
			return err
		}
	}
	return nil
}
