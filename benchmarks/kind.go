package benchmarks

import (
	"encoding/json"
	"io/fs"
	"path"
	"slices"
)

// A Kind is a benchmark that a configuration can name.
type Kind struct {
	Name string
	Doc  string // one line, for help and completion

	// Arg says what follows the colon of the short form NAME:ARG, such as "FILE"; "" for nothing.
	// It must be given unless it is Optional. If IsPath, it is a path relative to the
	// configuration.
	Arg              string
	Optional, IsPath bool

	// Options is a value of the struct that describes the benchmark's own options: their names by
	// tags json, their texts by tags doc, their bounds by tags min, max and enum. Nil: it has none.
	Options any
	// Paths names the options that are paths relative to the configuration: a key, one within
	// another (outer.key), or the program of a command line (key[0]).
	Paths []string
	// Check looks at argument and options together, before anything is opened. Nil: nothing to do.
	Check func(arg string, options json.RawMessage) error

	// Recognise reports whether a file, or a folder as it is, holds tasks of this kind. Nil: never.
	Recognise func(fsys fs.FS, name string) bool
	// Open makes the benchmark.
	Open func(Setup) (Benchmark, error)
}

// A Setup is what a configuration says of a benchmark, and what a run lends to it.
type Setup struct {
	Arg     string
	Options json.RawMessage // as checked, with absolute paths

	// Browsers are for tasks in a browser; see package benchmarks/web. Nil: tasks are only looked
	// at.
	Browsers any
	// Getenv looks up a variable of the run's environment, such as where a site is. Nil: there is
	// none.
	Getenv func(string) string
}

// Marked reports whether a folder holds one of some files, or a file is called like one of them.
func Marked(fsys fs.FS, name string, files ...string) bool {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return false
	}
	if !info.IsDir() {
		return slices.Contains(files, path.Base(name))
	}
	return slices.ContainsFunc(files, func(f string) bool {
		info, err := fs.Stat(fsys, path.Join(name, f))
		return err == nil && info.Mode().IsRegular()
	})
}
