// Package tasks is the benchmark for custom tasks: tasks written in a tasks.yaml or as JSON lines,
// without any Go. The format is defined in format.go and documented for users in
// docs/own-benchmark.md.
//
// A stage is graded by comparing its answer, by calling a Python function ([pygrade]), or by a
// script. The script runs in a fresh machine that receives only the hidden files and the files the
// agent left (the working directory, unless the task selects less), so that nothing else the agent
// started, changed or prepared is present. If the task sets shared, because the answer is a running
// service, the script runs in the agent's own machine; the hidden files are then copied to a
// directory with an unpredictable name.
package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/internal/fsutil"
	"github.com/evalrun/evalrun/internal/yamldoc"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options are the benchmark's options.
type Options struct {
	Name string `json:"name,omitempty"` // default: the name in the file, else the directory's
}

// Benchmark is the benchmark of custom tasks.
type Benchmark struct {
	name     string
	source   datasets.Source
	browsers web.Browsers
}

// New returns the benchmark for a file, or for a directory that holds a tasks.yaml or tasks.jsonl.
// Tasks are read on demand.
func New(path string, raw json.RawMessage) (*Benchmark, error) {
	var o Options
	if len(raw) > 0 {
		n, err := yamldoc.ParseJSON(yamldoc.Pos{}, raw)
		if err == nil {
			err = yamldoc.Decode(n, &o)
		}
		if err != nil {
			return nil, fmt.Errorf("options of tasks: %w", err)
		}
	}
	dir, file, name, err := locate(path)
	if err != nil {
		return nil, fmt.Errorf("tasks: %w", err)
	}
	if o.Name != "" {
		name = o.Name
	}
	beside, err := fsutil.FS(dir)
	if err != nil {
		return nil, fmt.Errorf("tasks: %w", err)
	}
	p := place{name: name, shown: filepath.Join(dir, file), file: file, fsys: beside}
	if strings.HasSuffix(strings.TrimSuffix(file, ".gz"), ".jsonl") {
		return &Benchmark{name: name, source: newRows(p, p.shown)}, nil
	}
	return &Benchmark{name: name, source: &yamlSource{place: p}}, nil
}

// FromFS returns the benchmark for a YAML file in fsys, such as an embedded one.
func FromFS(name string, fsys fs.FS, file string) *Benchmark {
	return &Benchmark{name: name, source: &yamlSource{
		place: place{name: name, shown: name + "/" + file, file: file, fsys: fsys}}}
}

// In returns a copy of b that plays its tasks in the given browsers.
func (b *Benchmark) In(br web.Browsers) *Benchmark {
	c := *b
	c.browsers = br
	return &c
}

func (b *Benchmark) Name() string            { return b.name }
func (b *Benchmark) Source() datasets.Source { return b.source }

func decode(t datasets.Task) (*Task, error) {
	var d Task
	if err := json.Unmarshal(t.Data, &d); err != nil {
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	return &d, nil
}

// Needs returns the agent's machine, and a grader's machine if a stage is graded in a separate one.
func (b *Benchmark) Needs(t datasets.Task, o benchmarks.Options) (benchmarks.Needs, error) {
	d, err := decode(t)
	if err != nil {
		return benchmarks.Needs{}, err
	}
	if d.Browser != nil {
		return b.browserNeeds(d, o), nil
	}
	if o.Sandbox.Network.Mode == "" { // otherwise the run's own policy applies
		if why := d.shut(); why != "" {
			return benchmarks.Needs{Skip: why}, nil
		}
	}
	n := benchmarks.Needs{Agent: []sandbox.Spec{o.Merge(d.spec())}}
	for _, s := range d.stages() {
		n.GradeLive = n.GradeLive || s.Grade.Shared
		if s.Grade.apart() && n.Grader == nil {
			n.Grader = []sandbox.Spec{d.grader(o)}
		}
	}
	return n, nil
}

// apart reports whether grading needs a separate machine.
func (g *Grade) apart() bool { return g.Function != nil || g.Script != "" && !g.Shared }

// spec returns the spec of the agent's machine.
func (t *Task) spec() sandbox.Spec {
	s := sandbox.Spec{
		Image: sandbox.Image{Ref: t.Image}, Dir: t.dir(),
		CPUs: t.Limits.CPUs, Memory: int64(t.Limits.Memory), Disk: int64(t.Limits.Disk), Pids: t.Limits.Pids,
	}
	if s.Memory == 0 {
		s.Memory = 512 << 20
	}
	if s.Pids == 0 {
		s.Pids = 256
	}
	switch {
	case len(t.Network) == 1 && t.Network[0] == "public":
		s.Network.Mode = "public"
	case len(t.Network) == 1 && t.Network[0] == "none" || len(t.Network) == 0:
	default:
		s.Network = sandbox.Network{Mode: "allow", Allow: t.Network}
	}
	return s
}

// shut returns why the task's own list of hosts is refused, or "". A task must not open this host's
// services or network on its own.
func (t *Task) shut() string {
	p, err := egress.Parse(t.spec().Network)
	if err != nil {
		return err.Error()
	}
	if open := p.Opens(); len(open) > 0 {
		return fmt.Sprintf("its network opens %s, not public: if that is meant, say so in the run's configuration: "+
			"sandbox: {network: [%s]}",
			strings.Join(open, ", "), strings.Join(t.Network, ", "))
	}
	return ""
}

// grader returns the spec of the grader's machine: like the agent's, but without network, and with
// extra disk space for the files that are copied in.
func (t *Task) grader(o benchmarks.Options) sandbox.Spec {
	s := o.Merge(t.spec())
	s.Network, s.User, s.Reserve = sandbox.Network{}, "", sandbox.Reserve{}
	if s.Disk > 0 {
		s.Disk += 4 * maxBytes // even if the agent filled its disk, the grader has space
	}
	return s
}

// Solve returns an agent that plays the oracles of the task's stages.
func (b *Benchmark) Solve(t datasets.Task) (agent.Agent, error) {
	d, err := decode(t)
	if err != nil {
		return nil, err
	}
	known := map[string]Oracle{}
	for i, s := range d.stages() {
		var o Oracle
		if s.Oracle != nil {
			o = *s.Oracle
		}
		if g := s.Grade; o.Answer == "" && len(g.Answer) > 0 && g.spec().Scorer != score.Regex {
			o.Answer = g.Answer[0]
		}
		if o.empty() {
			return nil, fmt.Errorf("task %s: stage %d has no oracle", t.ID, i+1)
		}
		known[s.Instruction] = o // instructions are different in every stage
	}
	if d.Browser != nil {
		o := known[d.Instruction]
		return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) { return o.play(ctx, s) }),
			nil
	}
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		o, ok := known[s.Goal.Text()]
		if !ok {
			return agent.Answer{}, fmt.Errorf("task %s: no oracle knows this goal", t.ID)
		}
		return o.play(ctx, s)
	}), nil
}

func (o Oracle) play(ctx context.Context, s *agent.Session) (agent.Answer, error) {
	if o.Script != "" {
		m, ok := agent.As[agent.Machine](s.Env)
		if !ok {
			return agent.Answer{}, fmt.Errorf("the oracle has no machine to run its script on")
		}
		c, err := command(o.Script, "", nil, m.Dir(), 0)
		if err != nil {
			return agent.Answer{}, err
		}
		var out sandboxed.Tail
		c.Stdout = &out
		exit, err := m.Exec(ctx, c)
		if err != nil {
			return agent.Answer{}, err
		}
		if exit.Code != 0 {
			return agent.Answer{}, fmt.Errorf("the oracle's script %s: %s", exit.How(0), out.String())
		}
	}
	if len(o.Actions) > 0 {
		if err := o.Play(ctx, s); err != nil {
			return agent.Answer{}, err
		}
	}
	ans := agent.Answer{}
	if o.Answer != "" {
		ans.Parts = event.Text(o.Answer)
	}
	return ans, nil
}
