package launch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/export"
	"github.com/evalrun/evalrun/reports/parquetlog"
	"github.com/evalrun/evalrun/reports/text"
)

// A told is the part of summary.json that is also in the journal.
type told struct {
	Run     string
	Decided int
	Arms    []struct {
		In        int64    `json:"tokens_in"`
		Out       int64    `json:"tokens_out"`
		Cost      *float64 `json:"cost_usd"`
		OtherCost *float64 `json:"other_cost_usd"`
	}
	Losses []record.Loss
}

// summarized reads summary.json. It returns nil if there is none for this run or it cannot be
// parsed.
func summarized(d *rundir.Dir) *told {
	var s told
	data, err := os.ReadFile(d.File("summary.json"))
	if err != nil || json.Unmarshal(data, &s) != nil || s.Run != d.Plan().Run {
		return nil
	}
	return &s
}

// SetAside moves a damaged run.json to the journal's quarantine. The run then continues as if the
// file were missing.
func SetAside(d *rundir.Dir) error {
	if _, err := d.Run(); !errors.Is(err, rundir.ErrDamaged) {
		return nil // other errors are reported by whoever reads the file
	}
	return d.SetRunAside(filepath.Join(d.Journal(), "quarantine"))
}

// repair lets the run in d continue without the lost parts, and rebuilds the tables. It first
// records in run.json what the run had spent, because the repair may change the files that this is
// computed from.
func (r *Ready) repair(d *rundir.Dir) error {
	var lost *journal.LossError
	if err := Whole(d); err != nil && !errors.As(err, &lost) {
		return err
	}
	run, err := d.Run()
	if err != nil {
		return err
	}
	if run.Run == "" { // run.json itself is lost
		run.Run, run.Started = r.Plan.Run, r.Plan.Created
		if s := summarized(d); s != nil {
			run.Losses = s.Losses
		}
	}
	upTo := int64(0)
	for _, w := range witnesses(d, run) {
		upTo = max(upTo, w.Seq)
	}
	loss := r.assess(d, run)
	if lost != nil {
		for _, l := range lost.Losses {
			loss.Files = append(loss.Files, l.Path())
		}
	}
	before := run.Losses
	run.Losses = append(slices.Clip(before), loss)
	note := len(run.Work) > 0 || lost != nil // otherwise no process has worked in the folder yet
	if note {
		if err := d.WriteRun(run); err != nil {
			return err
		}
	}
	damages, err := journal.Repair(d.Journal(), upTo)
	if err != nil {
		return err
	}
	for _, x := range damages {
		r.o.Log.Warn("going on without what is lost", "what", x.String())
		if x.File != "" {
			loss.Files = append(loss.Files, journal.Loss{File: x.File}.Path())
		}
	}
	slices.Sort(loss.Files)
	loss.Files = slices.Compact(loss.Files)
	run.Losses[len(before)] = loss
	if len(damages) == 0 && lost == nil {
		run.Losses = before
	}
	if note {
		if err := d.WriteRun(run); err != nil {
			return err
		}
	}
	if len(damages) == 0 {
		return nil
	}
	return parquetlog.Rebuild(d.Path(), r.Plan, journal.Scan(d.Journal()), parquetlog.Options{Log: r.o.Log})
}

// assess computes what a loss costs, as far as the remaining files tell.
func (r *Ready) assess(d *rundir.Dir, run *record.Run) record.Loss {
	dearest := r.dearest()
	left, noted := accounted(d.Journal(), dearest), notedIn(run.Losses)
	remain := parquetlog.Remain(d.Path())
	known := larger(left, called(d.Journal(), dearest))
	known = larger(known, estimated(known, remain.Tokens, remain.USD, remain.Unpriced, dearest))
	known = plus(known, noted)
	decided := decidedIn(d.Journal(), remain.Verdicts)
	verdicts := decided.lost
	if s := summarized(d); s != nil {
		verdicts = max(verdicts, s.Decided-decided.trials)
		if !r.replaying() { // replies from a tape are in the summary but were not paid for
			var sum record.Paid
			unpriced := int64(0)
			for _, a := range s.Arms {
				sum.Tokens += a.In + a.Out
				if a.Cost != nil {
					sum.USD += *a.Cost
				} else {
					unpriced += a.In + a.Out
				}
				if a.OtherCost != nil {
					sum.USD += *a.OtherCost
				}
			}
			sum = estimated(known, sum.Tokens, sum.USD, unpriced, dearest)
			known = larger(known, plus(sum, notedIn(s.Losses)))
		}
	}
	return record.Loss{Time: time.Now().UTC().Truncate(time.Second), Verdicts: max(0, verdicts), Known: known}
}

// settleLosses computes which part of the spending is in no record any more. It is called once the
// remaining records are complete.
func (r *Ready) settleLosses(d *rundir.Dir, run *record.Run) error {
	changed := false
	for i := range run.Losses {
		l := &run.Losses[i]
		if l.Spent != nil {
			continue
		}
		p := minus(minus(l.Known, accounted(d.Journal(), r.dearest())), notedIn(run.Losses))
		l.Spent, changed = &p, true
		r.o.Log.Warn(text.LossText([]record.Loss{*l}))
	}
	if !changed {
		return nil
	}
	return d.WriteRun(run)
}

// replaying reports whether any model's replies come from a tape.
func (r *Ready) replaying() bool {
	for _, a := range r.Eff.Arms {
		if a.Model != nil && replays(a.Model) {
			return true
		}
	}
	for _, m := range r.Eff.Roles {
		if m != nil && replays(m) {
			return true
		}
	}
	return false
}

type decisionsLeft struct{ trials, lost int }

// decidedIn counts the trials with a deciding verdict in the journal in dir, and how many of the
// deciding verdicts with the entry numbers seqs are missing from it.
func decidedIn(dir string, seqs []int64) (x decisionsLeft) {
	slices.Sort(seqs)
	found := make([]bool, len(seqs))
	trials := map[string]bool{}
	for e, err := range journal.Control(dir) {
		if err != nil || e.Kind != record.KindVerdict || !ledger.ReadOutcome(e.Data).Final {
			continue
		}
		trials[e.Trial] = true
		if i, ok := slices.BinarySearch(seqs, e.Seq); ok {
			found[i] = true
		}
	}
	x.trials = len(trials)
	for _, ok := range found {
		if !ok {
			x.lost++
		}
	}
	return x
}

// accounted returns the spending that the verdicts, amendments and notes of the journal in dir
// report. Journals of older versions do not mark tokens without a known price: those count at
// dearest, in US dollars per million tokens.
func accounted(dir string, dearest float64) (sum record.Paid) {
	for e, err := range journal.Control(dir) {
		if err != nil {
			continue // damaged lines were reported when the journal was opened
		}
		switch e.Kind {
		case record.KindVerdict, record.KindSpent, record.KindAmend:
		default:
			continue
		}
		var v struct{ Spent, Other *record.Usage }
		if err := json.Unmarshal(e.Data, &v); err != nil {
			continue
		}
		u := v.Spent
		if u == nil && e.Kind == record.KindAmend {
			u = v.Other
		}
		if u != nil {
			sum = plus(sum, paidFor(*u, dearest))
		}
	}
	return sum
}

// called returns the spending reported by the Call entries among the events.
func called(dir string, dearest float64) (sum record.Paid) {
	for e, err := range journal.Events(dir, 0) {
		if err != nil || e.Kind != record.KindCall {
			continue
		}
		var c record.Call
		if json.Unmarshal(e.Data, &c) == nil && c.From == "" {
			sum = plus(sum, paidFor(c.Usage, dearest))
		}
	}
	return sum
}

// paidFor returns the spending of a usage. Journals of older versions do not mark tokens without a
// known price: those count at dearest, in US dollars per million tokens.
func paidFor(u record.Usage, dearest float64) record.Paid {
	if u.Cost == nil && u.Counted == nil {
		usd := float64(u.In+u.Out) * dearest / 1e6
		u.Counted = &usd
	}
	return record.Paid{Tokens: u.Tokens(), USD: u.USD(), Estimated: u.Estimated()}
}

// estimated prices the unpriced tokens at dearest, unless known already has a cost.
func estimated(known record.Paid, tokens int64, usd float64, unpriced int64, dearest float64) record.Paid {
	p := record.Paid{Tokens: tokens, USD: usd}
	if known.USD == 0 {
		p.Estimated = float64(unpriced) * dearest / 1e6
		p.USD += p.Estimated
	}
	return p
}

// notedIn returns the spending that losses report as missing from all records.
func notedIn(ls []record.Loss) (sum record.Paid) {
	for _, l := range ls {
		if l.Spent != nil {
			sum = plus(sum, *l.Spent)
		}
	}
	return sum
}

func plus(a, b record.Paid) record.Paid {
	return record.Paid{Tokens: a.Tokens + b.Tokens, USD: a.USD + b.USD, Estimated: a.Estimated + b.Estimated}
}

// minus returns a - b, but never less than 0. A difference below a hundredth of a cent counts as 0,
// because sums in another order differ by that much.
func minus(a, b record.Paid) record.Paid {
	x := record.Paid{Tokens: max(0, a.Tokens-b.Tokens), USD: a.USD - b.USD}
	if x.USD < 1e-4 {
		x.USD = 0
	}
	x.Estimated = min(x.USD, max(0, a.Estimated-b.Estimated))
	return x
}

func larger(a, b record.Paid) record.Paid {
	if b.USD > a.USD {
		a.USD, a.Estimated = b.USD, b.Estimated
	}
	a.Tokens = max(a.Tokens, b.Tokens)
	return a
}

// Missing lists the derived files that existed when a process last finished its work and are now
// missing. They hold nothing beyond the journal, and every command that works on the run recreates
// them.
func Missing(d *rundir.Dir) []string {
	run, err := d.Run()
	if err != nil || busy(d) || !slices.ContainsFunc(run.Work, func(s record.Span) bool { return s.Ended != nil }) {
		return nil
	}
	var names []string
	if run.Exit != nil { // written after the summary
		names = append(names, "summary.json", "summary.md")
	}
	for _, t := range export.Tables {
		names = append(names, filepath.Join("parquet", t))
	}
	_, state := parquetlog.Last(d.Path())
	names = slices.DeleteFunc(append(names, state), func(name string) bool {
		list, err := os.ReadDir(filepath.Join(d.Path(), name))
		if err == nil {
			return len(list) > 0
		}
		_, err = os.Stat(filepath.Join(d.Path(), name))
		return err == nil
	})
	if all := len(export.Tables) + 1; len(names) >= all { // report them as one
		return append(names[:len(names)-all], "parquet")
	}
	return names
}
