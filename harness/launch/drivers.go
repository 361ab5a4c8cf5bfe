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
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// OpenDriver opens a driver by its name and checks that it works here. images says how it makes
// images ready, if it does.
func OpenDriver(ctx context.Context, kinds *registry.Registry, name string, images image.Options) (sandbox.Driver, error) {
	k := kinds.Sandbox(name)
	if k == nil {
		return nil, fmt.Errorf("no driver is called %q", name)
	}
	d, err := k.Open(sandbox.Setup{Images: images})
	if err == nil {
		if err = d.Probe(ctx); err == nil {
			return d, nil
		}
	}
	if strings.HasPrefix(err.Error(), "driver ") {
		return nil, err
	}
	return nil, fmt.Errorf("driver %s does not work here: %w", k.Name, err)
}

// openDriver opens what the tasks need, before anything is spent.
func (r *Ready) openDriver(ctx context.Context) error {
	if !r.Needs.Machines {
		return nil
	}
	r.images = &harness.Images{Get: r.image}
	if p := r.Eff.Phases; p != nil {
		r.images.Timeout = p.Image.D()
	}
	if name := r.Eff.Sandbox.Driver; name != "auto" {
		if name == "docker" && len(r.Needs.Bare) > 0 {
			return fmt.Errorf("%s (%s) without an image of their own, which docker needs: name one by sandbox.image (on the command line --set sandbox.image=debian:bookworm), or leave out --sandbox docker",
				count(len(r.Needs.Bare), "task"), some(r.Needs.Bare))
		}
		d, err := OpenDriver(ctx, r.o.Kinds, name, r.imageOptions())
		if err != nil {
			return fmt.Errorf("%w; %s", err, driverHint(name))
		}
		r.Driver, r.Sandbox = d, name
		if far := r.Needs.Drivers["docker"]; len(far) > 0 && (name == "local" || name == "none") {
			r.Notes = append(r.Notes, fmt.Sprintf("%s an image, which the driver %s does not know, and will be skipped (%s): leave out --sandbox %s, or ask for docker", needing("", len(far)), name, some(far), name))
		}
	} else {
		c := newChoice(r.o.Kinds, r.imageOptions())
		r.Driver = c
		names := slices.Sorted(maps.Keys(r.Needs.Drivers))
		for _, name := range names {
			if _, err := c.get(ctx, name); err != nil {
				return fmt.Errorf("%s (%s): %w; %s", needing(name, len(r.Needs.Drivers[name])), some(r.Needs.Drivers[name]), err, driverHint(name))
			}
		}
		r.Sandbox = strings.Join(names, "+")
	}
	r.openPool()
	return r.prepareImages(ctx)
}

// needing says for what a driver is needed: "3 tasks need a container engine for an image".
func needing(driver string, tasks int) string {
	verb := "need"
	if tasks == 1 {
		verb = "needs"
	}
	what := map[string]string{"docker": " a container engine for an image", "local": " an isolated machine"}[driver]
	return fmt.Sprintf("%s %s%s", count(tasks, "task"), verb, what)
}

func driverHint(name string) string {
	if name == "docker" {
		return "start the engine, or name another by DOCKER_HOST, or leave those tasks out by --ids; see `evalrun doctor`"
	}
	return "see `evalrun doctor`, or, where what runs is trusted, ask for no isolation by --sandbox none"
}

// Drivers are all drivers, with why they do not work here.
func Drivers(ctx context.Context, kinds *registry.Registry) []DriverState {
	var out []DriverState
	for _, k := range kinds.Sandboxes {
		s := DriverState{Name: k.Name, Doc: k.Doc, Auto: k.Auto}
		d, err := k.Open(sandbox.Setup{})
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

// A DriverState is what doctor and gc know of a driver.
type DriverState struct {
	Name, Doc string
	Auto      bool
	Err       error
	Limits    map[string]string
	Driver    sandbox.Driver
}

// OneLine puts a driver's reasons into one line.
func (s DriverState) OneLine() string {
	if s.Err == nil {
		return ""
	}
	return strings.ReplaceAll(s.Err.Error(), "\n", "; ")
}

// Init lets this program be what a driver starts inside its machines. It must come first in main,
// and does not return there.
func Init() { local.Init() }

// memoryShare is how much of the free memory machines may take together, where the configuration
// does not say.
const memoryShare = 0.8

// budget is what machines may take together, and how that came to be; most is what one session's
// may take when no other's are there: all that this computer has, where memory is only a share of
// what was free.
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

// prepareImages makes the images that the configuration names ready, so that a missing one is told
// before the run and not by each trial.
func (r *Ready) prepareImages(ctx context.Context) error {
	for _, b := range r.benches {
		img := b.Options.Sandbox.Image
		if r.o.Dry && needsEngine(img) { // looking at a run pulls nothing
			continue
		}
		if _, err := r.images.Ready(ctx, "", img); err != nil {
			return fmt.Errorf("image %s: %w", img.Ref, err)
		}
	}
	return nil
}

// image makes one image ready. The engine's driver keeps the image's time by itself, since waiting
// for another's build is not counted.
func (r *Ready) image(ctx context.Context, img sandbox.Image) (string, error) {
	if img.Timeout > 0 && !needsEngine(img) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, img.Timeout, fmt.Errorf("not ready within phases.image, %s", config.Duration(img.Timeout)))
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
	o := pool.Options{Memory: memory, Alone: most, Default: sandbox.Reserve{Memory: local.DefaultMemory}}
	if p := r.Eff.Pools; p != nil {
		o.Starts, o.Sandboxes = p.Starts, p.Sandboxes
	}
	if r.Driver.Name() == "fake" { // its machines are a few values
		o.Memory, o.Default.Memory = 0, 1<<20
	}
	r.pool = pool.New(o, r.Driver)
}

// beside is the machine of a program that runs on this host, next to evalrun: the user's own
// program, which needs no walls.
func (r *Ready) beside(ctx context.Context) (sandbox.Sandbox, error) {
	d := r.programs()
	spec := sandbox.Spec{Owner: self()}
	spec.Owner.Run, spec.Owner.Role = r.Plan.Run, "program"
	return d.Create(ctx, spec)
}

// programs is the driver of the machines of [Ready.beside].
func (r *Ready) programs() sandbox.Driver {
	r.plainMu.Lock()
	defer r.plainMu.Unlock()
	if r.plain == nil {
		r.plain = local.NewUnisolated()
	}
	return r.plain
}

// reapDead removes what dead processes have left: machines of the run's driver, and those of
// programs on this host.
func (r *Ready) reapDead(ctx context.Context) {
	if _, err := r.reap(ctx, Alive); err != nil {
		r.o.Log.Warn("clearing what dead runs left", "err", err)
	}
}

// reapOwn removes what is still there of this process after everything was closed, and returns how
// many machines were missed.
func (r *Ready) reapOwn(ctx context.Context) int {
	me := self()
	n, err := r.reap(context.WithoutCancel(ctx), func(o sandbox.Owner) bool { return !(o.Host == me.Host && o.PID == me.PID) && Alive(o) })
	if err != nil {
		r.o.Log.Warn("clearing what is left", "err", err)
	}
	return n
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

// Close ends what Prepare opened.
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
