package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Reap removes what belongs to owners that are not alive: containers, networks and volumes, also of
// sandboxes that were not complete. It also removes objects of this process that could not be
// removed at Close, and the remains of builds of dead processes, which it does not count.
func (d *Driver) Reap(ctx context.Context, alive func(sandbox.Owner) bool) (int, error) {
	cli, err := d.engine.api(ctx)
	if err != nil {
		return 0, err
	}
	found, err := d.list(ctx, cli, labelSandbox)
	if err != nil {
		return 0, err
	}
	verdicts := map[sandbox.Owner]bool{}
	dead := func(labels map[string]string) bool {
		o := ownerOf(labels)
		if e, err := d.readState(labels[labelSandbox]); err == nil {
			o = e.Owner // a later process may have reattached
		}
		lives, ok := verdicts[o]
		if !ok {
			lives = alive(o)
			verdicts[o] = lives
		}
		if !lives {
			return true
		}
		_, ours := known.Load(labels[labelSandbox])
		return labels[labelProcess] == process() && !ours
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		n    int
		errs []error
	)
	gone := map[string]bool{}
	for id, f := range found {
		if !dead(f.labels) {
			continue
		}
		gone[id] = true
		wg.Go(func() {
			err := d.reap(ctx, cli, id, f.resources)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			} else {
				n++
			}
		})
	}
	wg.Wait()
	d.removeStaleState(found, gone, alive)
	if err := d.reapCopies(ctx, cli, func(o sandbox.Owner) bool { return !alive(o) }); err != nil {
		errs = append(errs, fmt.Errorf("removing copies: %w", err))
	}
	if _, err := d.images.Sweep(ctx); err != nil {
		errs = append(errs, fmt.Errorf("clearing what builds left behind: %w", err))
	}
	return n, errors.Join(errs...)
}

// reap removes one sandbox. If it is one of this driver's, its users get errors.
func (d *Driver) reap(ctx context.Context, cli *client.Client, id string, l resources) error {
	d.mu.Lock()
	b := d.live[id]
	d.mu.Unlock()
	if b != nil && b.handed.Load() {
		if err := b.Close(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, closeLimit, errNoAnswer)
	defer cancel()
	if err := d.removeAll(ctx, cli, id, l, awayLimit); err != nil {
		return &sandbox.Error{Op: "reap", ID: id, Err: err}
	}
	return nil
}

func byLabel(label string) client.Filters { return client.Filters{}.Add("label", label) }

// A found is what the engine has of one sandbox.
type found struct {
	resources
	labels map[string]string
}

// list returns all objects with a label of ours, by sandbox.
func (d *Driver) list(ctx context.Context, cli *client.Client, label string) (map[string]*found, error) {
	out := map[string]*found{}
	add := func(labels map[string]string) *found {
		id := labels[labelSandbox]
		f := out[id]
		if f == nil {
			f = &found{labels: labels}
			out[id] = f
		}
		return f
	}
	ours := byLabel(label)
	cs, err := cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	if err != nil {
		return nil, d.engine.explain(err)
	}
	for _, c := range cs.Items {
		// A container of somebody else from an image with our labels has these labels too, but not
		// such a name.
		if id := c.Labels[labelSandbox]; !slices.ContainsFunc(c.Names,
			func(name string) bool { return named(name, id) }) {
			continue
		}
		f := add(c.Labels)
		f.containers = append(f.containers, c.ID)
	}
	vs, err := cli.VolumeList(ctx, client.VolumeListOptions{Filters: ours})
	if err != nil {
		return nil, d.engine.explain(err)
	}
	for _, v := range vs.Items {
		f := add(v.Labels)
		f.volumes = append(f.volumes, v.Name)
	}
	ns, err := cli.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	if err != nil {
		return nil, d.engine.explain(err)
	}
	for _, n := range ns.Items {
		add(n.Labels).network = n.ID
	}
	return out, nil
}

// named reports whether a container belongs to a sandbox according to its name in the engine.
func named(name, id string) bool {
	name = strings.TrimPrefix(name, "/")
	return strings.HasPrefix(id, prefix) && (name == id || strings.HasPrefix(name, id+"-"))
}

// foreignStateAge is how long the file of a sandbox of another engine is kept after its owner has
// died.
const foreignStateAge = 24 * time.Hour

// removeStaleState removes the files of sandboxes that do not exist any more.
func (d *Driver) removeStaleState(found map[string]*found, gone map[string]bool, alive func(sandbox.Owner) bool) {
	if private(d.state) != nil {
		return
	}
	names, _ := os.ReadDir(d.state)
	for _, f := range names {
		id, ok := strings.CutSuffix(strings.TrimSuffix(f.Name(), ".new"), ".json")
		if _, ours := known.Load(id); !ok || ours || found[id] != nil && !gone[id] {
			continue
		}
		e, err := d.readState(id)
		if err == nil && alive(e.Owner) && !gone[id] {
			continue // it is being created
		}
		if fi, _ := f.Info(); err == nil && !gone[id] && e.Host != d.engine.name() && fi != nil &&
			time.Since(fi.ModTime()) < foreignStateAge {
			continue // of another engine, which may still have it
		}
		os.Remove(filepath.Join(d.state, f.Name()))
	}
}
