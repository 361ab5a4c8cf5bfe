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

	// Arg describes the argument in the short form NAME:ARG, such as "FILE"; "" means no argument.
	// The argument is required unless Optional is set. If IsPath is set, it is a path relative to
	// the configuration file.
	Arg              string
	Optional, IsPath bool

	// Options is a value of the struct that describes the benchmark's own options: names in json
	// tags, descriptions in doc tags, limits in min, max and enum tags. Nil means no options.
	Options any
	// Paths lists the options that hold paths relative to the configuration file: a key, a nested
	// key (outer.key), or the program of a command line (key[0]).
	Paths []string
	// Check validates the argument and the options together, before anything is opened. It may be
	// nil.
	Check func(arg string, options json.RawMessage) error

	// Recognise reports whether a file or directory holds tasks of this kind. Nil means never.
	Recognise func(fsys fs.FS, name string) bool
	// Open creates the benchmark.
	Open func(Setup) (Benchmark, error)
}

// A Setup holds what a configuration says about a benchmark, and the resources that a run provides
// to it.
type Setup struct {
	Arg     string
	Options json.RawMessage // validated, with absolute paths

	// Browsers provides browsers for tasks that need one; see package benchmarks/web. It is nil
	// when tasks are only listed or checked.
	Browsers any
	// Getenv looks up a variable of the run's environment, such as the address of a site. It may be
	// nil.
	Getenv func(string) string
}

// Marked reports whether name is a directory that contains one of the given files, or is itself a
// file with one of these names.
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
