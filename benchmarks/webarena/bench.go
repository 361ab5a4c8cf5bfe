package webarena

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Benchmark plays the tasks of one dialect on the user's sites.
type Benchmark struct {
	d      Dialect
	o      Options
	sites  Sites
	src    datasets.Source
	br     web.Browsers
	acts   action.Options
	client *http.Client
	limit  time.Duration // of a navigation, and of a login
	census census
	logins logins
	rounds rounds
	images string
}

// New returns the benchmark for a file of configurations, or a directory of them (see [Open]). It
// does not contact the sites; Prepare and playing a task do. getenv looks up environment variables
// and may be nil.
func New(d Dialect, path string, raw json.RawMessage, br web.Browsers, getenv func(string) string) (*Benchmark, error) {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	o, err := d.read(raw, getenv)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: time.Minute, CheckRedirect: stay}
	b := &Benchmark{d: d, o: o, sites: o.Sites, br: br, images: o.Images, client: client, limit: patience,
		census: census{client: client}, rounds: rounds{poll: 20 * time.Second}}
	if b.src, err = Open(d, path); err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	if o.Subset == "tiny" {
		b.src = few{b.src, d.tiny()}
	}
	if b.images == "" {
		if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
			path = filepath.Dir(path)
		}
		b.images = path
	}
	b.acts = action.Options{Subsets: o.Actions, Retry: true, Single: true}
	if err := action.Known(o.Actions); err != nil {
		return nil, fmt.Errorf("options of %s: actions: %w", d, err)
	}
	if _, err := action.New(b.acts); err != nil {
		return nil, fmt.Errorf("options of %s: actions: %w", d, err)
	}
	return b, nil
}

// stay follows redirects only within a host, because requests carry an administrator's token.
func stay(r *http.Request, via []*http.Request) error {
	if len(via) > 10 || r.URL.Host != via[0].URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

func (b *Benchmark) Name() string            { return b.o.Name }
func (b *Benchmark) Source() datasets.Source { return b.src }

// Prepare probes every site once, so that Needs can report which tasks cannot be played.
func (b *Benchmark) Prepare(context.Context) ([]string, error) {
	b.census.all(b.sites)
	return nil, nil
}

// Needs claims each site that a task may change exclusively, and names the models that grade the
// task.
func (b *Benchmark) Needs(t datasets.Task, o benchmarks.Options) (benchmarks.Needs, error) {
	c, err := Parse(b.d, t.Data)
	if err != nil {
		return benchmarks.Needs{}, err
	}
	n := benchmarks.Needs{Browser: true, Roles: c.roles(b.d), Skip: b.missing(c)}
	if n.Skip == "" && o.Sandbox.Network.Mode == "allow" && len(b.o.Allow) > 0 {
		n.Skip = "sandbox.network and the option allow both name hosts: name them in one of them"
	}
	for _, role := range n.Roles {
		if n.Skip == "" && slices.Contains(b.o.Without, role) {
			n.Skip = "it is graded by a model, and this run does without the " + role
		}
	}
	if r := b.o.Reset; r != nil && (r.URL != "" || len(r.Command) > 0) {
		limit, _ := r.limit() // already validated by New
		n.Setup = limit + signingIn
	}
	for _, s := range c.Sites {
		if changes(s) {
			n.Exclusive = append(n.Exclusive, b.site(s))
		}
	}
	return n, nil
}

// signingIn is the time allowed for starting a session, not counting a reset.
const signingIn = 5 * time.Minute

// site returns the lock name of a site. Benchmarks that use the same site get the same name.
func (b *Benchmark) site(name string) string {
	if b.sites.There(name) {
		return "site " + b.sites[name]
	}
	return string(b.d) + "/" + name
}

// missing returns why the task's sites cannot be used, as far as is known, or "".
func (b *Benchmark) missing(c *Config) string {
	for _, s := range c.Sites {
		switch {
		case b.sites[s] == "todo":
			return "the site " + s + " is not there (its address is todo)"
		case !b.sites.There(s):
			return fmt.Sprintf("the site %s has no address: set the option sites: {%s: http://HOST:PORT}, or the "+
				"variable %s", s, s, b.d.prefix()+strings.ToUpper(s))
		}
		if err := b.census.known(b.sites[s]); err != nil {
			return b.away(s, err)
		}
	}
	return ""
}

func (b *Benchmark) away(site string, err error) string {
	return fmt.Sprintf("the site %s (%s) is out of reach: %v", site, b.sites[site], err)
}

// An episode is a browser episode that finally checks whether the sites still respond.
type episode struct {
	*web.Episode
	b *Benchmark
	c *Config
}

// Open logs in and opens the task's pages. If a site has never responded in this run, the task is
// skipped.
func (b *Benchmark) Open(ctx context.Context, h benchmarks.Host, t datasets.Task,
	o benchmarks.Options) (_ benchmarks.Episode, err error) {
	c, err := Parse(b.d, []byte(b.sites.expand(string(t.Data))))
	if err != nil {
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	if c.StartURL == "" {
		return nil, &benchmarks.TaskError{Task: t.ID, Err: wrong("start_url is empty")}
	}
	for _, s := range c.Sites {
		if b.sites.There(s) {
			b.census.reaches(b.sites[s])
		}
	}
	if why := b.missing(c); why != "" {
		return nil, &sandbox.Unsupported{Driver: b.o.Name, What: why}
	}
	if err := b.begin(ctx, o); err != nil {
		return nil, err
	}
	dir := "" // what the agent may upload
	if len(c.Image) > 0 {
		if dir, err = os.MkdirTemp("", "evalrun-goal-"); err != nil {
			return nil, fmt.Errorf("making a folder for the goal's pictures: %w", err)
		}
	}
	p, err := b.problem(ctx, h, c, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	w := web.Config{
		Host: h, Task: func(uint32) (browsergym.Task, error) { return p, nil }, Actions: b.acts, Seed: uint32(h.Seed()),
		Steps: b.o.Steps, Answer: true,
		Context: cdp.ContextOptions{Headers: b.o.Headers}, Close: func() error { return os.RemoveAll(dir) },
	}
	if err := b.br.Configure(&w, b.wish(dir, o)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if w.Pace == browsergym.Reference {
		p.calm = calm
	}
	e, err := web.Open(ctx, w)
	if err != nil {
		return nil, b.blame(ctx, c, fault(t.ID, err))
	}
	return &episode{e, b, c}, nil
}

// problem creates the task of one episode.
func (b *Benchmark) problem(ctx context.Context, h benchmarks.Host, c *Config, dir string) (*problem, error) {
	p := &problem{c: c, d: b.d, sites: b.sites, calm: quick, limit: b.limit, client: b.client}
	if b.o.Login == "kept" {
		p.keep = &b.logins
	}
	password := func(a Account) (Account, error) {
		if a.Secret == "" {
			return a, nil
		}
		s, err := h.Secret(a.Secret)
		a.Password = s
		return a, err
	}
	for _, s := range c.Sites {
		a, ok := b.o.account(s)
		if b.o.Login == "none" || !ok {
			continue
		}
		a, err := password(a)
		if err != nil {
			return nil, fmt.Errorf("the account of %s: %w", s, err)
		}
		p.visitors = append(p.visitors, visitor{name: s, address: b.sites[s], account: a, limit: b.limit})
	}
	if b.o.Reset != nil && b.o.Reset.Token != "" && c.Reset && slices.Contains(c.Sites, "classifieds") {
		var err error
		if p.token, err = h.Secret(b.o.Reset.Token); err != nil {
			return nil, fmt.Errorf("the token of the classifieds' reset: %w", err)
		}
	}
	if b.o.HomepageHint && b.sites.There("homepage") {
		p.hints = append(p.hints, fmt.Sprintf("Other websites that can be of use are listed at %s, and accounts on "+
			"them at %s/password.html.", b.sites["homepage"], b.sites["homepage"]))
	}
	if b.o.NAHint {
		p.hints = append(p.hints, `If it turns out that this cannot be done, answer "N/A".`)
	}
	e := &Evaluator{Dialect: b.d, Sites: b.sites, HTTP: b.client, Picture: folder(b.images)}
	roles := c.roles(b.d)
	if slices.Contains(roles, roleGrader) {
		e.Judge = grader{&asker{h: h, role: roleGrader}}
	}
	if slices.Contains(roles, roleCaptioner) {
		e.Captioner = captioner{&asker{h: h, role: roleCaptioner}}
	}
	if a, ok := b.o.Accounts["shopping_admin"]; ok {
		var err error
		if e.Admin, err = password(a); err != nil {
			return nil, fmt.Errorf("the account of shopping_admin: %w", err)
		}
	}
	p.eval = e
	var err error
	p.pictures, err = e.goalPictures(ctx, c.Image, dir)
	return p, err
}

// wish returns the access options of an episode's pages: they reach the sites, and other hosts only
// as far as both the run (sandbox.network) and the option allow. If dir is not "", its files may be
// uploaded.
func (b *Benchmark) wish(dir string, o benchmarks.Options) browsers.AccessOptions {
	w := browsers.AccessOptions{Network: o.Sandbox.Network}
	if dir != "" {
		w.Uploads = []string{dir}
	}
	for name, address := range b.sites {
		if u, err := url.Parse(address); err == nil && b.sites.There(name) {
			host := u.Host
			if u.Port() == "" {
				host += map[string]string{"https": ":443"}[u.Scheme]
				if u.Scheme == "http" {
					host += ":80"
				}
			}
			w.Hosts = append(w.Hosts, host)
		}
	}
	slices.Sort(w.Hosts)
	w.Hosts = slices.Compact(w.Hosts)
	if len(b.o.Allow) > 0 && w.Network.Mode != "none" {
		w.Network = sandbox.Network{Mode: "allow", Allow: b.o.Allow}
	}
	return w
}

// fault converts an error in a task's configuration to a TaskError.
func fault(task string, err error) error {
	if errors.As(err, new(*ConfigError)) {
		return &benchmarks.TaskError{Task: task, Err: err}
	}
	return err
}

// blame adds the cause to an error if a site of the task has stopped responding.
func (b *Benchmark) blame(ctx context.Context, c *Config, err error) error {
	if why := b.gone(ctx, c); why != nil {
		return fmt.Errorf("%w; %w", why, err)
	}
	return err
}

// gone probes the task's sites and returns an error if one does not respond.
func (b *Benchmark) gone(ctx context.Context, c *Config) error {
	for _, s := range c.Sites {
		if err := probe(ctx, b.client, b.sites[s]); err != nil {
			return fmt.Errorf("the site %s (%s) has stopped to answer: %w", s, b.sites[s], err)
		}
	}
	return nil
}

// Collect gathers the rewards. If a site is down, an unsuccessful episode says nothing about the
// agent, so Collect returns an error.
func (e *episode) Collect(ctx context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	ev, err := e.Episode.Collect(ctx, ans)
	if err != nil {
		return ev, fault("", err)
	}
	if n := len(ev.Rewards); n == 0 || ev.Rewards[n-1] == 0 {
		if err := e.b.gone(ctx, e.c); err != nil {
			return benchmarks.Evidence{}, err
		}
	}
	return ev, nil
}

// Grade returns the score of the last step.
func (b *Benchmark) Grade(_ context.Context, _ benchmarks.Host, _ datasets.Task, ev benchmarks.Evidence,
	_ benchmarks.Episode) (benchmarks.Result, error) {
	return web.Grade(ev)
}
