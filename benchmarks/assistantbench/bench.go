package assistantbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/formats"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options are the benchmark's options. All may be omitted.
type Options struct {
	Name  string   `json:"name,omitempty" doc:"Name of the benchmark in the results. Default assistantbench."`
	Split string   `json:"split,omitempty" enum:"validation,test" doc:"Which of the published files this is: IDs begin with it. Default validation."`
	Start string   `json:"start,omitempty" doc:"Where an episode begins. Default https://google.com."`
	Allow []string `json:"allow,omitempty" min:"1" doc:"The only hosts that pages may load from: names, *.wildcards, addresses, CIDR ranges. Default: the public internet, and never this machine's own or a private address."`
	Steps int      `json:"max_steps,omitempty" min:"1" doc:"Maximum steps of an episode. Default 30."`
}

// A Benchmark is the benchmark of one file of questions.
type Benchmark struct {
	o    Options
	src  datasets.Source
	br   web.Browsers
	acts action.Options
	away atomic.Pointer[string] // why the web cannot be reached
}

// New returns the benchmark for a file of questions in JSONL, CSV or Parquet. The file is not read
// before its tasks are requested.
func New(path string, raw json.RawMessage, br web.Browsers) (*Benchmark, error) {
	b := &Benchmark{o: Options{Name: "assistantbench", Split: "validation", Start: Start, Steps: MaxSteps}, br: br}
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&b.o); err != nil {
			return nil, fmt.Errorf("options of assistantbench: %w", err)
		}
	}
	if !slices.Contains([]string{"validation", "test"}, b.o.Split) {
		return nil, fmt.Errorf("options of assistantbench: split: %q is none of validation, test", b.o.Split)
	}
	if _, err := web.Address(b.o.Start); err != nil {
		return nil, fmt.Errorf("options of assistantbench: start: %q: %w", b.o.Start, err)
	}
	if len(b.o.Allow) > 0 {
		if _, err := egress.Parse(sandbox.Network{Mode: "allow", Allow: b.o.Allow}); err != nil {
			return nil, fmt.Errorf("options of assistantbench: allow: %w", err)
		}
	}
	f, err := formats.Open(path)
	if err != nil {
		return nil, fmt.Errorf("assistantbench: %w", err)
	}
	b.src, b.acts = Source(f, b.o.Split), action.Options{Subsets: []string{Actions}, Retry: true, Single: true}
	return b, nil
}

func (b *Benchmark) Name() string            { return b.o.Name }
func (b *Benchmark) Source() datasets.Source { return b.src }

// Prepare checks whether the start page can be reached. If it cannot, no task is played.
func (b *Benchmark) Prepare(ctx context.Context) ([]string, error) {
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.o.Start, nil)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		why := fmt.Sprintf("the page where it begins, %s, is out of reach: %v", b.o.Start, err)
		b.away.Store(&why)
		return nil, nil
	}
	return nil, res.Body.Close()
}

// Needs returns a browser.
func (b *Benchmark) Needs(_ datasets.Task, o benchmarks.Options) (benchmarks.Needs, error) {
	n := benchmarks.Needs{Browser: true}
	if _, why := b.network(o); why != "" {
		n.Skip = why
	} else if why := b.away.Load(); why != nil {
		n.Skip = *why
	}
	return n, nil
}

// network returns the network policy of the pages: hosts that both the run (sandbox.network) and
// the option allow, or the whole web if neither is set. why says why tasks cannot be played with
// this policy.
func (b *Benchmark) network(o benchmarks.Options) (n sandbox.Network, why string) {
	run := o.Sandbox.Network
	switch own := len(b.o.Allow) > 0; {
	case run.Mode == "none", run.Mode == "allow" && len(run.Allow) == 0:
		return run, "its pages are on the web, and the run's sandbox.network is none"
	case run.Mode == "allow" && own:
		return run, "sandbox.network and the option allow both name hosts: name them in one of them"
	case own:
		return sandbox.Network{Mode: "allow", Allow: b.o.Allow}, ""
	case run.Mode != "":
		return run, ""
	}
	return sandbox.Network{Mode: "public"}, ""
}

// Open starts the episode at the search engine.
func (b *Benchmark) Open(ctx context.Context, h benchmarks.Host, t datasets.Task,
	o benchmarks.Options) (benchmarks.Episode, error) {
	q, err := decode(t)
	if err != nil {
		return nil, err
	}
	net, why := b.network(o)
	if why != "" {
		return nil, errors.New("assistantbench: " + why)
	}
	c := web.Config{
		Host: h, Task: func(uint32) (browsergym.Task, error) { return &hunt{q: q, start: b.o.Start}, nil },
		Actions: b.acts, Seed: uint32(h.Seed()), Steps: b.o.Steps, Answer: true,
	}
	if err := b.br.Configure(&c, browsers.AccessOptions{Network: net}); err != nil {
		return nil, err
	}
	return web.Open(ctx, c)
}

// Grade returns the score of the last step. If the expected answer is not published there is no
// score, and the answer is kept for whoever has it.
func (b *Benchmark) Grade(_ context.Context, _ benchmarks.Host, t datasets.Task, ev benchmarks.Evidence,
	_ benchmarks.Episode) (benchmarks.Result, error) {
	q, err := decode(t)
	if err != nil {
		return benchmarks.Result{}, err
	}
	r, err := web.Grade(ev)
	if err != nil {
		return r, err
	}
	var end web.End
	if len(ev.Data) > 0 {
		if err := json.Unmarshal(ev.Data, &end); err != nil {
			return r, fmt.Errorf("evidence of a browser: %w", err)
		}
	}
	s := r.Primary()
	if n := len(end.Answers); n > 0 {
		s.Text = end.Answers[n-1]
	}
	if q.Answer == "" {
		s.Value, s.Why = nil, "the right answer is not published"
		r.Scores = append(r.Scores, record.Score{Name: "answered", Value: one(s.Text != "")})
	}
	return r, nil
}

func one(yes bool) *float64 {
	f := 0.0
	if yes {
		f = 1
	}
	return &f
}

func decode(t datasets.Task) (q Question, err error) {
	if err := json.Unmarshal(t.Data, &q); err != nil {
		return q, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	return q, nil
}

// A hunt is the task of one episode.
type hunt struct {
	q     Question
	start string
}

func (h *hunt) Settings() browsergym.Settings {
	return browsergym.Settings{Width: 1280, Height: 720, SlowMo: time.Second, Timeout: 5 * time.Second, Locale: Locale,
		TimeZone: TimeZone}
}

// opening is the time limit for loading the first page.
const opening = 10 * time.Second

func (h *hunt) Setup(ctx context.Context, page *cdp.Page) (browsergym.Start, error) {
	if err := page.GotoWithin(ctx, h.start, opening); err != nil {
		return browsergym.Start{}, fmt.Errorf("opening %s: %w", h.start, err)
	}
	return browsergym.Start{Goal: browsergym.Text(h.q.Task), Info: map[string]any{}}, nil
}

// Validate scores the first answer that the agent gives.
func (h *hunt) Validate(_ context.Context, _ *cdp.Page, chat []browsergym.Message) (browsergym.Verdict, error) {
	v := browsergym.Verdict{Info: map[string]any{}}
	if n := len(chat); n > 0 && chat[n-1].Role == browsergym.Assistant {
		v.Done, v.Reward = true, Score(chat[n-1].Text, h.q.Answer)
		v.Info["accuracy"] = v.Reward
	}
	return v, nil
}

func (h *hunt) Teardown(context.Context) error { return nil }
