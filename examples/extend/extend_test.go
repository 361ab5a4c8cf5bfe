// Package extend tests the example modules below it, each of which extends evalrun from outside.
package extend

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/model/modeltest"
)

// maxGlue is how many lines of code a module may have beside the thing itself.
const maxGlue = 40

// An extension is a copy of an example module outside of this one, built.
type extension struct {
	t        *testing.T
	dir, bin string
	env      []string
}

// build copies the module of a folder to where a stranger would have it, tests it (with the suite
// of its contract) and builds it. It is given what a stranger's own go mod tidy finds: nothing is
// downloaded, as its dependencies are those of this module.
func build(t *testing.T, name string) *extension {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	x := &extension{t: t, dir: t.TempDir()}
	x.bin = filepath.Join(x.dir, "evalrun.bin")
	x.env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
	if err := os.CopyFS(x.dir, os.DirFS(name)); err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(x.dir, "go.sum"), sum, 0o666); err != nil {
		t.Fatal(err)
	}
	x.do("go", "mod", "edit", "-replace", "github.com/evalrun/evalrun="+root)
	x.do("go", "build", "-o", x.bin, "./evalrun")
	x.do("go", "vet", "./...")
	x.do("go", "test", ".")
	if n := glue(t, filepath.Join(x.dir, "evalrun/main.go")) + glue(t, filepath.Join(x.dir, "kind.go")); n > maxGlue {
		t.Errorf("%d lines of glue, want at most %d", n, maxGlue)
	}
	return x
}

// glue counts the lines of a file that hold code.
func glue(t *testing.T, name string) (n int) {
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// do runs a program that has to succeed, in the module's folder.
func (x *extension) do(args ...string) (stdout string) {
	x.t.Helper()
	stdout, stderr, err := x.try(args...)
	if err != nil {
		x.t.Fatalf("%q: %v\n%s%s", args, err, stdout, stderr)
	}
	return stdout
}

func (x *extension) try(args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(x.t.Context(), args[0], args[1:]...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = x.dir, x.env, &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// says wants a text in what evalrun prints, on either stream. Mistakes are to be told, too.
func (x *extension) says(want string, args ...string) {
	x.t.Helper()
	stdout, stderr, _ := x.try(append([]string{x.bin}, args...)...)
	if !strings.Contains(stdout+stderr, want) {
		x.t.Errorf("evalrun %s does not say %s:\n%s%s", strings.Join(args, " "), want, stdout, stderr)
	}
}

// mean runs the module's run.yaml and returns the mean reward of each arm.
func (x *extension) mean(args ...string) map[string]float64 {
	x.t.Helper()
	var s struct {
		Arms []struct {
			Arm  string
			Mean *float64
		}
	}
	out := x.do(append([]string{x.bin, "run", "run.yaml", "-o", "run", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		x.t.Fatalf("summary: %v\n%s", err, out)
	}
	means := map[string]float64{}
	for _, a := range s.Arms {
		if a.Mean != nil {
			means[a.Arm] = *a.Mean
		}
	}
	return means
}

func (x *extension) wantMeans(got, want map[string]float64) {
	x.t.Helper()
	for arm, mean := range want {
		if m, ok := got[arm]; !ok || m != mean {
			x.t.Errorf("mean rewards %v, want %v", got, want)
		}
	}
}

func TestBenchmark(t *testing.T) {
	x := build(t, "benchmark")
	x.says("spelling:FILE", "run", "--help")
	x.says("spelling:texts with spelling mistakes", "run", "--generate-shell-completion")
	x.says("benchmark.options.instruction=", "run", "spelling:texts.jsonl", "--set", "--generate-shell-completion")
	x.says(`"const": "spelling"`, "config", "schema")
	x.says("What comes before the text", "config", "schema")
	x.says(`did you mean "spelling:texts.jsonl"?`, "run", "speling:texts.jsonl")
	x.says(`--set benchmark.options.instructions: unknown key; did you mean "instruction"?`, "run", "run.yaml", "--set",
		"benchmark.options.instructions=x")
	x.says("sound", "tasks", "check", "spelling:texts.jsonl")
	x.wantMeans(x.mean(), map[string]float64{"oracle": 1, "nop": 0})
	x.do(x.bin, "export", "run", "--tables", "trials", "-o", "tables")
	if b, err := os.ReadFile(filepath.Join(x.dir, "tables/trials.jsonl")); err != nil ||
		!bytes.Contains(b, []byte("Correct the spelling of this text.")) {
		t.Errorf("the option instruction has no effect: %v\n%s", err, b)
	}
}

func TestAgent(t *testing.T) {
	x := build(t, "agent")
	x.says("browse, shell;", "run", "--help")
	x.says("shell:asks a model for one shell command at a time", "run", "--agent", "--generate-shell-completion")
	x.says("agent.options.shown=", "run", "quickstart", "--agent", "shell", "--set", "--generate-shell-completion")
	x.says(`"const": "shell"`, "config", "schema")
	x.says(`did you mean "shell"?`, "run", "quickstart", "--agent", "shel")
	x.says("shown: 10 is too small; the least is 100", "run", "run.yaml", "--set", "agent.options.shown=10")
	service := modeltest.NewServer(t, func(c modeltest.Call) modeltest.Reply {
		if last := c.Body.Messages[len(c.Body.Messages)-1].Content; bytes.Contains(last, []byte(`exit status 0\n249`)) {
			return modeltest.Reply{Text: "ANSWER: 249"}
		}
		return modeltest.Reply{Text: "```sh\necho $((1000/5 + 1000/25 + 1000/125 + 1000/625))\n```"}
	})
	x.env = append(x.env, "OPENAI_BASE_URL="+service.URL, "OPENAI_API_KEY="+modeltest.Key)
	if got := x.mean(); len(got) != 1 {
		t.Errorf("arms %v, want one", got)
	} else {
		for arm, mean := range got {
			if mean != 1 {
				t.Errorf("arm %s: mean %v, want 1", arm, mean)
			}
		}
	}
	if n := len(service.Calls()); n != 2 {
		t.Errorf("%d calls of the model, want 2", n)
	}
}

func TestModel(t *testing.T) {
	x := build(t, "model")
	x.says("vendors: openai, ollama;", "run", "--help")
	x.says("ollama/:models of an Ollama server", "run", "--model", "--generate-shell-completion")
	x.says(`"ollama/NAME"`, "config", "schema")
	x.says(`did you mean "ollama"?`, "run", "quickstart", "--model", "olama/qwen3")
	// The service is busy at first: evalrun retries, the client knows nothing of it.
	calls := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `{"error":"server busy"}`)
			return
		}
		if r.URL.Path != "/api/chat" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, `{"model":"qwen3","message":{"role":"assistant","content":"","tool_calls":[`+
			`{"function":{"name":"finish","arguments":{"message":"249"}}}]},"done":true,"done_reason":"stop","prompt_eval_count":10,"eval_count":5}`)
	}))
	defer service.Close()
	x.env = append(x.env, "OLLAMA_BASE_URL="+service.URL)
	for arm, mean := range x.mean("--workers", "1") {
		if mean != 1 {
			t.Errorf("arm %s: mean %v, want 1", arm, mean)
		}
	}
	if calls != 2 {
		t.Errorf("%d requests, want 2", calls)
	}
}

func TestSandbox(t *testing.T) {
	x := build(t, "sandbox")
	x.says("local, docker, none, jail", "run", "--help")
	x.says("jail:namespaces over a tmpfs", "run", "--sandbox", "--generate-shell-completion")
	x.says(`"jail"`, "config", "schema")
	x.says(`did you mean "jail"?`, "run", "quickstart", "--sandbox", "jali")
	x.says("jail", "doctor")
	if _, stderr, err := x.try(x.bin, "run", "run.yaml", "--dry-run"); err != nil {
		if os.Getenv("EVALRUN_TEST_LOCAL") != "" {
			t.Fatalf("%v\n%s", err, stderr)
		}
		t.Skipf("no such machines here: %s", stderr)
	}
	x.wantMeans(x.mean(), map[string]float64{"oracle": 1, "nop": 0})
}

func TestExporter(t *testing.T) {
	x := build(t, "exporter")
	x.says("jsonl, csv, scores", "export", "--help")
	x.says("one CSV file with a line for each task", "export", "--help")
	x.says("scores:one CSV file", "export", "--format", "--generate-shell-completion")
	x.says("digits=:Digits behind the point", "export", "run", "--format", "scores", "--set",
		"--generate-shell-completion")
	x.do(x.bin, "run", "quickstart", "--ids", "zeros", "--ids", "weekday", "-o", "run")
	x.says(`did you mean "scores"?`, "export", "run", "--format", "score", "-o", "tables")
	x.says(`--set digit: unknown key; did you mean "digits"?`, "export", "run", "--format", "scores", "--set",
		"digit=2", "-o", "tables")
	file := strings.TrimSpace(x.do(x.bin, "export", "run", "--format", "scores", "--set", "digits=1", "-o", "tables"))
	if file != "tables/scores.csv" {
		t.Errorf("it says that it wrote %q", file)
	}
	b, err := os.ReadFile(filepath.Join(x.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	var got []string
	for _, l := range lines {
		got = append(got, strings.Join(l, "|"))
	}
	want := "benchmark|task|oracle|nop quickstart|zeros|1.0|0.0 quickstart|weekday|1.0|0.0"
	if text := strings.Join(got, " "); err != nil || text != want {
		t.Errorf("read back: %s, %v; want %s", text, err, want)
	}
}

// What docs/extending.md shows of a file is in the file.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/extending.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)<!-- file: (\\S+) -->\n```go\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(shown) < 5 {
		t.Errorf("%d excerpts, want one of each kind", len(shown))
	}
	for _, m := range shown {
		file, err := os.ReadFile(filepath.Join("../..", m[1]))
		if err != nil || !strings.Contains(string(file), m[2]) {
			t.Errorf("%s: %v; it does not have:\n%s", m[1], err, m[2])
		}
	}
}
