package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/model/price"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/queue"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/runtime/auto"
)

// Control is how a run is watched and ended. Its context's end stops it at once, in order; Drain,
// when closed, lets what runs finish.
type Control struct {
	Drain   <-chan struct{}
	Observe func(harness.Progress)
	// Again says which decided trials are tried once more; nil: none.
	Again func(plan.Past) bool
	// Failed also goes on with trials that were decided infra or grader, with all their tries.
	// Those that were decided provider are always gone on with.
	Failed bool
	// LeaveChanged leaves the trials of tasks whose content has changed undecided and plays the
	// others; otherwise such tasks are a *ChangedError.
	LeaveChanged bool
	// Begun is told, before the first trial begins, how many trials are decided already.
	Begun func(decided int)
	// Earlier is told, while the first trials begin, what earlier processes of the run have come
	// to.
	Earlier func(Earlier)
}

// crowd is how many sessions at once make memory dearer than the collector's time.
const crowd = 2000

// An Outcome is what became of a run in this process.
type Outcome struct {
	harness.Summary
	Left    int // machines of ours that were still there at the end, now removed
	Parquet error
}

// Run plays what is left of the plan in d, which is open and locked.
func (r *Ready) Run(ctx context.Context, d *rundir.Dir, c Control) (out Outcome, err error) {
	if r.o.AcceptLoss {
		if err := r.repair(d); err != nil {
			return out, err
		}
	}
	st, err := r.openStore(d)
	if err != nil {
		return out, err
	}
	reopen := reopening(c)
	was := past(st.state, reopen, false)
	left, changed, err := r.changed(ctx, was, c)
	if err != nil {
		_, jerr := st.Close()
		return out, errors.Join(err, jerr)
	}
	run, err := r.begin(d, changed)
	if err != nil {
		_, jerr := st.Close()
		return out, errors.Join(err, jerr)
	}
	binary := func() {}
	defer func() {
		binary()
		r.noteImages(run)
		if e := finish(d, run, out, err); err == nil {
			err = e
		}
	}()
	defer func() {
		perr, jerr := st.Close()
		if run.Seq = st.journal.Seq(); jerr != nil {
			run.Seq = 0 // not known
		}
		out.Parquet, err = errors.Join(out.Parquet, perr), errors.Join(err, jerr)
	}()
	j, state := st.journal, st.state

	if err := settle(ctx, j, state); err != nil {
		return out, err
	}
	if err := r.settleLosses(d, run); err != nil {
		return out, err
	}
	binary = noteBinary(d, run)
	cfg, err := r.config(state, d)
	if err != nil {
		return out, err
	}
	cfg.Blobs, cfg.Room, cfg.Drain, cfg.Observe = st.blobs, j.Room, c.Drain, c.Observe
	if c.Observe != nil {
		for _, m := range []*models{r.models, r.roles} {
			m.mu.Lock()
			m.say = func(text string) { c.Observe(harness.Progress{Kind: "note", Text: text}) }
			m.mu.Unlock()
		}
	}
	r.reapDead(ctx)
	if r.Needs.Browsers {
		if _, err := browsers.Sweep(ctx, "", Alive); err != nil {
			r.o.Log.Warn("clearing what browsers of dead runs left", "err", err)
		}
	}
	before := decided(r.Plan, was, c.Again)
	if c.Begun != nil {
		c.Begun(before)
	}
	if lost := notedIn(run.Losses); c.Earlier != nil && (state.Len() > 0 || lost.USD > 0) {
		var reading sync.WaitGroup
		last := state.Seq()
		reading.Go(func() {
			x := earlier(d.Journal(), last, func(trial string, t ledger.Trial) bool {
				p := plan.PastOf(t, reopen)
				p.Trial = trial
				return c.Again != nil && c.Again(p)
			})
			x.Cost, x.Known = x.Cost+lost.USD, x.Known || lost.USD > 0
			c.Earlier(x)
		})
		defer reading.Wait()
	}
	streams, close := r.streams(past(state, reopen, true), c.Again,
		func(jobs iter.Seq[harness.Job]) iter.Seq[harness.Job] {
			return r.readable(without(left, jobs), st.blobs)
		})
	defer close()
	q := queue.New(cfg.Workers, streams...)
	defer q.Close()
	if cfg.Workers > crowd {
		// Thousands of sessions are thousands of stacks, which the collector counts as if they
		// would double.
		defer debug.SetGCPercent(debug.SetGCPercent(50))
	}
	out.Summary, err = harness.Run(ctx, cfg, q, j)
	if out.Reason == "drained" {
		out.Reason = "stopped"
	}
	switch out.Reason {
	case "stopped", "budget", "deadline": // matters only where it was not too late
		if before+out.Final >= plan.Trials(r.Plan) {
			out.Reason = "done"
		}
	}
	out.Left = r.reapOwn(ctx)
	return out, err
}

func (r *Ready) begin(d *rundir.Dir, changed []string) (*record.Run, error) {
	run, err := d.Run()
	if err != nil {
		return nil, err
	}
	if run.Run == "" {
		run.Run, run.Started = r.Plan.Run, time.Now().UTC()
	} else {
		run.Resumed++
	}
	run.Ended, run.Exit, run.Reason = nil, nil, ""
	run.Version, run.Host, run.Binary = r.o.Version, hostFacts(), ""
	run.Work = append(run.Work, record.Span{Began: time.Now().UTC(), Version: run.Version, Host: run.Host})
	if r.Driver != nil {
		run.Driver = r.Sandbox
	}
	r.keepBudget(run)
	r.keepDeadline(run)
	run.Changed = changed
	run.Limits = map[string]string{}
	for _, l := range r.Limits() {
		run.Limits[l.Name] = l.Value
	}
	run.Digests = map[string]string{}
	for _, b := range r.Plan.Benchmarks {
		run.Digests["benchmark/"+b.Name] = b.Digest
	}
	r.noteImages(run)
	run.Digests["prices"] = price.Default().Digest()
	return run, d.WriteRun(run)
}

// noteImages puts the digests of images into a run's record, as far as they are known.
func (r *Ready) noteImages(run *record.Run) {
	if r.images == nil {
		return
	}
	for name, digest := range r.images.Digests() {
		run.Digests["image/"+name] = digest
	}
}

func finish(d *rundir.Dir, run *record.Run, out Outcome, err error) error {
	now := time.Now().UTC()
	run.Ended, run.Reason, run.Work[len(run.Work)-1].Ended = &now, out.Reason, &now
	if err != nil {
		run.Reason = "storage"
	}
	return d.WriteRun(run)
}

// noteBinary puts the digest of this program into run.json while the run goes on, as it takes a
// while, and returns what waits for it. Nobody else may write run.json meanwhile, nor change the
// maps of run.
func noteBinary(d *rundir.Dir, run *record.Run) (wait func()) {
	now := *run
	now.Work = slices.Clone(run.Work)
	var digest string
	var wg sync.WaitGroup
	wg.Go(func() {
		digest = binaryDigest()
		now.Binary, now.Work[len(now.Work)-1].Binary = digest, digest
		_ = d.WriteRun(&now) // the end writes it again, and tells the error
	})
	return func() {
		wg.Wait()
		run.Binary, run.Work[len(run.Work)-1].Binary = digest, digest
	}
}

// config is the harness's configuration.
func (r *Ready) config(state *journal.State, d *rundir.Dir) (harness.Config, error) {
	eff := r.Eff
	cfg := harness.Config{
		Run: r.Plan.Run, Workers: max(1, r.Workers), Arms: r.arms, Benchmarks: r.benches, Seed: r.Plan.Seed,
		KeepSent: eff.KeepRequests, AcceptLoss: r.o.AcceptLoss, Slog: r.o.Log,
		Owner: self(),
		Secret: func(name string) (string, error) {
			ref, ok := eff.Secrets[name]
			if !ok {
				return "", fmt.Errorf("the configuration allows no secret %q; add secrets: {%s: ${%s}}", name, name,
					name)
			}
			return r.env.Secret(ref)
		},
	}
	cfg.Owner.Run = r.Plan.Run
	for name, ref := range eff.Secrets { // so that they are masked from the first event on
		if _, err := r.env.Secret(ref); err != nil {
			return cfg, fmt.Errorf("secret %s: %w", name, err)
		}
	}
	cfg.Mask = harness.NewMasker(r.env.Used()...)
	if r.Driver != nil {
		cfg.Driver, cfg.Provider, cfg.Images = r.Sandbox, r.pool, r.images
		if r.Eff.Sandbox.Driver == auto.Name {
			cfg.DriverOf = r.driverFor
		}
	}
	if p := eff.Phases; p != nil {
		cfg.Phases = harness.Phases{Start: p.Start.D(), Command: p.Command.D(), Collect: p.Collect.D(),
			Grade: p.Grade.D(), Close: p.Close.D(), Grace: p.Grace.D()}
	}
	cfg.Graders = r.gradingsAtOnce()
	if r.Needs.Browsers { // also where sessions that wait for a model leave their workers to others
		cfg.Browsers, _ = r.browserSessions()
	}
	cfg.Retry = r.retry()
	cfg.Retry.Used = state.Retries()
	if b := eff.Budget; b != nil {
		cfg.Whole = harness.Whole{Cost: b.Cost, Tokens: int64(b.Tokens)}
		if b.Deadline != "" {
			var err error
			if cfg.Whole.Deadline, err = b.Deadline.Next(time.Now()); err != nil {
				return cfg, err
			}
		}
	}
	if cfg.Whole.Cost > 0 || cfg.Whole.Tokens > 0 {
		run, err := d.Run()
		if err != nil {
			return cfg, err
		}
		spent(d.Journal(), run.Losses, &cfg.Whole, r.dearest())
	}
	return cfg, nil
}

func (r *Ready) retry() harness.Retry {
	c := r.Eff.Retries
	x := harness.Retry{Attempts: c.Attempts, Delay: c.Wait.D(), Pause: c.PauseAfter,
		Budget: max(10, plan.Trials(r.Plan)/10)}
	if c.Budget != nil {
		x.Budget = int(*c.Budget)
	}
	return x
}

// reopening says with which decided trials a resume goes on: those whose failure was the model's
// service's, and, where asked for, the harness's or the grader's, since a person has looked. A
// rerun plays what it picks.
func reopening(c Control) func(record.Status) bool {
	return func(s record.Status) bool {
		return c.Again == nil && (c.Failed || s == record.Provider)
	}
}

// past tells the plan what the journal knows of a trial. Evidence is read from the disk, so only
// where it is wanted.
func past(state *journal.State, reopen func(record.Status) bool, withEvidence bool) func(string) plan.Past {
	return func(trial string) plan.Past {
		t, ok := state.Trial(trial)
		if !ok {
			return plan.Past{}
		}
		p := plan.PastOf(t.Trial, reopen)
		p.Decided = p.Decided && !t.Damaged
		if withEvidence && !p.Decided && t.Evidence > 0 {
			p.Evidence = evidence(state, trial)
		}
		return p
	}
}

func evidence(state *journal.State, trial string) []record.Evidence {
	entries, err := state.Evidence(trial)
	if err != nil {
		return nil // then the trial is played again
	}
	var out []record.Evidence
	for _, e := range entries {
		var ev record.Evidence
		if err := json.Unmarshal(e.Data, &ev); err != nil {
			return nil
		}
		out = append(out, ev)
	}
	return out
}

// streams are the plan's trials by arm, with the benchmark that suits the arm. close ends what
// looks after their images, when they are not read any more. left takes out what is not to be
// played.
func (r *Ready) streams(was func(string) plan.Past, again func(plan.Past) bool,
	left func(iter.Seq[harness.Job]) iter.Seq[harness.Job]) (streams []queue.Stream, close func()) {
	parts := plan.Streams(r.Plan, was, again)
	ahead, close := r.ahead(len(parts))
	for _, s := range parts {
		x := queue.Stream{Jobs: ahead(r.named(r.variants(left(s.Jobs))))}
		if s.Arm >= 0 {
			x.Account = accountOf(r.Eff.Arms[s.Arm].Model)
		} else {
			x.Account = "benchmark " + s.World // its arms play one after another
		}
		streams = append(streams, x)
	}
	return streams, close
}

func (r *Ready) variants(all iter.Seq[harness.Job]) iter.Seq[harness.Job] {
	return func(yield func(harness.Job) bool) {
		for j := range all {
			if v, ok := r.variant[[2]int{j.Arm, j.Benchmark}]; ok {
				j.Benchmark = v
			}
			if !yield(j) {
				return
			}
		}
	}
}

func decided(p *record.Plan, was func(string) plan.Past, again func(plan.Past) bool) int {
	n := plan.Trials(p)
	for range plan.Jobs(p, was, again) {
		n--
	}
	return n
}
