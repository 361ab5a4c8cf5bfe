package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/recordings"
	"golang.org/x/sync/errgroup"
)

// offline generates the texts of all observations again from the browser's recorded responses. For
// an observation without responses, it generates the pruned texts from the DOM texts.
func (o *options) offline(ctx context.Context, c *tally) error {
	sets, err := recordings.ReadTexts(o.dir)
	if err != nil {
		return err
	}
	files, err := o.recordings("miniwob", "recordings")
	if err != nil {
		return err
	}
	if err := o.parser(c); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.jobs)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		g.Go(func() error {
			return recordings.Read(files[name], func(*recordings.Header) error { return ctx.Err() },
				func(r *recordings.Observation) error {
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

// again generates the texts of one observation.
func again(c *tally, sets *recordings.Texts, name string, r *recordings.Observation) error {
	where := fmt.Sprintf("%s %d", name, r.Index)
	if !r.Answered() {
		for text, want := range r.Texts {
			if dom, ok := r.Texts[sets.Prune[text]]; ok {
				c.add(where, difference{"text prune", obs.PruneHTML(dom), want}, unexcused)
			}
		}
		return nil
	}
	v, err := r.View()
	if err != nil {
		return err
	}
	for _, d := range properties(v.Properties, &r.Properties) {
		c.add(where, d, unexcused)
	}
	for text, want := range r.Texts {
		kind, got, err := sets.Render(text, v)
		if err != nil {
			return err
		}
		c.add(where, difference{"text " + kind, got, want}, unexcused)
	}
	return nil
}
