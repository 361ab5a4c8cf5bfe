package terminalbench

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
)

// folder is a task's folder, whole but for what a test changes.
func folder(change map[string]string) fstest.MapFS {
	files := map[string]string{
		"task.yaml":             "instruction: do it\ndifficulty: easy\n",
		"Dockerfile":            "FROM evalrun-test/bookworm:1\nWORKDIR /app\n",
		"run-tests.sh":          "pytest -rA $TEST_DIR/test_outputs.py\n",
		"tests/test_outputs.py": "def test_it(): pass\n",
		"solution.sh":           "true\n",
	}
	for k, v := range change {
		files[k] = v
	}
	out := fstest.MapFS{}
	for k, v := range files {
		if v != "" {
			out[k] = &fstest.MapFile{Data: []byte(v)}
		}
	}
	return out
}

func loaded(t *testing.T, change map[string]string) *Task {
	t.Helper()
	task, err := Load(folder(change), "a-task")
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// What is wrong with a folder is told with its place, all at once; what is only odd is a warning.
func TestBadFolders(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]string
		want   []string
	}{
		"no instruction": {map[string]string{"task.yaml": "difficulty: easy\n"},
			[]string{"task.yaml: no instruction"}},
		"empty":      {map[string]string{"task.yaml": "# nothing\n"}, []string{"the file is empty"}},
		"no mapping": {map[string]string{"task.yaml": "- a\n"}, []string{"want keys and values"}},
		"types": {map[string]string{"task.yaml": "instruction: [a]\ntags: {a: b}\nmax_test_timeout_sec: " +
			"soon\nrun_tests_in_same_shell: perhaps\n"},
			[]string{"task.yaml:1:14: instruction: want text", "tags: want a list",
				"max_test_timeout_sec: want a number", "want true or false"}},
		"no limit": {map[string]string{"task.yaml": "instruction: a\nmax_agent_timeout_sec: 0\n"},
			[]string{"want a number of seconds above 0"}},
		"no base": {map[string]string{"task.yaml": "descriptions: [{key: hard, description: a}]\n"},
			[]string{`none has the key "base"`}},
		"no tests":   {map[string]string{"run-tests.sh": ""}, []string{"run-tests.sh is missing"}},
		"no machine": {map[string]string{"Dockerfile": ""}, []string{"nothing says what the task runs in"}},
		"script outside": {map[string]string{"task.yaml": "instruction: a\ntest_scripts: [../x.sh]\n"},
			[]string{"../x.sh is missing"}},
		"host's variable": {map[string]string{"docker-compose.yaml": "services: {client: {image: \"x\", environment: " +
			"[\"A=${HOME}\"]}}\n"}, []string{"HOME", "none of Terminal-Bench's"}},
		"twice": {map[string]string{"task.yaml": "instruction: a\ninstruction: b\n"},
			[]string{"instruction: the key stands here twice", "task.yaml:2:1"}},
	} {
		_, err := Load(folder(c.change), "a-task")
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", name, err, w)
			}
		}
	}
	task := loaded(t, map[string]string{"task.yaml": "instruction: a\ndifficulty: 4\nmax_agent_timeout: 3\n",
		"tests/test_outputs.py": ""})
	for _, w := range []string{"task.yaml:3:1: max_agent_timeout: unknown key, ignored",
		`task.yaml:2:13: difficulty: "4"`, "the folder tests is missing"} {
		if !slices.Contains(task.Warnings, w) && !strings.Contains(strings.Join(task.Warnings, "\n"), w) {
			t.Errorf("warnings %q, want %q", task.Warnings, w)
		}
	}
}

// Each variable that v1 declares has its value, and each compose file its machine.
func TestComposeVariables(t *testing.T) {
	task := loaded(t, map[string]string{"docker-compose.yaml": `services:
  client:
    build: {dockerfile: Dockerfile}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: [sh, -c, sleep infinity]
    working_dir: /data
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
      - LOGS=${T_BENCH_CONTAINER_LOGS_PATH}
      - AGENT_LOGS=${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
      - IMAGE=${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
      - NAME=${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
      - PREFIX=${T_BENCH_TASK_DOCKER_NAME_PREFIX}
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
    depends_on: [db]
  db:
    image: ${T_BENCH_TASK_DOCKER_NAME_PREFIX}__db
    volumes: ["${T_BENCH_TASK_LOGS_PATH}:/shared-logs"]
`})
	m, err := agentMachine(task, folder(nil), benchmarks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"TEST_DIR": "/tests", "LOGS": "/logs", "AGENT_LOGS": "/agent-logs",
		"IMAGE": "tb__a-task__client", "NAME": "a-task", "PREFIX": "tb__a-task"}
	if d := cmp.Diff(want, m.spec.Env); d != "" {
		t.Error(d)
	}
	if m.spec.Dir != "/data" || m.spec.Image.Dockerfile == "" || m.spec.Image.Context == nil ||
		!slices.Contains(m.spec.Aliases, "client") || m.spec.Network.Mode != "public" {
		t.Errorf("%+v", m.spec)
	}
	if db := m.spec.Services["db"]; db.Image.Ref != "tb__a-task__db" || len(db.Volumes) != 1 ||
		len(m.spec.Volumes) != 1 || db.Volumes[0].Name != m.spec.Volumes[0].Name {
		t.Errorf("services do not share the logs: %+v, %+v", db, m.spec.Volumes)
	}
	if !slices.Contains(m.dirs, "/agent-logs") {
		t.Errorf("folders %q", m.dirs)
	}
}

// The build context is the task's folder, so a Dockerfile may copy tests.
func TestBuildContext(t *testing.T) {
	files := folder(nil)
	m, err := agentMachine(loaded(t, nil), files, benchmarks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat(m.spec.Image.Context, "tests/test_outputs.py"); err != nil {
		t.Error(err)
	}
	if m.spec.Env["TEST_DIR"] != "/tests" {
		t.Errorf("without a compose file: %v", m.spec.Env)
	}
}

// What a task may not have here is a reason to skip it, and nothing against the task.
func TestSkips(t *testing.T) {
	b := &Benchmark{}
	for want, change := range map[string]map[string]string{
		"writable":      {"docker-compose.yaml": "services: {client: {build: ., volumes: [\"./out:/out\"]}}\n"},
		"privileged":    {"docker-compose.yaml": "services: {client: {build: ., privileged: true}}\n"},
		"not published": {"task.yaml": "instruction: a\nparser_name: sweperf\n"},
		"is not known":  {"task.yaml": "instruction: a\nparser_name: junit\n"},
	} {
		task := loaded(t, change)
		raw, err := json.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		n, err := b.Needs(datasets.Task{ID: "a-task", Data: raw, Files: folder(change)}, benchmarks.Options{})
		if err != nil || !strings.Contains(n.Skip, want) {
			t.Errorf("skip %q, %v; want %q", n.Skip, err, want)
		}
	}
}

func TestDigest(t *testing.T) {
	sum := func(change map[string]string) string { return loaded(t, change).Digest }
	whole := sum(nil)
	if again := sum(map[string]string{"tests/__pycache__/x.pyc": "x", ".DS_Store": "x", "a.swp": "x"}); again != whole {
		t.Error("leftovers change the digest")
	}
	for _, name := range []string{"task.yaml", "tests/test_outputs.py", "run-tests.sh", "solution.sh", "new"} {
		content := "instruction: other\n"
		if sum(map[string]string{name: content}) == whole {
			t.Errorf("%s does not change the digest", name)
		}
	}
}

// A folder is a source of its tasks; what looks like one and is none is told.
func TestSource(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one", "deep/two", "three"} {
		if err := os.CopyFS(filepath.Join(dir, name), folder(nil)); err != nil {
			t.Fatal(err)
		}
	}
	os.Remove(filepath.Join(dir, "three", "task.yaml"))
	os.MkdirAll(filepath.Join(dir, "notes"), 0o755)
	read := func(path, options string) (ids, bad []string) {
		b, err := New(path, json.RawMessage(options))
		if err != nil {
			t.Fatal(err)
		}
		for task, err := range b.Source().Tasks(t.Context()) {
			if err != nil {
				bad = append(bad, err.Error())
				continue
			}
			ids = append(ids, task.ID)
		}
		return ids, bad
	}
	ids, bad := read(dir, "")
	if !slices.Equal(ids, []string{"two", "one"}) || len(bad) != 1 || !strings.Contains(bad[0], "three") ||
		!strings.Contains(bad[0], "has no task.yaml") {
		t.Errorf("%q, %q", ids, bad)
	}
	if ids, _ := read(filepath.Join(dir, "one"), ""); !slices.Equal(ids, []string{"one"}) {
		t.Errorf("a task's own folder: %q", ids)
	}
	if ids, _ := read(dir, `{"task_ids": ["t*"], "exclude_task_ids": ["three"]}`); !slices.Equal(ids, []string{"two"}) {
		t.Errorf("patterns: %q", ids)
	}
	if ids, _ := read(dir, `{"n_tasks": 1}`); !slices.Equal(ids, []string{"two"}) {
		t.Errorf("the first: %q", ids)
	}
	for _, o := range []string{`{"timeout_multiplier": -1}`, `{"test_timeout_multiplier": 0}`, `{"task_ids": ["["]}`,
		`{"colour": 1}`} {
		if _, err := New(dir, json.RawMessage(o)); err == nil {
			t.Errorf("options %s are taken", o)
		}
	}
}

func TestMultipliers(t *testing.T) {
	two, half := 2.0, 0.5
	for _, c := range []struct {
		o           Options
		agent, test time.Duration
	}{
		{Options{}, 100, 10},
		{Options{Timeout: 3}, 300, 30},
		{Options{Timeout: 3, AgentTimeout: &two}, 200, 30},
		{Options{TestTimeout: &half}, 100, 5},
	} {
		if a, b := c.o.agentTime(100*time.Second), c.o.testTime(10*time.Second); a != c.agent*time.Second ||
			b != c.test*time.Second {
			t.Errorf("%+v: %v, %v", c.o, a, b)
		}
	}
}
