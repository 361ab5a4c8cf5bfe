// Package benchtest holds what every benchmark must keep, as a suite over a real or fake driver
// ([Run]), and a small runner of sessions for tests ([Play]): no plan, no journal, no limits.
package benchtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"sync"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Session is what is to be played.
type Session struct {
	Benchmark benchmarks.Benchmark
	Driver    sandbox.Driver // nil: machines are refused
	Task      datasets.Task
	Options   benchmarks.Options
	Agent     agent.Agent
	// Oracle says that the agent is the oracle, for [Played.Confirm].
	Oracle bool
	// References are what second opinions are judged by, by key; nil: none is kept.
	References map[string][]byte
}

// Played is what came of a session.
type Played struct {
	Evidence []benchmarks.Evidence // of each stage
	Results  []benchmarks.Result
	Log      *agenttest.Log
	Machines int      // how many were made, graders' too
	Strays   []string // what the benchmark did not keep: machines left open, specs that Needs does not name
	host     *host
	task     datasets.Task
}

// Score is the session's: the mean of its stages', or what the benchmark's Reducer says.
func (p *Played) Score(b benchmarks.Benchmark) (float64, error) {
	if r, ok := b.(benchmarks.Reducer); ok {
		res, err := r.Reduce(p.task, p.Results)
		if err != nil {
			return 0, err
		}
		return *res.Primary().Value, nil
	}
	sum := 0.0
	for _, r := range p.Results {
		s := r.Primary()
		if s == nil || s.Value == nil {
			return 0, errors.New("a result without a primary score")
		}
		sum += *s.Value
	}
	return sum / float64(len(p.Results)), nil
}

// Play plays all stages and grades them, in the order that Needs.GradeLive asks for. An agent's own
// error ends its stage, not the session.
func Play(ctx context.Context, s Session) (*Played, error) {
	needs, err := s.Benchmark.Needs(s.Task, s.Options)
	if err != nil {
		return nil, fmt.Errorf("needs: %w", err)
	}
	if needs.Skip != "" {
		return nil, fmt.Errorf("the task cannot run here: %s", needs.Skip)
	}
	h := &host{driver: s.Driver, log: &agenttest.Log{}, needs: needs}
	p := &Played{Log: h.log, host: h, task: s.Task}
	defer func() { p.Machines, p.Strays = h.made, h.strays() }()
	h.role("agent")
	ep, err := s.Benchmark.Open(ctx, h, s.Task, s.Options)
	if err != nil {
		return p, fmt.Errorf("open: %w", err)
	}
	defer ep.Close()
	var prev *benchmarks.Result
	for i := 0; ; i++ {
		stage, err := ep.Next(ctx, prev)
		if err == io.EOF {
			break
		}
		if err != nil {
			return p, fmt.Errorf("stage %d: %w", i, err)
		}
		ev, err := s.play(ctx, h, ep, stage)
		if err != nil {
			return p, fmt.Errorf("stage %d: %w", i, err)
		}
		if ev.Stage != i {
			return p, fmt.Errorf("stage %d: its evidence says it is of stage %d", i, ev.Stage)
		}
		p.Evidence = append(p.Evidence, ev)
		if needs.GradeLive {
			r, err := s.grade(ctx, h, ev, ep)
			if err != nil {
				return p, err
			}
			p.Results = append(p.Results, r)
			prev = &r
		}
		if stage.Broken != "" {
			break
		}
	}
	if err := ep.Close(); err != nil {
		return p, fmt.Errorf("close: %w", err)
	}
	if !needs.GradeLive {
		p.Results, err = p.Grade(ctx, s)
	}
	return p, err
}

// Grade grades the evidence once more, without the session that it came from.
func (p *Played) Grade(ctx context.Context, s Session) ([]benchmarks.Result, error) {
	var out []benchmarks.Result
	for _, ev := range p.Evidence {
		r, err := s.grade(ctx, p.host, ev, nil)
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	p.Machines, p.Strays = p.host.made, p.host.strays()
	return out, nil
}

// Confirm asks the benchmark for a second opinion if the grade waits for one. Otherwise it returns
// the confirmation of the results; nil: the grade needs none.
func (p *Played) Confirm(ctx context.Context, s Session) (*record.Confirmation, error) {
	reward, err := p.Score(s.Benchmark)
	if err != nil {
		return nil, err
	}
	c := benchmarks.Confirmation(p.Results)
	confirmer, ok := s.Benchmark.(benchmarks.Confirmer)
	if reward <= 0 || c == nil || c.State != record.Pending || !ok {
		return c, nil
	}
	claim, err := p.claim(s, reward)
	if err != nil {
		return nil, err
	}
	claim.Confirmation = *c
	p.host.role("agent")
	out, err := confirmer.Confirm(ctx, p.host, s.Task, s.Options, claim)
	p.Machines, p.Strays = p.host.made, p.host.strays()
	return &out, err
}

// Regrade asks the benchmark to grade the work again in a fresh machine, by the session's task.
func (p *Played) Regrade(ctx context.Context, s Session) ([]benchmarks.Result, error) {
	reward, err := p.Score(s.Benchmark)
	if err != nil {
		return nil, err
	}
	confirmer, ok := s.Benchmark.(benchmarks.Confirmer)
	if !ok {
		return nil, errors.New("the benchmark is no Confirmer")
	}
	claim, err := p.claim(s, reward)
	if err != nil {
		return nil, err
	}
	p.host.role("agent")
	out, err := confirmer.Regrade(ctx, p.host, s.Task, s.Options, claim)
	p.Machines, p.Strays = p.host.made, p.host.strays()
	return out, err
}

// claim returns a claim with the evidence as it was stored.
func (p *Played) claim(s Session, reward float64) (benchmarks.Claim, error) {
	claim := benchmarks.Claim{Reward: reward, Oracle: s.Oracle,
		Reference: func(ctx context.Context, key string, make func(context.Context) ([]byte, error)) ([]byte, error) {
			b := s.References[key]
			if b != nil || make == nil {
				return b, nil
			}
			b, err := make(ctx)
			if err == nil && s.References != nil {
				s.References[key] = b
			}
			return b, err
		}}
	for _, ev := range p.Evidence {
		stored, err := asStored(ev)
		if err != nil {
			return claim, err
		}
		claim.Evidence = append(claim.Evidence, stored)
	}
	return claim, nil
}

// asStored returns evidence as it is after it was stored as JSON.
func asStored(ev benchmarks.Evidence) (stored benchmarks.Evidence, err error) {
	raw, err := json.Marshal(ev)
	if err == nil {
		err = json.Unmarshal(raw, &stored)
	}
	if err != nil {
		err = fmt.Errorf("evidence of stage %d: %w", ev.Stage, err)
	}
	return stored, err
}

func (s Session) grade(ctx context.Context, h *host, ev benchmarks.Evidence,
	live benchmarks.Episode) (benchmarks.Result, error) {
	stored, err := asStored(ev)
	if err != nil {
		return benchmarks.Result{}, err
	}
	h.role("grader")
	defer h.role("agent")
	r, err := s.Benchmark.Grade(ctx, h, s.Task, stored, live)
	if err != nil {
		return r, fmt.Errorf("grading stage %d: %w", ev.Stage, err)
	}
	primary := 0
	for _, x := range r.Scores {
		if x.Primary {
			primary++
		}
	}
	if primary != 1 {
		return r, fmt.Errorf("grading stage %d: %d primary scores, want one", ev.Stage, primary)
	}
	return r, nil
}

// play lets the agent play one stage and collects.
func (s Session) play(ctx context.Context, h *host, ep benchmarks.Episode,
	stage *benchmarks.Stage) (benchmarks.Evidence, error) {
	setup := agenttest.Setup{
		Goal: stage.Goal.Text(), Log: h.log, Tools: stage.Tools,
		Kinds: append([]string{"think", "finish"}, stage.Kinds...),
		Step: func(ctx context.Context, a event.Event) (event.Body, error) {
			switch a.Body.(type) {
			case event.Think, event.Finish:
				return event.Ack{Of: a.Body.Kind()}, nil
			}
			turn, err := ep.Step(ctx, a)
			if turn.Done && err == nil {
				err = agent.ErrDone
			}
			return turn.Obs, err
		},
	}
	m, machine := ep.(benchmarks.Machiner)
	if machine {
		setup.Sandbox, setup.Dir = lazy{m}, m.Dir()
	}
	var ans agent.Answer
	if stage.Broken == "" {
		session := agenttest.NewSession(setup)
		session.Goal = stage.Goal // skills and tool servers too
		ans, _ = s.Agent.Run(ctx, session)
	}
	if l, ok := ep.(benchmarks.ShellLeaver); ok {
		if err := l.LeaveShells(ctx); err != nil {
			return benchmarks.Evidence{}, err
		}
	}
	if machine && !stage.Leave {
		if sb := m.Started(); sb != nil {
			if err := sb.KillAll(ctx); err != nil {
				return benchmarks.Evidence{}, err
			}
		}
	}
	return ep.Collect(ctx, ans)
}

// lazy is a machine that starts when it is first used.
type lazy struct{ m benchmarks.Machiner }

func (l lazy) ID() string { return "lazy" }
func (l lazy) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	sb, err := l.m.Machine(ctx)
	if err != nil {
		return sandbox.Exit{}, err
	}
	return sb.Exec(ctx, c)
}
func (l lazy) Put(ctx context.Context, dir string, src fs.FS) error {
	sb, err := l.m.Machine(ctx)
	if err != nil {
		return err
	}
	return sb.Put(ctx, dir, src)
}
func (l lazy) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	sb, err := l.m.Machine(ctx)
	if err != nil {
		return nil, err
	}
	return sb.Get(ctx, name)
}
func (l lazy) KillAll(context.Context) error { return nil }
func (l lazy) Close() error                  { return nil }

// A host lends machines of a driver and watches what becomes of them.
type host struct {
	driver sandbox.Driver
	log    *agenttest.Log
	needs  benchmarks.Needs

	mu    sync.Mutex
	as    string
	made  int
	open  map[sandbox.Sandbox]string
	wrong []string
}

func (h *host) role(r string) {
	h.mu.Lock()
	h.as = r
	h.mu.Unlock()
}

func (h *host) Sandbox(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	h.mu.Lock()
	as := h.as
	specs := h.needs.Agent
	if as == "grader" {
		specs = h.needs.Grader
	}
	named := false
	for _, s := range specs {
		s.Trace = spec.Trace // of a reference
		named = named || reflect.DeepEqual(s, spec)
	}
	if !named {
		h.wrong = append(h.wrong, "a machine for the "+as+" that Needs does not name")
	}
	h.mu.Unlock()
	if h.driver == nil {
		return nil, &sandbox.Unsupported{Driver: "none", What: "this test has no machines"}
	}
	spec.Owner.Role = as
	sb, err := h.driver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	w := &watched{Sandbox: sb, h: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		h.open = map[sandbox.Sandbox]string{}
	}
	h.made++
	h.open[w] = as
	return w, nil
}

// strays closes what is left open, and says so.
func (h *host) strays() []string {
	h.mu.Lock()
	left := h.open
	h.open = nil
	out := h.wrong
	h.mu.Unlock()
	for sb, as := range left {
		out = append(out, "a machine of the "+as+" was left open")
		sb.(*watched).Sandbox.Close()
	}
	return out
}

func (h *host) Model(role string) (model.Client, error) {
	return nil, fmt.Errorf("this test has no model for the role %q", role)
}
func (h *host) Secret(name string) (string, error) {
	return "", fmt.Errorf("this test has no secret %q", name)
}
func (h *host) Log() event.Log { return h.log }
func (h *host) Seed() uint64   { return 1 }

type watched struct {
	sandbox.Sandbox
	h *host
}

func (w *watched) Unwrap() sandbox.Sandbox { return w.Sandbox }
func (w *watched) Close() error {
	w.h.mu.Lock()
	delete(w.h.open, w)
	w.h.mu.Unlock()
	return w.Sandbox.Close()
}
