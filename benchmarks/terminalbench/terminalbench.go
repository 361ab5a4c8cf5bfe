package terminalbench

import (
	"time"

	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Benchmark of Terminal-Bench v1 tasks.
type Benchmark struct {
	name   string
	o      Options
	source datasets.Source
}

// New makes the benchmark of a task's folder, or of a folder of such. Tasks are read when they are
// asked for.
func New(dir string, raw json.RawMessage) (*Benchmark, error) {
	o, err := parseOptions(raw)
	if err != nil {
		return nil, fmt.Errorf("options of terminalbench: %w", err)
	}
	s, err := newSource(dir, o)
	if err != nil {
		return nil, fmt.Errorf("terminalbench: %w", err)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("terminalbench: %w", err)
	}
	return &Benchmark{filepath.Base(abs), o, s}, nil
}

func (b *Benchmark) Name() string            { return b.name }
func (b *Benchmark) Source() datasets.Source { return b.source }

// decodeTask is the task that a datasets.Task holds.
func decodeTask(t datasets.Task) (*Task, error) {
	d, err := decode(t.Data)
	if err != nil {
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	return d, nil
}

// Needs the client with its sidecars; it is graded there, while it lives.
func (b *Benchmark) Needs(dt datasets.Task, o benchmarks.Options) (benchmarks.Needs, error) {
	t, err := decodeTask(dt)
	if err != nil {
		return benchmarks.Needs{}, err
	}
	if t.Skip != "" {
		return benchmarks.Needs{Skip: t.Skip}, nil
	}
	m, err := agentMachine(t, dt.Files, o)
	if err != nil {
		return benchmarks.Needs{}, &benchmarks.TaskError{Task: dt.ID, Err: err}
	}
	return benchmarks.Needs{Agent: []sandbox.Spec{m.spec}, GradeLive: true, Grade: b.o.testTime(t.TestTime) + overhead},
		nil
}

// overhead is what we may take around a task's own tests.
const overhead = 5 * time.Minute

// A machine is the client: its spec, and folders to make in it for everybody to write to.
type machine struct {
	spec sandbox.Spec
	dirs []string
}

// idle keeps an image's ENTRYPOINT that runs its arguments from ending.
var idle = []string{"sh", "-c", "sleep infinity"}

// agentMachine makes the agent's machine of the compose file. files is the task's folder. It does no I/O.
func agentMachine(t *Task, files fs.FS, o benchmarks.Options) (*machine, error) {
	p := t.Project
	main := p.Services[p.Main]
	m := &machine{dirs: slices.Clone(main.Dirs)}
	for _, dir := range []string{logsDir, agentLogsDir} {
		if !slices.Contains(m.dirs, dir) {
			m.dirs = append(m.dirs, dir)
		}
	}
	var err error
	if m.spec, err = main.Machine(files); err != nil {
		return nil, err
	}
	m.spec.Aliases = append(slices.Clone(m.spec.Aliases), p.Main)
	if m.spec.Cmd == nil && m.spec.Entrypoint == nil {
		m.spec.Cmd = idle
	}
	m.spec.Image.Name = t.ID
	m.spec.Network = sandbox.Network{Mode: "public"} // what compose gives
	if p.Internal {
		m.spec.Network = sandbox.Network{Mode: "none"}
	}
	m.spec.Services = nil
	for _, name := range slices.Sorted(maps.Keys(p.Services)) {
		if name == p.Main {
			continue
		}
		spec, err := p.Services[name].Machine(files)
		if err != nil {
			return nil, err
		}
		spec.Image.Name = t.ID + "/" + name
		if m.spec.Services == nil {
			m.spec.Services = map[string]sandbox.Spec{}
		}
		m.spec.Services[name] = spec
	}
	m.spec = o.Merge(m.spec)
	return m, nil
}
