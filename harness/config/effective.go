package config

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/yamldoc"
)

// An Effective is a complete configuration: defaults filled in, the matrix expanded into arms,
// prompts read, paths absolute. As a File it can be stored and parsed again, with the same arms as
// result.
type Effective struct {
	File
	// Records holds File.Arms, in the same order, in the form of a run's record.
	Records []record.Arm
	// Notes are messages for the user, such as cells of the matrix that gave the same arm.
	Notes []string

	tree *node
}

// Wrong returns an error about a key that was found only when the configuration was used, with the
// position of the key.
func (e *Effective) Wrong(key, msg, hint string) error {
	at, n := pos{}, e.tree
	for part := range strings.SplitSeq(key, ".") {
		if n = n.Get(part); n != nil {
			at = n.Pos
		}
	}
	return &Error{Pos: at, Key: key, Msg: msg, Hint: hint}
}

// ModelKey returns the key that defines the model NAME: "models.small", or as if models has no
// single entry for it.
func (e *Effective) ModelKey(name, as string) string {
	found := ""
	if models := e.tree.Get("models"); models != nil {
		for _, m := range models.Entries {
			n := m.Value
			if inner := n.Get("name"); inner != nil {
				n = inner
			}
			if n.Text == name {
				if found != "" {
					return as
				}
				found = "models." + m.Key
			}
		}
	}
	return cmp.Or(found, as)
}

// A Source is the input of Parse.
type Source struct {
	Name string // used in messages; "" if there is no file
	Data []byte
	Dir  string     // folder that paths in Data are relative to
	Over []Override // overrides from the command line
	// Env looks up the variables that usually hold vendors' addresses. If nil, they are not used.
	Env func(name string) (string, bool)
}

// An Override sets one key from the command line.
type Override struct {
	Flag   string // used in messages: "--workers"
	Path   string // dotted: "select.limit"
	Values []string
	YAML   bool // Values are YAML, not plain text
}

// defaults apply if neither the file nor the command line sets a key. Zero means no limit.
const defaults = `
limits:
  turns: 100
  steps: 500
  output: 64MiB
phases: {image: 30m, start: 5m, command: 5m, collect: 2m, grade: 10m, close: 1m, grace: 10s}
repeats: 1
seed: 1
min_coverage: 1
retries: {attempts: 3, pause_after: 10, wait: 1s}
pools: {connections: 64}
images: {pull: missing}
browser: {pace: fast}
sandbox: {driver: auto}
integrity: confirm
`

// armKeys are the keys that an arm inherits from the run, in the order of an effective
// configuration.
var armKeys = []string{"agent", "model", "prompt", "params", "limits", "sandbox"}

// mergeKeys are merged key by key; other keys are replaced as a whole.
var mergeKeys = []string{"params", "limits", "sandbox"}

// Parse reads a configuration and completes it. Its error has type [Errors] and lists everything
// that is wrong, unless a file could not be read.
func Parse(src Source, reg *Registry) (*Effective, error) {
	errs := new(errorList)
	tree := &node{Kind: yamldoc.Map, Pos: pos{File: src.Name, Line: 1, Column: 1}}
	if src.Data != nil {
		if tree = parse(src.Name, src.Data, errs); tree == nil {
			return nil, errs.err()
		}
		if tree.Kind == yamldoc.Null {
			errs.add(pos{File: src.Name}, "", "the configuration is empty",
				"the least one is a line such as: benchmark: quickstart")
			return nil, errs.err()
		}
		if tree.Kind != yamldoc.Map {
			errs.add(tree.Pos, "", "a configuration is a mapping of keys to values, found "+tree.Kind.String(), "")
			return nil, errs.err()
		}
	}
	tree = override(tree, src.Over, errs)

	l := &layout{reg: reg, errs: errs, dir: src.Dir, out: &Effective{tree: tree}, lookup: src.Env}
	l.run(tree)
	if err := errs.err(); err != nil {
		return nil, err
	}
	return l.out, nil
}

func override(tree *node, over []Override, errs *errorList) *node {
	for _, o := range over {
		at := pos{File: o.Flag}
		items := make([]*node, len(o.Values))
		for i, v := range o.Values {
			items[i] = &node{Kind: yamldoc.String, Text: v, Pos: at}
			if o.YAML && strings.TrimSpace(v) != "" {
				if n := parse(o.Flag, []byte(v), errs); n != nil {
					items[i] = n
					items[i].Pos = at
				}
			}
		}
		v := &node{Kind: yamldoc.List, Items: items, Pos: at}
		switch o.Path {
		case "agent", "model":
			// Agents and models on the command line replace the arms of the file.
			tree = tree.Without("arms", "include", "exclude", o.Path)
			if m := tree.Get("matrix"); m != nil && m.Kind == yamldoc.Map {
				tree = tree.With("matrix", m.Without(o.Path))
			}
			if len(items) == 1 {
				tree = put(tree, o.Path, items[0])
			} else {
				tree = put(tree, "matrix", tree.Get("matrix").With(o.Path, v))
			}
			continue
		case "benchmark", "benchmarks":
			tree = tree.Without("benchmark", "benchmarks")
			switch {
			case len(items) != 1:
				tree = tree.With("benchmarks", v)
			case items[0].Kind == yamldoc.List:
				tree = tree.With("benchmarks", items[0])
			default: // as a single benchmark, so that benchmark.options can be set, too
				tree = tree.With("benchmark", items[0])
			}
			continue
		}
		if len(items) == 1 && (!strings.HasPrefix(o.Path, "select.") || items[0].Kind == yamldoc.Null) {
			v = items[0]
		} else if len(items) == 1 && slices.Contains([]string{"select.sample", "select.limit"}, o.Path) {
			v = items[0]
		}
		tree = put(tree, o.Path, v)
	}
	return tree
}

type layout struct {
	reg  *Registry
	errs *errorList
	dir  string
	out  *Effective

	models  *node // the models key, for positions
	prompts *node // the prompt for all arms
	driver  *node // the driver for all arms; an arm cannot set its own
	lookup  func(string) (string, bool)
	vars    *Env // nil until read
}

// env returns the value of a variable in the environment or in env_file.
func (l *layout) env(name string) (string, bool) {
	if l.lookup == nil || name == "" {
		return "", false
	}
	if l.vars == nil {
		file := l.out.File.EnvFile
		if file != "" {
			file = abs(l.dir, file)
		}
		var err error
		if l.vars, err = NewEnv(l.lookup, file); err != nil { // reported when the run is prepared
			l.vars, _ = NewEnv(l.lookup, "")
		}
	}
	return l.vars.Lookup(name)
}

func (l *layout) decode(n *node, v any, root string) {
	l.decoder(root).Decode(n, v)
}

func (l *layout) fail(n *node, key, msg, hint string) {
	at := pos{}
	if n != nil {
		at = n.Pos
	}
	l.errs.add(at, key, msg, hint)
}

func (l *layout) run(tree *node) {
	def := parse("defaults", []byte(defaults), l.errs)
	full := merge(tree, def, "limits", "phases", "sandbox", "retries", "pools", "images")
	f := &l.out.File
	l.models = full.Get("models")
	l.decode(full, f, "")
	// Check what was decoded even after errors, so that all errors are reported together.
	l.benchmarks(full)
	l.arms(full)
	if len(l.errs.list) > 0 {
		return
	}
	l.bounds(full)
	if b := f.Browser; b != nil && strings.ContainsRune(b.Path, '/') {
		b.Path = abs(l.dir, b.Path)
	}
	if f.EnvFile != "" {
		f.EnvFile = abs(l.dir, f.EnvFile)
	}
	if f.Tape != nil {
		f.Tape.File = abs(l.dir, f.Tape.File)
	}
	for name, m := range f.Models {
		l.model(m, full.Get("models").Get(name), "models."+name)
	}
	for name, m := range f.Roles {
		if named, ok := f.Models[m.Name]; ok && named != nil {
			f.Roles[name] = named
			continue
		}
		l.model(m, full.Get("roles").Get(name), "roles."+name)
	}

	// From here on, the arms contain all these settings.
	f.Agent, f.Model, f.Prompt, f.Params, f.Limits = nil, nil, nil, nil, nil
	f.Matrix, f.Include, f.Exclude, f.Models, f.Tape = nil, nil, nil, nil, nil
	f.Sandbox = &Sandbox{Driver: f.Sandbox.Driver}
}

// merge overlays over on base. Mappings under the deep keys are merged one level down.
func merge(over, base *node, deep ...string) *node {
	if over == nil || over.Kind == yamldoc.Null {
		return base
	}
	out := over
	for _, e := range base.Entries {
		v := over.Get(e.Key)
		switch {
		case v == nil:
			out = out.With(e.Key, e.Value)
		case slices.Contains(deep, e.Key) && v.Kind == yamldoc.Map && e.Value.Kind == yamldoc.Map:
			out = out.With(e.Key, merge(v, e.Value))
		}
	}
	return out
}

// JSON returns the effective configuration as stored in a run's plan.
func (e *Effective) JSON() ([]byte, error) { return json.Marshal(&e.File) }

// YAML returns the effective configuration for people. It is a valid configuration, too.
func (e *Effective) YAML() ([]byte, error) {
	b, err := e.JSON()
	if err != nil {
		return nil, err
	}
	errs := new(errorList)
	n := parse("the effective configuration", b, errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	return yaml.Marshal(written(n))
}
