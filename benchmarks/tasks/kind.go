package tasks

import (
	"bytes"
	"io/fs"
	"path"
	"regexp"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// Kind is the benchmark's registry entry.
var Kind = benchmarks.Kind{
	Name: "tasks", Arg: "PATH", IsPath: true, Options: Options{},
	Doc:       "your own benchmark: tasks.yaml, a JSONL file, or a folder with one (docs/own-benchmark.md)",
	Recognise: recognise,
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
		b, err := New(s.Arg, s.Options)
		if err != nil {
			return nil, err
		}
		return b.In(web.BrowsersOf(s)), nil
	},
}

// top matches top-level keys of a task file that a run configuration does not have.
var top = regexp.MustCompile(`(?m)^(tasks\s*:|- +(\{ *)?id\s*:)`)

func recognise(fsys fs.FS, name string) bool {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return false
	}
	if info.IsDir() {
		return benchmarks.Marked(fsys, name, "tasks.yaml", "tasks.jsonl")
	}
	if ext := path.Ext(name); !info.Mode().IsRegular() || ext != ".yaml" && ext != ".yml" {
		return false
	}
	f, err := fsys.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	n, _ := f.Read(b)
	return top.Match(bytes.ReplaceAll(b[:n], []byte("\r\n"), []byte("\n")))
}
