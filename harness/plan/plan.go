// Package plan decides what a run will do: which tasks of which benchmarks run with which arms, how
// often, and in which order. A plan is data (record.Plan, the file plan.json). Its trials are
// expanded one at a time, without those that the journal reports as decided.
package plan

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// A Bench is a benchmark to plan.
type Bench struct {
	Benchmark benchmarks.Benchmark
	Spec      string // as given by the user
	Options   json.RawMessage
	Select    Selection
}

// A Spec is the input of a plan.
type Spec struct {
	Run, Name string
	Created   time.Time
	Seed      uint64
	Repeats   int // at least 1
	Arms      []record.Arm
	Benches   []Bench
	Shard     Shard
	Config    json.RawMessage
	Note      func(text string) // called for each name in a selection that no task has; may be nil
}

// Build reads the tasks once and makes the plan. An unreadable task is part of the plan; its trials
// will be skipped with the reason. It is an error if a source is unusable as a whole, if two tasks
// have the same ID, or if a selection leaves no task.
//
// Build needs some 250 bytes of memory for each selected task, not counting its fields, and some 40
// bytes for each task read.
func Build(ctx context.Context, s Spec) (*record.Plan, error) {
	if s.Repeats < 1 {
		return nil, fmt.Errorf("plan: %d repeats", s.Repeats)
	}
	if len(s.Arms) == 0 {
		return nil, errors.New("plan: no arms")
	}
	p := &record.Plan{Run: s.Run, Name: s.Name, Created: s.Created.UTC(), Seed: s.Seed, Repeats: s.Repeats,
		Arms:  s.Arms,
		Shard: s.Shard.String(), Config: s.Config}
	seen := map[string]bool{}
	for _, a := range s.Arms {
		if seen[a.ID] {
			return nil, fmt.Errorf("plan: arm %q is the same as another one in all that matters; change or remove it",
				a.Name)
		}
		seen[a.ID] = true
	}
	names := map[string]bool{}
	words := s.words()
	var order []*reading // readings of benchmarks whose tasks have an order
	var known []*reading
	for _, b := range s.Benches {
		name := b.Benchmark.Name()
		if names[name] {
			return nil, fmt.Errorf("plan: two benchmarks are called %q; give one of them another name", name)
		}
		names[name] = true
		r := &reading{words: words}
		tasks, err := r.selected(ctx, b, s.Seed)
		if err != nil {
			return nil, fmt.Errorf("benchmark %s: %w", b.Spec, err)
		}
		known = append(known, r)
		p.Benchmarks = append(p.Benchmarks,
			record.Benchmark{Name: name, Spec: b.Spec, Digest: r.digest, Opts: b.Options, Rounds: r.rounds})
		if p.Tasks == nil {
			p.Tasks = tasks
		} else {
			p.Tasks = append(p.Tasks, tasks...)
		}
		if r.rounds != "" {
			order = append(order, r)
		}
	}
	if len(p.Benchmarks) == 0 {
		return nil, errors.New("plan: no benchmark")
	}
	p.Tasks = s.Shard.apply(p.Tasks)
	for _, r := range order {
		if err := r.follow(p); err != nil {
			return nil, fmt.Errorf("benchmark %s: %w", r.name, err)
		}
	}
	if len(p.Tasks) == 0 {
		return nil, fmt.Errorf("plan: shard %s is empty: there are fewer tasks than shards", s.Shard)
	}
	if err := Distinct(p); err != nil {
		return nil, err
	}
	s.unmet(known)
	return p, nil
}

// Distinct returns an error if two tasks of a plan have the same digest, because their trials would
// have the same IDs.
func Distinct(p *record.Plan) error {
	if len(p.Benchmarks) < 2 {
		return nil // tasks of one benchmark differ at least in their IDs
	}
	seen := make(map[string]int, len(p.Tasks))
	for i, t := range p.Tasks {
		if k, twice := seen[t.Digest]; twice {
			return fmt.Errorf("plan: the benchmarks %q and %q both have the task %q, with the same content, so that "+
				"their trials could not be told apart: "+
				"leave it out of one of them (select), or make a run of each", p.Tasks[k].Benchmark, t.Benchmark, t.ID)
		}
		seen[t.Digest] = i
	}
	return nil
}

// A reading holds what is kept of a benchmark's tasks.
type reading struct {
	words words
	// each is called as early as possible for the selected tasks and reports whether a task is in
	// the plan's shard. If each is nil, the tasks are kept.
	each func(record.Task) (bool, error)

	name   string
	n      int               // number of tasks read
	taken  int               // number of tasks that match the selection, up to its limit
	ids    map[[16]byte]bool // by hash of the ID, since IDs may be long: whether the task was passed to each
	tasks  []record.Task     // selected tasks not passed to each
	digest string
	rounds string // value for record.Benchmark.Rounds
	chain  []link // tasks that come after others, selected or not
	known
}

// A link is a task that comes after others, according to its source.
type link struct {
	id    string
	after []string
}

// follow sets After of p's tasks. A shard knows neither which of the other tasks run in other
// shards nor when.
func (r *reading) follow(p *record.Plan) error {
	var ids []string
	var after [][]string
	at := map[string]int{}
	for _, l := range r.chain {
		at[l.id] = len(ids)
		ids, after = append(ids, l.id), append(after, l.after)
	}
	kept := map[int]bool{}
	for _, l := range r.chain {
		for _, id := range l.after { // tasks passed to each come after none
			if _, ok := at[id]; !ok && r.ids[hash(id)] {
				at[id], kept[len(ids)] = len(ids), true
				ids, after = append(ids, id), append(after, nil)
			}
		}
	}
	for _, t := range p.Tasks {
		if t.Benchmark != r.name {
			continue
		}
		if _, ok := at[t.ID]; !ok { // t comes after none, but others may come after it
			at[t.ID] = len(ids)
			ids, after = append(ids, t.ID), append(after, nil)
		}
		kept[at[t.ID]] = true
	}
	order, err := contract(ids, after, func(i int) bool { return kept[i] })
	if err != nil {
		return err
	}
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.Benchmark == r.name {
			for _, j := range order[at[t.ID]] {
				t.After = append(t.After, ids[j])
			}
		}
	}
	return nil
}

// selected reads a benchmark and returns the selected tasks.
func (r *reading) selected(ctx context.Context, b Bench, seed uint64) ([]record.Task, error) {
	if err := b.Select.Check(); err != nil {
		return nil, err
	}
	if err := r.read(ctx, b); err != nil {
		return nil, err
	}
	if r.n == 0 {
		return nil, errors.New("it has no tasks, or its options leave none")
	}
	tasks := b.Select.cut(r.tasks, seed)
	if r.taken == 0 {
		return nil, fmt.Errorf("the selection leaves none of its %d tasks%s", r.n, b.Select.hint(r))
	}
	r.tasks = nil
	return tasks, nil
}

func hash(id string) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:])
}

// read reads the tasks of a benchmark.
func (r *reading) read(ctx context.Context, bench Bench) error {
	b := bench.Benchmark
	r.name, r.ids = b.Name(), map[[16]byte]bool{}
	h := sha256.New()
	shared := false
	for t, err := range b.Source().Tasks(ctx) {
		pt := record.Task{Benchmark: r.name, ID: t.ID, Digest: t.Digest, Cluster: t.Cluster, Tags: t.Tags,
			Warnings: t.Warnings}
		var bad *datasets.BadTask
		switch {
		case errors.As(err, &bad):
			pt.ID, pt.Bad = bad.ID, bad.Error()
			if d := (*benchmarks.Defect)(nil); errors.As(err, &d) {
				pt.BadKind = d.Kind
			}
			if pt.ID == "" {
				pt.ID = bad.Place
			}
			pt.Digest = ""
		case err != nil:
			return err
		}
		if len(t.After) > 0 {
			r.rounds = record.RoundsOfRepeats
			r.chain = append(r.chain, link{pt.ID, t.After})
			if !shared {
				needs, err := b.Needs(t, benchmarks.Options{Raw: bench.Options})
				shared = err == nil && len(needs.Exclusive) > 0
			}
		}
		key := hash(pt.ID)
		if _, twice := r.ids[key]; twice {
			return fmt.Errorf("two tasks are called %q; every task needs an id of its own", pt.ID)
		}
		r.ids[key] = false
		if pt.Digest == "" {
			var content any = t.Data
			if pt.Bad != "" {
				content = pt.Bad
			}
			if pt.Digest, err = record.TaskDigest(r.name, pt.ID, content); err != nil {
				return err
			}
		}
		fmt.Fprintf(h, "%s\n", pt.Digest)
		r.n++
		r.note(r.words, pt, t.Fields)
		sel := bench.Select
		if sel.full(r.taken) || !sel.takes(pt, t.Fields) {
			continue
		}
		r.taken++
		pt.Fields = short(t.Fields)
		if r.each == nil || sel.Sample > 0 || r.rounds != "" {
			r.tasks = append(r.tasks, pt)
			continue
		}
		if r.ids[key], err = r.each(pt); err != nil || sel.full(r.taken) {
			return err
		}
	}
	if shared {
		r.rounds = record.RoundsOfArms
	}
	r.digest = hex.EncodeToString(h.Sum(nil))[:20]
	return ctx.Err()
}

// short returns the fields that a plan keeps.
func short(fields map[string]string) map[string]string {
	var out map[string]string // stays nil in the common case that there are none
	for k, text := range fields {
		if text == "" || len(text) > record.MaxField {
			continue
		}
		if out == nil {
			out = make(map[string]string, len(fields))
		}
		out[k] = text
	}
	return out
}

// A Past is what a journal knows of a trial.
type Past struct {
	Trial       string // trial ID; set by Jobs
	Decided     bool
	Status      record.Status // status of the current verdict
	Attempts    int           // highest attempt number so far
	Failed      int           // tries used up by infra and grader failures
	Alone       bool          // an attempt lost a shared browser
	Fence       int64         // highest fence so far
	Interrupted int           // attempt that is still open; 0 if none
	Prior       []int         // attempts whose paid replies may be reused, newest first
	Evidence    []record.Evidence
}

// PastOf converts the fold of a trial's entries, without its evidence. reopen selects the failed
// trials that a resume retries with all their tries, although they were decided; nil selects none.
func PastOf(t ledger.Trial, reopen func(record.Status) bool) Past {
	p := Past{
		Decided: t.Decided, Status: t.Status(), Attempts: int(t.Last), Failed: int(t.Failed), Alone: t.Alone,
		Fence:       t.Fence,
		Interrupted: int(t.Open), Prior: t.Prior(),
	}
	if p.Decided && reopen != nil && ledger.Reopens(p.Status) && reopen(p.Status) {
		p.Decided, p.Failed, p.Alone = false, 0, false
	}
	return p
}

// Trials returns the number of trials of the plan.
func Trials(p *record.Plan) int { return len(p.Arms) * len(p.Tasks) * p.Repeats }

// Jobs yields the unfinished trials in the plan's order: repeat by repeat, tasks shuffled by the
// seed with each behind those it comes after, and the arms of a task side by side, so that a run
// that ends early still has pairs to compare. Arms that share a world run one after another. past
// may be nil. again selects decided trials to run again (a rerun); it may be nil.
func Jobs(p *record.Plan, past func(trial string) Past, again func(Past) bool) iter.Seq[harness.Job] {
	return func(yield func(harness.Job) bool) {
		x := expand(p, past, again)
		for rep := 1; rep <= p.Repeats; rep++ {
			for _, ti := range x.order() {
				for ai := range p.Arms {
					if ai > 0 && x.apart(ti) {
						break
					}
					if j, ok := x.job(rep, ti, ai); ok && !yield(j) {
						return
					}
				}
			}
			for ai := 1; x.anyApart && ai < len(p.Arms); ai++ {
				for _, ti := range x.order() {
					if !x.apart(ti) {
						continue
					}
					if j, ok := x.job(rep, ti, ai); ok && !yield(j) {
						return
					}
				}
			}
		}
	}
}

// A Stream is a part of a plan's trials that other streams need not wait for.
type Stream struct {
	Arm   int    // index of the arm; -1 for all arms, if they share a world
	World string // the benchmark, if Arm is -1
	Jobs  iter.Seq[harness.Job]
}

// Streams returns the trials that [Jobs] yields, split by arm. Each stream is in the plan's order
// and can be read independently of the others. Trials of a benchmark whose arms share a world are
// one stream. The arguments are those of Jobs.
func Streams(p *record.Plan, past func(trial string) Past, again func(Past) bool) []Stream {
	x := expand(p, past, again)
	var out []Stream
	for ai := range p.Arms {
		out = append(out, Stream{Arm: ai, Jobs: func(yield func(harness.Job) bool) {
			for rep := 1; rep <= p.Repeats; rep++ {
				for _, ti := range x.order() {
					if x.apart(ti) {
						continue
					}
					if j, ok := x.job(rep, ti, ai); ok && !yield(j) {
						return
					}
				}
			}
		}})
	}
	for _, b := range p.Benchmarks {
		if b.Rounds != record.RoundsOfArms {
			continue
		}
		out = append(out, Stream{Arm: -1, World: b.Name, Jobs: func(yield func(harness.Job) bool) {
			for rep := 1; rep <= p.Repeats; rep++ {
				for ai := range p.Arms {
					for _, ti := range x.order() {
						if p.Tasks[ti].Benchmark != b.Name {
							continue
						}
						if j, ok := x.job(rep, ti, ai); ok && !yield(j) {
							return
						}
					}
				}
			}
		}})
	}
	return out
}

// An expansion makes the jobs of a plan.
type expansion struct {
	p        *record.Plan
	past     func(trial string) Past
	again    func(Past) bool
	bench    map[string]int
	anyApart bool // the arms of some benchmark share a world
	once     sync.Once
	before   [][]int
	shuffled []int
}

func expand(p *record.Plan, past func(trial string) Past, again func(Past) bool) *expansion {
	x := &expansion{p: p, past: past, again: again, bench: map[string]int{}}
	for i, b := range p.Benchmarks {
		x.bench[b.Name] = i
		x.anyApart = x.anyApart || b.Rounds == record.RoundsOfArms
	}
	return x
}

// order returns the order in which the tasks run.
func (x *expansion) order() []int {
	x.once.Do(func() {
		x.before = before(x.p)
		x.shuffled = shuffled(x.p, x.before)
	})
	return x.shuffled
}

// apart reports whether a task's arms run one after another.
func (x *expansion) apart(ti int) bool {
	return x.anyApart && x.p.Benchmarks[x.bench[x.p.Tasks[ti].Benchmark]].Rounds == record.RoundsOfArms
}

// job returns the job of a trial. ok is false if the trial is finished. The caller must have called
// order before.
func (x *expansion) job(rep, ti, ai int) (harness.Job, bool) {
	p := x.p
	t, arm := p.Tasks[ti], p.Arms[ai]
	j := harness.Job{Trial: record.TrialID(arm.ID, t.Digest, rep), Arm: ai, Benchmark: x.bench[t.Benchmark], Task: t,
		Repeat: rep, Attempt: 1, Fence: 1}
	switch b := p.Benchmarks[j.Benchmark]; b.Rounds {
	case record.RoundsOfRepeats:
		j.World, j.Round = b.Name+"/"+arm.ID, rep
	case record.RoundsOfArms:
		j.World, j.Round = b.Name, (rep-1)*len(p.Arms)+ai+1
	}
	for _, k := range x.before[ti] {
		j.After = append(j.After, record.TrialID(arm.ID, p.Tasks[k].Digest, rep))
	}
	if x.past == nil {
		return j, true
	}
	was := x.past(j.Trial)
	was.Trial = j.Trial
	return j, takeUp(&j, was, x.again)
}

// takeUp reports whether a trial still has to run, given its past, and sets the fields of j to
// continue it.
func takeUp(j *harness.Job, was Past, again func(Past) bool) bool {
	if was.Decided && (again == nil || !again(was)) {
		return false
	}
	j.Attempt, j.Fence = was.Attempts+1, was.Fence+1
	switch {
	case was.Decided:
		j.Why = "rerun"
	case was.Attempts > 0:
		j.Why = "resume"
		j.Failed, j.Alone = was.Failed, was.Alone
		j.Interrupted, j.Prior = was.Interrupted, was.Prior
		if n := len(was.Evidence); n > 0 && was.Evidence[n-1].Last {
			j.Evidence = was.Evidence
		}
	}
	return true
}
