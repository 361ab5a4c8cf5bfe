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

// Control watches and stops a run. Cancelling the context stops the run at once, with an orderly
// shutdown; closing Drain lets running trials finish.
type Control struct {
	Drain   <-chan struct{}
	Observe func(harness.Progress)
	// Again selects decided trials to run again; nil selects none.
	Again func(plan.Past) bool
	// Failed also retries trials decided "infra" or "grader", with all their tries. Trials decided
	// "provider" are always retried.
	Failed bool
	// LeaveChanged leaves trials of changed tasks undecided and runs the others. Otherwise changed
	// tasks are a *ChangedError.
	LeaveChanged bool
	// Checks is the file of references that second opinions use or add to; nil means none.
	Checks *Checks
	// Begun is called before the first trial starts, with the number of decided trials.
	Begun func(decided int)
	// Earlier is called while the first trials start, with the results of earlier processes of the
	// run.
	Earlier func(Earlier)
}

// crowd is the number of concurrent sessions above which memory costs more than garbage collection
// time.
const crowd = 2000

// An Outcome is the result of a run in this process.
type Outcome struct {
	harness.Summary
	Left    int // sandboxes of this process still found at the end, now removed
	Parquet error
}

// Run runs the unfinished part of the plan in d, which must be open and locked.
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
	left, changed, err := r.changed(ctx, was, waiting(d.Journal()), c)
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
			run.Seq = 0 // unknown until the run ends
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
	defer r.receive(d, &cfg)()
	if r.pool != nil {
		cfg.Observe = func(p harness.Progress) {
			if p.Kind == "verdict" || p.Kind == "canceled" { // perhaps it did not need its sandboxes
				r.pool.Forget(p.Job.Trial)
			}
			if c.Observe != nil {
				c.Observe(p)
			}
		}
	}
	if c.Observe != nil {
		for _, m := range []*models{r.models, r.roles} {
			m.mu.Lock()
			m.say = func(text string) { c.Observe(harness.Progress{Kind: "note", Text: text}) }
			m.mu.Unlock()
		}
	}
	r.reapDead(ctx, state)
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
		// Thousands of sessions have thousands of stacks. The collector includes them in its heap
		// target, which would double them.
		defer debug.SetGCPercent(debug.SetGCPercent(50))
	}
	out.Summary, err = harness.Run(ctx, cfg, q, j)
	if out.Reason == "drained" {
		out.Reason = "stopped"
	}
	switch out.Reason {
	case "stopped", "budget", "deadline": // these matter only if trials were left
		if before+out.Final >= plan.Trials(r.Plan) {
			out.Reason = "done"
		}
	}
	if out.Reason == "done" && err == nil {
		err = r.confirm(ctx, d.Journal(), left, cfg, &out.Summary, j, c)
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

// noteImages writes the known image digests to a run's record.
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

// noteBinary writes the digest of this program to run.json while the run continues, because
// computing it takes a while. It returns a function that waits for it. Until then nobody else may
// write run.json or change the maps of run.
func noteBinary(d *rundir.Dir, run *record.Run) (wait func()) {
	now := *run
	now.Work = slices.Clone(run.Work)
	var digest string
	var wg sync.WaitGroup
	wg.Go(func() {
		digest = binaryDigest()
		now.Binary, now.Work[len(now.Work)-1].Binary = digest, digest
		_ = d.WriteRun(&now) // run.json is written again at the end, which reports an error
	})
	return func() {
		wg.Wait()
		run.Binary, run.Work[len(run.Work)-1].Binary = digest, digest
	}
}

// config returns the harness's configuration.
func (r *Ready) config(state *journal.State, d *rundir.Dir) (harness.Config, error) {
	cfg, err := r.baseConfig()
	if err != nil {
		return cfg, err
	}
	cfg.Graders = r.gradingsAtOnce()
	if r.Needs.Browsers { // needed even though sessions waiting for a model give up their workers
		cfg.Browsers, _ = r.browserSessions()
	}
	cfg.Retry = r.retry()
	cfg.Retry.Used = state.Retries()
	if b := r.Eff.Budget; b != nil {
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

// baseConfig returns the part of the configuration that does not depend on the run's folder.
func (r *Ready) baseConfig() (harness.Config, error) {
	eff := r.Eff
	cfg := harness.Config{
		Run: r.Plan.Run, Workers: max(1, r.Workers), Arms: r.arms, Benchmarks: r.benches, Seed: r.Plan.Seed,
		KeepSent: eff.KeepRequests, AcceptLoss: r.o.AcceptLoss, Slog: r.o.Log,
		Owner: self(), Discard: r.discard,
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
	for name, ref := range eff.Secrets { // load them now, so that they are masked from the first event on
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

// reopening returns which decided trials a resume retries: those that failed because of the
// provider and, on request, because of the harness or the grader, after a person has looked. A
// rerun runs only what it picks.
func reopening(c Control) func(record.Status) bool {
	return func(s record.Status) bool {
		return c.Again == nil && (c.Failed || s == record.Provider)
	}
}

// past returns a function that tells the plan what the journal holds of a trial. Evidence is read
// from disk, so it is loaded only on request.
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
		return nil // the trial is then run again
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

// streams returns the plan's trials by arm, with the benchmark variant of the arm. It filters out
// the tasks in left. The caller must call close when the streams are not read any more, to stop
// preparing their images.
func (r *Ready) streams(was func(string) plan.Past, again func(plan.Past) bool,
	left func(iter.Seq[harness.Job]) iter.Seq[harness.Job]) (streams []queue.Stream, close func()) {
	parts := plan.Streams(r.Plan, was, again)
	ahead, close := r.ahead(len(parts))
	for _, s := range parts {
		x := queue.Stream{Jobs: ahead(r.named(r.variants(left(s.Jobs))))}
		if s.Arm >= 0 {
			x.Account = accountOf(r.Eff.Arms[s.Arm].Model)
		} else {
			x.Account = "benchmark " + s.World // its arms run one after another
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
