package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/obs"
	"golang.org/x/sync/errgroup"
)

// random plays all tasks of MiniWoB++: it resets each twice, which must give the same state, plays
// random actions, which must not fail, and compares the reward with the page's own. The actions
// depend only on the task's name and its seed.
func (o *options) random(ctx context.Context, c *tally) error {
	if o.miniwob == "" {
		return fmt.Errorf("MiniWoB++'s pages are not there; name their folder by -miniwob")
	}
	folder, err := filepath.Abs(o.miniwob)
	if err != nil {
		return err
	}
	base := "file://" + folder + "/miniwob/"
	set, err := action.New(action.Options{Subsets: []string{"miniwob_all", "bid", "coord"}})
	if err != nil {
		return err
	}
	return o.browse(ctx, func(ctx context.Context, g *errgroup.Group, b *cdp.Browser, tmp string) error {
		n := 0
		pages, err := filepath.Glob(filepath.Join(folder, "miniwob", "*.html"))
		if err != nil {
			return err
		}
		for _, page := range pages {
			name := strings.TrimSuffix(filepath.Base(page), ".html")
			if slices.Contains(noTasks, name) || !o.only.MatchString("miniwob/"+name) {
				continue
			}
			n++
			g.Go(func() error {
				for seed := range uint32(2) {
					r := &roamer{c: c, name: name, seed: seed, steps: o.steps, random: slices.Contains(restless, name)}
					env, err := browsergym.New(
						browsergym.Options{Browser: b, Actions: set, Task: func(seed uint32) (browsergym.Task, error) {
							return &browsergym.MiniWoB{Name: name, Base: base, Seed: seed}, nil
						}})
					if err != nil {
						return err
					}
					r.env = env
					r.play(ctx)
					env.Close(context.WithoutCancel(ctx))
					if ctx.Err() != nil {
						return ctx.Err()
					}
				}
				return vectors(ctx, c, b, base, name)
			})
		}
		if n == 0 {
			return fmt.Errorf("no task of MiniWoB++ in %s is called so", folder)
		}
		return nil
	})
}

// noTasks are pages in the task directory that are not tasks. On restless pages the seed does not
// determine what is shown.
var (
	noTasks  = []string{"button-delay", "chase-circle", "hover-shape", "moving-items", "simon-says"}
	restless = []string{"click-pie", "click-pie-nodelay", "terminal", "visual-addition", "stock-market"}
)

// A roamer plays random actions.
type roamer struct {
	c      *tally
	env    *browsergym.Env
	name   string
	seed   uint32
	steps  int
	random bool // the seed does not determine what the page shows
}

func (r *roamer) say(where, field, got, want string) {
	r.c.add(fmt.Sprintf("miniwob/%s.%d %s", r.name, r.seed, where), difference{field, got, want}, unexcused)
}

func (r *roamer) play(ctx context.Context) {
	first, err := r.reset(ctx)
	if err != nil {
		return
	}
	o, err := r.reset(ctx)
	if err != nil {
		return
	}
	r.say("second reset", "same goal", o.Goal, first.Goal)
	r.say("second reset", "goal is said", fmt.Sprint(o.Goal != ""), "true")
	if !r.random {
		r.say("second reset", "same bids", strings.Join(o.Properties.Bids(), " "),
			strings.Join(first.Properties.Bids(), " "))
		r.say("second reset", "same text", axText(o), axText(first))
	}
	h := fnv.New64a()
	fmt.Fprint(h, r.name)
	dice := rand.New(rand.NewPCG(h.Sum64(), uint64(r.seed)))
	for range r.steps {
		do := anything(dice, o)
		res, err := r.env.Step(ctx, do)
		r.say(do, "steps", fmt.Sprint(err), "<nil>")
		if err != nil {
			return
		}
		o = res.Observation
		r.judge(do, res)
		if res.Terminated {
			return
		}
	}
}

func (r *roamer) reset(ctx context.Context) (*browsergym.Observation, error) {
	o, _, err := r.env.Reset(ctx, r.seed)
	r.say("reset", "resets", fmt.Sprint(err), "<nil>")
	return o, err
}

// judge compares the reward with the page's own global variables.
func (r *roamer) judge(do string, res *browsergym.Result) {
	if _, ok := res.Info.Task["error"]; ok { // the task's page is no longer shown
		r.say(do, "reward, end", fmt.Sprint(res.Reward, res.Terminated), "0 true")
		return
	}
	raw, _ := res.Info.Task["RAW_REWARD_GLOBAL"].(float64)
	done, _ := res.Info.Task["DONE_GLOBAL"].(bool)
	want := 0
	if raw > 0 {
		want = 1
	}
	r.say(do, "reward, end", fmt.Sprint(res.Reward, res.Terminated), fmt.Sprint(want, done))
}

// anything returns an action that may or may not be valid.
func anything(dice *rand.Rand, o *browsergym.Observation) string {
	bids := o.Properties.Bids()
	bid := func() string { // prefers visible or meaningful elements
		for range 20 {
			b := bids[dice.IntN(len(bids))]
			if p, _ := o.Properties.Get(b); p.Marked || p.Clickable {
				return b
			}
		}
		return bids[dice.IntN(len(bids))]
	}
	x, y := func() int { return dice.IntN(498) }, func() int { return dice.IntN(321) }
	switch dice.IntN(12) {
	case 0, 1, 2:
		return fmt.Sprintf("click('%s')", bid())
	case 3, 4:
		return fmt.Sprintf("fill('%s', 'some %d')", bid(), dice.IntN(100))
	case 5, 6:
		return fmt.Sprintf("mouse_click(%d, %d)", x(), y())
	case 7:
		return fmt.Sprintf("mouse_drag_and_drop(%d, %d, %d, %d)", x(), y(), x(), y())
	case 8:
		return fmt.Sprintf("drag_and_drop('%s', '%s')", bid(), bid())
	case 9:
		return fmt.Sprintf("scroll_at(%d, %d, 0, %d)", x(), y(), dice.IntN(400)-200)
	case 10:
		return fmt.Sprintf("keyboard_press('%s')",
			[]string{"Tab", "Enter", "a", "Control+a", "ArrowDown"}[dice.IntN(5)])
	}
	return fmt.Sprintf("dblclick('%s')\nkeyboard_type('%d')", bid(), dice.IntN(1000))
}

func axText(o *browsergym.Observation) string {
	x := obs.DefaultAX()
	x.Visible, x.Clickable = true, true
	s, err := obs.AXText(o.AX, o.Properties, x)
	if err != nil {
		return err.Error()
	}
	return s
}
