package miniwob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/miniwob/solve"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
)

// Options are the benchmark's options. The defaults play it as BrowserGym does.
type Options struct {
	Name    string   `json:"name,omitempty" doc:"Name of the benchmark in the results. Default miniwob."`
	Subset  string   `json:"subset,omitempty" enum:"tiny" doc:"tiny: the two tasks of miniwob_tiny_test, with seeds and steps of its own. Default: all."`
	Split   string   `json:"split,omitempty" enum:"train,test" doc:"Only the tasks of this split; the other tasks' seeds stay as they are."`
	Steps   int      `json:"max_steps,omitempty" min:"0" max:"10000" doc:"Maximum steps of an episode. Default 10 (tiny: 5)."`
	Seeds   []int    `json:"seeds,omitempty" min:"1" doc:"Random seeds of the first, second … repeat of each task, the same for all tasks. Default: the published seeds."`
	Repeats int      `json:"seeds_for,omitempty" min:"0" max:"10000" doc:"Number of repeats for which default seeds are drawn; repeats sets how many are run. Default 5 (tiny: 2)."`
	AtLeast float64  `json:"at_least,omitempty" min:"0" max:"1" doc:"Minimum score of the page that counts as success. Default: any above 0, as in published scores."`
	Actions []string `json:"actions,omitempty" min:"1" doc:"Allowed sets of actions. Default miniwob_all."`
	Multi   bool     `json:"multi,omitempty" doc:"Allow several calls per step."`
	Width   int      `json:"width,omitempty" min:"0" max:"4096" doc:"Width of the viewport in pixels. Default 332."`
	Height  int      `json:"height,omitempty" min:"0" max:"4096" doc:"Height of the viewport in pixels. Default 214."`
}

// CheckOptions validates options. An error about an option begins with the option's name.
func CheckOptions(raw json.RawMessage) error {
	_, err := options(raw)
	return err
}

func options(raw json.RawMessage) (Options, error) {
	o := Options{Name: "miniwob"}
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil {
			return o, err
		}
	}
	return o, o.complete()
}

// Benchmark plays the pages in a directory.
type Benchmark struct {
	opts     Options
	dir      string
	browsers web.Browsers
	source   datasets.Source
	folder   *folder
}

// New returns the benchmark for the pages in dir; "" means the directory that [Fetch] writes to.
func New(dir string, raw json.RawMessage, br web.Browsers) (*Benchmark, error) {
	o, err := options(raw)
	if err != nil {
		return nil, fmt.Errorf("options of miniwob: %w", err)
	}
	b := &Benchmark{opts: o, browsers: br}
	if b.dir, err = findDir(dir); err != nil {
		return nil, err
	}
	if b.folder, err = openFolder(b.dir); err != nil {
		return nil, err
	}
	b.source, err = b.tasks()
	return b, err
}

// complete validates the options and fills in defaults.
func (o *Options) complete() error {
	repeats, steps := Repeats, MaxSteps
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch o.Subset {
	case "":
	case "tiny":
		repeats, steps = tinyRepeats, tinySteps
	default:
		bad("subset: %q is unknown; there is tiny", o.Subset)
	}
	if o.Split != "" && o.Split != "train" && o.Split != "test" {
		bad("split: %q is unknown; there are train and test", o.Split)
	}
	if o.AtLeast < 0 || o.AtLeast > 1 {
		bad("at_least: a page's score is from 0 to 1, not %v", o.AtLeast)
	}
	for _, x := range []struct {
		key         string
		value, most int
	}{{"max_steps", o.Steps, 10_000}, {"seeds_for", o.Repeats, 10_000}, {"width", o.Width, 4096},
		{"height", o.Height, 4096}} {
		if x.value < 0 || x.value > x.most {
			bad("%s: want a number from 0, which is the default, to %d, not %d", x.key, x.most, x.value)
		}
	}
	for _, s := range o.Seeds {
		if s < 0 || s > math.MaxUint32 {
			bad("seeds: a seed is from 0 to %d, not %d", uint32(math.MaxUint32), s)
		}
	}
	if o.Repeats == 0 {
		o.Repeats = repeats
	}
	if o.Steps == 0 {
		o.Steps = steps
	}
	if len(o.Actions) == 0 {
		o.Actions = []string{Actions}
	}
	if err := action.Known(o.Actions); err != nil {
		bad("actions: %w", err)
	}
	return errors.Join(errs...)
}

// data is a task as it is played. All of it is part of the task's identity.
type data struct {
	Page    string   `json:"page"`
	Seeds   []uint32 `json:"seeds"` // one per repeat, starting with the first
	Steps   int      `json:"max_steps"`
	AtLeast float64  `json:"at_least,omitempty"`
	Actions []string `json:"actions"`
	Multi   bool     `json:"multi,omitempty"`
	Width   int      `json:"width,omitempty"`
	Height  int      `json:"height,omitempty"`
	Digest  string   `json:"page_sha256"`
	Shared  string   `json:"shared_sha256"` // digest of the files that all pages share
}

// tasks returns the benchmark's tasks. Their IDs are the page names, similar tasks share a cluster,
// and tasks can be filtered by their properties.
func (b *Benchmark) tasks() (datasets.Source, error) {
	all := Tasks()
	if b.opts.Subset == "tiny" {
		all = TinyTest()
	}
	seeds := web.Seeds(len(all), b.opts.Repeats)
	var out []datasets.Task
	var bad []error
	for i, t := range all {
		if b.opts.Split != "" && t.Split != b.opts.Split {
			continue
		}
		d := data{Page: t.Name + ".html", Steps: b.opts.Steps, AtLeast: b.opts.AtLeast, Actions: b.opts.Actions,
			Multi: b.opts.Multi,
			Width: b.opts.Width, Height: b.opts.Height, Shared: b.folder.rest}
		of := seeds[i]
		if b.opts.Seeds != nil {
			of = b.opts.Seeds
		}
		for _, s := range of {
			d.Seeds = append(d.Seeds, uint32(s))
		}
		var err error
		if d.Digest, err = b.folder.page(d.Page); err != nil {
			bad = append(bad, &datasets.BadTask{ID: t.Name, Place: b.dir,
				Err: fmt.Errorf("its page is not there: %w; get the pages anew: %s", err, howToFetch)})
			continue
		}
		raw, err := json.Marshal(d)
		if err != nil {
			return nil, err
		}
		digest, err := record.TaskDigest(b.opts.Name, t.Name, json.RawMessage(raw))
		if err != nil {
			return nil, err
		}
		fields := map[string]string{"split": t.Split, "category": t.Category, "webgum": strconv.FormatBool(t.WebGUM),
			"deterministic": strconv.FormatBool(!t.Random),
			"group":         strconv.Itoa(t.Group), "oracle": strconv.FormatBool(solve.Knows(t.Name))}
		if t.Delay {
			fields["comment"] = "delay"
		}
		out = append(out, datasets.Task{ID: t.Name, Digest: digest, Cluster: "group-" + strconv.Itoa(t.Group),
			Tags: []string{web.Tag, t.Split, t.Category}, Fields: fields, Data: raw})
	}
	return source{web.Table(out), bad}, nil
}

// source also yields an error for each task whose page is missing.
type source struct {
	datasets.Source
	bad []error
}

func (s source) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		for _, err := range s.bad {
			if !yield(datasets.Task{}, err) {
				return
			}
		}
		s.Source.Tasks(ctx)(yield)
	}
}

func (b *Benchmark) Name() string            { return b.opts.Name }
func (b *Benchmark) Source() datasets.Source { return b.source }

// Needs returns a browser and nothing else.
func (b *Benchmark) Needs(datasets.Task, benchmarks.Options) (benchmarks.Needs, error) {
	return b.browsers.Needs(), nil
}

// Open serves the pages to a separate browser context that can reach nothing else.
func (b *Benchmark) Open(ctx context.Context, h benchmarks.Host, t datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	var d data
	if err := json.Unmarshal(t.Data, &d); err != nil {
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	site := web.Serve(b.folder.root.FS())
	c := web.Config{
		Host: h, Seed: d.seed(o.Repeat), Steps: d.Steps, Close: site.Close,
		Actions: action.Options{Subsets: d.Actions, Single: !d.Multi, Retry: true},
		// every page logs its reward at the end
		Hide: func(m event.BrowserLog) bool { return strings.HasPrefix(m.Text, "log: reward: ") },
		Task: func(seed uint32) (browsergym.Task, error) {
			return &browsergym.MiniWoB{Name: t.ID, Base: web.SiteURL + "miniwob/", Seed: seed, AtLeast: d.AtLeast}, nil
		},
	}
	c.Context.Width, c.Context.Height = d.Width, d.Height
	if err := b.browsers.Configure(&c, site.AccessOptions()); err != nil {
		site.Close()
		return nil, err
	}
	e, err := web.Open(ctx, c)
	switch { // the site has already been closed by web.Open
	case errors.Is(err, browsergym.ErrNoPage):
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	case err != nil:
		return nil, err
	}
	return e, nil
}

// seed returns the seed of a repeat, counted from 1. When the seeds are used up, they start again
// with the first.
func (d *data) seed(repeat int) uint32 {
	if len(d.Seeds) == 0 {
		return 0
	}
	return d.Seeds[max(repeat-1, 0)%len(d.Seeds)]
}

// Grade returns the last step's reward, which is 1 or 0.
func (b *Benchmark) Grade(_ context.Context, _ benchmarks.Host, _ datasets.Task, ev benchmarks.Evidence,
	_ benchmarks.Episode) (benchmarks.Result, error) {
	return web.Grade(ev)
}

// Solve returns the scripted solution of a task.
func (b *Benchmark) Solve(t datasets.Task) (agent.Agent, error) { return solve.Agent(t.ID) }
