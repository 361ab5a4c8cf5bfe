package harbor

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// needs reads a task, as planning does, and says what it needs.
func needs(t *testing.T, options, toml string, over map[string]string, run ...benchmarks.Options) benchmarks.Needs {
	t.Helper()
	o, err := parseOptions(json.RawMessage(options))
	if err != nil {
		t.Fatal(err)
	}
	fsys, task := taskFS(toml, over), load(t, toml, over)
	data, _ := json.Marshal(task)
	n, err := (&Benchmark{o: o}).Needs(datasets.Task{ID: task.Name, Data: data, Files: noReading{fsys}},
		append(run, benchmarks.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// taskFS is a sound single-step task with a task.toml, and other files over its own; "" removes
// one.
func taskFS(toml string, over map[string]string) fstest.MapFS {
	files := fstest.MapFS{}
	for _, list := range []map[string]string{{
		"task.toml": toml, "instruction.md": "Do it.\n", "environment/Dockerfile": "FROM debian\n",
		"tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
	}, over} {
		for name, text := range list {
			if text == "" {
				delete(files, name)
				continue
			}
			files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
	}
	return files
}

func load(t *testing.T, toml string, over map[string]string) *format.Task {
	t.Helper()
	task, err := format.Load(taskFS(toml, over), "folder")
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// noReading fails a test that reads: Needs does no I/O.
type noReading struct{ fs.FS }

func (noReading) Open(string) (fs.File, error) { panic("Needs reads a file") }

func TestMachine(t *testing.T) {
	n := needs(t, `{"env": ["TOKEN"], "timeout_multiplier": 3}`, `
[environment]
cpus = 2
memory_mb = 512
workdir = "/work"
build_timeout_sec = 10
[environment.env]
A = "${TOKEN}"
B = "plain"
`, nil)
	if n.Skip != "" || len(n.Agent) != 1 || !n.GradeLive || n.Grader != nil {
		t.Fatalf("%+v", n)
	}
	s := n.Agent[0]
	if s.CPUs != 2 || s.Memory != 512<<20 || s.Dir != "/work" || s.Image.Dockerfile != "FROM debian\n" ||
		s.Image.Context == nil || s.Image.Timeout != 30*time.Second ||
		s.Network.Mode != "public" || !s.Setuid || s.Env["B"] != "plain" || s.Image.Name != "folder" {
		t.Errorf("%+v", s)
	}
	s = needs(t, `{"cpus": 8, "memory_mb": 64}`, "[environment]\ncpus=2", nil).Agent[0]
	if s.CPUs != 8 || s.Memory != 64<<20 {
		t.Errorf("the run's own: %+v", s)
	}
}

// Which image wins.
func TestImageOrder(t *testing.T) {
	compose := func(main string) map[string]string {
		return map[string]string{"environment/docker-compose.yaml": "services: {main: {" + main + "}}"}
	}
	none := map[string]string{"environment/Dockerfile": "", "environment/x": "y"}
	for _, c := range []struct {
		name, options, toml string
		over                map[string]string
		ref, dockerfile     string
	}{
		{"a Dockerfile", "", "# x", nil, "", "FROM debian\n"},
		{"an image before a Dockerfile", "", "environment = {docker_image='i'}", nil, "i", ""},
		{"unless the run forces a build", `{"force_build": true}`, "environment = {docker_image='i'}", nil, "",
			"FROM debian\n"},
		{"which is possible", `{"force_build": true}`, "environment = {docker_image='i'}", none, "i", ""},
		{"a compose file without an image", "", "# x", compose("user: a"), "", "FROM debian\n"},
		{"a compose file's image beside a Dockerfile names what is built", "", "# x", compose("image: named"), "",
			"FROM debian\n"},
		{"a compose file's build", "", "# x",
			compose("build: {dockerfile_inline: 'FROM c'}, image: '${MAIN_IMAGE_NAME}'"), "", "FROM c"},
		{"a compose file's image over docker_image", "", "environment = {docker_image='i'}", compose("image: j"), "j",
			""},
		{"the prebuilt one", "", "environment = {docker_image='i'}",
			compose("image: '${PREBUILT_IMAGE_NAME}', build: ."), "i", ""},
	} {
		s := needs(t, c.options, c.toml, c.over).Agent[0]
		if s.Image.Ref != c.ref || s.Image.Dockerfile != c.dockerfile {
			t.Errorf("%s: %q %q", c.name, s.Image.Ref, s.Image.Dockerfile)
		}
	}
}

func TestCompose(t *testing.T) {
	n := needs(t, "", `
[environment]
cpus = 2
memory_mb = 2048
[environment.env]
PASSWORD = "pw"
IN = "task"
`, map[string]string{"environment/docker-compose.yaml": `
services:
  main:
    build: {context: "${CONTEXT_DIR}"}
    image: ${MAIN_IMAGE_NAME}
    mem_limit: 1g
    cpus: ${CPUS}
    environment: {IN: compose, TESTS: "${TEST_DIR}", MEM: "${MEMORY}"}
    volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}", "${HOST_AGENT_LOGS_PATH}:${ENV_AGENT_LOGS_PATH}", "${HOST_ARTIFACTS_PATH}:${ENV_ARTIFACTS_PATH}"]
    depends_on: {db: {condition: service_healthy}}
  db:
    image: postgres
    environment: {POSTGRES_PASSWORD: "${PASSWORD}"}
    healthcheck: {test: pg_isready}
  worker:
    image: ${MAIN_IMAGE_NAME}
    command: work
`})
	if n.Skip != "" {
		t.Fatal(n.Skip)
	}
	s := n.Agent[0]
	if s.Memory != 1<<30 || s.CPUs != 2 || s.Image.Dockerfile != "FROM debian\n" || !cmp.Equal(s.Cmd, idle) ||
		len(s.Services) != 2 || len(s.Volumes) != 0 || !cmp.Equal(s.Aliases, []string{"main"}) {
		t.Errorf("%+v", s)
	}
	// The task's own variables win over the compose file's.
	if d := cmp.Diff(map[string]string{"IN": "task", "PASSWORD": "pw", "TESTS": "/tests", "MEM": "2048M"},
		s.Env); d != "" {
		t.Error(d)
	}
	if s.Services["db"].Env["POSTGRES_PASSWORD"] != "pw" || s.Services["db"].Health == nil ||
		s.Services["worker"].Image.Dockerfile != "FROM debian\n" || s.Services["worker"].Cmd[0] != "work" {
		t.Errorf("%+v", s.Services)
	}
	// One without main leaves it to the environment's other files.
	n = needs(t, "", "# x", map[string]string{"environment/docker-compose.yaml": "services: {db: {image: x}}"})
	if s := n.Agent[0]; len(s.Services) != 1 || s.Image.Dockerfile == "" {
		t.Errorf("%+v", s)
	}
	// An internal network is none.
	n = needs(t, "", "# x", map[string]string{"environment/docker-compose.yaml": "services: {main: {networks: " +
		"[a]}}\nnetworks: {a: {internal: true}}"})
	if s := n.Agent[0]; !s.Network.None() {
		t.Errorf("%+v", s.Network)
	}
}

// What cannot be run here is skipped, with the reason.
func TestSkip(t *testing.T) {
	compose := func(text string) map[string]string { return map[string]string{"environment/docker-compose.yaml": text} }
	for _, c := range []struct {
		options, toml string
		over          map[string]string
		want          string
	}{
		{"", "environment = {os='Windows', workdir='C:\\app'}", nil, "the environment is a Windows container"},
		{"", "environment = {gpus=2}", nil, "the environment wants 2 GPU(s); gpus: ignore runs it without"},
		{`{"gpus": "ignore"}`, "environment = {gpus=2}", nil, ""},
		{"", "environment = {tpu={type='v6e'}}", nil, "the environment wants a TPU (v6e)"},
		{"", "[verifier.environment]\ndocker_image='i'\ngpus=1", nil, "the verifier wants 1 GPU(s)"},
		{"", "environment = {env={A='${KEY}'}}", nil, "environment.env.A wants the variable KEY of this machine"},
		{`{"env": ["KEY"]}`, "environment = {env={A='${KEY}'}}", nil, ""},
		{"", "environment = {env={A='${KEY:-}'}}", nil, ""},
		{"", "verifier = {env={A='${KEY}'}}", nil, "verifier.env.A wants the variable KEY"},
		{"", "solution = {env={A='${KEY}'}}", nil, ""},
		{"", "[[environment.mcp_servers]]\nname='m'\nurl='u'\nheaders={H='${KEY}'}", nil,
			"environment.mcp_servers.m.headers.H wants the variable KEY"},
		{"", "# x", compose("services: {main: {privileged: true}}"),
			"environment/docker-compose.yaml:1:19: services.main.privileged: privileged is not supported"},
		{"", "# x", compose("services: {main: {environment: {A: '${HOME}'}}}"),
			"wants the variable HOME of this machine"},
		{`{"env": ["PORT"]}`, "# x", compose("services: {main: {cpus: '${PORT}'}}"), ""},
		{"", "# x", compose("services: {main: {environment: {A: '${HOME:-none}', B: }}}"), "wants the variable B"},
	} {
		n := needs(t, c.options, strings.ReplaceAll(c.toml, `C:\app`, `C:\\app`), c.over)
		if c.want == "" && n.Skip != "" || !strings.Contains(n.Skip, c.want) || strings.Contains(n.Skip, "\n") {
			t.Errorf("%s %s: %q", c.toml, c.over, n.Skip)
		}
	}
}

func TestGraderMachines(t *testing.T) {
	n := needs(t, "", "[environment]\nnetwork_mode='no-network'\n[verifier.environment]\ndocker_image='i'\nmemory_mb=64\nenv={A='1'}", nil)
	if len(n.Grader) != 1 || n.GradeLive {
		t.Fatalf("%+v", n)
	}
	if g := n.Grader[0]; g.Image.Ref != "i" || g.Memory != 64<<20 || g.Network.Mode != "public" || g.Env["A"] != "1" ||
		g.Rewire {
		t.Errorf("%+v", g)
	}
	steps := map[string]string{"steps/a/instruction.md": "x", "steps/b/instruction.md": "x",
		"tests/Dockerfile": "FROM t", "steps/b/tests/Dockerfile": "FROM b"}
	n = needs(t, "", "verifier={environment_mode='separate', "+
		"network_mode='no-network'}\n[[steps]]\nname='a'\n[[steps]]\nname='b'", steps)
	if len(n.Grader) != 2 || len(n.GraderRoom()) != 1 || n.GradeLive || n.Grader[0].Image.Dockerfile != "FROM t" ||
		n.Grader[1].Image.Dockerfile != "FROM b" || !n.Grader[0].Rewire || n.Agent[0].Rewire {
		t.Errorf("%+v", n)
	}
	n = needs(t, "", "verifier={environment_mode='separate'}\n[[steps]]\nname='a'\nmin_reward=1\n[[steps]]\nname='b'",
		steps)
	if !n.GradeLive {
		t.Error("whether the next step is played depends on the grade")
	}
	n = needs(t, "", "[environment]\ndocker_image='i'\nworkdir='/w'\n[verifier]\nenvironment_mode='separate'", nil)
	if g := n.Grader[0]; g.Image.Ref != "i" || g.Dir != "/w" {
		t.Errorf("a copy of the environment: %+v", g)
	}
}

// A machine of an unpacked folder has no ENTRYPOINT that would have to be kept from ending.
func TestIdle(t *testing.T) {
	task := load(t, "environment = {docker_image='i'}", nil)
	b := &Benchmark{}
	if m, err := b.agentMachine(task, nil, benchmarks.Options{}, b.allowedVariables()); err != nil ||
		!cmp.Equal(m.Spec.Cmd, idle) {
		t.Error(m, err)
	}
	o := benchmarks.Options{Sandbox: sandbox.Spec{Image: sandbox.Image{Ref: "dir:/x"}}}
	if m, err := b.agentMachine(task, nil, o, b.allowedVariables()); err != nil || m.Spec.Cmd != nil || m.Spec.Setuid {
		t.Error(m, err)
	}
}

// TestTimes: no phase of a run ends before the task's own limits do.
func TestTimes(t *testing.T) {
	n := needs(t, `{"timeout_multiplier": 2}`, `
[environment]
[environment.healthcheck]
command = "true"
start_period_sec = 600
[verifier]
timeout_sec = 3600
[[verifier.collect]]
command = "true"
timeout_sec = 900
`, nil)
	if n.Grade < 2*time.Hour || n.Collect < 15*time.Minute || n.Setup < 10*time.Minute {
		t.Errorf("grading %v, collecting %v, set-up %v", n.Grade, n.Collect, n.Setup)
	}
}
