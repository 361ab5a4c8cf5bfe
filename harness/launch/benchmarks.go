package launch

import (
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/assistantbench"
	"github.com/evalrun/evalrun/benchmarks/harbor"
	"github.com/evalrun/evalrun/benchmarks/humaneval"
	"github.com/evalrun/evalrun/benchmarks/miniwob"
	"github.com/evalrun/evalrun/benchmarks/openended"
	"github.com/evalrun/evalrun/benchmarks/qa"
	"github.com/evalrun/evalrun/benchmarks/quickstart"
	"github.com/evalrun/evalrun/benchmarks/tasks"
	"github.com/evalrun/evalrun/benchmarks/terminalbench"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/benchmarks/webarena"
	"github.com/evalrun/evalrun/harness/config"
)

func benchKinds() []benchKind {
	return []benchKind{
		{config.Kind{Name: "quickstart", Doc: "small tasks of four kinds, some in a browser, that come with evalrun"},
			func(_ string, _ json.RawMessage, br web.Browsers) (benchmarks.Benchmark, error) {
				return quickstart.New().In(br), nil
			}},
		{config.Kind{Name: "humaneval", Arg: "FILE", IsPath: true, Options: optionsOf[humaneval.Options](),
			Doc: "write a Python function; the published HumanEval.jsonl or .jsonl.gz"},
			func(path string, o json.RawMessage, _ web.Browsers) (benchmarks.Benchmark, error) {
				return humaneval.New(path, o)
			}},
		{config.Kind{Name: "qa", Arg: "FILE", IsPath: true, Options: optionsOf[qa.Options](),
			Doc: "questions and answers in any JSONL, CSV or Parquet file with named columns"},
			func(path string, o json.RawMessage, _ web.Browsers) (benchmarks.Benchmark, error) {
				return qa.New(path, o)
			}},
		{config.Kind{Name: "tasks", Arg: "PATH", IsPath: true, Options: optionsOf[tasks.Options](),
			Doc: "a benchmark of one's own: a tasks.yaml, a JSONL, or a folder with one (docs/own-benchmark.md)"},
			func(path string, o json.RawMessage, br web.Browsers) (benchmarks.Benchmark, error) {
				b, err := tasks.New(path, o)
				if err != nil {
					return nil, err
				}
				return b.In(br), nil
			}},
		{config.Kind{Name: "harbor", Arg: "PATH", IsPath: true, Options: optionsOf[harbor.Options](), Paths: []string{"root", "cache", "extra_instructions"},
			Doc: "tasks of the Harbor format: a task's folder, a folder of them, a dataset.toml or registry.json (docs/harbor.md)"},
			func(path string, o json.RawMessage, _ web.Browsers) (benchmarks.Benchmark, error) {
				return harbor.New(path, o)
			}},
		{config.Kind{Name: "terminalbench", Arg: "FOLDER", IsPath: true, Options: optionsOf[terminalbench.Options](),
			Doc: "tasks of Terminal-Bench v1 (task.yaml), one or a folder of them (docs/harbor.md)"},
			func(path string, o json.RawMessage, _ web.Browsers) (benchmarks.Benchmark, error) {
				return terminalbench.New(path, o)
			}},
		{config.Kind{Name: "miniwob", Arg: "FOLDER", Optional: true, IsPath: true, Options: optionsOf[miniwob.Options](),
			Check: func(_ string, o json.RawMessage) error { return miniwob.CheckOptions(o) },
			Doc:   "MiniWoB++, 125 small web pages; without FOLDER those that evalrun tasks fetch has put into the user's folder (docs/miniwob.md)"},
			func(path string, o json.RawMessage, br web.Browsers) (benchmarks.Benchmark, error) {
				return miniwob.New(path, o, br)
			}},
		{config.Kind{Name: "openended", Arg: "URL", Options: optionsOf[openended.Options](),
			Doc: "a page and a goal, and nobody who grades: for trying things out"},
			func(address string, o json.RawMessage, br web.Browsers) (benchmarks.Benchmark, error) {
				return openended.New(address, o, br)
			}},
		{config.Kind{Name: "assistantbench", Arg: "FILE", IsPath: true, Options: optionsOf[assistantbench.Options](),
			Doc: "questions of AssistantBench, answered on the open web (docs/webarena.md)"},
			func(path string, o json.RawMessage, br web.Browsers) (benchmarks.Benchmark, error) {
				return assistantbench.New(path, o, br)
			}},
		arena(webarena.WebArena, "tasks of WebArena on sites of one's own: test.raw.json (docs/webarena.md)"),
		arena(webarena.Lite, "the 165 tasks of WebArena Lite: test_webarena_lite.raw.json (docs/webarena.md)"),
		arena(webarena.Visual, "tasks of VisualWebArena: the file of all, or a folder of test_*.raw.json (docs/webarena.md)"),
	}
}

// arena is a benchmark of WebArena's family.
func arena(d webarena.Dialect, doc string) benchKind {
	return benchKind{config.Kind{Name: string(d), Arg: "FILE", IsPath: true, Options: optionsOf[webarena.Options](), Paths: []string{"images", "reset.command[0]"}, Doc: doc},
		func(path string, o json.RawMessage, br web.Browsers) (benchmarks.Benchmark, error) {
			return webarena.New(d, path, o, br, br.Getenv)
		}}
}

// OpenBenchmark makes a configured benchmark, for looking at its tasks.
func OpenBenchmark(b config.Benchmark) (benchmarks.Benchmark, error) {
	return openBenchmark(b, web.Browsers{})
}

// openBenchmark makes a configured benchmark that may play in browsers.
func openBenchmark(b config.Benchmark, br web.Browsers) (benchmarks.Benchmark, error) {
	for _, k := range benchKinds() {
		if k.Name == b.Name {
			return k.open(b.Path, b.Options, br)
		}
	}
	return nil, fmt.Errorf("unknown benchmark %q", b.Name)
}
