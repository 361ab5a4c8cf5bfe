package web

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// WithBrowser gives the agents of a benchmark a browser beside their machine: a tool to look at
// what they build there, and no part of the task. Its loopback is the machine's, the rest of the
// network is what the machine may reach, and what it downloads comes into the machine. A task
// without a machine gets none, and one that is played in a browser keeps its own.
func WithBrowser(b benchmarks.Benchmark, br Browsers) benchmarks.Benchmark {
	w := withBrowser{b, br}
	if r, ok := b.(benchmarks.Reducer); ok {
		return struct {
			withBrowser
			benchmarks.Reducer
		}{w, r}
	}
	return w
}

type withBrowser struct {
	benchmarks.Benchmark
	br Browsers
}

func (b withBrowser) Needs(t datasets.Task, o benchmarks.Options) (benchmarks.Needs, error) {
	n, err := b.Benchmark.Needs(t, o)
	if err != nil || n.Skip != "" || n.Browser || len(n.Agent) == 0 {
		return n, err
	}
	n.Browser, n.Skip = b.br.Missing == "", b.br.Missing
	return n, nil
}

func (b withBrowser) Open(ctx context.Context, h benchmarks.Host, t datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	n, err := b.Benchmark.Needs(t, o)
	if err != nil {
		return nil, err
	}
	ep, err := b.Benchmark.Open(ctx, h, t, o)
	if err != nil {
		return nil, err
	}
	m, ok := ep.(benchmarks.Machiner)
	if n.Browser || len(n.Agent) == 0 || !ok {
		return ep, nil
	}
	c := &browserEpisode{Episode: ep, m: m, host: h, br: b.br, net: o.Merge(n.Agent[0]).Network}
	return struct {
		*browserEpisode
		benchmarks.Machiner
	}{c, m}, nil
}

// Grade shows the benchmark the episode that it knows.
func (b withBrowser) Grade(ctx context.Context, h benchmarks.Host, t datasets.Task, ev benchmarks.Evidence,
	live benchmarks.Episode) (benchmarks.Result, error) {
	if c, ok := live.(interface{ unwrap() benchmarks.Episode }); ok {
		live = c.unwrap()
	}
	return b.Benchmark.Grade(ctx, h, t, ev, live)
}

func (b withBrowser) Solve(t datasets.Task) (agent.Agent, error) {
	if o, ok := b.Benchmark.(benchmarks.Oracle); ok {
		return o.Solve(t)
	}
	return nil, benchmarks.NoSolution("benchmark %s knows no solutions", b.Name())
}

func (b withBrowser) Prepare(ctx context.Context) ([]string, error) {
	if p, ok := b.Benchmark.(benchmarks.Preparer); ok {
		return p.Prepare(ctx)
	}
	return nil, nil
}

// A browserEpisode is an episode with a browser, which the first browser action starts.
type browserEpisode struct {
	benchmarks.Episode
	m    benchmarks.Machiner
	host benchmarks.Host
	br   Browsers
	net  sandbox.Network

	mu    sync.Mutex
	web   *Episode
	files int // that were put into the machine
}

func (c *browserEpisode) unwrap() benchmarks.Episode { return c.Episode }

// Refused lists the places that the browser's pages wanted to reach, and may not.
func (c *browserEpisode) Refused() []sandbox.Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.web == nil {
		return nil
	}
	return c.web.Refused()
}

func (c *browserEpisode) Next(ctx context.Context, prev *benchmarks.Result) (*benchmarks.Stage, error) {
	s, err := c.Episode.Next(ctx, prev)
	if err != nil {
		return nil, err
	}
	with := *s
	with.Kinds = append(s.Kinds[:len(s.Kinds):len(s.Kinds)], event.Browse{}.Kind(), event.BrowseURL{}.Kind())
	return &with, nil
}

func (c *browserEpisode) Step(ctx context.Context, a event.Event) (benchmarks.Turn, error) {
	switch a.Body.(type) {
	case event.Browse, event.BrowseURL:
	default:
		return c.Episode.Step(ctx, a)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.web == nil {
		if err := c.open(ctx); err != nil {
			return benchmarks.Turn{}, err
		}
	}
	turn, err := c.web.Step(ctx, a)
	if err != nil {
		return turn, err
	}
	seen, ok := turn.Obs.(event.Browsed)
	if !ok {
		return benchmarks.Turn{Obs: turn.Obs}, nil
	}
	if seen.Done { // the page broke down: the next action begins with a new browser
		seen.Done = false
		err = c.web.Close()
		c.web = nil
	}
	return benchmarks.Turn{Obs: c.copyDownloads(ctx, seen)}, err
}

// open starts the browser. The lock is held.
func (c *browserEpisode) open(ctx context.Context) error {
	if c.br.Pool == nil {
		return ErrNoBrowsers
	}
	cfg := Config{Host: c.host, AllTags: true, Actions: action.Options{Subsets: []string{"bid", "nav", "tab"}},
		Task: func(uint32) (browsergym.Task, error) {
			return &browsergym.Openended{URL: "about:blank",
				Goal: browsergym.Text("There is no goal: the browser is a tool.")}, nil
		}}
	if err := c.br.Configure(&cfg, browsers.AccessOptions{Network: c.net, Dial: c.dial}); err != nil {
		return err
	}
	e, err := Open(ctx, cfg)
	c.web = e
	return err
}

// dial connects to a port of the machine, once there is one.
func (c *browserEpisode) dial(ctx context.Context, _, address string) (net.Conn, error) {
	_, p, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		return nil, err
	}
	sb := c.m.Started()
	if sb == nil {
		return nil, errors.New("the machine has not started: nothing listens there")
	}
	d, ok := sandbox.As[sandbox.Dialer](sb)
	if !ok {
		return nil, errors.New("this machine's ports cannot be reached")
	}
	return d.Dial(ctx, port)
}

// maxCopied is the largest download that is copied into the machine.
const maxCopied = 32 << 20

// copyDownloads copies downloads into the machine and sets their paths. Files over maxCopied are
// not copied.
func (c *browserEpisode) copyDownloads(ctx context.Context, b event.Browsed) event.Browsed {
	for i := range b.Downloads {
		d := &b.Downloads[i]
		if d.Blob == nil || d.Blob.Size > maxCopied {
			continue
		}
		c.files++
		name := "file_" + strconv.Itoa(c.files) + extensionOf(d.Name)
		if err := c.putFile(ctx, name, *d); err != nil {
			continue // the observation shows that it is nowhere
		}
		d.Path = path.Join(c.m.Dir(), name)
	}
	return b
}

func (c *browserEpisode) putFile(ctx context.Context, name string, d event.BrowserDownload) error {
	sb, err := c.m.Machine(ctx)
	if err != nil {
		return err
	}
	r, err := c.host.Log().OpenBlob(ctx, *d.Blob)
	if err != nil {
		return err
	}
	defer r.Close()
	dir, err := os.MkdirTemp("", "evalrun-download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return sb.Put(ctx, c.m.Dir(), os.DirFS(dir))
}

// extensionOf is a file name's, if it is a plain one: names come from pages.
func extensionOf(name string) string {
	ext := path.Ext(name)
	if len(ext) > 8 {
		return ""
	}
	for i, r := range ext {
		if i > 0 && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return ""
		}
	}
	return ext
}

// Collect ends the browser first: what the agent had in it is no part of the answer.
func (c *browserEpisode) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	if err := c.closeBrowser(); err != nil {
		return benchmarks.Evidence{}, err
	}
	return c.Episode.Collect(ctx, ans)
}

func (c *browserEpisode) closeBrowser() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.web == nil {
		return nil
	}
	err := c.web.Close()
	c.web = nil
	return err
}

func (c *browserEpisode) Close() error { return errors.Join(c.closeBrowser(), c.Episode.Close()) }
