package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/harness/record"
)

type qaOptions struct {
	Question string   `json:"question"`
	Answers  []string `json:"answers"`
}

// testRegistry stands in for the real registry, which harness/launch fills.
func testRegistry() *Registry {
	return &Registry{
		Benchmarks: []Kind{{Name: "quickstart"}, {Name: "humaneval", Arg: "FILE", IsPath: true},
			{Name: "qa", Arg: "FILE", IsPath: true, Options: reflect.TypeFor[qaOptions]()}},
		Agents: []Kind{{Name: "oracle"}, {Name: "nop"}, {Name: "script", Arg: "FILE", IsPath: true},
			{Name: "command", Arg: "LINE", Optional: true},
			{Name: "codeact", Model: true, NeedsModel: true, Prompt: true}},
		Vendors: []Kind{{Name: "openai", KeyVar: "OPENAI_API_KEY", URLVar: "OPENAI_BASE_URL"}},
		Drivers: []Kind{{Name: "local"}, {Name: "none"}, {Name: "fake"}},
	}
}

func parseText(t *testing.T, text string, over ...Override) (*Effective, error) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range map[string]string{"terse.md": "Be terse.\n", "careful.md": "Be careful.\n",
		"empty.md": " \n", "bad.md": "\xff\xfe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return Parse(Source{Name: "run.yaml", Data: []byte(text), Dir: dir, Over: over}, testRegistry())
}

func mustParse(t *testing.T, text string, over ...Override) *Effective {
	t.Helper()
	e, err := parseText(t, text, over...)
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return e
}

func armNames(e *Effective) []string {
	var names []string
	for _, a := range e.Arms {
		names = append(names, a.Name)
	}
	return names
}

func TestBadInput(t *testing.T) {
	const head = "benchmark: quickstart\nagent: nop\n"
	for _, tt := range []struct {
		name, in string
		want     []string // each a line
	}{
		{"empty", "", []string{"run.yaml: the configuration is empty; the least one is a line such as: " +
			"benchmark: quickstart"}},
		{"comment only", "# nothing\n", []string{"run.yaml: the configuration is empty; the least one is a line such " +
			"as: benchmark: quickstart"}},
		{"not a mapping", "- a\n- b\n", []string{"run.yaml:1:1: a configuration is a mapping of keys to values, " +
			"found a list"}},
		{"binary", "a: \x00", []string{"run.yaml: this is not a text file"}},
		{"unknown key", head + "worker: 3\n", []string{`run.yaml:3:1: worker: unknown key; did you mean "workers"?`}},
		{"unknown nested key", head + "limits:\n  turn: 3\n",
			[]string{`run.yaml:4:3: limits.turn: unknown key; did you mean "turns"?`}},
		{"wrong type", head + "workers: many\n",
			[]string{`run.yaml:3:10: workers: expected a whole number, found "many"`}},
		{"quoted number", head + "workers: \"4\"\n",
			[]string{`run.yaml:3:10: workers: expected a whole number, found "4"`}},
		{"list for text", head + "name: [a]\n", []string{`run.yaml:3:7: name: expected text, found a list`}},
		{"bool for text", head + "name: true\n",
			[]string{`run.yaml:3:7: name: expected text, found true; put it in quotes`}},
		{"bad duration", head + "limits: {time: 10}\n",
			[]string{`run.yaml:3:16: limits.time: "10" is not a duration; write it as 90s, 10m or 1h30m`}},
		{"bad size", head + "sandbox: {memory: 2 gigs}\n",
			[]string{`run.yaml:3:19: sandbox.memory: "2 gigs" is not a size; write it as 512MiB or 2GB`}},
		{"marks without pictures", head + "browser: {som: true, screenshots: false}\n",
			[]string{`run.yaml:3:16: browser.som: it keeps a second screenshot of each step, but browser.screenshots is false; set one of them otherwise`}},
		{"bad clock", head + "budget: {deadline: '25:00'}\n",
			[]string{`run.yaml:3:20: budget.deadline: "25:00" is not a time of day; write it as 06:00 or 2026-11-22T06:00:00Z`}},
		{"all at once", "benchmrk: quickstart\nworkers: 0\nlimits:\n  time: soon\n", []string{
			`run.yaml:1:1: benchmrk: unknown key; did you mean "benchmark" or "benchmarks"?`,
			`run.yaml:2:10: workers: 0 is too small; the least is 1`,
			`run.yaml:4:9: limits.time: "soon" is not a duration; write it as 90s, 10m or 1h30m`}},
		{"errors in file and arms at once", "benchmark: quickstart\nworkers: 0\narms:\n- {agent: noop}\n", []string{
			`run.yaml:2:10: workers: 0 is too small; the least is 1`,
			`run.yaml:4:11: arms[0].agent: unknown agent "noop"; did you mean "nop"?`}},
		{"key twice", head + "agent: oracle\n",
			[]string{`run.yaml:3:1: agent: the key stands here twice; the first is at line 2`}},
		{"no benchmark", "agent: nop\n",
			[]string{`run.yaml: benchmark: no benchmark is named; add a line such as: benchmark: quickstart`}},
		{"unknown benchmark", "benchmark: quickstrat\n",
			[]string{`run.yaml:1:12: benchmark: unknown benchmark "quickstrat"; did you mean "quickstart"?`}},
		{"several agents", "benchmark: quickstart\nagent: [oracle, nop]\n",
			[]string{`run.yaml:2:8: agent: expected text or a mapping, found a list; each is an arm of its own: name them under arms, or as an axis of matrix`}},
		{"several benchmarks", "benchmark: [quickstart]\n",
			[]string{`run.yaml:1:12: benchmark: expected text or a mapping, found a list; several are named under benchmarks`}},
		{"benchmark without its file", "benchmark: humaneval\n",
			[]string{`run.yaml:1:12: benchmark: benchmark humaneval needs its FILE; write humaneval:FILE`}},
		{"benchmark with too much", "benchmark: quickstart:x\n",
			[]string{`run.yaml:1:12: benchmark: benchmark quickstart takes nothing after its name, found "x"`}},
		{"unknown option", "benchmark:\n  name: qa\n  path: q.csv\n  options:\n    qestion: q\n",
			[]string{`run.yaml:5:5: benchmark.options.qestion: unknown key; did you mean "question"?`}},
		{"unknown driver", head + "sandbox: {driver: dokcer}\n",
			[]string{`run.yaml:3:19: sandbox.driver: unknown driver "dokcer"; known: auto, local, none, fake`}},
		{"unknown vendor", "benchmark: quickstart\nmodel: opnai/x\n",
			[]string{`run.yaml:2:8: model: unknown vendor "opnai" of model "opnai/x"; did you mean "openai"?`}},
		{"unknown model", "benchmark: quickstart\nmodel: min\nmodels:\n  mini: openai/x\n",
			[]string{`run.yaml:2:8: model: unknown model "min"; did you mean "mini"?`}},
		{"agent without model", "benchmark: quickstart\nagent: codeact\n",
			[]string{`run.yaml:2:8: model: agent codeact needs a model; add -m openai/NAME, or the key model`}},
		{"two arms of one name", "benchmark: quickstart\narms:\n- {name: a, agent: nop}\n- {name: a, agent: oracle}\n",
			[]string{
				`run.yaml:4:10: arms[1].name: two arms are called "a"; the first is at run.yaml:3:10; give each arm a name of its own`}},
		{"two equal arms", "benchmark: quickstart\narms:\n- {name: a, agent: nop}\n- {name: b, agent: nop}\n", []string{
			`run.yaml:4:10: arms[1].name: arm "b" is the same as arm "a": nothing that is compared differs`}},
		{"secret in the open", "benchmark: quickstart\nmodel: {name: openai/x, key: sk-123}\n", []string{
			`run.yaml:2:30: model.key: a secret is written as a reference, never as its value; write it as ${OPENAI_API_KEY}`}},
		{"variable elsewhere", head + "name: ${NAME}\n", []string{
			`run.yaml:3:7: name: ${NAME} is not replaced here; variables are read only where a value is a secret: key, secrets`}},
		{"gate of no arm", head + "gates: [{arm: npo, min: 1}]\n",
			[]string{`run.yaml:3:15: gates[0].arm: no arm is called "npo"; did you mean "nop"?`}},
		{"gate that cannot pass", head + "gates: [{min: 2, max: 1}]\n",
			[]string{`run.yaml:3:9: gates[0]: a gate whose min is above its max can never pass`}},
		{"coverage", head + "min_coverage: 98\n",
			[]string{`run.yaml:3:15: min_coverage: 98 is too large; the most is 1`}},
		{"prices that overflow", "benchmark: quickstart\nmodel: {name: openai/x, price: {in: 1.0e308, cache_write: " +
			"1000001, cached: 1000000, out: -1}}\n", []string{
			`run.yaml:2:37: model.price.in: 1.0e308 is too large; the most is 1000000`,
			`run.yaml:2:59: model.price.cache_write: 1000001 is too large; the most is 1000000`,
			`run.yaml:2:90: model.price.out: -1 is too small; the least is 0`}},
		{"machines that never fit", head + "sandbox: {memory: 4GiB}\npools: {memory: 2GiB}\n", []string{
			`run.yaml:4:17: pools.memory: 2GiB is less than one machine of arm "nop", 4GiB: no trial could start; raise pools.memory or lower sandbox.memory`}},
		{"memory too small", head + "sandbox: {memory: 1KiB}\n",
			[]string{`run.yaml:3:19: sandbox.memory: 1KiB is less than a machine needs to start; the least is 16MiB`}},
		{"bad shard", head + "shard: 3/2\n",
			[]string{`run.yaml:3:8: shard: there is no shard 3/2: shards count from 1 to their number; write it as 2/8`}},
		{"bad filter", head + "select: {filter: hard}\n",
			[]string{`run.yaml:3:18: select: filter: "hard" is not of the form field=value or field!=value`}},
		{"empty prompt", "benchmark: quickstart\nmodel: openai/x\nprompt: nowhere.md\n",
			[]string{`run.yaml:3:9: prompt: open `}},
		{"axis that sets nothing", head + "matrix: {modle: [a, b]}\n",
			[]string{`run.yaml:3:10: matrix.modle: axis "modle" sets nothing; did you mean "model"?`}},
		{"unknown key by an axis", "benchmark: quickstart\nmodel: openai/x\nmatrix: {params.temprature: [0, 1]}\n",
			[]string{
				`run.yaml:3:30: params.temprature: unknown key; did you mean "temperature"?`,
				`run.yaml:3:33: params.temprature: unknown key; did you mean "temperature"?`}},
		{"exclude of no axis", head + "matrix: {limits.turns: [1, 2]}\nexclude: [{turns: 1}]\n",
			[]string{`run.yaml:4:12: exclude[0]: the matrix has no axis "turns"; known: limits.turns`}},
		{"all excluded", head + "matrix: {limits.turns: [1]}\nexclude: [{limits.turns: 1}]\n",
			[]string{`run.yaml:3:9: arms: no arm is left to run; see matrix, exclude and arms`}},
		{"two documents", head + "---\na: b\n",
			[]string{`run.yaml:4:1: a second document in one file; remove the line ---`}},
		{"deep brackets", "a: " + strings.Repeat("[", 1<<19) + "\n", []string{"run.yaml:1:68: nested deeper than 64"}},
		{"deep dashes", strings.Repeat("- ", 1<<18) + "\n", []string{"run.yaml:1:129: nested deeper than 64"}},
		{"address of a model by name", "benchmark: quickstart\nmodels:\n  m: {name: openai/x, base_url: " +
			"here}\nmatrix: {model: [m]}\n", []string{
			`run.yaml:3:33: model.base_url: "here" is not an address; it begins with http:// or https://`}},
		{"no ids", head + "select: {ids: [], tags: []}\n",
			[]string{"run.yaml:3:15: select.ids: the list is empty; leave the key out for the default",
				"run.yaml:3:25: select.tags: the list is empty; leave the key out for the default"}},
		{"negative sample", head + "select: {sample: -3}\n",
			[]string{"run.yaml:3:18: select.sample: -3 is too small; the least is 1"}},
		{"Latin-1", head + "name: caf\xe9\n",
			[]string{"run.yaml:3:10: this is not UTF-8; convert the file, for example by: iconv -f latin1 -t utf8"}},
		{"broken YAML", "a: [1, 2\nb: 3\n", []string{"run.yaml:"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseText(t, tt.in)
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.Split(err.Error(), "\n")
			if len(got) != len(tt.want) {
				t.Fatalf("errors:\n%s\nwant:\n%s", err, strings.Join(tt.want, "\n"))
			}
			for i, w := range tt.want {
				if got[i] != w && !(strings.HasPrefix(got[i], w) && len(w) < 40) {
					t.Errorf("error %d:\n got %s\nwant %s", i, got[i], w)
				}
			}
		})
	}
}

func TestMatrix(t *testing.T) {
	e := mustParse(t, `
benchmark: quickstart
models:
  small: {name: openai/s-1, base_url: 'http://localhost:1'}
matrix:
  model: [small, openai/large]
  prompt: [terse.md, careful.md]
  params.temperature: [0, 0.7]
exclude:
- {model: small, prompt: careful, params.temperature: 0}
include:
- {model: small, prompt: careful, params.temperature: 1}
arms:
- {agent: oracle}
`)
	want := []string{"oracle",
		"small+terse+temperature=0", "small+terse+temperature=0.7", "small+careful+temperature=0.7",
		"large+terse+temperature=0", "large+terse+temperature=0.7", "large+careful+temperature=0",
		"large+careful+temperature=0.7",
		"small+careful+temperature=1"}
	if diff := cmp.Diff(want, armNames(e)); diff != "" {
		t.Error(diff)
	}
	axes := map[string]string{"model": "small", "prompt": "terse", "params.temperature": "0.7"}
	if diff := cmp.Diff(axes, e.Records[2].Axes); diff != "" {
		t.Error(diff)
	}
	if a := e.Arms[2]; a.Model.BaseURL != "http://localhost:1" || *a.Params.Temperature != 0.7 ||
		a.Prompt.Text != "Be terse.\n" || a.Prompt.File != "" {
		t.Errorf("arm = %+v", a)
	}
}

func TestOwnAxis(t *testing.T) {
	e := mustParse(t, `
benchmark: quickstart
agent: nop
limits: {time: 1m}
matrix:
  patience:
    short: {limits: {turns: 3}}
    long: {limits: {turns: 30}}
`)
	if diff := cmp.Diff([]string{"nop+patience=short", "nop+patience=long"}, armNames(e)); diff != "" {
		t.Error(diff)
	}
	if l := e.Arms[0].Limits; l.Turns != 3 || *l.Time != Duration(time.Minute) || l.Steps != 500 {
		t.Errorf("limits = %+v", l)
	}
}

// An agent without a model is one arm, however many models the matrix has.
func TestCellsCollapse(t *testing.T) {
	e := mustParse(t, "benchmark: quickstart\nmatrix: {agent: [oracle, codeact], model: [openai/a, openai/b]}\n")
	if diff := cmp.Diff([]string{"oracle", "a", "b"}, armNames(e)); diff != "" {
		t.Error(diff)
	}
}

func TestOverrides(t *testing.T) {
	e := mustParse(t, "benchmark: quickstart\narms: [{agent: nop}]\nlimits: {turns: 5}\n",
		Override{Flag: "--agent", Path: "agent", Values: []string{"oracle", "nop"}},
		Override{Flag: "--workers", Path: "workers", Values: []string{"7"}},
		Override{Flag: "--ids", Path: "select.ids", Values: []string{"a*"}},
		Override{Flag: "--set", Path: "limits.turns", Values: []string{"9"}, YAML: true},
		Override{Flag: "--shard", Path: "shard", Values: []string{"2/3"}},
	)
	if diff := cmp.Diff([]string{"oracle", "nop"}, armNames(e)); diff != "" {
		t.Error(diff)
	}
	b := e.Benchmarks[0]
	if e.Workers != 7 || b.Select.IDs[0] != "a*" || *e.Shard != (Shard{2, 3}) || e.Arms[0].Limits.Turns != 9 {
		t.Errorf("got %+v, %+v, %+v", e.File, b.Select, e.Arms[0].Limits)
	}
	// A benchmark given on the command line can have options, and several form a list.
	e = mustParse(t, "agent: nop\n", Override{Flag: "qa:q.jsonl", Path: "benchmarks", Values: []string{"qa:q.jsonl"}},
		Override{Flag: "--set", Path: "benchmark.options.question", Values: []string{"q"}, YAML: true})
	if b := e.Benchmarks; len(b) != 1 || b[0].Name != "qa" || string(b[0].Options) != `{"question":"q"}` {
		t.Errorf("got %+v", b)
	}
	e = mustParse(t, "agent: nop\nbenchmark: quickstart\n",
		Override{Flag: "--set", Path: "benchmarks", Values: []string{"[quickstart, 'qa:q.jsonl']"}, YAML: true})
	if len(e.Benchmarks) != 2 {
		t.Errorf("got %+v", e.Benchmarks)
	}
	for _, tt := range []struct{ over, want string }{
		{"x", `--workers: workers: expected a whole number, found "x"`},
		{"0", `--workers: workers: 0 is too small; the least is 1`},
	} {
		_, err := parseText(t, "benchmark: quickstart\n",
			Override{Flag: "--workers", Path: "workers", Values: []string{tt.over}})
		if err == nil || err.Error() != tt.want {
			t.Errorf("error %v, want %s", err, tt.want)
		}
	}
}

func TestWithoutAgent(t *testing.T) {
	e := mustParse(t, "benchmark: quickstart\n")
	if diff := cmp.Diff([]string{"oracle", "nop"}, armNames(e)); diff != "" || len(e.Notes) != 1 {
		t.Error(diff, e.Notes)
	}
	e = mustParse(t, "benchmark: quickstart\n",
		Override{Flag: "-m", Path: "model", Values: []string{"openai/a", "openai/b"}})
	if diff := cmp.Diff([]string{"a", "b"}, armNames(e)); diff != "" {
		t.Error(diff)
	}
}

// An effective configuration is a valid configuration with the same arms.
func TestEffectiveRoundTrip(t *testing.T) {
	e := mustParse(t, `
name: nightly
benchmarks:
- name: qa
  path: q.csv
  options: {question: q, answers: [a, b]}
  select: {limit: 3}
- quickstart
select: {ids: ['a*', 7], sample: 9}
models: {m: {name: openai/x, key: '${K}', price: {in: 1, out: 0}}}
matrix: {model: [m], prompt: [terse.md, {name: c, text: "line one\nline two: {x}"}]}
arms: [{agent: nop, sandbox: {network: [example.com], memory: 64MiB}}]
limits: {turns: 0, cost: 0.0000005}
params: {temperature: 1e-7, extra: {a: 1e-9, b: 1e3, c: "1e-9", d: '1E3', e: "0o17", f: ".5", g: "08", h: 1e25, i: '100000000000000000000', j: "+1e5", k: 12345678901234567890123}}
budget: {cost: 10, deadline: 06:00, tokens: 2M}
gates: [{arm: nop, max: 0.1}]
min_coverage: 0.5
seed: 0
retries: {budget: 0}
secrets: {HF: '${HF_TOKEN}'}
`)
	y, err := e.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(Source{Name: "effective", Data: y, Dir: "/"}, testRegistry())
	if err != nil {
		t.Fatalf("%v\n%s", err, y)
	}
	a, _ := json.Marshal(e.File)
	b, _ := json.Marshal(again.File)
	if diff := cmp.Diff(string(a), string(b)); diff != "" {
		t.Errorf("%s\n%s", diff, y)
	}
	if diff := cmp.Diff(e.Records, again.Records); diff != "" {
		t.Error(diff)
	}
	if e.Arms[1].Limits.Turns != 0 || *again.Seed != 0 {
		t.Error("an explicit zero was lost")
	}
}

// An arm's ID depends on what is compared, and on nothing else.
func TestIdentity(t *testing.T) {
	id := func(text string) string {
		t.Helper()
		return mustParse(t, "benchmark: quickstart\n"+text).Records[0].ID
	}
	base := id("model: openai/x\nprompt: terse.md\n")
	for _, same := range []string{
		"model: {name: openai/x, key: '${OTHER}', connections: 3, price: {in: 1}}\nprompt: {name: other, file: " +
			"terse.md}\n",
		"model: openai/x\nprompt: terse.md\nworkers: 3\nlimits: {turns: 100}\nphases: {grade: 1m}\nsandbox: " +
			"{driver: none}\n",
		"arms: [{name: renamed, model: openai/x, prompt: {text: \"Be terse.\\n\"}}]\n",
	} {
		if id(same) != base {
			t.Errorf("another arm by\n%s", same)
		}
	}
	for _, other := range []string{
		"model: openai/y\nprompt: terse.md\n",
		"model: openai/x\nprompt: careful.md\n",
		"model: openai/x\nprompt: terse.md\nparams: {temperature: 0}\n",
		"model: openai/x\nprompt: terse.md\nlimits: {turns: 99}\n",
		"model: openai/x\nprompt: terse.md\nlimits: {cost: 0.001}\n",
		"model: openai/x\nprompt: terse.md\nphases: {command: 1m}\n",
		"model: openai/x\nprompt: terse.md\nsandbox: {network: public}\n",
	} {
		if id(other) == base {
			t.Errorf("the same arm by\n%s", other)
		}
	}
	// A golden identity: it must never change for configurations in use.
	e := mustParse(t, "benchmark: quickstart\nagent: nop\n")
	if got, want := e.Records[0].ID, goldenNop; got != want {
		t.Errorf("arm nop = %s, want %s; definition %s", got, want, e.Records[0].Def)
	}
	if got, _ := record.ArmID(e.Records[0].Def); got != e.Records[0].ID {
		t.Error("the stored definition gives another identity")
	}
}

const goldenNop = "2cac0e9991257d38c572"

func TestDeadline(t *testing.T) {
	now := time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ c, want string }{
		{"06:00", "2026-11-22T06:00:00Z"}, {"23:30", "2026-11-21T23:30:00Z"}, {"22:00", "2026-11-22T22:00:00Z"},
		{"2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
	} {
		got, err := Clock(tt.c).Next(now)
		if err != nil || got.Format(time.RFC3339) != tt.want {
			t.Errorf("%s: %v, %v", tt.c, got, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]Size{"512MiB": 512 << 20, "2GB": 2e9, "1.5 GiB": 3 << 29, "64k": 64 << 10,
		"7B": 7} {
		var s, again Size
		if err := s.Set(in); err != nil || s != want {
			t.Errorf("%s = %d, %v", in, s, err)
		}
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%s → %s → %d, %v", in, s, again, err)
		}
	}
}

func TestEnvFile(t *testing.T) {
	f := filepath.Join(t.TempDir(), ".env")
	os.WriteFile(f, []byte("# keys\nexport A=one\nB=\"two # 2\"\nC='3' # three\nD=four # 4\n"), 0o600)
	env, err := NewEnv(func(n string) (string, bool) { return map[string]string{"A": "outer"}[n], n == "A" }, f)
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[Secret]string{"${A}": "outer", "${B}": "two # 2", "${C}": "3", "${D}": "four", "": ""} {
		if got, err := env.Secret(ref); got != want || err != nil {
			t.Errorf("%s = %q, %v", ref, got, err)
		}
	}
	if _, err := env.Secret("${E}"); err == nil {
		t.Error("a missing variable is no error")
	}
	os.WriteFile(f, []byte("A=1\nsk-secret\n"), 0o600)
	if _, err := NewEnv(os.LookupEnv, f); err == nil || strings.Contains(err.Error(), "sk-secret") ||
		!strings.Contains(err.Error(), ":2:") {
		t.Errorf("error = %v", err)
	}
}

func TestHuman(t *testing.T) {
	for n, want := range map[Size]string{0: "0 B", 1023: "1023 B", 1 << 20: "1 MiB", 18503 << 20: "18.1 GiB",
		1 << 50: "1024 TiB"} {
		if got := n.Human(); got != want {
			t.Errorf("%d: %s, want %s", int64(n), got, want)
		}
	}
}

func TestArmsOfOneKindGetNamesApart(t *testing.T) {
	src := Source{Dir: t.TempDir(), Name: "c.yaml",
		Data: []byte("benchmark: quickstart\nmatrix: {agent: [\"command:tools/one.sh\", \"command:tools/two.sh\", " +
			"\"command:more/two.sh\"]}\n")}
	eff, err := Parse(src, testRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range eff.Records {
		names = append(names, a.Name)
	}
	if got := strings.Join(names, " "); got != "command command:two command:two-2" {
		t.Errorf("the arms are called %s", got)
	}
}

// A list of hosts accepts what the network package parses: names, wildcards, addresses, ranges.
func TestNetworkList(t *testing.T) {
	e := mustParse(t, "benchmark: quickstart\nagent: nop\nsandbox: {network: [example.org, '*.example.net', "+
		"192.0.2.7, 10.0.0.0/8, '2001:db8::/32']}\n")
	n := e.Arms[0].Sandbox.Network
	if n.Mode != "allow" || len(n.Allow) != 5 || n.Allow[3] != "10.0.0.0/8" {
		t.Errorf("%+v", n)
	}
	for entry, want := range map[string]string{
		"'example.org:443'":     `network: "example.org:443" has a port`,
		"https://example.org/x": `is a URL; write only its host, "example.org"`,
		"10.1.0.0/8":            "has bits set beyond its prefix; write 10.0.0.0/8", "a.*.org": "write *.example.org",
		"a, b/c": `"b/c" has a path`, "a b, 'c:1'": `; "c:1" has a port`,
	} {
		_, err := parseText(t, "benchmark: quickstart\nagent: nop\nsandbox: {network: ["+entry+"]}\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// A model without an address gets that of the vendor's usual variable, from the environment or from
// env_file. The address is stored with the run.
func TestUsualAddress(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".env"), []byte("OPENAI_BASE_URL=http://file.example/v1\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, more string
		env        map[string]string
		url, key   string
	}{
		{"unset", "", map[string]string{}, "", "${OPENAI_API_KEY}"},
		{"set", "", map[string]string{"OPENAI_BASE_URL": "http://a.example/v1", "OPENAI_API_KEY": "k"},
			"http://a.example/v1", "${OPENAI_API_KEY}"},
		{"set, no key", "", map[string]string{"OPENAI_BASE_URL": "http://a.example/v1"}, "http://a.example/v1", ""},
		{"file", "env_file: .env", map[string]string{}, "http://file.example/v1", ""},
		{"both", "env_file: .env", map[string]string{"OPENAI_BASE_URL": "http://a.example/v1"}, "http://a.example/v1",
			""},
		{"said", "models: {m: {name: openai/m, base_url: 'http://said.example/v1'}}\nmodel: m",
			map[string]string{"OPENAI_BASE_URL": "http://a.example/v1"}, "http://said.example/v1", ""},
	} {
		more := tt.more
		if !strings.Contains(more, "model: m") {
			more += "\nmodel: openai/m"
		}
		look := func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok }
		src := Source{Name: "run.yaml", Data: []byte("benchmark: quickstart\nroles: {grader: openai/g}\n" + more +
			"\n"), Dir: dir, Env: look}
		e, err := Parse(src, testRegistry())
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if m := e.Arms[0].Model; m.BaseURL != tt.url || string(m.Key) != tt.key {
			t.Errorf("%s: %q with the key %q", tt.name, m.BaseURL, m.Key)
		}
		if m := e.Roles["grader"]; tt.name != "said" && m.BaseURL != tt.url {
			t.Errorf("%s: the grader is at %q", tt.name, m.BaseURL)
		}
		stored, err := e.JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(Source{Name: "plan.json", Data: stored, Dir: "/"}, testRegistry())
		if err != nil || again.Records[0].ID != e.Records[0].ID || again.Arms[0].Model.BaseURL != tt.url ||
			again.Arms[0].Model.Key != e.Arms[0].Model.Key {
			t.Errorf("%s, read back: %+v, %v", tt.name, again.Arms[0].Model, err)
		}
	}
	for text, want := range map[string]string{
		"benchmark: quickstart\nmodel: {name: openai/m, timeout: 0s}\n": "run.yaml:2:34: model.timeout: nothing can " +
			"be answered in no time",
		"benchmark: quickstart\nmodel: {name: openai/m, patience: 0s}\n": "patience: nothing can be answered",
		"benchmark: quickstart\nmodel: {name: openai/m, timeout: 600}\n": "timeout",
		"benchmark: quickstart\nmodel: {name: openai/m, timeout: -1s}\n": "negative",
	} {
		if _, err := parseText(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
