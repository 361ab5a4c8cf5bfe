// Package tasks is the benchmark of one's own: tasks written down in a tasks.yaml or in JSON lines,
// no Go needed. The form is in format.go and, for people, in docs/own-benchmark.md.
//
// A stage is graded by comparing its answer, by calling a Python function ([pygrade]), or by a
// script. The script runs in a fresh machine that gets what the agent left (the working directory,
// unless the task names less) and the hidden files, so that nothing the agent started, changed or
// prepared elsewhere is there. Only where the task says shared, for a service that is the answer,
// it runs in the agent's own machine; hidden files then go to a folder with a name nobody could
// guess before.
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

// Options of the benchmark.
type Options struct {
	Name string `json:"name,omitempty"` // default: the file's, else the folder's
}

// Benchmark of tasks that are written down.
type Benchmark struct {
	name     string
	source   datasets.Source
	browsers web.Browsers
}

// New makes the benchmark of a file, or of a folder that holds a tasks.yaml or tasks.jsonl. Tasks
// are read when they are asked for.
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

// FromFS makes the benchmark of a YAML file in fsys, an embedded one say.
func FromFS(name string, fsys fs.FS, file string) *Benchmark {
	return &Benchmark{name: name, source: &yamlSource{
		place: place{name: name, shown: name + "/" + file, file: file, fsys: fsys}}}
}

// In sets the browsers that tasks are played in.
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

// Needs the agent's machine, and one for the grader where a stage is graded apart.
func (b *Benchmark) Needs(t datasets.Task, o benchmarks.Options) (benchmarks.Needs, error) {
	d, err := decode(t)
	if err != nil {
		return benchmarks.Needs{}, err
	}
	if d.Browser != nil {
		return b.browserNeeds(d, o), nil
	}
	if o.Sandbox.Network.Mode == "" { // else the run's own policy holds
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

// apart reports whether grading needs a machine of its own.
func (g *Grade) apart() bool { return g.Function != nil || g.Script != "" && !g.Shared }

// spec is the agent's machine.
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

// shut says why the task's own list of hosts is not followed: a task must not open this host's
// services, or its network, by itself.
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

// grader is the grader's machine: as the agent's, without a network, and with room for what is put
// beside the agent's files.
func (t *Task) grader(o benchmarks.Options) sandbox.Spec {
	s := o.Merge(t.spec())
	s.Network, s.User, s.Reserve = sandbox.Network{}, "", sandbox.Reserve{}
	if s.Disk > 0 {
		s.Disk += 4 * maxBytes // an agent that filled its disk must not leave the grader without room
	}
	return s
}

// Solve plays the oracles of the task's stages.
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
		known[s.Instruction] = o // different in every stage
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
