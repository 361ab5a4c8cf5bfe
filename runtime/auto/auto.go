// Package auto is the driver that chooses another driver for each sandbox. It knows no driver by
// name, but asks the kinds of drivers what they take.
package auto

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Name is the driver's name in configurations.
const Name = "auto"

// Choose returns the first kind that takes a sandbox, or nil.
func Choose(kinds []sandbox.Kind, s sandbox.Spec) *sandbox.Kind {
	for i := range kinds {
		if k := &kinds[i]; k.Takes != nil && k.Takes(s) {
			return k
		}
	}
	return nil
}

// A Driver creates each sandbox with the driver that [Choose] selects. It opens drivers when they
// are first needed.
type Driver struct {
	kinds []sandbox.Kind
	open  func(context.Context, *sandbox.Kind) (sandbox.Driver, error)

	mu     sync.Mutex
	opened map[string]sandbox.Driver
}

// New creates a driver over kinds. open opens one of them and checks that it works. If it fails, it
// is called again the next time, since an engine may have been started meanwhile. [Driver.Close]
// closes the opened drivers.
func New(kinds []sandbox.Kind, open func(context.Context, *sandbox.Kind) (sandbox.Driver, error)) *Driver {
	return &Driver{kinds: kinds, open: open, opened: map[string]sandbox.Driver{}}
}

// Open opens the driver of a kind, or returns the one that is open.
func (d *Driver) Open(ctx context.Context, k *sandbox.Kind) (sandbox.Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.opened[k.Name]; x != nil {
		return x, nil
	}
	x, err := d.open(ctx, k)
	if err != nil {
		return nil, err
	}
	d.opened[k.Name] = x
	return x, nil
}

// choose opens the driver for a sandbox.
func (d *Driver) choose(ctx context.Context, s sandbox.Spec) (sandbox.Driver, error) {
	k := Choose(d.kinds, s)
	if k == nil {
		return nil, &sandbox.Unsupported{Driver: Name, What: "a machine that no driver takes"}
	}
	return d.Open(ctx, k)
}

// all returns the drivers opened so far, by name.
func (d *Driver) all() (list []sandbox.Driver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(d.opened)) {
		list = append(list, d.opened[name])
	}
	return list
}

func (d *Driver) Name() string { return Name }

// Probe returns nil: a driver is probed when it is opened.
func (d *Driver) Probe(context.Context) error { return nil }

func (d *Driver) Prepare(ctx context.Context, img sandbox.Image) (string, error) {
	x, err := d.choose(ctx, sandbox.Spec{Image: img})
	if err != nil {
		return "", &sandbox.Error{Op: "prepare", Err: err}
	}
	return x.Prepare(ctx, img)
}

// ImageReady reports whether an image is available with its driver.
func (d *Driver) ImageReady(ctx context.Context, img sandbox.Image) bool {
	x, err := d.choose(ctx, sandbox.Spec{Image: img})
	return err == nil && sandbox.ImageReady(ctx, x, img)
}

func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	x, err := d.choose(ctx, spec)
	if err != nil {
		return nil, &sandbox.Error{Op: "create", Err: err}
	}
	return x.Create(ctx, spec)
}

// Find asks all drivers that may have been chosen and work here. A sandbox is gone if each of them
// says so.
func (d *Driver) Find(ctx context.Context, id string) (sandbox.Sandbox, error) {
	var unknown error
	for i := range d.kinds {
		k := &d.kinds[i]
		if k.Takes == nil {
			continue
		}
		x, err := d.Open(ctx, k)
		if err == nil {
			var sb sandbox.Sandbox
			if sb, err = x.Find(ctx, id); err == nil {
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

// Reap reaps with the drivers that this process has opened; `evalrun gc` does so with all.
func (d *Driver) Reap(ctx context.Context, alive func(sandbox.Owner) bool) (int, error) {
	n := 0
	var errs []error
	for _, x := range d.all() {
		m, err := x.Reap(ctx, alive)
		n += m
		if err != nil {
			errs = append(errs, fmt.Errorf("driver %s: %w", x.Name(), err))
		}
	}
	return n, errors.Join(errs...)
}

// Describe describes the opened drivers.
func (d *Driver) Describe() map[string]string {
	all := d.all()
	out := map[string]string{}
	for _, x := range all {
		y, ok := x.(sandbox.Describer)
		if !ok {
			continue
		}
		for k, v := range y.Describe() {
			if len(all) > 1 {
				k = x.Name() + " " + k
			}
			out[k] = v
		}
	}
	return out
}

// Close closes the drivers that were opened.
func (d *Driver) Close() error {
	var errs []error
	for _, x := range d.all() {
		if c, ok := x.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
