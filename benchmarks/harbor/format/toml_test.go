package format

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// taskFS is a sound single-step task with a task.toml, and other files over its own; "" removes
// one.
func taskFS(toml string, over map[string]string) fstest.MapFS {
	files := map[string]string{
		"task.toml": toml, "instruction.md": "Do it.\n", "environment/Dockerfile": "FROM debian\n",
		"tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n", "solution/solve.sh": "true\n",
	}
	maps.Copy(files, over)
	out := fstest.MapFS{}
	for name, text := range files {
		if text != "" {
			out[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
	}
	return out
}

func load(t *testing.T, toml string, over map[string]string) *Task {
	t.Helper()
	task, err := Load(taskFS(toml, over), "folder")
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// loadError is what is wrong with a task.
func loadError(t *testing.T, toml string, over map[string]string) string {
	t.Helper()
	task, err := Load(taskFS(toml, over), "folder")
	if err == nil {
		t.Fatalf("no error; read %+v", task)
	}
	return err.Error()
}

func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !strings.Contains(text, w) {
			t.Errorf("%q\nis not in\n%s", w, text)
		}
	}
}

// An empty task.toml has every default of the format.
func TestDefaults(t *testing.T) {
	got := load(t, "# nothing\n", nil)
	want := &Task{
		Name: "folder", Schema: "1.4", Digest: got.Digest, EnvHash: got.EnvHash,
		Environment: Environment{Dir: "environment", Dockerfile: "FROM debian\n", OS: "linux",
			BuildTimeout: 600 * time.Second, Network: sandbox.Network{Mode: "public"}},
		Steps: []Step{{Dir: ".", Instruction: "Do it.\n", Solution: "solution",
			Verifier: Verifier{Timeout: 600 * time.Second, Tests: []string{"tests"}}}},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

func TestRootFields(t *testing.T) {
	got := load(t, `
schema_version = "1.3"
source = "terminal-bench"
artifacts = ["/app/out.json", {source = "/tmp/state.json", service = "api", destination = "api/state.json", exclude = ["*.log"]}]
multi_step_reward_strategy = "final"
[[steps]]
name = "one"
`, map[string]string{"steps/one/instruction.md": "x"})
	if got.Schema != "1.3" || got.From != "terminal-bench" || got.Strategy != "final" || !got.Multi {
		t.Errorf("%+v", got)
	}
	want := []Artifact{{Source: "/app/out.json"},
		{Source: "/tmp/state.json", Service: "api", Destination: "api/state.json", Exclude: []string{"*.log"}}}
	if d := cmp.Diff(want, got.Steps[0].Artifacts); d != "" {
		t.Error(d)
	}
	if load(t, "version = \"1.2\"\n", nil).Schema != "1.2" {
		t.Error("version, the old name of schema_version")
	}
	has(t, loadError(t, `multi_step_reward_strategy = "best"`, nil),
		`task.toml:1:1: multi_step_reward_strategy: "best"; want mean or final`)
	has(t, strings.Join(load(t, `multi_step_reward_mode = "final"`, nil).Warnings, "\n"),
		"task.toml:1:1: multi_step_reward_mode: a name from before schema 1.3, ignored")
}

func TestPackage(t *testing.T) {
	got := load(t, `
[task]
name = "acme/fix-makefile.2"
version = "3"
description = "Repair"
authors = [{name = "Ann", email = "ann@example.org"}, {name = "Bob"}]
keywords = ["make", "c"]
`, nil)
	want := &Package{Version: "3", Description: "Repair", Authors: []Author{{"Ann", "ann@example.org"}, {Name: "Bob"}},
		Keywords: []string{"make", "c"}}
	if d := cmp.Diff(want, got.Package); d != "" || got.Name != "acme/fix-makefile.2" {
		t.Error(got.Name, d)
	}
	for _, name := range []string{"", "x", "a/b/c", "-a/b", "a/.b", "a/b..c", "a b/c", "/b"} {
		has(t, loadError(t, "[task]\nname = '"+name+"'\n", nil), "want organisation/name")
	}
	has(t, loadError(t, "[task]\nversion = ''\n", nil), "task.name:", "task.toml:2:1: task.version: is empty")
	has(t, loadError(t, "[task]\nname = 'a/b'\nauthors = [{email = 'x'}]", nil), "an author without a name")
}

func TestMetadata(t *testing.T) {
	got := load(t, "[metadata]\ndifficulty = 'easy'\ntags = ['a', 'b']\nexpert_time_estimate_min = "+
		"5.5\n[metadata.deep]\nx = 1\n", nil)
	tags, fields := got.labels()
	if d := cmp.Diff([]string{"a", "b"}, tags); d != "" {
		t.Error(d)
	}
	if fields["difficulty"] != "easy" || fields["expert_time_estimate_min"] != "5.5" || len(got.Warnings) > 0 {
		t.Error(fields, got.Warnings)
	}
}

func TestAgentTable(t *testing.T) {
	s := load(t, "[agent]\ntimeout_sec = 900\nuser = 1000\nnetwork_mode = 'allowlist'\nallowed_hosts = "+
		"['API.example.com.']\n", nil).Steps[0]
	if s.Timeout != 900*time.Second || s.User != "1000" ||
		!cmp.Equal(s.Network, &sandbox.Network{Mode: "allow", Allow: []string{"api.example.com"}}) {
		t.Errorf("%+v", s)
	}
	if s := load(t, "[agent]\nuser = 'ann'\n", nil).Steps[0]; s.Timeout != 0 || s.User != "ann" || s.Network != nil {
		t.Errorf("%+v", s)
	}
	if s := load(t, "[agent]\ntimeout_sec = inf\n", nil).Steps[0]; s.Timeout != maxDuration {
		t.Errorf("no end: %v", s.Timeout)
	}
	for text, want := range map[string]string{
		"timeout_sec = 0":       "agent.timeout_sec: 0; want a number of seconds above 0",
		"timeout_sec = -1.5":    "above 0",
		"timeout_sec = nan":     "not nan",
		"timeout_sec = '900'":   "want a number",
		"user = true":           "want a user's name or number",
		"user = 'a; rm -rf /'":  "is no user's name or number",
		"network_mode = 'open'": `network_mode "open"; want public, no-network or allowlist`,
	} {
		has(t, loadError(t, "[agent]\n"+text, nil), want)
	}
}

func TestVerifierTable(t *testing.T) {
	v := load(t, `
[verifier]
timeout_sec = 12.5
user = "root"
network_mode = "no-network"
[verifier.env]
KEY = "${KEY}"
PLAIN = "x"
[[verifier.collect]]
command = "dump"
[[verifier.collect]]
command = "dump2"
service = "api"
timeout_sec = 5
user = 7
`, nil).Steps[0].Verifier
	want := Verifier{Timeout: 12500 * time.Millisecond, User: "root", Network: &sandbox.Network{Mode: "none"},
		Env: Env{"KEY": "${KEY}", "PLAIN": "x"}, Tests: []string{"tests"},
		Collect: []Hook{{Command: "dump", Service: "main", Timeout: time.Minute},
			{Command: "dump2", Service: "api", Timeout: 5 * time.Second, User: "7"}}}
	if d := cmp.Diff(want, v); d != "" {
		t.Error(d)
	}
	has(t, loadError(t, "[[verifier.collect]]\nservice = 'x'", nil),
		"verifier.collect[0].command: a hook without a command")
	has(t, loadError(t, "[verifier.env]\nPORT = 8080", nil),
		`task.toml:2:1: verifier.env.PORT: want text; write "8080"`)
}

func TestEnvironmentTable(t *testing.T) {
	e := load(t, `
[environment]
build_timeout_sec = 60
docker_image = "debian:12"
os = "Linux"
cpus = 2
memory_mb = 1024
storage_mb = 100
gpus = 0
gpu_types = ["T4"]
network_mode = "allowlist"
allowed_hosts = ["pypi.org", "*.pythonhosted.org", "10.0.0.0/8"]
skills_dir = "/skills"
workdir = "/app/"
[environment.env]
A = "${A:-x}"
[environment.tpu]
type = "v6e"
topology = "2x4"
`, nil).Environment
	want := Environment{Dir: "environment", Image: "debian:12", Dockerfile: "FROM debian\n", OS: "linux",
		BuildTimeout: time.Minute, CPUs: 2, Memory: 1 << 30, Storage: 100 << 20,
		GPUTypes: []string{"T4"}, TPU: &TPU{"v6e", "2x4"},
		Network: sandbox.Network{Mode: "allow", Allow: []string{"pypi.org", "*.pythonhosted.org", "10.0.0.0/8"}},
		Env:     Env{"A": "${A:-x}"}, Workdir: "/app", SkillsDir: "/skills"}
	if d := cmp.Diff(want, e); d != "" {
		t.Error(d)
	}
	for text, want := range map[string]string{
		"os = 'plan9'":              "want linux or windows",
		"cpus = 0":                  "want a number of cores above 0",
		"memory_mb = 1.5":           "want a whole number",
		"memory_mb = 0":             "want at least 1",
		"gpus = -1":                 "want at least 0",
		"workdir = 'app'":           "want an absolute path",
		"docker_image = 'a b'":      "is no name of an image",
		"allowed_hosts = ['a.org']": `allowed_hosts without network_mode`,
		"env = 'x'":                 "want a table, as [environment.env]",
		"build_timeout_sec = []":    "want a number",
	} {
		has(t, loadError(t, "[environment]\n"+text, nil), want)
	}
}

// Names, sizes and defaults of older schemas.
func TestOldNames(t *testing.T) {
	old := load(t, "version = '1.0'\n[environment]\nallow_internet = false\nmemory = '4G'\nstorage = '512M'\n", nil)
	if e := old.Environment; e.CPUs != 1 || e.Memory != 4<<30 || e.Storage != 512<<20 || e.Network.Mode != "none" ||
		len(old.Warnings) > 0 {
		t.Errorf("%+v %v", e, old.Warnings)
	}
	if e := load(t, "schema_version = '1.1'\n", nil).Environment; e.CPUs != 1 || e.Memory != 2048<<20 ||
		e.Storage != 10240<<20 {
		t.Errorf("defaults of 1.1: %+v", e)
	}
	if e := load(t, "schema_version = '1.3'\n", nil).Environment; e.CPUs != 0 || e.Memory != 0 {
		t.Errorf("defaults of 1.3: %+v", e)
	}
	if e := load(t, "[environment]\nmemory = '1024K'\n", nil).Environment; e.Memory != 1<<20 {
		t.Errorf("%+v", e)
	}
	if e := load(t, "[environment]\nmemory = '2G'\nmemory_mb = 2048\n", nil).Environment; e.Memory != 2<<30 {
		t.Errorf("%+v", e)
	}
	if e := load(t, "[environment]\nallow_internet = false\nnetwork_mode = 'public'\n",
		nil).Environment; e.Network.Mode != "public" {
		t.Error("allow_internet counts only where nothing else is said")
	}
	if e := load(t, "[environment]\nallow_internet = true\n", nil).Environment; e.Network.Mode != "public" {
		t.Error("allow_internet = true")
	}
	has(t, loadError(t, "[environment]\nmemory = '2G'\nmemory_mb = 1024\n", nil),
		`task.toml:2:1: environment.memory: "2G" disagrees with memory_mb = 1024`)
	has(t, loadError(t, "[environment]\nmemory = 'lots'\n", nil), "want a size such as 2G")
}

func TestMCPServers(t *testing.T) {
	got := load(t, `
[[environment.mcp_servers]]
name = "a"
url = "http://mcp:8000/sse"
[[environment.mcp_servers]]
name = "b"
transport = "http"
url = "http://mcp:8000/mcp"
headers = {Authorization = "${TOKEN:-none}"}
[[environment.mcp_servers]]
name = "c"
transport = "stdio"
command = "python"
args = ["-m", "x"]
env = {A = "1"}
`, nil).Environment.MCP
	want := []agent.MCPServer{
		{Name: "a", Transport: "sse", URL: "http://mcp:8000/sse"},
		{Name: "b", Transport: "streamable-http", URL: "http://mcp:8000/mcp",
			Headers: map[string]string{"Authorization": "${TOKEN:-none}"}},
		{Name: "c", Transport: "stdio", Command: "python", Args: []string{"-m", "x"}, Env: map[string]string{"A": "1"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	filled, err := ResolveServers(got, func(name string) (string, error) { return "secret of " + name, nil })
	if err != nil || filled[1].Headers["Authorization"] != "secret of TOKEN" ||
		got[1].Headers["Authorization"] != "${TOKEN:-none}" {
		t.Error(filled, err)
	}
	has(t, loadError(t, "[[environment.mcp_servers]]\nname='a'\ntransport='stdio'\n[[environment.mcp_servers]]\nname='a'\ntransport='ftp'\n", nil),
		"a stdio server needs a command", "want a name that no other server has", "want sse, streamable-http or stdio")
	has(t, loadError(t, "[[environment.mcp_servers]]\nname='a'\n", nil), "a server over sse needs a url")
}

func TestHealthcheck(t *testing.T) {
	h := load(t, "[environment.healthcheck]\ncommand = 'test -f /ready'\n", nil).Environment.Health
	want := &sandbox.Health{Test: []string{"bash", "-c", "test -f /ready"}, Interval: 5 * time.Second,
		Timeout: 30 * time.Second, StartInterval: 5 * time.Second, Retries: 3}
	if d := cmp.Diff(want, h); d != "" {
		t.Error(d)
	}
	h = load(t, "[environment.healthcheck]\ncommand='x'\ninterval_sec=1\ntimeout_sec=2\nstart_period_sec=3\nstart_interval_sec=0.5\nretries=9\n", nil).Environment.Health
	want = &sandbox.Health{Test: []string{"bash", "-c", "x"}, Interval: time.Second, Timeout: 2 * time.Second,
		StartPeriod: 3 * time.Second, StartInterval: time.Second / 2, Retries: 9}
	if d := cmp.Diff(want, h); d != "" {
		t.Error(d)
	}
	has(t, loadError(t, "[environment.healthcheck]\nretries = 0\n", nil), "a health check without a command",
		"want at least 1")
}

func TestSolutionEnv(t *testing.T) {
	if got := load(t, "[solution.env]\nA = '${A}'\n", nil).SolutionEnv; got["A"] != "${A}" {
		t.Error(got)
	}
}

// Everything that is wrong is told at once, each with its place.
func TestTOMLErrors(t *testing.T) {
	got := loadError(t, "[agent]\ntimeout_sec = 'long'\n\n[verifier]\n  user = 1.5\n[environment]\ncpus = \"2\"\n", nil)
	want := "task.toml:2:1: agent.timeout_sec: want a number\ntask.toml:5:3: verifier.user: want a user's name or number\ntask.toml:7:1: environment.cpus: want a number"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for text, want := range map[string]string{
		"a = ":                                  "task.toml:1:",
		"[agent]\nx = 1\nx = 2\n":               "task.toml:3:1",
		"[agent]\n[agent]\n":                    "task.toml:2",
		"a = \"\xff\"":                          "task.toml: not UTF-8",
		strings.Repeat("# x\n", 1<<19):          "larger than 1024 KiB",
		"a = " + strings.Repeat("[", 200):       "task.toml:1:",
		"a" + strings.Repeat(".a", 5000) + "=1": "nested deeper than 64",
		"[a" + strings.Repeat(".a", 5000) + "]": "nested deeper than 64",
		"a = " + strings.Repeat("[", 90) + strings.Repeat("]", 90): "nested deeper than 64",
		"steps = 5":                    "want tables, as [[steps]]",
		"steps = [5]":                  "steps[0]: want a table",
		"artifacts = 'x'":              "artifacts: want a list",
		"[agent]\nuser = \"a\\u0000\"": "is no user's name",
	} {
		has(t, loadError(t, text, nil), want)
	}
	if got := load(t, "\xef\xbb\xbf[agent]\r\ntimeout_sec = 5\r\n", nil); got.Steps[0].Timeout != 5*time.Second {
		t.Error("byte-order mark and CRLF")
	}
}

// A key that nobody knows is told, and the task is read all the same.
func TestUnknownKeys(t *testing.T) {
	got := load(t, "new = 1\n[agent]\ntimeout = 5\n[environment]\ncpu = 1\n[[environment.mcp_servers]]\nname = "+
		"'a'\nurl = 'u'\nretry = 1\n[other]\nx = 1\n", nil)
	want := []string{
		`task.toml:3:1: agent.timeout: unknown key, ignored; is it "timeout_sec"?`,
		`task.toml:9:1: environment.mcp_servers[0].retry: unknown key, ignored`,
		`task.toml:5:1: environment.cpu: unknown key, ignored; is it "cpus"?`,
		`task.toml:1:1: new: unknown key, ignored`,
		`task.toml:10:2: other: unknown key, ignored`,
	}
	if d := cmp.Diff(want, got.Warnings, cmpopts.SortSlices(strings.Compare)); d != "" {
		t.Error(d)
	}
}

func FuzzTOML(f *testing.F) {
	for _, s := range []string{"", "[agent]\ntimeout_sec = 1\n", "artifacts = ['/a', {source='/b'}]",
		"[[steps]]\nname='a'\n[steps.agent]\nuser=1\n", "a.b.c = [{d = 1}]",
		"[environment]\nmemory='2G'\n[environment.env]\nA='${B:-c}'\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := readTaskTOML(text)
		if w == nil && err == nil {
			t.Error("neither a task nor an error")
		}
	})
}
