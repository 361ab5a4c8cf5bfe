package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/recordings"
	"golang.org/x/sync/errgroup"
)

// live plays all recordings in a browser and compares every field of every observation.
func (o *options) live(ctx context.Context, c *tally, pace browsergym.Pace) error {
	sets, err := recordings.ReadTexts(o.dir)
	if err != nil {
		return err
	}
	folders := []string{"recordings", "miniwob"}
	if o.miniwob == "" {
		fmt.Println("left out: recordings of MiniWoB++, since its pages are not there (-miniwob)")
		folders = folders[:1]
	}
	all, err := recordings.Files(o.dir, folders...)
	if err != nil {
		return err
	}
	files, err := o.recordings(folders...)
	if err != nil {
		return err
	}
	if err := recordings.Uploads(); err != nil {
		return err
	}
	s, err := recordings.NewSite(o.dir, o.miniwob)
	if err != nil {
		return err
	}
	defer s.Close()
	var alone sync.RWMutex // an episode that is played again shares the machine with no other one
	return o.browse(ctx, func(ctx context.Context, g *errgroup.Group, b *cdp.Browser, tmp string) error {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			g.Go(func() error {
				grains := &graining{values: map[int][][3]byte{}} // kept for retries
				for n := 0; ; n++ {
					var told strings.Builder
					p := player{
						c: newTally(o.verbose, &told), site: s, sets: &sets, pace: pace, name: name, files: all,
						browser: b, downloads: tmp, pictures: o.pictures, grains: grains,
					}
					p.c.again = n
					turn := alone.RLocker()
					if n > 0 {
						turn = &alone
					}
					turn.Lock()
					err := p.play(ctx, files[name])
					turn.Unlock()
					if err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
					if p.c.unexplained == 0 || n == o.retries {
						c.merge(p.c, told.String())
						return nil
					}
				}
			})
		}
		return nil
	})
}

// browse provides a browser and a directory to episodes that run concurrently.
func (o *options) browse(ctx context.Context,
	start func(context.Context, *errgroup.Group, *cdp.Browser, string) error) error {
	tmp, err := os.MkdirTemp("", "golden-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b, err := cdp.Launch(ctx, cdp.Options{Dir: tmp})
	if err != nil {
		return err
	}
	defer b.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.jobs)
	if err := start(ctx, g, b, tmp); err != nil {
		return err
	}
	return g.Wait()
}

// A player plays one recording.
type player struct {
	c         *tally
	site      *recordings.Site
	sets      *recordings.Texts
	pace      browsergym.Pace
	name      string
	files     map[string]string // all recordings, by name
	browser   *cdp.Browser
	downloads string
	pictures  string // directory for all of our pictures; "" keeps none

	h      *recordings.Header
	env    *browsergym.Env
	over   bool
	known  map[string]*bitmap // pictures of this episode, by digest
	grains *graining          // what is known about this page's grains
}

func (p *player) play(ctx context.Context, file string) error {
	p.known = map[string]*bitmap{}
	defer func() {
		if p.env != nil {
			p.env.Close(context.WithoutCancel(ctx))
		}
	}()
	return recordings.Read(file, func(h *recordings.Header) error {
		p.h = h
		return ctx.Err()
	}, func(want *recordings.Observation) error {
		if p.over {
			return fmt.Errorf("observation %d follows one that ended the episode", want.Index)
		}
		return p.step(ctx, want)
	})
}

// environment returns the options of an environment that plays a recording.
func environment(h *recordings.Header) (browsergym.Options, error) {
	slow := ms(h.SlowMo)
	o := browsergym.Options{AllTags: h.Tags == "all", Native: true, SlowMo: &slow, Delay: ms(h.Delay * 1000),
		GoOn: h.GiveUp != nil && !*h.GiveUp}
	o.Context.Width, o.Context.Height, o.Context.Timeout = h.Viewport.Width, h.Viewport.Height, ms(h.Timeout)
	o.Context.Locale, o.Context.TimeZone = h.Locale, h.TimeZone
	var err error
	o.Actions, err = action.New(action.Options{Subsets: strings.Fields("chat infeas bid coord nav tab"),
		Single: h.Set.Multi != nil && !*h.Set.Multi, Strict: h.Set.Strict, Retry: h.Set.Force})
	return o, err
}

func ms(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }

// task returns the recording's task with the recorded goal.
func (p *player) task(goal []browsergym.Item, seed uint32) (browsergym.Task, error) {
	if name, ok := strings.CutPrefix(p.h.Task, "miniwob."); ok {
		return &browsergym.MiniWoB{Name: name, Base: p.site.Ours(p.h.Base), Seed: seed, Limit: ms(p.h.Limit)}, nil
	}
	return &browsergym.Openended{URL: p.site.Ours(p.h.Start), Goal: goal}, nil
}

func (p *player) step(ctx context.Context, want *recordings.Observation) error {
	r := &browsergym.Result{}
	var err error
	if p.env == nil {
		var o browsergym.Options
		if o, err = environment(p.h); err != nil {
			return err
		}
		o.Browser, o.Pace, o.Context.Downloads = p.browser, p.pace, p.downloads
		o.Context.UploadFrom = []string{recordings.UploadFolder}
		o.Task = func(seed uint32) (browsergym.Task, error) { return p.task(want.GoalObject, seed) }
		if p.env, err = browsergym.New(o); err != nil {
			return err
		}
		r.Observation, r.Info, err = p.env.Reset(ctx, p.h.Seed)
	} else {
		r, err = p.env.Step(ctx, p.site.Ours(want.Action))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	where := fmt.Sprintf("%s %d %s", p.name, want.Index, want.Action)
	p.over = want.Error != "" || err != nil
	if p.over {
		got := ""
		if err != nil {
			got = err.Error()
		}
		first, _, _ := strings.Cut(want.Error, "\n")
		if first != "" && strings.Contains(got, first) {
			got = first
		}
		p.c.add(where, difference{"failure", got, first}, unexcused)
		return nil
	}
	all, err := compare(p.site, p.sets, r, want)
	if err != nil {
		return fmt.Errorf("observation %d: %w", want.Index, err)
	}
	for _, d := range all {
		p.c.add(where, d, func(d difference) string { return cause(p.h, want, d) })
	}
	return p.picture(ctx, where, r.Observation, want)
}
