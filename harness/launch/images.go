package launch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/runtime/docker"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// ImageStore opens the image store of the container engine and checks that there is an engine.
func ImageStore(ctx context.Context, o image.Options) (*image.Store, func() error, error) {
	d := docker.New(docker.Options{Images: o})
	if err := d.Probe(ctx); err != nil {
		return nil, nil, fmt.Errorf("driver docker does not work here: %w; see `evalrun doctor`", err)
	}
	return d.Images(), d.Close, nil
}

// ImageOptions returns the image options of a configuration.
func ImageOptions(eff *config.Effective) image.Options {
	o := image.Options{LogBytes: 1 << 20} // each run that builds an image stores this much of its log
	if i := eff.Images; i != nil {
		o.Always, o.Budget, o.ContextBytes = i.Pull == "always", int64(i.Budget), int64(i.Context)
	}
	if p := eff.Pools; p != nil {
		o.Builds, o.Pulls = p.Builds, p.Pulls
	}
	if p := eff.Phases; p != nil {
		o.Timeout = p.Image.D()
	}
	return o
}

// imageOptions returns the image options of a run.
func (r *Ready) imageOptions() image.Options {
	o := ImageOptions(r.Eff)
	o.Progress = r.o.Making
	o.Done = func(out image.Outcome) {
		if out.Err == nil { // a failed build's log is in its error
			r.images.Built(out.Digest, out.Log)
		}
	}
	return o
}

// A NeededImage is an image that tasks need.
type NeededImage struct {
	Image sandbox.Image
	Title string   // for display: the image's name, or the task that the Dockerfile belongs to
	Tasks []string // the tasks that need it
}

// ImageNeeds lists the images that the tasks of a configuration need, each once. It also returns
// the tasks whose needs are unknown, with the reason.
func ImageNeeds(ctx context.Context, eff *config.Effective,
	o Options) (images []NeededImage, unasked map[string]string, err error) {
	o.Dry = true // nothing runs, so secrets may be missing
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Ready{Eff: eff, o: o, variant: map[[2]int]int{}}
	defer r.Close()
	if err := r.openEnv(); err != nil {
		return nil, nil, err
	}
	if err := r.openModels(); err != nil {
		return nil, nil, err
	}
	if err := r.openBenchmarks(); err != nil {
		return nil, nil, err
	}
	if err := r.openArms(); err != nil {
		return nil, nil, err
	}
	if err := r.plan(ctx); err != nil {
		return nil, nil, err
	}
	unasked = map[string]string{}
	planned := map[string]bool{}
	for _, t := range r.Plan.Tasks {
		planned[t.Benchmark+"\x00"+t.ID] = t.Bad == ""
		if t.Bad != "" {
			unasked[t.ID] = "it cannot be read: " + t.Bad
		}
	}
	g := gathering{known: map[string]int{}}
	for _, i := range r.played() {
		b := r.benches[i]
		for t, err := range b.Source().Tasks(ctx) {
			if err != nil || !planned[b.Name()+"\x00"+t.ID] {
				continue
			}
			needs, err := b.Needs(t, b.Options)
			if err == nil && needs.Skip != "" {
				err = fmt.Errorf("it cannot be run here: %s", needs.Skip)
			}
			if err != nil {
				unasked[t.ID] = err.Error()
				continue
			}
			g.task(t.ID, needs)
		}
	}
	return g.out, unasked, ctx.Err()
}

// gathering collects images. Two tasks share an image if it has a name; only the store can tell
// whether two Dockerfiles are the same.
type gathering struct {
	known map[string]int
	out   []NeededImage
}

func (g *gathering) task(id string, needs benchmarks.Needs) {
	for _, s := range slices.Concat(needs.Agent, needs.Grader) {
		g.spec(id, s)
	}
}

func (g *gathering) spec(task string, s sandbox.Spec) {
	for _, side := range s.Services {
		g.spec(task, side)
	}
	img := s.Image
	if !img.NeedsEngine() {
		return
	}
	if img.Platform == "" {
		img.Platform = s.Platform
	}
	key, title := "ref\x00"+img.Ref+"\x00"+img.Platform, img.Ref
	if img.Built() {
		key, title = strings.Join([]string{"built", task, img.Name, img.Dockerfile, img.Target, img.Platform}, "\x00"),
			img.Name
		if title == "" {
			title = task
		}
	}
	i, ok := g.known[key]
	if !ok {
		i = len(g.out)
		g.known[key] = i
		g.out = append(g.out, NeededImage{Image: img, Title: title})
	}
	if !slices.Contains(g.out[i].Tasks, task) {
		g.out[i].Tasks = append(g.out[i].Tasks, task)
	}
}
