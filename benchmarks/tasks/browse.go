package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"slices"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// browserNeeds are those of a task in a browser.
func (b *Benchmark) browserNeeds(t *Task, o benchmarks.Options) benchmarks.Needs {
	if o.Sandbox.Network.Mode == "" {
		if why := t.shut(); why != "" {
			return benchmarks.Needs{Skip: why}
		}
	}
	return b.browsers.Needs()
}

// reach is the network of the task's pages: the run's wish, else the task's own.
func (t *Task) reach(o benchmarks.Options) sandbox.Network {
	if o.Sandbox.Network.Mode != "" {
		return o.Sandbox.Network
	}
	return t.network()
}

// seed is what the page makes its problem of: what the task says, else another one for each repeat.
// It does not depend on the arm: all meet the same.
func (t *Task) seed(repeat int) uint32 {
	if t.Browser.Seed != nil {
		return *t.Browser.Seed
	}
	h := fnv.New32a()
	h.Write([]byte(t.ID))
	return (h.Sum32() + uint32(max(repeat-1, 0))) % 1_000_000
}

// actionTime is how long an action waits for its element. BrowserGym's benchmarks have half a
// second, which on a busy machine decides scores.
const actionTime = 3 * time.Second

// openBrowser begins an episode in a browser.
func (b *Benchmark) openBrowser(ctx context.Context, h benchmarks.Host, t datasets.Task, d *Task,
	o benchmarks.Options) (_ benchmarks.Episode, err error) {
	c := web.Config{
		Host: h, Seed: d.seed(o.Repeat), Steps: d.Browser.Steps, Rule: web.Last,
		Actions: action.Options{Subsets: d.Browser.subsets()},
		Answer:  d.Browser.Contract != "" || len(d.stages()[0].Grade.Answer) > 0,
	}
	c.Context.ActionTimeout = actionTime
	if c.Steps == 0 {
		c.Steps = defaultSteps
	}
	wish, base := browsers.AccessOptions{Network: d.reach(o)}, ""
	if len(d.Browser.Site) > 0 {
		s := web.Serve(pages{d.Browser.Site, t.Files})
		base, c.Close, wish.Dial = web.SiteURL, s.Close, s.Dial
	}
	if err := b.browsers.Configure(&c, wish); err != nil {
		if c.Close != nil {
			c.Close()
		}
		return nil, err
	}
	c.Task = func(seed uint32) (browsergym.Task, error) {
		if d.Browser.Contract != "" {
			return newContracted(d, base, seed), nil
		}
		return newGraded(d, base, seed)
	}
	e, err := web.Open(ctx, c)
	switch { // the site was closed with it
	case errors.Is(err, browsergym.ErrNoPage), errors.Is(err, errNoGoal):
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	case err != nil:
		return nil, err
	}
	return e, nil
}

// gradeBrowser grades an episode in a browser by what was seen after its last step.
func (t *Task) gradeBrowser(ev benchmarks.Evidence) (benchmarks.Result, error) {
	r, err := web.Grade(ev)
	if err != nil || t.Browser.Contract != "" {
		return r, err
	}
	var end struct {
		Task struct {
			Checks []check `json:"checks"`
		} `json:"task_info"`
	}
	if err := json.Unmarshal(ev.Data, &end); err != nil {
		return r, fmt.Errorf("evidence of a browser: %w", err)
	}
	p, why := r.Primary(), ""
	for _, c := range end.Task.Checks {
		if c.Threw && !slices.Contains(r.Flags, benchmarks.FlagThrew) {
			r.Flags = append(r.Flags, benchmarks.FlagThrew)
		}
		status := "passed"
		if c.Value < 1 {
			status = "failed"
			if why == "" {
				why = c.Name + ": " + c.Why
			}
		}
		r.Tests = append(r.Tests, record.Test{Name: c.Name, Status: status})
	}
	switch {
	case p.Why == "":
		p.Why = why
	case why != "":
		p.Why += "; " + why
	}
	return r, nil
}

// look says what is wrong with the site as it lies beside the tasks: links, and start pages that
// are not there.
func (b *Browser) look(beside fs.FS) error {
	for _, name := range sorted(b.Site) {
		if from := b.Site[name].From; from != "" && beside != nil {
			switch err := linkless(beside, from); {
			case errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("from %q: no such folder or file beside the tasks", from)
			case err != nil:
				return err
			}
		}
	}
	for _, s := range b.starts() {
		if remote(s) || b.Site == nil {
			continue
		}
		f, err := pages{b.Site, beside}.open(file(s))
		if err != nil {
			return fmt.Errorf("start %q is no page of it", s)
		}
		f.Close()
	}
	return nil
}
