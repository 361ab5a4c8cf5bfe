package launch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/harbor"
	"github.com/evalrun/evalrun/benchmarks/tasks"
	"github.com/evalrun/evalrun/benchmarks/terminalbench"
	"github.com/evalrun/evalrun/harness/registry"
)

func TestRecognise(t *testing.T) {
	kinds := &registry.Registry{Benchmarks: []benchmarks.Kind{tasks.Kind, harbor.Kind, terminalbench.Kind}}
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("hb/one/task.toml", "")
	write("hb/one/environment/task.yaml", "") // a part of a task is none
	write("tb/New Tasks/deep/task.yaml", "")
	write("mixed/a/task.toml", "")
	write("mixed/b/task.yaml", "")
	write("mine/tasks.yaml", "tasks:\n  - {id: a}\n")
	write("set/dataset.toml", "")
	write("set/registry.json", "")
	write("run.yaml", "benchmark: quickstart\n")
	write("list.yml", "- {id: a, instruction: b}\n")
	write("empty/a/b/c/d/task.toml", "")
	for name, want := range map[string]string{
		"hb": "harbor", "hb/one": "harbor", "hb/one/task.toml": "harbor", "tb": "terminalbench",
		"mixed": "harbor terminalbench", "mine": "tasks",
		"mine/tasks.yaml": "tasks", "set": "harbor", "set/registry.json": "harbor", "list.yml": "tasks", "run.yaml": "",
		"empty": "",
	} {
		path := filepath.Join(dir, name)
		got, err := Recognise(kinds, path)
		var exp []string
		for k := range strings.FieldsSeq(want) {
			exp = append(exp, k+":"+path)
		}
		if want == "" && !errors.Is(err, ErrNoTasks) || want != "" && err != nil || !slices.Equal(got, exp) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := Recognise(kinds, filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
