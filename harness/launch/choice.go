package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A choice is the driver auto: each machine gets the driver that it needs, a machine with an image
// (or with services) docker, any other local. A driver is opened when the first machine wants it.
type choice struct {
	kinds  *registry.Registry
	images image.Options
	mu     sync.Mutex
	open   map[string]sandbox.Driver
}

func newChoice(kinds *registry.Registry, o image.Options) *choice {
	return &choice{kinds: kinds, images: o, open: map[string]sandbox.Driver{}}
}

// needsEngine reports whether an image is one that only a container engine can make a machine of.
func needsEngine(img sandbox.Image) bool { return !img.IsZero() && !strings.HasPrefix(img.Ref, "dir:") }

// driverFor is the name of the driver that a machine needs.
func driverFor(s sandbox.Spec) string {
	if needsEngine(s.Image) || len(s.Services) > 0 {
		return "docker"
	}
	return "local"
}

// get opens a driver. One that does not work here is asked again the next time: an engine may be
// started meanwhile.
func (c *choice) get(ctx context.Context, name string) (sandbox.Driver, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.open[name]; d != nil {
		return d, nil
	}
	d, err := OpenDriver(ctx, c.kinds, name, c.images)
	if err != nil {
		return nil, err
	}
	c.open[name] = d
	return d, nil
}

// opened are the drivers that were wanted so far, by name.
func (c *choice) opened() []sandbox.Driver {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []sandbox.Driver
	for _, name := range slices.Sorted(maps.Keys(c.open)) {
		out = append(out, c.open[name])
	}
	return out
}

func (c *choice) Name() string { return "auto" }

// Probe is nil: what a run needs is opened, and so probed, when it is known.
func (c *choice) Probe(context.Context) error { return nil }

func (c *choice) Prepare(ctx context.Context, img sandbox.Image) (string, error) {
	d, err := c.get(ctx, driverFor(sandbox.Spec{Image: img}))
	if err != nil {
		return "", &sandbox.Error{Op: "prepare", Err: err}
	}
	return d.Prepare(ctx, img)
}

// There asks the driver of an image whether it is ready, where it can tell.
func (c *choice) There(ctx context.Context, img sandbox.Image) bool {
	d, err := c.get(ctx, driverFor(sandbox.Spec{Image: img}))
	return err == nil && there(ctx, d, img)
}

func (c *choice) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	d, err := c.get(ctx, driverFor(spec))
	if err != nil {
		return nil, &sandbox.Error{Op: "create", Err: err}
	}
	return d.Create(ctx, spec)
}

// Find asks all drivers that work here. A machine is gone when each of them says so.
func (c *choice) Find(ctx context.Context, id string) (sandbox.Sandbox, error) {
	var unknown error
	for _, k := range c.kinds.Sandboxes {
		if !k.Auto {
			continue
		}
		d, err := c.get(ctx, k.Name)
		if err == nil {
			var sb sandbox.Sandbox
			if sb, err = d.Find(ctx, id); err == nil {
				return sb, nil
			}
		}
		if !errors.Is(err, sandbox.ErrGone) {
			unknown = errors.Join(unknown, err)
		}
	}
	if unknown != nil {
		return nil, unknown
	}
	return nil, &sandbox.Error{Op: "find", ID: id, Err: sandbox.ErrGone}
}

// Reap looks after the drivers that this process has opened; `evalrun gc` looks after all.
func (c *choice) Reap(ctx context.Context, alive func(sandbox.Owner) bool) (int, error) {
	n := 0
	var errs []error
	for _, d := range c.opened() {
		m, err := d.Reap(ctx, alive)
		n += m
		if err != nil {
			errs = append(errs, fmt.Errorf("driver %s: %w", d.Name(), err))
		}
	}
	return n, errors.Join(errs...)
}

// Describe says how the opened drivers keep limits.
func (c *choice) Describe() map[string]string {
	all := c.opened()
	out := map[string]string{}
	for _, d := range all {
		x, ok := d.(sandbox.Describer)
		if !ok {
			continue
		}
		for k, v := range x.Describe() {
			if len(all) > 1 {
				k = d.Name() + " " + k
			}
			out[k] = v
		}
	}
	return out
}

func (c *choice) Close() error {
	var errs []error
	for _, d := range c.opened() {
		if x, ok := d.(io.Closer); ok {
			errs = append(errs, x.Close())
		}
	}
	return errors.Join(errs...)
}
