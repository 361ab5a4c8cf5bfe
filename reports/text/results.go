// Package text presents the content of a run's journal: the summary of a run ([Results.Summary]),
// the comparison of arms ([Compare]), the story of one trial ([Story]), and the gates of a
// configuration ([Results.Gates]). Each is plain data first, and can be written for terminals, as
// Markdown, and as JSON for programs.
//
// Start with [Collect], which reads a plan and the journal's control entries into [Results].
package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/stats"
)

// Results holds the result of each planned trial in a few bytes per trial. It does not keep the
// content of attempts.
type Results struct {
	Plan *record.Plan
	Run  *record.Run // may be nil
	// Success is the minimum reward that counts as a success. If nil, only the full score is a
	// success, and only 0 is a failure.
	Success *float64

	slots  []slot // arms × tasks × repeats
	arms   map[string]int
	tasks  map[string]int // keyed by digest
	open   map[string]int // trial with an open attempt → slot
	faults []fault
	// versions are the task digests, other than the planned ones, with which trials were regraded.
	versions []string
	version  map[string]uint32 // indexes into versions
	flags    []string
	drivers  []string
	paid     []paid // per arm and benchmark
	bench    []int  // per task: index into Plan.Benchmarks, or beyond its end
	names    []string
	byID     map[string]int // built when an amendment needs it
	errs     []error
	seen     []time.Time // time of the last entry of each process
}

// A slot holds the result of one trial. Costs are not part of it, because attempts that do not
// count cost money as well.
type slot struct {
	reward float64 // NaN if there is none
	status status
	end    end
	fault  uint16 // index into faults, from 1
	flags  uint32 // bit set; bit i stands for Results.flags[i]
	// task version it was regraded with: index into Results.versions, from 1; 0 means the planned
	// one
	graded   uint32
	attempts uint16
	driver   uint8 // index into Results.drivers, from 1
	steps    int32
	turns    int32
	bad      int32
	wall     int32 // ms
	active   int32 // ms
	left     bool
	gone     bool  // abandoned
	amended  bool  // changed by an amendment, not only confirmed
	refused  bool  // the network policy refused a connection
	replayed bool  // it had a score and was run again
	oom      bool  // its machine's memory limit killed a process
	opinion  uint8 // second opinion: index into opinions
	used     bool  // its second opinion names files of the agent that the grader used
}

type (
	status uint8
	end    uint8
)

const undecided status = 0

var (
	statuses = []record.Status{"", record.Scored, record.Infra, record.Provider, record.Grader, record.Canceled,
		record.Skipped}
	// opinions are the states of second opinions; "": the grade needs none.
	opinions = []string{"", record.Confirmed, record.Unconfirmed, record.Pending, record.Unknown, record.Inapplicable}
	ends     = []record.End{"", record.Answered, record.GaveUp, record.Limit, record.Broke}
)

func place[T comparable](in []T, x T) int {
	for i, y := range in {
		if x == y {
			return i
		}
	}
	return 0
}

// A fault is a kind of failure with one message. Messages that differ only in numbers count as the
// same, represented by the first one.
type fault struct {
	kind         int // index of the first fault of this kind in faults
	status       record.Status
	end          record.End
	phase, class string
	text         string
	form         string // the message without its numbers
}

// Maximum number of faults, and of messages per kind of fault, that are distinguished.
const (
	maxFaults     = 1000
	maxMessages   = 20
	otherMessages = "(other messages)"
)

// paid is the usage of attempts, including those that do not count.
type paid struct {
	attempts     int64
	further      int64 // attempts after a trial's first one, except regrades
	use, other   record.Usage
	unknown      bool // the cost of some call is unknown
	otherUnknown bool
}

// add adds the usage of an attempt.
func (p *paid) add(use, other *record.Usage) {
	spend(&p.use, use, &p.unknown)
	if other != nil {
		spend(&p.other, other, &p.otherUnknown)
	}
}

// Collect reads results from the journal's entries; control entries suffice. It skips damaged
// entries and returns one error for all of them together with the results of the rest.
func Collect(plan *record.Plan, run *record.Run, entries iter.Seq2[record.Entry, error]) (*Results, error) {
	r := newResults(plan, run)
	for e, err := range entries {
		if err == nil {
			r.saw(e.Time)
			err = r.add(&e)
		}
		if err != nil && len(r.errs) < 20 {
			r.errs = append(r.errs, err)
		}
	}
	return r, errors.Join(r.errs...)
}

func newResults(plan *record.Plan, run *record.Run) *Results {
	r := &Results{Plan: plan, Run: run, arms: map[string]int{}, tasks: map[string]int{}, open: map[string]int{}}
	if run != nil {
		r.seen = make([]time.Time, len(run.Work))
	}
	for i, a := range plan.Arms {
		r.arms[a.ID] = i
	}
	for _, b := range plan.Benchmarks {
		r.names = append(r.names, b.Name)
	}
	r.bench = make([]int, len(plan.Tasks))
	for i := range plan.Tasks {
		t := &plan.Tasks[i]
		r.tasks[t.Digest] = i
		b := -1
		for j, n := range r.names {
			if n == t.Benchmark {
				b = j
			}
		}
		if b < 0 {
			b = len(r.names)
			r.names = append(r.names, t.Benchmark)
		}
		r.bench[i] = b
	}
	r.slots = make([]slot, len(plan.Arms)*len(plan.Tasks)*r.repeats())
	for i := range r.slots {
		r.slots[i].reward = math.NaN()
	}
	r.paid = make([]paid, len(plan.Arms)*max(1, len(r.names)))
	return r
}

func (r *Results) repeats() int { return max(1, r.Plan.Repeats) }

func (r *Results) at(arm, task, repeat int) int {
	return (arm*len(r.Plan.Tasks)+task)*r.repeats() + repeat - 1
}

// where is the inverse of at.
func (r *Results) where(i int) (arm, task, repeat int) {
	n := r.repeats()
	return i / n / len(r.Plan.Tasks), i / n % len(r.Plan.Tasks), i%n + 1
}

// id returns the trial's ID.
func (r *Results) id(i int) string {
	arm, task, rep := r.where(i)
	return record.TrialID(r.Plan.Arms[arm].ID, r.Plan.Tasks[task].Digest, rep)
}

// verdict holds the fields of a record.Verdict that are needed. Decoding the others would double
// the cost.
type verdict struct {
	Final   bool          `json:"final"`
	Status  record.Status `json:"status"`
	End     record.End    `json:"end"`
	Reward  *float64      `json:"reward"`
	Flags   []string      `json:"flags"`
	Opinion *struct {
		State string `json:"state"`
	} `json:"confirmation"`
	Error     *record.Fault `json:"error"`
	Steps     int64         `json:"steps"`
	Turns     int64         `json:"turns"`
	BadCalls  int64         `json:"bad_calls"`
	Usage     record.Usage  `json:"usage"`
	Other     *record.Usage `json:"other"`
	Times     record.Times  `json:"times"`
	Left      *int          `json:"left_processes"`
	Abandoned bool          `json:"abandoned"`
	Driver    string        `json:"driver"`
	Refused   int64         `json:"refused"`
	OOMs      int64         `json:"ooms"`
}

func (r *Results) add(e *record.Entry) error {
	switch e.Kind {
	case record.KindAttempt:
		var a struct {
			Arm    string `json:"arm"`
			Digest string `json:"task_digest"`
			Repeat int    `json:"repeat"`
		}
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return fmt.Errorf("journal entry %d (attempt of trial %s): %w", e.Seq, e.Trial, err)
		}
		arm, ok := r.arms[a.Arm]
		task, ok2 := r.tasks[a.Digest]
		if !ok || !ok2 || a.Repeat < 1 || a.Repeat > r.repeats() {
			return fmt.Errorf("journal entry %d: trial %s is not in the plan", e.Seq, e.Trial)
		}
		i := r.at(arm, task, a.Repeat)
		r.open[e.Trial] = i
		n := uint16(min(e.Attempt, math.MaxUint16))
		if n <= r.slots[i].attempts { // the same attempt, continued after a restart
			break
		}
		r.slots[i].attempts = n
		p := &r.paid[r.spentIndex(i)]
		p.attempts++
		if e.Attempt > 1 && !ledger.Regrades(e.Data) {
			p.further++
		}
	case record.KindVerdict:
		var v verdict
		if err := json.Unmarshal(e.Data, &v); err != nil {
			return fmt.Errorf("journal entry %d (verdict of trial %s): %w", e.Seq, e.Trial, err)
		}
		i, ok := r.open[e.Trial]
		if !ok {
			return fmt.Errorf("journal entry %d: a verdict of trial %s, of which no attempt is open", e.Seq, e.Trial)
		}
		delete(r.open, e.Trial)
		r.paid[r.spentIndex(i)].add(&v.Usage, v.Other)
		if v.Final {
			if v.Error == nil && slices.Contains(v.Flags, noReward) {
				v.Error = unrewarded(e.Data)
			}
			r.decide(i, &v)
		}
	case record.KindAmend:
		var a record.Amend
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return fmt.Errorf("journal entry %d (amendment of trial %s): %w", e.Seq, e.Trial, err)
		}
		i, ok := r.find(e.Trial)
		if !ok {
			return fmt.Errorf("journal entry %d: trial %s is not in the plan", e.Seq, e.Trial)
		}
		r.amend(&r.slots[i], &a)
		r.paid[r.spentIndex(i)].add(&record.Usage{}, a.Other)
	case record.KindSpent:
		var s record.Spent
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return fmt.Errorf("journal entry %d (what trial %s took): %w", e.Seq, e.Trial, err)
		}
		i, ok := r.find(e.Trial)
		if !ok {
			return fmt.Errorf("journal entry %d: trial %s is not in the plan", e.Seq, e.Trial)
		}
		r.paid[r.spentIndex(i)].add(&s.Usage, s.Other)
	}
	return nil
}

// noReward is both the flag of a trial whose grader gave no reward and the class of that fault.
const noReward = "no_reward"

// unrewarded returns the reason why a verdict's grader gave no reward, or nil if it states none.
func unrewarded(data []byte) *record.Fault {
	var v struct {
		Scores []record.Score `json:"scores"`
	}
	if json.Unmarshal(data, &v) != nil {
		return nil
	}
	for _, s := range v.Scores {
		if s.Primary && s.Why != "" {
			return &record.Fault{Phase: "grade", Class: noReward, Text: s.Why}
		}
	}
	return nil
}

func (r *Results) decide(i int, v *verdict) {
	f := 0
	if v.Error != nil || v.Status != record.Scored {
		f = r.fault(v)
	}
	s := &r.slots[i]
	*s = slot{
		reward: value(v.Reward), status: status(place(statuses, v.Status)), end: end(place(ends, v.End)),
		fault: uint16(f),
		flags: r.flagBits(v.Flags), attempts: s.attempts, steps: small(v.Steps), turns: small(v.Turns),
		bad:  small(v.BadCalls),
		wall: small(v.Times.Wall.Milliseconds()), active: small(v.Times.Working.Milliseconds()),
		left: v.Left != nil && *v.Left > 0, gone: v.Abandoned, refused: v.Refused > 0, driver: r.driverPlace(v.Driver),
		oom: v.OOMs > 0, replayed: s.replayed || statuses[s.status] == record.Scored,
	}
	if v.Opinion != nil {
		s.opinion = uint8(place(opinions, v.Opinion.State))
	}
	if s.status != 1 {
		s.reward = math.NaN()
	}
}

func (r *Results) fault(v *verdict) int {
	f := fault{status: v.Status, end: v.End}
	if v.Error != nil {
		f.phase, f.class, f.text = v.Error.Phase, v.Error.Class, v.Error.Text
		f.form = numbers.ReplaceAllString(f.text, "#")
		if f.class == noReward {
			f.end = "" // group all ends together
		}
	}
	place, kind, messages := r.known(&f)
	if place < 0 && messages >= maxMessages {
		f.text, f.form = otherMessages, otherMessages
		place, kind, _ = r.known(&f)
	}
	switch {
	case place >= 0:
		return place + 1
	case len(r.faults) == maxFaults:
		return max(kind, 0) + 1
	}
	if f.kind = kind; kind < 0 {
		f.kind = len(r.faults)
	}
	r.faults = append(r.faults, f)
	return len(r.faults)
}

// known searches for f among the faults. It returns its index, the index of the first fault of its
// kind (-1 if none), and the number of faults of its kind.
func (r *Results) known(f *fault) (place, kind, messages int) {
	place, kind = -1, -1
	for i := range r.faults {
		g := &r.faults[i]
		if g.status != f.status || g.end != f.end || g.phase != f.phase || g.class != f.class {
			continue
		}
		messages, kind = messages+1, g.kind
		if g.form == f.form {
			place = i
		}
	}
	return place, kind, messages
}

// numbers matches the parts in which messages with the same cause differ: counts, ports, process
// IDs, hashes.
var numbers = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f]*`)

// worked returns the total time during which processes worked on the run, without pauses before a
// resume. For a process that was killed, its last journal entry counts as its end.
func (r *Results) worked() (d time.Duration) {
	for i, s := range r.Run.Work {
		end := r.seen[i]
		if s.Ended != nil {
			end = *s.Ended
		}
		d += max(0, end.Sub(s.Began))
	}
	if len(r.Run.Work) == 0 && r.Run.Ended != nil {
		d = r.Run.Ended.Sub(r.Run.Started)
	}
	return d
}

// saw records the time of an entry for the process that was running then.
func (r *Results) saw(t time.Time) {
	for i := len(r.seen) - 1; i >= 0; i-- {
		if !t.Before(r.Run.Work[i].Began) {
			if t.After(r.seen[i]) {
				r.seen[i] = t
			}
			return
		}
	}
}

func (r *Results) spentIndex(i int) int {
	arm, task, _ := r.where(i)
	return arm*len(r.names) + r.bench[task]
}

// find returns the index of a trial's slot.
func (r *Results) find(id string) (int, bool) {
	if i, ok := r.open[id]; ok {
		return i, true
	}
	if r.byID == nil {
		r.byID = make(map[string]int, len(r.slots))
		for i := range r.slots {
			r.byID[r.id(i)] = i
		}
	}
	i, ok := r.byID[id]
	return i, ok
}

// of returns the slot indexes of an arm's trials in one benchmark, or in all if bench is -1.
func (r *Results) of(arm, bench int) []int {
	var in []int
	for i := r.at(arm, 0, 1); i < r.at(arm+1, 0, 1); i++ {
		if _, task, _ := r.where(i); bench < 0 || r.bench[task] == bench {
			in = append(in, i)
		}
	}
	return in
}

// values returns the scores of trials for the statistics. Repeats of a task form one cluster, as do
// tasks that declare a common cluster.
func (r *Results) values(in []int) []stats.Value {
	var vs []stats.Value
	for _, i := range in {
		if s := &r.slots[i]; s.status == 1 && !math.IsNaN(s.reward) {
			_, task, _ := r.where(i)
			vs = append(vs, stats.Value{X: s.reward, Cluster: cluster(&r.Plan.Tasks[task])})
		}
	}
	return vs
}

func cluster(t *record.Task) string {
	if t.Cluster != "" {
		return "c\x00" + t.Benchmark + "\x00" + t.Cluster
	}
	return "t\x00" + t.Benchmark + "\x00" + t.ID
}

func spend(sum, u *record.Usage, unknown *bool) {
	sum.Calls += u.Calls
	if !u.Told() {
		sum.Silent += max(u.Silent, 1)
	}
	sum.Add(record.Usage{Lost: u.Lost})
	sum.In += u.In
	sum.Out += u.Out
	sum.Cached += u.Cached
	sum.CacheWrite += u.CacheWrite
	sum.Reasoning += u.Reasoning
	if sum.Unpriced == "" {
		sum.Unpriced = u.Unpriced
	}
	switch {
	case u.Cost != nil:
		c := *u.Cost
		if sum.Cost != nil {
			c += *sum.Cost
		}
		sum.Cost = &c
	case u.Calls > 0 || u.In > 0 || u.Out > 0:
		*unknown = true
	}
}

// value returns NaN if there is no value or it is infinite: JSON cannot represent infinity, so a
// report would fail.
func value(x *float64) float64 {
	if x == nil || math.IsInf(*x, 0) {
		return math.NaN()
	}
	return *x
}

func small(n int64) int32 { return int32(max(0, min(n, math.MaxInt32))) }

func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
