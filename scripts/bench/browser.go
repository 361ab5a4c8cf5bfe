package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The measured page, which is the one that BrowserGym is measured on, and the position where the
// agent clicks.
const (
	miniwobTask           = "login-user"
	miniwobWidth          = 332
	miniwobHeight         = 214
	miniwobScale          = 1.5
	stepsMeasured         = 31
	atOnce                = 16
	memoryAt              = 64
	untilAhead            = 500 * time.Millisecond // time in which a pool opens a page ahead
	pageX, pageY  float64 = 60, 100
)

// A rig is the setup that the browser measurements share.
type rig struct {
	ctx  context.Context
	pool *browsers.Pool
	url  string // of the directory with MiniWoB++'s pages
	wish browsers.AccessOptions
	bare *bareBrowser
}

// browser measures steps of the browser environment, each next to the bare calls that it needs.
func (b *bench) browser() error {
	dir := pages()
	if dir == "" {
		return errors.New("needs MiniWoB++'s pages: scripts/setup-test gets them, or name their folder html by " +
			"EVALRUN_TEST_MINIWOB")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer srv.Close()
	defer srv.CloseClientConnections()
	r := &rig{ctx: ctx, url: srv.URL + "/miniwob/",
		wish: browsers.AccessOptions{Network: sandbox.Network{},
			Hosts: []string{strings.TrimPrefix(srv.URL, "http://")}}}
	if err := b.firstPage(r); err != nil {
		return err
	}
	r.pool = browsers.New(browsers.Options{})
	defer r.pool.Close()
	var err error
	if r.bare, err = launchBare(ctx); err != nil {
		return err
	}
	defer r.bare.Close()
	for _, m := range []func(*rig) error{b.steps, b.resets, b.many16, b.bigPage, b.texts, b.alive} {
		if err := m(r); err != nil {
			return err
		}
	}
	return b.reference()
}

// env returns an environment on the page.
func (r *rig) env(picture bool) (*browsergym.Env, error) {
	set, err := action.New(action.Options{Subsets: strings.Fields("chat infeas bid coord nav tab")})
	if err != nil {
		return nil, err
	}
	return browsergym.New(browsergym.Options{Browser: r.pool.For(r.wish), Actions: set, NoScreenshot: !picture,
		Task: func(seed uint32) (browsergym.Task, error) {
			return &browsergym.MiniWoB{Name: miniwobTask, Base: r.url, Seed: seed}, nil
		}})
}

func (b *bench) firstPage(r *rig) error {
	var first, floor []float64
	for range 5 {
		t := time.Now()
		p := browsers.New(browsers.Options{})
		c, err := p.For(r.wish).NewContext(r.ctx, cdp.ContextOptions{})
		if err == nil {
			_, err = c.NewPage(r.ctx)
		}
		first = append(first, time.Since(t).Seconds())
		if e := p.Close(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		t = time.Now()
		bare, err := cdp.Launch(r.ctx, cdp.Options{})
		if err != nil {
			return err
		}
		floor = append(floor, time.Since(t).Seconds())
		if err := bare.Close(); err != nil {
			return err
		}
	}
	b.add("browser: first page after the start of the pool", mid(first), 250e-3, mid(floor), ms, "start of Chromium")
	return nil
}

// render creates the three texts that agents read.
func render(o *browsergym.Observation) error {
	ax := obs.DefaultAX()
	ax.Visible, ax.Clickable = true, true
	if _, err := obs.AXText(o.AX, o.Properties, ax); err != nil {
		return err
	}
	dom, err := obs.DOMText(o.DOM, o.Properties, ax.Options)
	obs.PruneHTML(dom)
	return err
}

// step performs a full step: action, reward, observation, and its texts.
func (r *rig) step(e *browsergym.Env, code string) error {
	s, err := e.Step(r.ctx, code)
	if err != nil {
		return err
	}
	if s.Observation.LastError != "" {
		return fmt.Errorf("%s: %s", code, s.Observation.LastError)
	}
	return render(s.Observation)
}

func (b *bench) steps(r *rig) error {
	floor, err := openBare(r.ctx, r.bare, r.url+miniwobTask+".html", miniwobWidth, miniwobHeight)
	if err != nil {
		return err
	}
	defer floor.close(r.ctx)
	if err := floor.ready(r.ctx); err != nil {
		return err
	}
	for _, picture := range []bool{true, false} {
		max, what := 60e-3, "with"
		if !picture {
			max, what = 35e-3, "without"
		}
		e, err := r.env(picture)
		if err != nil {
			return err
		}
		defer e.Close(r.ctx)
		first, _, err := e.Reset(r.ctx, 1)
		if err != nil {
			return err
		}
		bid, err := field(first)
		if err != nil {
			return err
		}
		codes := []string{"noop(0)", "click('" + bid + "')", "fill('" + bid + "', 'abc')"}
		took := make([][]float64, len(codes)+1)
		for range stepsMeasured {
			for i, code := range codes { // alternate, so that all are measured under the same load
				t := time.Now()
				if err := r.step(e, code); err != nil {
					return err
				}
				took[i] = append(took[i], time.Since(t).Seconds())
			}
			t := time.Now()
			if err := floor.click(r.ctx, pageX, pageY); err != nil {
				return err
			}
			if err := floor.look(r.ctx, picture, miniwobWidth, miniwobHeight, miniwobScale); err != nil {
				return err
			}
			took[len(codes)] = append(took[len(codes)], time.Since(t).Seconds())
		}
		bare := mid(took[len(codes)])
		for i, name := range []string{"nothing", "a click", "a fill"} {
			b.add(fmt.Sprintf("browser: a full step, %s, %s screenshot", name, what), mid(took[i]), max, bare, ms,
				"bare calls of a click")
		}
	}
	return nil
}

// field returns the bid of the page's first text field.
func field(o *browsergym.Observation) (string, error) {
	text, err := obs.AXText(o.AX, o.Properties, obs.DefaultAX())
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if bid, _, ok := strings.Cut(strings.TrimSpace(line), "] textbox"); ok {
			return strings.TrimPrefix(bid, "["), nil
		}
	}
	return "", fmt.Errorf("the page has no text field:\n%s", text)
}

func (b *bench) resets(r *rig) error {
	e, err := r.env(true)
	if err != nil {
		return err
	}
	defer e.Close(r.ctx)
	reset := func(seed uint32) (float64, error) {
		t := time.Now()
		o, _, err := e.Reset(r.ctx, seed)
		if err != nil {
			return 0, err
		}
		err = render(o)
		return time.Since(t).Seconds(), err
	}
	var ours, next, floor []float64
	for i := range uint32(11) {
		time.Sleep(untilAhead)
		took, err := reset(i)
		if err != nil {
			return err
		}
		ours = append(ours, took)
		if took, err = reset(i); err != nil { // no page has been opened ahead for this one
			return err
		}
		next = append(next, took)
		// wait until the next page has been opened ahead, so that it does not disturb the
		// measurement
		time.Sleep(untilAhead)
		t := time.Now()
		p, err := openBare(r.ctx, r.bare, r.url+miniwobTask+".html", miniwobWidth, miniwobHeight)
		if err == nil {
			err = p.ready(r.ctx)
		}
		if err == nil {
			err = p.look(r.ctx, true, miniwobWidth, miniwobHeight, miniwobScale)
		}
		if err == nil {
			err = p.close(r.ctx)
		}
		if err != nil {
			return err
		}
		floor = append(floor, time.Since(t).Seconds())
	}
	b.add("browser: a reset", mid(ours), 120e-3, mid(floor), ms, "bare calls")
	b.note("browser: — directly after another, page not opened ahead", ms(mid(next)))
	return nil
}

// side runs n functions concurrently and repeatedly for a while, and returns the number of calls
// per second.
func side(n int, d time.Duration, start func(i int) (func() error, error)) (float64, error) {
	all := make([]func() error, n)
	for i := range all {
		var err error
		if all[i], err = start(i); err != nil {
			return 0, err
		}
	}
	var wg sync.WaitGroup
	counts, errs := make([]int, n), make([]error, n)
	begun := time.Now()
	for i, f := range all {
		wg.Go(func() {
			for time.Since(begun) < d && errs[i] == nil {
				errs[i] = f()
				counts[i]++
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, c := range counts {
		sum += c
	}
	return float64(sum) / time.Since(begun).Seconds(), errors.Join(errs...)
}

func (b *bench) many16(r *rig) error {
	const long = 8 * time.Second
	ours, err := side(atOnce, long, func(i int) (func() error, error) {
		e, err := r.env(true)
		if err != nil {
			return nil, err
		}
		o, _, err := e.Reset(r.ctx, uint32(i))
		if err != nil {
			return nil, err
		}
		context.AfterFunc(r.ctx, func() { e.Close(context.Background()) })
		bid, err := field(o)
		return func() error { return r.step(e, "click('"+bid+"')") }, err
	})
	if err != nil {
		return err
	}
	floor, err := side(atOnce, long, func(int) (func() error, error) {
		p, err := openBare(r.ctx, r.bare, r.url+miniwobTask+".html", miniwobWidth, miniwobHeight)
		if err != nil {
			return nil, err
		}
		return func() error {
			if err := p.click(r.ctx, pageX, pageY); err != nil {
				return err
			}
			return p.look(r.ctx, true, miniwobWidth, miniwobHeight, miniwobScale)
		}, p.ready(r.ctx)
	})
	if err != nil {
		return err
	}
	b.addLeast(fmt.Sprintf("browser: full steps per second, %d at once", atOnce), ours, 40, floor, perSecond,
		"bare calls")
	return nil
}

// bigPage measures a page with 5,047 marked elements, where the browser's own time dominates.
func (b *bench) bigPage(r *rig) error {
	if _, err := os.Stat(filepath.Join(b.golden, "pages", "big.html")); err != nil {
		b.note("browser: a step on a page of 5,047 elements",
			"not measured: needs the recordings' pages; name their folder by -golden")
		return nil
	}
	srv := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(b.golden, "pages"))))
	defer srv.Close()
	defer srv.CloseClientConnections()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		return err
	}
	wish := browsers.AccessOptions{Hosts: []string{"127.0.0.1:" + port}}
	e, err := browsergym.New(browsergym.Options{Browser: r.pool.For(wish), Task: func(uint32) (browsergym.Task, error) {
		return &browsergym.Openended{URL: srv.URL + "/big.html"}, nil
	}})
	if err != nil {
		return err
	}
	defer e.Close(r.ctx)
	o, _, err := e.Reset(r.ctx, 1)
	if err != nil {
		return err
	}
	p, err := openBare(r.ctx, r.bare, srv.URL+"/big.html", 1280, 720)
	if err != nil {
		return err
	}
	defer p.close(r.ctx)
	if err := p.ready(r.ctx); err != nil {
		return err
	}
	var ours, floor []float64
	for range 5 {
		t := time.Now()
		s, err := e.Step(r.ctx, "noop(0)")
		if err != nil {
			return err
		}
		o = s.Observation
		ours = append(ours, time.Since(t).Seconds())
		t = time.Now()
		if err := p.look(r.ctx, true, 1280, 720, 1); err != nil {
			return err
		}
		floor = append(floor, time.Since(t).Seconds())
	}
	b.add(fmt.Sprintf("browser: a step on a page of %d elements", len(o.Properties.Bids())), mid(ours), 1.2*mid(floor),
		mid(floor), ms, "bare calls")
	return b.eachText(o)
}

// eachText measures each text separately.
func (b *bench) eachText(o *browsergym.Observation) error {
	ax := obs.DefaultAX()
	ax.Visible, ax.Clickable = true, true
	dom, err := obs.DOMText(o.DOM, o.Properties, ax.Options)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		name string
		f    func() error
	}{
		{"accessibility tree", func() error { _, err := obs.AXText(o.AX, o.Properties, ax); return err }},
		{"DOM", func() error { _, err := obs.DOMText(o.DOM, o.Properties, ax.Options); return err }},
		{"pruned DOM", func() error { obs.PruneHTML(dom); return nil }},
	} {
		v, err := median(11, x.f)
		if err != nil {
			return err
		}
		b.add("browser: — its text, "+x.name, v, 15e-3, 0, ms, "")
	}
	return nil
}

// alive measures memory.
func (b *bench) alive(r *rig) error {
	before := proportional(os.Getpid())
	var all []*browsergym.Env
	defer func() {
		for _, e := range all {
			e.Close(context.Background())
		}
	}()
	open := func(n int) error {
		for len(all) < n {
			e, err := r.env(true)
			if err != nil {
				return err
			}
			all = append(all, e)
			if _, _, err := e.Reset(r.ctx, uint32(len(all))); err != nil {
				return err
			}
		}
		return nil
	}
	if err := open(memoryAt); err != nil {
		return err
	}
	b.add(fmt.Sprintf("browser: memory of an environment, %d alive", memoryAt),
		(proportional(os.Getpid())-before)/memoryAt, 35<<20, 0, mb, "")
	const most = 200
	if err := open(most); err != nil {
		b.note(fmt.Sprintf("browser: %d environments alive", most),
			"failed at "+fmt.Sprint(len(all))+": "+firstLine(err))
		return nil
	}
	b.add(fmt.Sprintf("browser: memory, %d environments alive", most), proportional(os.Getpid())-before, 8<<30, 0, mb,
		"")
	return nil
}
