package config

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/evalrun/evalrun/internal/yamldoc"
)

// A Registry lists the names that a configuration may use. It is passed in, because this package
// imports no implementation.
type Registry struct {
	Benchmarks, Agents, Vendors, Drivers, Exporters []Kind
}

// A Kind is one name in a registry.
type Kind struct {
	Name string
	Doc  string
	// Hidden kinds are not listed by help and completion.
	Hidden bool
	// Arg names what follows the colon of the short form, such as "FILE"; "" means nothing. If
	// Optional is set, it may be left out. If IsPath is set, it is a path relative to the
	// configuration's folder.
	Arg              string
	Optional, IsPath bool
	// Options is the struct of the kind's own options, decoded strictly; nil means none. Paths are
	// the options that are paths relative to the configuration's folder.
	Options reflect.Type
	Paths   []string
	// Model and Prompt say whether an agent uses one. NeedsModel means that it cannot run without a
	// model. What an agent does not use is not part of its arm.
	Model, NeedsModel, Prompt bool
	// KeyVar and URLVar are the variables that usually hold a vendor's key and address.
	KeyVar, URLVar string
	// Define returns what else defines an arm with this agent, such as the digest of a script. It
	// may be nil.
	Define func(arg string, options json.RawMessage) (any, error)
	// Check validates an argument together with the options. It may be nil.
	Check func(arg string, options json.RawMessage) error
}

func find(kinds []Kind, name string) *Kind {
	for i := range kinds {
		if kinds[i].Name == name {
			return &kinds[i]
		}
	}
	return nil
}

// Benchmark returns the benchmark with this name, or nil.
func (r *Registry) Benchmark(name string) *Kind { return find(r.Benchmarks, name) }

// Agent returns the agent with this name, or nil.
func (r *Registry) Agent(name string) *Kind { return find(r.Agents, name) }

// prompted returns the names of the agents that take a prompt.
func (r *Registry) prompted() (names []string) {
	for _, k := range r.Agents {
		if k.Prompt {
			names = append(names, k.Name)
		}
	}
	return names
}

// Vendor returns the vendor with this name, or nil.
func (r *Registry) Vendor(name string) *Kind { return find(r.Vendors, name) }

// An Exporter is an export format named on the command line, with its own options.
type Exporter struct {
	Name, Arg string
	Options   json.RawMessage
}

// Exporter parses NAME or NAME:ARG, with options as overrides of the keys options.KEY. Relative
// paths are relative to dir. The error has type [Errors].
func (r *Registry) Exporter(text string, options []Override, dir string) (e Exporter, err error) {
	at := pos{File: "--format"}
	errs := new(errorList)
	tree := override(&node{Kind: yamldoc.Map, Pos: at}, options, errs)
	e.Name, e.Arg, _ = strings.Cut(text, ":")
	k, msg, hint := r.name("format", r.Exporters, e.Name, &e.Arg, dir)
	if k == nil {
		errs.add(at, "", msg, hint)
	} else {
		l := &layout{reg: r, errs: errs, dir: dir}
		l.options(k, "format "+k.Name, e.Arg, &e.Options, tree, "")
	}
	return e, errs.err()
}

func kindNames(kinds []Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}

func (r *Registry) names(of string) []string {
	switch of {
	case "benchmark":
		return kindNames(r.Benchmarks)
	case "agent":
		return kindNames(r.Agents)
	case "vendor":
		return kindNames(r.Vendors)
	case "driver":
		return append([]string{"auto"}, kindNames(r.Drivers)...)
	}
	panic("config: no registry of " + of)
}

// Parsers of the short forms.

func (b *Benchmark) Set(text string) error {
	b.Name, b.Path, _ = strings.Cut(text, ":")
	return nil
}

func (a *Agent) Set(text string) error {
	a.Name, a.Arg, _ = strings.Cut(text, ":")
	return nil
}

func (m *Model) Set(text string) error {
	m.Name = text
	return nil
}

func (p *Prompt) Set(text string) error {
	p.File = text
	return nil
}

func (t *Tape) Set(text string) error {
	t.File = text
	return nil
}

// name checks that a kind exists, parses its argument, and makes a path absolute.
func (r *Registry) name(of string, kinds []Kind, name string, arg *string, dir string) (*Kind, string, string) {
	k := find(kinds, name)
	if k == nil {
		hint := yamldoc.OrKnown(name, kindNames(kinds))
		if first, _, ok := strings.Cut(name, ","); ok && of == "agent" && find(kinds, first) != nil {
			hint = "a value with an argument is one agent: repeat --agent for the others"
		}
		return nil, fmt.Sprintf("unknown %s %q", of, name), hint
	}
	switch {
	case *arg == "" && k.Arg != "" && !k.Optional:
		return nil, fmt.Sprintf("%s %s needs its %s", of, name, k.Arg), fmt.Sprintf("write %s:%s", name, k.Arg)
	case *arg != "" && k.Arg == "":
		return nil, fmt.Sprintf("%s %s takes nothing after its name, found %q", of, name, *arg), ""
	}
	if k.IsPath && *arg != "" {
		*arg = abs(dir, *arg)
	}
	return k, "", ""
}

func abs(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// Supported returns an error if the kind's options cannot be decoded.
func (k *Kind) Supported() error {
	if k.Options == nil {
		return nil
	}
	return yamldoc.Supported(k.Options)
}
