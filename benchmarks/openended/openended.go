// Package openended is a benchmark with a single task, a page and a goal, and without grading. It
// serves to try an agent, a model or a prompt on a site before tasks exist. It is BrowserGym's task
// of the same name.
package openended

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options are the benchmark's options.
type Options struct {
	Goal  string `json:"goal,omitempty"`      // the agent's instruction
	Steps int    `json:"max_steps,omitempty"` // per episode; default 30
	// subsets of actions; default chat, infeas, bid, nav and tab
	Actions []string `json:"actions,omitempty" min:"1"`
	Multi   bool     `json:"multi,omitempty"`  // allow several calls per step
	Width   int      `json:"width,omitempty"`  // viewport width; default 1280
	Height  int      `json:"height,omitempty"` // default 720
}

// A Benchmark has one task: its page.
type Benchmark struct {
	url      *url.URL
	opts     Options
	browsers web.Browsers
	source   datasets.Source
}

type data struct {
	URL string `json:"url"`
	Options
}

// New returns the benchmark for a page.
func New(address string, raw json.RawMessage, br web.Browsers) (*Benchmark, error) {
	b := &Benchmark{browsers: br, opts: Options{Steps: 30}}
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&b.opts); err != nil {
			return nil, fmt.Errorf("options of openended: %w", err)
		}
	}
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := web.Address(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("openended: %q is no address of a page on the web: %w; a file has to be served first "+
			"(python3 -m http.server, say)", address, err)
	case b.opts.Steps < 0 || b.opts.Width < 0 || b.opts.Height < 0:
		return nil, errors.New("options of openended: max_steps, width and height are not below 0")
	}
	b.url = u
	if len(b.opts.Actions) == 0 {
		b.opts.Actions = []string{"chat", "infeas", "bid", "nav", "tab"}
	}
	if err := action.Known(b.opts.Actions); err != nil {
		return nil, fmt.Errorf("options of openended: actions: %w", err)
	}
	d, err := json.Marshal(data{u.String(), b.opts})
	if err != nil {
		return nil, err
	}
	t := datasets.Task{ID: u.Host, Tags: []string{web.Tag}, Data: d}
	if t.Digest, err = record.TaskDigest(b.Name(), t.ID, json.RawMessage(d)); err != nil {
		return nil, err
	}
	b.source = web.Table([]datasets.Task{t})
	return b, nil
}

func (b *Benchmark) actions() action.Options {
	return action.Options{Subsets: b.opts.Actions, Single: !b.opts.Multi, Retry: true}
}

func (b *Benchmark) Name() string            { return "openended" }
func (b *Benchmark) Source() datasets.Source { return b.source }

// Needs returns a browser and nothing else.
func (b *Benchmark) Needs(datasets.Task, benchmarks.Options) (benchmarks.Needs, error) {
	return b.browsers.Needs(), nil
}

// pageNetwork returns the access options of the page: its own host and subdomains, unless the run
// allows more.
func (b *Benchmark) pageNetwork(o benchmarks.Options) browsers.AccessOptions {
	w := browsers.AccessOptions{Network: o.Sandbox.Network}
	host, port := b.url.Hostname(), b.url.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[b.url.Scheme]
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil, host == "localhost": // allow any address that the user has given explicitly
		w.Hosts = []string{b.url.Hostname() + ":" + port}
		if err == nil && addr.Is6() {
			w.Hosts = []string{"[" + host + "]:" + port}
		}
	case w.Network.Mode == "":
		w.Network = sandbox.Network{Mode: "allow", Allow: []string{host, "*." + strings.TrimPrefix(host, "www.")}}
	}
	return w
}

// Open opens the page.
func (b *Benchmark) Open(ctx context.Context, h benchmarks.Host, t datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	c := web.Config{Host: h, Seed: uint32(o.Repeat), Steps: b.opts.Steps, Actions: b.actions(), Answer: true,
		Task: func(uint32) (browsergym.Task, error) {
			x := &browsergym.Openended{URL: b.url.String(),
				Browser: browsergym.Settings{Width: b.opts.Width, Height: b.opts.Height}}
			if b.opts.Goal != "" {
				x.Goal = browsergym.Text(b.opts.Goal)
			}
			return x, nil
		},
	}
	if err := b.browsers.Configure(&c, b.pageNetwork(o)); err != nil {
		return nil, err
	}
	return web.Open(ctx, c)
}

// Grade returns 0, because there is no expected result.
func (b *Benchmark) Grade(_ context.Context, _ benchmarks.Host, _ datasets.Task, ev benchmarks.Evidence,
	_ benchmarks.Episode) (benchmarks.Result, error) {
	r, err := web.Grade(ev)
	if err == nil && *r.Primary().Value == 0 {
		r.Primary().Why = "an open task has no reward"
	}
	return r, err
}
