package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/browsergym/obs"
	"golang.org/x/sync/errgroup"
)

// offline makes the texts of all observations again from the browser's recorded answers. Where an observation has none, its pruned texts are made
// from its DOM texts.
func (o *options) offline(ctx context.Context, c *tally) error {
	sets, err := readSets(o.dir)
	if err != nil {
		return err
	}
	names, err := o.recordings("miniwob", "recordings")
	if err != nil {
		return err
	}
	if err := o.parser(c); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.jobs)
	for _, name := range names {
		g.Go(func() error {
			return read(o.file(name), func(*header) error { return ctx.Err() }, func(r *recorded) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := again(c, &sets, name, r); err != nil {
					return fmt.Errorf("%s, observation %d: %w", name, r.Index, err)
				}
				return nil
			})
		})
	}
	return g.Wait()
}

// again makes the texts of one observation.
func again(c *tally, sets *textSets, name string, r *recorded) error {
	where := fmt.Sprintf("%s %d", name, r.Index)
	if len(r.Raw) == 0 || string(r.Raw) == "null" {
		for text, want := range r.Texts {
			if dom, ok := r.Texts[sets.Prune[text]]; ok {
				c.add(where, difference{"text prune", obs.PruneHTML(dom), want}, unexcused)
			}
		}
		return nil
	}
	var a answers
	if err := json.Unmarshal(r.Raw, &a); err != nil {
		return err
	}
	a.Snapshot.Clean()
	p, _ := obs.PropertiesOf(&a.Snapshot, r.Scale)
	frames := map[int]string{}
	for _, d := range a.Describe {
		frames[d.Backend] = d.Frame
	}
	v := view{&a.Snapshot, obs.Merge(a.AXTrees, func(backend int) string { return frames[backend] }), p}
	for _, d := range properties(p, &r.Properties) {
		c.add(where, d, unexcused)
	}
	for text, want := range r.Texts {
		kind, got, err := sets.render(text, v)
		if err != nil {
			return err
		}
		c.add(where, difference{"text " + kind, got, want}, unexcused)
	}
	return nil
}
