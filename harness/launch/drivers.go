package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/runtime/auto"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// OpenDriver opens a driver of the given kind and checks that it works on this machine. images
// configures how the driver prepares images, if it does.
func OpenDriver(ctx context.Context, k *sandbox.Kind, images image.Options) (sandbox.Driver, error) {
	d, err := open(k, sandbox.Setup{Images: images})
	if err == nil {
		if err = d.Probe(ctx); err == nil {
			return d, nil
		}
	}
	return nil, fmt.Errorf("driver %s does not work here: %w", k.Name, err)
}

func open(k *sandbox.Kind, s sandbox.Setup) (sandbox.Driver, error) {
	d, err := k.Open(s)
	if err == nil && d == nil {
		err = errNoValue
	}
	return d, err
}

// openDriver opens the drivers that the tasks need, before any money is spent.
func (r *Ready) openDriver(ctx context.Context) error {
	if !r.Needs.Machines {
		return nil
	}
	r.images = &harness.Images{Get: r.image}
	if p := r.Eff.Phases; p != nil {
		r.images.Timeout = p.Image.D()
	}
	open := r.openOne
	if r.Eff.Sandbox.Driver == auto.Name {
		open = r.openAuto
	}
	if err := open(ctx); err != nil {
		return err
	}
	r.openPool()
	return r.prepareImages(ctx)
}

// openOne opens the driver that the configuration names.
func (r *Ready) openOne(ctx context.Context) error {
	k := r.o.Kinds.Sandbox(r.Eff.Sandbox.Driver)
	if k == nil { // the run was planned by another program
		return fmt.Errorf("no driver is called %q in this program", r.Eff.Sandbox.Driver)
	}
	if k.NeedsImage && len(r.Needs.Bare) > 0 {
		return fmt.Errorf("%s (%s) without an image of their own, which %s needs: name one by sandbox.image "+
			"(on the command line --set sandbox.image=debian:bookworm), or leave out --sandbox %s",
			count(len(r.Needs.Bare), "task"), some(r.Needs.Bare), k.Name, k.Name)
	}
	d, err := OpenDriver(ctx, k, r.imageOptions())
	if err != nil {
		return fmt.Errorf("%w; %s", err, hint(k))
	}
	r.Driver, r.Sandbox = d, k.Name
	if far := r.Needs.Imaged; len(far) > 0 && !k.Images {
		r.Notes = append(r.Notes, fmt.Sprintf("%s an image, which the driver %s does not know, and will be "+
			"skipped (%s): "+
			"leave out --sandbox %s, or ask for docker", needing("", len(far)), k.Name, some(far), k.Name))
	}
	return nil
}

// openAuto opens the auto driver and each driver that the tasks need.
func (r *Ready) openAuto(ctx context.Context) error {
	o := r.imageOptions()
	d := auto.New(r.o.Kinds.Sandboxes, func(ctx context.Context, k *sandbox.Kind) (sandbox.Driver, error) {
		return OpenDriver(ctx, k, o)
	})
	r.Driver = d
	names := slices.Sorted(maps.Keys(r.Needs.Drivers))
	for _, name := range names {
		k, tasks := r.o.Kinds.Sandbox(name), r.Needs.Drivers[name]
		if k == nil {
			return fmt.Errorf("%s a machine that no driver takes by itself (%s); name a driver by --sandbox",
				needing("", len(tasks)), some(tasks))
		}
		if _, err := d.Open(ctx, k); err != nil {
			return fmt.Errorf("%s (%s): %w; %s", needing(" "+k.Need, len(tasks)), some(tasks), err, hint(k))
		}
	}
	r.Sandbox = strings.Join(names, "+")
	return nil
}

// kind returns the kind of the configured driver. The kind of auto has no properties.
func (r *Ready) kind() *sandbox.Kind {
	if k := r.o.Kinds.Sandbox(r.Eff.Sandbox.Driver); k != nil {
		return k
	}
	return new(sandbox.Kind)
}

// driverFor returns the name of the driver that auto selects for a sandbox, or "" if there is none.
func (r *Ready) driverFor(s sandbox.Spec) string {
	if k := auto.Choose(r.o.Kinds.Sandboxes, s); k != nil {
		return k.Name
	}
	return ""
}

// kindFor returns the kind of the driver of a sandbox, or nil if there is none.
func (r *Ready) kindFor(s sandbox.Spec) *sandbox.Kind {
	if r.Eff.Sandbox.Driver == auto.Name {
		return auto.Choose(r.o.Kinds.Sandboxes, s)
	}
	return r.kind()
}

// needing describes how many tasks need something: "3 tasks need a container engine for an image".
func needing(what string, tasks int) string {
	verb := "need"
	if tasks == 1 {
		verb = "needs"
	}
	return fmt.Sprintf("%s %s%s", count(tasks, "task"), verb, what)
}

// hint says what to do if a driver does not work.
func hint(k *sandbox.Kind) string {
	if k.Hint != "" {
		return k.Hint + ", or leave those tasks out by --ids; see `evalrun doctor`"
	}
	return "see `evalrun doctor`; if you trust what the tasks run, turn isolation off with --sandbox none"
}

// Drivers returns all drivers, with the reasons why some do not work on this machine.
func Drivers(ctx context.Context, kinds *registry.Registry) []DriverState {
	var out []DriverState
	for i := range kinds.Sandboxes {
		k := &kinds.Sandboxes[i]
		s := DriverState{Kind: k}
		d, err := open(k, sandbox.Setup{})
		if err == nil {
			if err = d.Probe(ctx); err == nil {
				if x, ok := d.(sandbox.Describer); ok {
					s.Limits = x.Describe()
				}
			}
		}
		s.Err = err
		s.Driver = d
		out = append(out, s)
	}
	return out
}

// A DriverState is the state of a driver for doctor and gc.
type DriverState struct {
	Kind   *sandbox.Kind
	Err    error
	Limits map[string]string
	Driver sandbox.Driver
}

// OneLine returns a driver's reasons as one line.
func (s DriverState) OneLine() string {
	if s.Err == nil {
		return ""
	}
	return strings.ReplaceAll(s.Err.Error(), "\n", "; ")
}

// Init runs this program as a helper inside a sandbox if a driver started it as one, and then does
// not return. Programs must call it first in main.
func Init() { local.Init() }

// memoryShare is the part of the free memory that sandboxes may use together, if the configuration
// does not set a limit.
const memoryShare = 0.8

// budget returns how many bytes of memory all sandboxes may use together, and where that number
// comes from. most is the limit for a single session running alone: if memory is only a share of
// the free memory, most is all memory of this computer.
func (r *Ready) budget() (memory, most int64, why string) {
	if p := r.Eff.Pools; p != nil && p.Memory > 0 {
		return int64(p.Memory), int64(p.Memory), "pools.memory"
	}
	free, ok := MemoryFree()
	if !ok {
		return 0, 0, "unknown"
	}
	memory = int64(float64(free) * memoryShare)
	total, _ := MemoryTotal()
	return memory, max(memory, total), "80 % of what is free"
}

// prepareImages prepares the images that the configuration names, so that a missing image is
// reported before the run and not by each trial.
func (r *Ready) prepareImages(ctx context.Context) error {
	for _, b := range r.benches {
		img := b.Options.Sandbox.Image
		if r.o.Dry && img.NeedsEngine() { // a dry run pulls nothing
			continue
		}
		if _, err := r.images.Ready(ctx, "", img); err != nil {
			return fmt.Errorf("image %s: %w", img.Ref, err)
		}
	}
	return nil
}

// image prepares one image. The engine's driver enforces the image's timeout itself, because
// waiting for another build does not count.
func (r *Ready) image(ctx context.Context, img sandbox.Image) (string, error) {
	if img.Timeout > 0 && !img.NeedsEngine() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, img.Timeout,
			fmt.Errorf("not ready within phases.image, %s", config.Duration(img.Timeout)))
		defer cancel()
	}
	digest, err := r.Driver.Prepare(ctx, img)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return digest, err
}

func (r *Ready) openPool() {
	memory, most, _ := r.budget()
	o := pool.Options{Memory: memory, Alone: most, Default: sandbox.Reserve{Memory: local.DefaultMemory},
		Free: MemoryFree, Lost: func(err error) { r.o.Log.Warn("removing a sandbox", "err", err) }}
	if r.slow {
		o.Ahead = r.aheadOf()
	}
	if p := r.Eff.Pools; p != nil {
		o.Starts, o.Sandboxes = p.Starts, p.Sandboxes
	}
	if r.kind().Test {
		o.Memory, o.Default.Memory = 0, 1<<20
	}
	r.pool = pool.New(o, r.Driver)
}

// beside returns a sandbox without isolation, for the user's own programs that run on this host
// next to evalrun.
func (r *Ready) beside(ctx context.Context) (sandbox.Sandbox, error) {
	d := r.programs()
	spec := sandbox.Spec{Owner: self()}
	spec.Owner.Run, spec.Owner.Role = r.Plan.Run, "program"
	return d.Create(ctx, spec)
}

// programs returns the driver of the sandboxes of [Ready.beside].
func (r *Ready) programs() sandbox.Driver {
	r.plainMu.Lock()
	defer r.plainMu.Unlock()
	if r.plain == nil {
		r.plain = local.NewUnisolated()
	}
	return r.plain
}

// reapDead removes what dead processes left: sandboxes of the run's driver and those of programs on
// this host.
//
// It spares the agents' sandboxes of the attempts that state, which may be nil, has as interrupted:
// they may go on in them.
func (r *Ready) reapDead(ctx context.Context, state *journal.State) {
	me := self()
	spare := func(o sandbox.Owner) bool {
		if state == nil {
			return false
		}
		t, ok := state.Trial(o.Trial)
		if !ok || o.Run != r.Plan.Run || o.Role != "agent" || o.Host != me.Host || o.Boot != me.Boot || t.Decided ||
			int(t.Open) != o.Attempt || t.Evidence == t.Open {
			return false
		}
		r.spare(o, true)
		return true
	}
	if _, err := r.reap(ctx, func(o sandbox.Owner) bool { return Alive(o) || spare(o) }); err != nil {
		r.o.Log.Warn("clearing what dead runs left", "err", err)
	}
}

// reapOwn removes sandboxes of this process that are left after everything was closed, and returns
// their number.
func (r *Ready) reapOwn(ctx context.Context) int {
	if r.pool != nil {
		r.pool.Wait()
	}
	me := self()
	n, err := r.reap(context.WithoutCancel(ctx),
		func(o sandbox.Owner) bool {
			return !(o.Host == me.Host && o.PID == me.PID) && (Alive(o) || r.spared(o))
		})
	if err != nil {
		r.o.Log.Warn("clearing what is left", "err", err)
	}
	return n
}

// A tried is an attempt whose sandboxes were spared.
type tried struct {
	trial   string
	attempt int
}

func (r *Ready) spare(o sandbox.Owner, on bool) {
	r.sparedMu.Lock()
	defer r.sparedMu.Unlock()
	if r.sparedOf == nil {
		r.sparedOf = map[tried]bool{}
	}
	r.sparedOf[tried{o.Trial, o.Attempt}] = on
}

func (r *Ready) spared(o sandbox.Owner) bool {
	r.sparedMu.Lock()
	defer r.sparedMu.Unlock()
	return o.Run == r.Plan.Run && o.Role == "agent" && r.sparedOf[tried{o.Trial, o.Attempt}]
}

// discard removes the sandboxes of an interrupted attempt that does not go on.
func (r *Ready) discard(ctx context.Context, trial string, attempt int) {
	own := sandbox.Owner{Run: r.Plan.Run, Trial: trial, Attempt: attempt, Role: "agent"}
	if !r.spared(own) {
		return
	}
	r.spare(own, false)
	if _, err := r.reap(ctx, func(o sandbox.Owner) bool {
		return Alive(o) || o.Run != own.Run || o.Trial != trial || o.Attempt != attempt
	}); err != nil {
		r.o.Log.Warn("removing the sandboxes of an interrupted attempt", "trial", trial, "err", err)
	}
}

func (r *Ready) reap(ctx context.Context, alive func(sandbox.Owner) bool) (n int, err error) {
	for _, d := range []sandbox.Driver{r.Driver, r.programs()} {
		if d != nil {
			m, rerr := d.Reap(ctx, alive)
			n, err = n+m, errors.Join(err, rerr)
		}
	}
	return n, err
}

// Close closes what Prepare opened.
func (r *Ready) Close() error {
	var errs []error
	if r.pool != nil {
		errs = append(errs, r.pool.Close())
	}
	for _, d := range []sandbox.Driver{r.Driver, r.plain} {
		if c, ok := d.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	if r.browsers.Pool != nil {
		errs = append(errs, r.browsers.Pool.Close())
	}
	errs = append(errs, r.tapes.Close())
	return errors.Join(errs...)
}
