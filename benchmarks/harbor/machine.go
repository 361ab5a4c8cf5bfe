package harbor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/harbor/compose"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A machine is an environment as a sandbox's spec.
type machine struct {
	Spec sandbox.Spec
	Env  *format.Environment
	// to be made before anything else, for anyone to write: /logs/… and what a compose file mounts
	// from the harness
	Dirs []string
}

// uploads are the files that go to the working directory after the start, when nothing builds them
// in; nil: none.
func (m *machine) uploads(files fs.FS) (fs.FS, error) {
	if !m.Env.Upload {
		return nil, nil
	}
	return fs.Sub(files, m.Env.Dir)
}

// policies are the network policies of a step's phases.
type policies struct {
	Start    sandbox.Network // of the machine's start, health checks, set-up, and whatever no other holds for
	Agent    sandbox.Network // while the agent works
	Verifier sandbox.Network // while the verifier runs, in its own machine or the agent's
}

// agentMachine makes the agent's machine, without I/O. files is the task's folder, env looks up the
// variables that the run allows. A missing variable is a *[format.MissingVariable] error, an
// unsupported feature a *[compose.Refused].
func (b *Benchmark) agentMachine(t *format.Task, files fs.FS, o benchmarks.Options,
	env format.Lookup) (*machine, error) {
	m, internal, err := b.machine(t, &t.Environment, files, env)
	if err != nil {
		return nil, err
	}
	if c := b.o.CPUs; c > 0 {
		m.Spec.CPUs = c
	}
	if mb := b.o.MemoryMB; mb > 0 {
		m.Spec.Memory = mb << 20
	}
	if internal {
		m.Spec.Network = sandbox.Network{Mode: "none"}
	}
	for i := range t.Steps {
		p := b.policies(t, i, o)
		m.Spec.Rewire = m.Spec.Rewire || !samePolicy(p.Agent, p.Start) || !t.Steps[i].Verifier.Separate &&
			!samePolicy(p.Verifier, p.Start)
	}
	m.Spec.Network = b.policies(t, 0, o).Start
	if internal && o.Sandbox.Network.Mode == "" {
		m.Spec.Network = sandbox.Network{Mode: "none"}
	}
	m.Dirs = append(m.Dirs, format.AgentLogs, format.VerifierLogs, format.ArtifactsDir)
	m.Spec = o.Merge(m.Spec)
	m.dropEngineOnly()
	return m, nil
}

// dropEngineOnly removes what only images of a container engine have: setuid programs, and an
// ENTRYPOINT that needs a command to stay alive. Unpacked folders and driver defaults have neither.
func (m *machine) dropEngineOnly() {
	s := &m.Spec
	if s.Image.NeedsEngine() {
		return
	}
	s.Setuid = false
	if s.Entrypoint == nil && slices.Equal(s.Cmd, idle) {
		s.Cmd = nil
	}
}

// verifierMachine makes the machine of a step's separate verifier. The run's options for the
// agent's machine do not apply to it.
func (b *Benchmark) verifierMachine(t *format.Task, step int, files fs.FS, o benchmarks.Options,
	env format.Lookup) (*machine, error) {
	v := &t.Steps[step].Verifier
	if !v.Separate {
		return nil, fmt.Errorf("task %s: step %d is graded in the agent's machine", t.Name, step)
	}
	m, internal, err := b.machine(t, v.Environment, files, env)
	if err != nil {
		return nil, err
	}
	p := b.policies(t, step, o)
	m.Spec.Network = widen(v.Environment.Network, b.o.AllowHosts)
	if internal {
		m.Spec.Network = sandbox.Network{Mode: "none"}
	}
	m.Spec.Rewire = !samePolicy(p.Verifier, m.Spec.Network)
	m.Dirs = append(m.Dirs, format.VerifierLogs)
	m.dropEngineOnly()
	return m, nil
}

// policies of a step. A policy that the run's own configuration sets holds in all phases of the
// agent's machine.
func (b *Benchmark) policies(t *format.Task, step int, o benchmarks.Options) policies {
	s := &t.Steps[step]
	base := widen(t.Environment.Network, b.o.AllowHosts)
	p := policies{Start: base, Agent: base, Verifier: base}
	if s.Network != nil {
		p.Agent = widen(*s.Network, b.o.AllowHosts)
	}
	p.Agent = widen(p.Agent, b.o.AgentAllowHosts)
	if w := o.Sandbox.Network; w.Mode != "" {
		p = policies{w, w, w}
		if s.Verifier.Separate {
			p.Verifier = widen(s.Verifier.Environment.Network, b.o.AllowHosts)
		}
	} else if s.Verifier.Separate {
		p.Verifier = widen(s.Verifier.Environment.Network, b.o.AllowHosts)
	}
	if n := s.Verifier.Network; n != nil && (o.Sandbox.Network.Mode == "" || s.Verifier.Separate) {
		p.Verifier = widen(*n, b.o.AllowHosts)
	}
	return p
}

// idle keeps an image's ENTRYPOINT that runs its arguments from ending.
var idle = []string{"sh", "-c", "sleep infinity"}

func (b *Benchmark) machine(t *format.Task, e *format.Environment, files fs.FS,
	get format.Lookup) (m *machine, internal bool, err error) {
	env, err := e.Env.Resolve("environment.env", get)
	if err != nil {
		return nil, false, err
	}
	m = &machine{Env: e, Spec: sandbox.Spec{Setuid: true, Cmd: idle}}
	p, err := e.ComposeProject(env, get)
	if err != nil {
		return nil, false, err
	}
	main := &compose.Service{Name: format.MainService}
	if p != nil && p.Main != "" { // a file without main leaves it to the other files of the environment
		main = p.Services[p.Main]
		internal = p.Internal
		m.Dirs = append(m.Dirs, main.Dirs...)
		m.Spec = main.Spec
		if m.Spec.Cmd == nil && m.Spec.Entrypoint == nil {
			m.Spec.Cmd = idle
		}
	}
	if p != nil {
		m.Spec.Aliases = append(m.Spec.Aliases, format.MainService)
	}
	image, err := b.image(e, main, files)
	if err != nil {
		return nil, false, err
	}
	image.Timeout, image.Name = b.o.times().Build(e.BuildTimeout), t.Name
	if image.Platform == "" {
		image.Platform = m.Spec.Platform
	}
	m.Spec.Image = image
	// What the compose file says wins over task.toml, but for variables and the working directory.
	if m.Spec.CPUs == 0 {
		m.Spec.CPUs = e.CPUs
	}
	if m.Spec.Memory == 0 {
		m.Spec.Memory = e.Memory
	}
	if m.Spec.Env == nil {
		m.Spec.Env = map[string]string{}
	}
	maps.Copy(m.Spec.Env, env)
	if e.Workdir != "" {
		m.Spec.Dir = e.Workdir
	}
	if p == nil {
		return m, internal, nil
	}
	for name, s := range p.Services {
		if name == p.Main {
			continue
		}
		spec, err := s.Machine(files)
		if err != nil {
			return nil, false, err
		}
		if s.Build == nil && s.Image == format.BuiltImage && len(s.Binds) == 0 {
			spec.Image = image
		}
		spec.Image.Timeout, spec.Image.Name = image.Timeout, t.Name+"/"+name
		if m.Spec.Services == nil {
			m.Spec.Services = map[string]sandbox.Spec{}
		}
		m.Spec.Services[name] = spec
	}
	return m, internal, nil
}

// image is the main machine's, by the order in which the format lays its parts over each other: an
// image that is named wins over a Dockerfile unless the run forces a build, and what a compose file
// says of main over both.
func (b *Benchmark) image(e *format.Environment, main *compose.Service, files fs.FS) (sandbox.Image, error) {
	s := *main
	named := s.Image != "" && s.Image != format.BuiltImage && s.Image != e.Image
	switch {
	case e.Image != "" && !(b.o.ForceBuild && (s.Build != nil || e.Dockerfile != "")):
		s.Build = nil
		if !named {
			s.Image = e.Image
		}
	case s.Build != nil:
	case e.Dockerfile != "":
		s.Build = &compose.Build{Context: e.Dir, Dockerfile: e.Dockerfile}
	case !named:
		return sandbox.Image{}, errors.New("nothing defines the image of main; add a Dockerfile, docker_image to " +
			"task.toml, or image or build to the compose file's main")
	}
	m, err := s.Machine(files)
	return m.Image, err
}
