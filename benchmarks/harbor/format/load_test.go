package format

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestSteps(t *testing.T) {
	got := load(t, `
artifacts = ["/app/a"]
[agent]
timeout_sec = 100
user = "ann"
network_mode = "no-network"
[verifier]
user = "root"
network_mode = "public"
[verifier.env]
A = "task"
B = "task"
[[verifier.collect]]
command = "one"
[environment]
workdir = "/app"
[[steps]]
name = "scaffold"
min_reward = 1
[[steps]]
name = "implement"
min_reward = {reward = 0.5, style = 2}
artifacts = ["/app/report.md"]
[steps.agent]
timeout_sec = 300
user = "bob"
network_mode = "public"
[steps.verifier]
timeout_sec = 120
user = "eve"
network_mode = "no-network"
env = {A = "step"}
collect = [{command = "two"}]
[steps.healthcheck]
command = "curl localhost"
`, map[string]string{
		"instruction.md": "", "steps/scaffold/instruction.md": "first", "steps/implement/instruction.md": "second",
		"steps/scaffold/workdir/setup.sh": "x", "steps/implement/workdir/data": "x",
		"steps/implement/tests/test.sh": "x", "steps/implement/solution/solve.sh": "x",
	})
	none, public := &sandbox.Network{Mode: "none"}, &sandbox.Network{Mode: "public"}
	want := []Step{{
		Name: "scaffold", Dir: "steps/scaffold", Instruction: "first", Timeout: 100 * time.Second, User: "ann",
		Network: none, MinReward: map[string]float64{"reward": 1},
		Artifacts: []Artifact{{Source: "/app/a"}}, Workdir: "steps/scaffold/workdir", Setup: true, Solution: "solution",
		Verifier: Verifier{Timeout: 600 * time.Second, Env: Env{"A": "task", "B": "task"}, User: "root",
			Network: public, Tests: []string{"tests"},
			Collect: []Hook{{"one", "main", time.Minute, ""}}},
	}, {
		Name: "implement", Dir: "steps/implement", Instruction: "second", Timeout: 300 * time.Second, User: "bob",
		Network:   public,
		MinReward: map[string]float64{"reward": .5, "style": 2},
		Artifacts: []Artifact{{Source: "/app/a"}, {Source: "/app/report.md"}},
		Health: &sandbox.Health{Test: []string{"bash", "-c", "curl localhost"}, Interval: 5 * time.Second,
			Timeout: 30 * time.Second, StartInterval: 5 * time.Second, Retries: 3},
		Workdir: "steps/implement/workdir", Solution: "steps/implement/solution",
		Verifier: Verifier{Timeout: 120 * time.Second, Env: Env{"A": "step", "B": "task"}, User: "eve", Network: none,
			Tests:   []string{"tests", "steps/implement/tests"},
			Collect: []Hook{{"one", "main", time.Minute, ""}, {"two", "main", time.Minute, ""}}},
	}}
	if d := cmp.Diff(want, got.Steps, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	if got.Strategy != "mean" {
		t.Errorf("strategy %q", got.Strategy)
	}
	one := map[string]string{"steps/a/instruction.md": "x"}
	for text, want := range map[string]string{
		"[[steps]]\nname='a'\n[[steps]]\nname='a'": `two steps are called "a"`,
		"[[steps]]\nname='../a'":                   "want the name of a folder",
		"[[steps]]\n":                              "want the name of a folder",
		"[[steps]]\nname='b'":                      `step "b": the folder steps/b is missing`,
		"steps = []":                               "want at least one step",
		"[[steps]]\nname='a'\nmin_reward='x'":      "steps[0].min_reward: want a number",
	} {
		has(t, loadError(t, text, one), want)
	}
}

// A step without a limit of its own has Harbor's 600 s, or the task's when that is more.
func TestStepVerifierTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"timeout_sec=100": 600 * time.Second,
		"timeout_sec=1800": 1800 * time.Second, "": 600 * time.Second} {
		got := load(t, "[verifier]\n"+text+"\n[[steps]]\nname='a'\n", map[string]string{"steps/a/instruction.md": "x"})
		if d := got.Steps[0].Verifier.Timeout; d != want {
			t.Errorf("%q: %v", text, d)
		}
	}
}

func TestVerifierMode(t *testing.T) {
	dockerfile := map[string]string{"tests/Dockerfile": "FROM tests\n", "steps/a/instruction.md": "x",
		"steps/a/tests/Dockerfile": "FROM step\n", "steps/b/instruction.md": "y"}
	for _, c := range []struct {
		name, toml string
		separate   []bool
		dir        string // of the first separate one
		image      string
	}{
		{"default", "# x", []bool{false}, "", ""},
		{"explicit", "[verifier]\nenvironment_mode='separate'", []bool{true}, "tests", ""},
		{"implied by an environment", "[verifier.environment]\ndocker_image='i'", []bool{true}, "tests", "i"},
		{"a step inherits", "[verifier]\nenvironment_mode='separate'\n[[steps]]\nname='a'\n[[steps]]\nname='b'",
			[]bool{true, true}, "steps/a/tests", ""},
		{"a step's own mode", "[verifier]\nenvironment_mode='separate'\n[[steps]]\nname='a'\nverifier={environment_mode='shared'}\n[[steps]]\nname='b'", []bool{false, true}, "tests", ""},
		{"a step's own environment", "[verifier.environment]\ndocker_image='i'\n[[steps]]\nname='b'\n[steps.verifier.environment]\ndocker_image='j'", []bool{true}, "tests", "j"},
		{"a copy of the environment", "[environment]\ndocker_image='k'\nmemory_mb=5\n[verifier]\nenvironment_mode='separate'", []bool{true}, "tests", "k"},
	} {
		got := load(t, c.toml, dockerfile)
		dir, image := "", ""
		for i, s := range got.Steps {
			if s.Verifier.Separate != c.separate[i] || s.Verifier.Separate != (s.Verifier.Environment != nil) ||
				s.Verifier.Separate != (s.Verifier.Tests == nil) {
				t.Errorf("%s: step %d: %+v", c.name, i, s.Verifier)
			}
			if e := s.Verifier.Environment; e != nil && dir == "" {
				dir, image = e.Dir, e.Image
			}
		}
		if dir != c.dir || image != c.image {
			t.Errorf("%s: %s with %s", c.name, dir, image)
		}
	}
	has(t, loadError(t, "[verifier]\nenvironment_mode='shared'\n[verifier.environment]\ncpus=1", nil),
		"a shared verifier has no environment of its own")
	has(t, loadError(t, "[verifier]\nenvironment_mode='other'", nil), "want shared or separate")
	has(t, loadError(t, "[verifier]\nenvironment_mode='separate'", nil),
		"a separate verifier needs tests/Dockerfile, or a docker_image")
}

func TestArtifacts(t *testing.T) {
	for text, want := range map[string]string{
		"['/a/../b']":                         "has a .. in it",
		"['']":                                "needs a source",
		"['/']":                               "a whole machine",
		"[5]":                                 "want a path or a table",
		"[{source='out', service='api'}]":     "want an absolute path",
		"[{source='/a', destination='/x'}]":   "want a relative path",
		"[{source='/a', destination='../x'}]": "want a relative path",
		"[{source='/a', destination='manifest.json'}]":                     "and not manifest.json",
		`[{source='/a', destination='x\y'}]`:                               "forward slashes",
		"['/a/b', '/a']":                                                   `"/a/b" and "/a" overlap`,
		"['/a', '/a/']":                                                    `"/a" and "/a" overlap`,
		"['/x/y', {source='/b', destination='x/y/z'}]":                     "would be kept in the same place",
		"[{source='/a', destination='d'}, {source='/b', destination='d'}]": "would be kept in the same place",
	} {
		has(t, loadError(t, "artifacts = "+text, nil), "task.toml:1:1", want)
	}
	// One path in two machines, and neighbours, are no overlap.
	got := load(t, "artifacts = ['/a', {source='/a', service='api'}, '/ab', 'rel/out.txt', {source='/z', "+
		"service='main'}]", nil).Steps[0].Artifacts
	if len(got) != 5 || got[4].Service != "" || got[3].To() != "rel/out.txt" || got[0].To() != "a" {
		t.Errorf("%+v", got)
	}
}

// The table of what makes a folder a task.
func TestValidity(t *testing.T) {
	load(t, "[verifier]\nenvironment_mode='separate'",
		map[string]string{"tests/test.sh": "", "tests/Dockerfile": "FROM x"})
	load(t, "[[steps]]\nname='a'", map[string]string{"instruction.md": "", "tests/test.sh": "",
		"steps/a/instruction.md": "x", "steps/a/tests/test.sh": "x"})
	load(t, "[environment]\nos='windows'", map[string]string{"tests/test.sh": "", "tests/test.bat": "x"})
	if e := load(t, "[environment]\ndocker_image='i'",
		map[string]string{"environment/Dockerfile": "", "environment/data/x": "1"}).Environment; !e.Upload {
		t.Error("files beside an image alone are to be uploaded")
	}
	if e := load(t, "[environment]\ndocker_image='i'", nil).Environment; e.Upload {
		t.Error("files beside a Dockerfile belong to its build")
	}
	for name, c := range map[string]struct {
		toml string
		over map[string]string
		want string
	}{
		"no instruction": {"# x", map[string]string{"instruction.md": ""}, "instruction.md is missing"},
		"no tests":       {"# x", map[string]string{"tests/test.sh": ""}, "no test script; add tests/test.sh"},
		"no environment": {"# x", map[string]string{"environment/Dockerfile": ""},
			"the folder environment is missing"},
		"nothing that builds": {"# x", map[string]string{"environment/Dockerfile": "", "environment/x": "y"},
			"nothing defines the environment; add environment/Dockerfile, environment/docker-compose.yaml, or " +
				"docker_image"},
		"an empty Dockerfile": {"# x", map[string]string{"environment/Dockerfile": "\ufeff"},
			"environment/Dockerfile is empty"},
		"a step without tests": {"[[steps]]\nname='a'",
			map[string]string{"tests/test.sh": "", "steps/a/instruction.md": "x"},
			`step "a": no test script; add tests/test.sh or steps/a/tests/test.sh`},
	} {
		if got := loadError(t, c.toml, c.over); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestInstruction(t *testing.T) {
	for text, want := range map[string]string{
		"plain\n": "plain\n",
		"<!-- harbor-canary GUID 1 -->\n\n\n# Title\n":         "# Title\n",
		"# BENCHMARK DATA … CANARY x\n<!-- canary -->\n  \nDo": "Do",
		"Do\n# canary\n":   "Do\n# canary\n",
		"# Title\n":        "# Title\n",
		"\ufeffDo\r\nit\r": "Do\nit\n",
	} {
		if got, err := cleanInstruction([]byte(text)); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	// What an agent could not read is refused.
	for text, want := range map[string]string{
		"caf\xe9\n": "instruction.md: not UTF-8 (line 1); convert the file, for example by: iconv -f " +
			"latin1 -t utf8",
		"Do\nit \xff\n": "instruction.md: not UTF-8 (line 2); convert the file, for example by: iconv -f " +
			"latin1 -t utf8",
		"\xff\xfeD\x00o\x00": "instruction.md: UTF-16; convert the file, for example by: iconv -f utf16 -t utf8",
		"\xfe\xff\x00D\x00o": "instruction.md: UTF-16; convert the file, for example by: iconv -f utf16 -t utf8",
		"D\x00o\x00": "instruction.md: it holds bytes of 0, as UTF-16 does; convert the file, for example " +
			"by: iconv -f utf16 -t utf8",
		"# canary\n \n":   "instruction.md: blank; it tells the agent nothing",
		" \r\n\t\u00a0\n": "instruction.md: blank; it tells the agent nothing",
		"\ufeff":          "instruction.md: blank; it tells the agent nothing",
	} {
		has(t, loadError(t, "# x", map[string]string{"instruction.md": text}), want)
		has(t, loadError(t, "[[steps]]\nname = 'a'\n", map[string]string{"steps/a/instruction.md": text}),
			"steps/a/"+want)
	}
	extra := filepath.Join(t.TempDir(), "extra.md")
	os.WriteFile(extra, []byte("# canary\nBe brief."), 0o600)
	dir := writeTask(t, t.TempDir(), "one", "# x", nil)
	b := open1(t, dir, `{"ExtraInstructions": ["`+extra+`"]}`)
	if d := only(t, b); d.Steps[0].Instruction != "Do it.\n\n\nBe brief." {
		t.Errorf("%q", d.Steps[0].Instruction)
	}
}

func TestComposeError(t *testing.T) {
	has(t, loadError(t, "# x", map[string]string{"environment/docker-compose.yaml": "services: {main: {imgae: x}}"}),
		`environment/docker-compose.yaml:1:`, `services.main.imgae: unknown key`)
}

// Only the whole value is a template.
func TestTemplates(t *testing.T) {
	get := func(name string) (string, error) {
		switch name {
		case "SET":
			return "value", nil
		case "EMPTY":
			return "", nil
		}
		return "", &MissingVariable{Name: name}
	}
	e := Env{"a": "${SET}", "b": "${NO:-d:e-}}", "c": "x${SET}", "d": "$SET", "e": "${SET:-d}", "f": "${NO:-}",
		"g": "${EMPTY:-d}", "h": "${EMPTY}", "i": "${SET} "}
	got, err := e.Resolve("environment.env", get)
	want := map[string]string{"a": "value", "b": "d:e-}", "c": "x${SET}", "d": "$SET", "e": "value", "f": "", "g": "d",
		"h": "", "i": "${SET} "}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	_, err = Env{"KEY": "${API_KEY}", "OTHER": "${NO}"}.Resolve("verifier.env", get)
	has(t, err.Error(), "verifier.env.KEY wants the variable API_KEY of this machine",
		"add env: [API_KEY] to the benchmark's options", "verifier.env.OTHER wants the variable NO")
}
