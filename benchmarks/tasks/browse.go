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

// browserNeeds returns the needs of a task in a browser.
func (b *Benchmark) browserNeeds(t *Task, o benchmarks.Options) benchmarks.Needs {
	if o.Sandbox.Network.Mode == "" {
		if why := t.shut(); why != "" {
			return benchmarks.Needs{Skip: why}
		}
	}
	return b.browsers.Needs()
}

// reach returns the network policy for the task's pages: the run's if set, else the task's own.
func (t *Task) reach(o benchmarks.Options) sandbox.Network {
	if o.Sandbox.Network.Mode != "" {
		return o.Sandbox.Network
	}
	return t.network()
}

// seed returns the seed from which the page generates its problem: the task's own if set, else one
// that depends on the task and the repeat. It does not depend on the arm, so all arms get the same
// problems.
func (t *Task) seed(repeat int) uint32 {
	if t.Browser.Seed != nil {
		return *t.Browser.Seed
	}
	h := fnv.New32a()
	h.Write([]byte(t.ID))
	return (h.Sum32() + uint32(max(repeat-1, 0))) % 1_000_000
}

// actionTime is how long an action waits for its element. BrowserGym's benchmarks wait half a
// second, which is so short that load on the machine affects scores.
const actionTime = 3 * time.Second

// openBrowser starts an episode in a browser.
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
	switch { // the site has already been closed by web.Open
	case errors.Is(err, browsergym.ErrNoPage), errors.Is(err, errNoGoal):
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	case err != nil:
		return nil, err
	}
	return e, nil
}

// gradeBrowser grades an episode in a browser from what was observed after its last step.
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

// look checks the site's files beside the tasks: it reports symbolic links and missing start pages.
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
