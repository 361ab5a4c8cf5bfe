package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options are settings of a run that are not part of its configuration.
type Options struct {
	Kinds   *registry.Registry // what the configuration may name
	Env     func(string) (string, bool)
	Version string
	Log     *slog.Logger
	// Workers, Budget and Deadline override the configuration of a resumed run; "" means as
	// configured.
	Workers, Budget, Deadline string
	// Dry only inspects the run: secrets may be missing, and no tape is created.
	Dry bool
	// Grade only grades: agents' sandboxes, keys and files may be missing.
	Grade bool
	// AcceptLoss lets a run continue without what its folder has lost. Otherwise a loss is an
	// error.
	AcceptLoss bool
	// Making is told which images are being pulled and built. It must not block and may be nil.
	Making func(image.Progress)
}

// A Ready run has everything it needs open and has not started.
type Ready struct {
	Eff     *config.Effective
	Plan    *record.Plan
	Driver  sandbox.Driver // nil if no task needs a sandbox
	Sandbox string         // name of the driver, or of those that auto selected: "docker+local"
	Workers int
	Needs   Needs
	Notes   []string // messages for the user

	o        Options
	env      *config.Env
	pool     *pool.Pool
	models   *models
	roles    *models // models of roles have their own limiters, so that graders do not queue behind agents
	tapes    tapes
	plain    sandbox.Driver // driver for programs on this host; nil until one is needed
	sparedMu sync.Mutex
	sparedOf map[tried]bool // interrupted attempts whose sandboxes the start has not removed

	slow bool // some tasks have sandboxes whose start takes long

	plainMu sync.Mutex
	images  *harness.Images
	// browsers starts a browser when the first trial needs one.
	browsers web.Browsers
	benches  []harness.Bench
	// variant maps an arm and a benchmark of the plan to the entry of benches that the arm runs
	// instead, because arms may configure their sandboxes.
	variant map[[2]int]int
	arms    []harness.Arm
}

// Prepare checks and opens everything that a configuration names, before any money is spent.
// planned is the plan of a resumed run, or nil for a new one. The errors are for the user to fix.
func Prepare(ctx context.Context, eff *config.Effective, planned *record.Plan, o Options) (_ *Ready, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Ready{Eff: eff, o: o, variant: map[[2]int]int{}, Notes: eff.Notes}
	r.integrity(planned)
	if err := r.openEnv(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if err := r.openModels(); err != nil {
		return nil, err
	}
	if err := r.lookForBrowser(); err != nil {
		return nil, err
	}
	r.browsers = openBrowsers(eff.Browser)
	if err := r.priced(); err != nil {
		return nil, err
	}
	if err := r.openBenchmarks(); err != nil {
		return nil, err
	}
	if err := r.openArms(); err != nil {
		return nil, err
	}
	if planned == nil {
		if err := r.deadlineAhead(); err != nil {
			return nil, err
		}
	}
	if planned != nil {
		r.Plan = planned
		if !o.Grade {
			err = r.same(planned)
		}
	} else {
		err = r.plan(ctx)
	}
	if err != nil {
		return nil, err
	}
	r.Notes = append(r.Notes, append(r.models.notes, r.roles.notes...)...)
	if !o.Grade {
		r.noteBad()
		r.noteOdd()
		r.noteUnset()
	}
	if !o.Grade && !o.Dry {
		if err := r.lookAhead(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.survey(ctx); err != nil {
		return nil, err
	}
	if planned == nil {
		if err := r.noteUnused(ctx); err != nil {
			return nil, err
		}
	}
	if err := openFiles(); err != nil {
		return nil, err
	}
	if err := r.openDriver(ctx); err != nil {
		return nil, err
	}
	if err := r.fits(); err != nil {
		return nil, err
	}
	r.Workers = eff.Workers
	if r.Workers == 0 {
		r.Workers = 4 * runtime.NumCPU()
		if !r.Needs.Machines && !r.Needs.Browsers { // such sessions wait for models most of the time
			r.Workers = 64
		}
	}
	r.Workers = min(r.Workers, plan.Trials(r.Plan))
	return r, nil
}

func (r *Ready) openEnv() (err error) {
	r.env, err = config.NewEnv(r.o.Env, r.Eff.EnvFile)
	if r.o.Dry && errors.Is(err, fs.ErrNotExist) {
		r.Notes = append(r.Notes, "env_file "+r.Eff.EnvFile+" is not there; a real run needs it")
		r.env, err = config.NewEnv(r.o.Env, "")
	}
	if err == nil && (r.o.Dry || r.o.Grade) {
		r.env.Forgive()
	}
	if err == nil && r.o.Dry {
		for _, ref := range r.Eff.Secrets { // benchmarks ask for these when the run starts
			_, _ = r.env.Secret(ref) // r.env remembers a missing one
		}
	}
	return err
}

// noteUnset notes, for a dry run, which secrets a real run would be missing.
func (r *Ready) noteUnset() {
	for _, name := range r.env.Unset() {
		r.Notes = append(r.Notes, "the variable "+name+" is not set; a real run needs it")
	}
}

// openModels sets up what models share.
func (r *Ready) openModels() error {
	r.models = newModels(r.o.Kinds, r.env, r.Eff.Pools, r.o.Dry || r.o.Grade, r.o.Log, &r.tapes)
	r.roles = newModels(r.o.Kinds, r.env, r.Eff.Pools, r.o.Dry, r.o.Log, &r.tapes)
	var arms []*config.Model
	for i := range r.Eff.Arms {
		arms = append(arms, r.Eff.Arms[i].Model)
	}
	return errors.Join(r.models.agree(arms), r.roles.agree(slices.Collect(maps.Values(r.Eff.Roles))))
}

// integrity keeps the rule of a run that was planned before there were second opinions.
func (r *Ready) integrity(planned *record.Plan) {
	switch was := r.Eff.Integrity; {
	case planned != nil:
		var c struct{ Integrity string }
		if json.Unmarshal(planned.Config, &c) == nil && c.Integrity == "" {
			r.Eff.Integrity = "flag"
		}
	case was == "warn" || was == "fail":
		now := map[string]string{"warn": "flag", "fail": "require"}[was]
		r.Notes = append(r.Notes, fmt.Sprintf("integrity: %s is the name of earlier versions; it is read as %s", was,
			now))
	}
}

func (r *Ready) openBenchmarks() error {
	roles := map[string]*config.Model{}
	for name, m := range r.Eff.Roles {
		roles[name] = m
	}
	var errs []error
	for _, c := range r.Eff.Benchmarks {
		b, err := r.openBenchmark(c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		bench := harness.Bench{Benchmark: b, Options: benchmarks.Options{Raw: c.Options, Integrity: r.Eff.Integrity}}
		for name, m := range roles {
			f, err := r.roles.factory(m, nil)
			if err != nil {
				errs = append(errs, fmt.Errorf("role %s: %w", name, err))
				continue
			}
			if bench.Roles == nil {
				bench.Roles = map[string]model.Factory{}
			}
			bench.Roles[name] = f
		}
		r.benches = append(r.benches, bench)
	}
	return errors.Join(errs...)
}

// lookAhead lets benchmarks check that resources shared by their tasks exist.
func (r *Ready) lookAhead(ctx context.Context) error {
	for _, b := range r.benches[:len(r.Eff.Benchmarks)] {
		p, ok := b.Benchmark.(benchmarks.Preparer)
		if !ok {
			continue
		}
		notes, err := p.Prepare(ctx)
		if err != nil {
			return fmt.Errorf("benchmark %s: %w", b.Name(), err)
		}
		r.Notes = append(r.Notes, notes...)
	}
	return nil
}

func (r *Ready) openArms() error {
	plain := len(r.benches)
	specs := map[string]int{} // index of the first entry of benches with these settings, keyed by their JSON
	var errs []error
	for i := range r.Eff.Arms {
		c := &r.Eff.Arms[i]
		a := harness.Arm{Arm: r.Eff.Records[i]}
		var err error
		if a.Agent, err = r.openAgent(c); err != nil {
			errs = append(errs, err)
			continue
		}
		if c.Model != nil {
			if a.Model, err = r.models.factory(c.Model, c.Params); err != nil {
				errs = append(errs, fmt.Errorf("arm %s: %w", c.Name, err))
				continue
			}
		}
		if l := c.Limits; l != nil {
			a.Limits = harness.Limits{Turns: int64(l.Turns), Steps: int64(l.Steps), Tokens: int64(l.Tokens),
				Cost: l.Cost, Output: int64(l.Output)}
			if l.Time != nil {
				if a.Limits.Time = l.Time.D(); a.Limits.Time == 0 {
					a.Limits.Time = -1
				}
			}
		}
		r.arms = append(r.arms, a)
		if c.Sandbox == nil {
			continue
		}
		key, err := json.Marshal(c.Sandbox)
		if err != nil {
			return err
		}
		first, ok := specs[string(key)]
		if !ok {
			first = len(r.benches)
			specs[string(key)] = first
			for _, b := range r.benches[:plain] {
				b.Options.Sandbox = wishes(c.Sandbox)
				if c.Sandbox.Browser {
					b.Benchmark = web.WithBrowser(b.Benchmark, r.browsers)
				}
				r.benches = append(r.benches, b)
			}
		}
		for b := range plain {
			r.variant[[2]int{i, b}] = first + b
		}
	}
	return errors.Join(errs...)
}

func wishes(s *config.Sandbox) sandbox.Spec {
	spec := sandbox.Spec{CPUs: s.CPU, Memory: int64(s.Memory), Pids: s.Pids, Disk: int64(s.Disk),
		Image: sandbox.Image{Ref: s.Image}}
	if s.Network != nil {
		spec.Network = sandbox.Network{Mode: s.Network.Mode, Allow: s.Network.Allow}
	}
	return spec
}

func (r *Ready) plan(ctx context.Context) error {
	spec, err := r.spec()
	if err == nil {
		r.Plan, err = plan.Build(ctx, spec)
	}
	return err
}

// spec returns the plan's spec according to the configuration.
func (r *Ready) spec() (plan.Spec, error) {
	eff := r.Eff
	now := time.Now()
	raw, err := eff.JSON()
	if err != nil {
		return plan.Spec{}, err
	}
	spec := plan.Spec{Run: rundir.RunID(now), Name: runName(eff), Created: now, Seed: *eff.Seed, Repeats: eff.Repeats,
		Arms: eff.Records, Config: raw,
		Note: func(text string) { r.Notes = append(r.Notes, text) }}
	if eff.Shard != nil {
		spec.Shard = plan.Shard(*eff.Shard)
	}
	for i, b := range eff.Benchmarks {
		name := b.Name
		if b.Path != "" {
			name += ":" + b.Path
		}
		spec.Benches = append(spec.Benches,
			plan.Bench{Benchmark: r.benches[i].Benchmark, Spec: name, Options: b.Options, Select: b.Select.Selection()})
	}
	return spec, nil
}

func runName(eff *config.Effective) string {
	if eff.Name != "" {
		return eff.Name
	}
	var names []string
	for _, b := range eff.Benchmarks {
		if !slices.Contains(names, b.Name) {
			names = append(names, b.Name)
		}
	}
	return strings.Join(names, "-")
}

// same checks that what the configuration names has not changed since the run was planned.
func (r *Ready) same(p *record.Plan) error {
	if len(p.Arms) != len(r.Eff.Records) {
		return fmt.Errorf("the plan has %d arms, its configuration %d: plan.json was changed", len(p.Arms),
			len(r.Eff.Records))
	}
	for i, a := range p.Arms {
		if b := r.Eff.Records[i]; a.ID != b.ID {
			return fmt.Errorf("arm %q is no longer what it was when the run was planned (a script or program file "+
				"has changed); put the old one back, or start a new run", a.Name)
		}
	}
	return nil
}

// Restore prepares a run from its folder: its plan, with the budget and the deadline set by later
// commands.
func Restore(ctx context.Context, d *rundir.Dir, o Options) (*Ready, error) {
	p := d.Plan()
	if err := plan.Distinct(p); err != nil {
		return nil, err
	}
	run, err := d.Run()
	if err != nil {
		return nil, err
	}
	budget := o.Budget
	if budget == "" && run.Budget != nil {
		budget = strconv.FormatFloat(*run.Budget, 'f', -1, 64)
	}
	deadline := run.Deadline
	if o.Deadline != "" {
		if deadline, err = newDeadline(o.Deadline, time.Now()); err != nil {
			return nil, err
		}
	}
	lifted := deadline == noDeadline
	if lifted {
		deadline = "null" // null removes the configured deadline
	}
	raw := p.Config
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errors.New("plan.json holds no configuration, so the run cannot go on")
	}
	src := config.Source{Name: "plan.json", Data: raw, Dir: "/"}
	for _, x := range []config.Override{
		{Flag: "--workers", Path: "workers", Values: []string{o.Workers}},
		{Flag: "--budget", Path: "budget.cost", Values: []string{budget}},
		{Flag: "--deadline", Path: "budget.deadline", Values: []string{deadline}, YAML: lifted},
	} {
		if x.Values[0] != "" {
			src.Over = append(src.Over, x)
		}
	}
	eff, err := config.Parse(src, o.Kinds.Config())
	if err != nil {
		return nil, err
	}
	return Prepare(ctx, eff, p, o)
}
