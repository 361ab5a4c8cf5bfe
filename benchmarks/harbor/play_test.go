package harbor_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/harbor"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/docker"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// image is what the tests' tasks name; the driver local shows them this machine's programs instead.
const image = "evalrun-test/bookworm:1"

// A here is a driver with what it cannot do.
type here struct {
	sandbox.Driver
	name string
}

// skeleton ignores images.
type skeleton struct{ sandbox.Driver }

func (s skeleton) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	files := spec.Image.Context
	spec.Image, spec.Setuid, spec.Network, spec.Cmd = sandbox.Image{}, false, sandbox.Network{}, nil
	sb, err := s.Driver.Create(ctx, spec)
	if err == nil && files != nil { // what the tests' Dockerfiles copy
		err = sb.Put(ctx, "/tests", executable{files})
	}
	return sb, err
}

// executable is a file system whose files can all be executed.
type executable struct{ fs.FS }

func (e executable) Open(name string) (fs.File, error) {
	f, err := e.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return opened{f}, nil
}

type opened struct{ fs.File }

func (o opened) Stat() (fs.FileInfo, error) {
	i, err := o.File.Stat()
	return mode{i}, err
}

func (o opened) ReadDir(n int) ([]fs.DirEntry, error) {
	list, err := o.File.(fs.ReadDirFile).ReadDir(n)
	for i := range list {
		if info, err := list[i].Info(); err == nil {
			list[i] = fs.FileInfoToDirEntry(mode{info})
		}
	}
	return list, err
}

type mode struct{ fs.FileInfo }

func (m mode) Mode() fs.FileMode { return m.FileInfo.Mode() | 0o555 }

func local(t *testing.T) here { return here{skeleton{benchtest.Local(t)}, "local"} }

// inDocker is the driver docker, where EVALRUN_TEST_DOCKER says that it must work.
func inDocker(t *testing.T) here {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_DOCKER") == "" {
		t.Skip("set EVALRUN_TEST_DOCKER=1 to play on the engine; it needs the image " + image)
	}
	d := docker.New(docker.Options{})
	t.Cleanup(func() { d.Close() })
	if err := d.Probe(t.Context()); err != nil {
		t.Fatalf("EVALRUN_TEST_DOCKER is set, but: %v", err)
	}
	return here{d, "docker"}
}

// drivers runs a test on each.
func drivers(t *testing.T, f func(t *testing.T, d here)) {
	t.Run("local", func(t *testing.T) { f(t, local(t)) })
	t.Run("docker", func(t *testing.T) { f(t, inDocker(t)) })
}

// A folder of tasks: names below it, with their content. What a task needs and does not say is
// filled in.
type folder map[string]string

func (f folder) write(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	tasks := map[string]bool{}
	put := func(name, text string) {
		p := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			return
		}
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range f {
		task, _, _ := strings.Cut(name, "/")
		tasks[task] = true
		put(name, text)
	}
	for task := range tasks {
		if _, ok := f[task+"/task.toml"]; !ok {
			put(task+"/task.toml", toml(""))
		}
		steps := false
		for name := range f {
			steps = steps || strings.HasPrefix(name, task+"/steps/")
		}
		if _, ok := f[task+"/instruction.md"]; !ok && !steps {
			put(task+"/instruction.md", "Do it.\n")
		}
		put(task+"/environment/", "")
	}
	return root
}

// toml is a task.toml whose machine works in /app; more is added at its end.
func toml(more string) string {
	return "[environment]\ndocker_image = \"" + image + "\"\nworkdir = \"/app\"\nnetwork_mode = \"no-network\"\n" + more
}

func open(t *testing.T, f folder, options string) *harbor.Benchmark {
	t.Helper()
	b, err := harbor.New(f.write(t), json.RawMessage(options))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func task(t *testing.T, b *harbor.Benchmark, id string) datasets.Task {
	t.Helper()
	for x, err := range b.Source().Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if id == "" || x.ID == id {
			return x
		}
	}
	t.Fatalf("there is no task %q", id)
	return datasets.Task{}
}

// bash is an agent that runs scripts, one a stage.
func bash(scripts ...string) agent.Agent {
	n := 0
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		script := scripts[min(n, len(scripts)-1)]
		n++
		m, ok := agent.As[agent.Machine](s.Env)
		if !ok {
			panic("no machine")
		}
		_, err := m.Exec(ctx, sandbox.Command{Args: []string{"bash", "-c", script}, Dir: m.Dir()})
		return agent.Answer{}, err
	})
}

// played is one session of a task.
func played(t *testing.T, d here, b *harbor.Benchmark, id string, a agent.Agent) *benchtest.Played {
	t.Helper()
	p, err := benchtest.Play(t.Context(), benchtest.Session{Benchmark: b, Driver: d, Task: task(t, b, id), Agent: a})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Strays {
		t.Error(s)
	}
	return p
}

// result is what became of it.
func result(t *testing.T, b *harbor.Benchmark, p *benchtest.Played) benchmarks.Result {
	t.Helper()
	if len(p.Results) == 1 {
		return p.Results[0]
	}
	r, err := b.Reduce(task(t, b, ""), p.Results)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// hello is a task in either mode.
func hello(name, more string) folder {
	return folder{
		name + "/task.toml":         toml(more),
		name + "/solution/solve.sh": "#!/bin/bash\necho Hello > /app/hello.txt\n",
		name + "/tests/test.sh": "#!/bin/bash\nif [ \"$(cat /app/hello.txt)\" = Hello ]; then echo 1; else echo " +
			"0; fi > /logs/verifier/reward.txt\n",
	}
}

func TestHello(t *testing.T) {
	drivers(t, func(t *testing.T, d here) {
		b := open(t, hello("hello", ""), "")
		benchtest.Run(t, benchtest.Suite{Benchmark: b, Driver: d, Want: 1})
	})
}
