package config

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/evalrun/evalrun/harness/record"
)

// An Effective configuration is complete: defaults filled in, the matrix laid out as listed arms,
// prompts read, paths absolute. As a File it can be stored and parsed again, with the same arms as
// outcome.
type Effective struct {
	File
	// Records are File.Arms, in their order, as the record of a run holds them.
	Records []record.Arm
	// Notes are remarks for the user: cells of the matrix that came to the same arm, say.
	Notes []string

	tree *node
}

// Wrong is an error about a key that was found only when the configuration was put to use: it names
// the place where the key is written.
func (e *Effective) Wrong(key, msg, hint string) error {
	at, n := pos{}, e.tree
	for part := range strings.SplitSeq(key, ".") {
		if n = n.get(part); n != nil {
			at = n.at
		}
	}
	return &Error{Place: at.String(), Key: key, Msg: msg, Hint: hint, at: at}
}

// ModelKey is where the model NAME is described: "models.small", or as it is given where models has
// no single entry for it.
func (e *Effective) ModelKey(name, as string) string {
	found := ""
	if models := e.tree.get("models"); models != nil {
		for _, m := range models.entries {
			n := m.val
			if inner := n.get("name"); inner != nil {
				n = inner
			}
			if n.text == name {
				if found != "" {
					return as
				}
				found = "models." + m.key
			}
		}
	}
	return cmp.Or(found, as)
}

// A Source is where a configuration comes from.
type Source struct {
	Name string // for messages; "" when there is no file
	Data []byte
	Dir  string     // paths in Data are relative to it
	Over []Override // what the command line says; it wins
	// Env looks up the variables that vendors' addresses usually are in; nil: they are not looked
	// at.
	Env func(name string) (string, bool)
}

// An Override sets one key from the command line.
type Override struct {
	Flag   string // for messages: "--workers"
	Path   string // dotted: "select.limit"
	Values []string
	YAML   bool // Values hold YAML, not plain text
}

// defaults hold where neither file nor command line says something. Zero means: no limit.
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
`

// armKeys are what an arm inherits from the run, in the order of an effective configuration.
var armKeys = []string{"agent", "model", "prompt", "params", "limits", "sandbox"}

// mergeKeys are merged key by key; the others are replaced as a whole.
var mergeKeys = []string{"params", "limits", "sandbox"}

// Parse reads a configuration and makes it complete. Its error is of type [Errors] and holds all
// that is wrong, unless a file could not be read.
func Parse(src Source, reg *Registry) (*Effective, error) {
	errs := new(errorList)
	tree := &node{kind: kindMap, at: pos{file: src.Name, line: 1, col: 1}}
	if src.Data != nil {
		if tree = parse(src.Name, src.Data, errs); tree == nil {
			return nil, errs.err()
		}
		if tree.kind == kindNull {
			errs.add(pos{file: src.Name}, "", "the configuration is empty", "the least one is a line such as: benchmark: quickstart")
			return nil, errs.err()
		}
		if tree.kind != kindMap {
			errs.add(tree.at, "", "a configuration is a mapping of keys to values, found "+tree.kind.String(), "")
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
		at := pos{file: o.Flag}
		items := make([]*node, len(o.Values))
		for i, v := range o.Values {
			items[i] = &node{kind: kindString, text: v, at: at}
			if o.YAML && strings.TrimSpace(v) != "" {
				if n := parse(o.Flag, []byte(v), errs); n != nil {
					items[i] = n
					items[i].at = at
				}
			}
		}
		v := &node{kind: kindList, list: items, at: at}
		switch o.Path {
		case "agent", "model":
			// Arms are asked for on the command line, so those of the file are not meant.
			tree = tree.without("arms", "include", "exclude", o.Path)
			if m := tree.get("matrix"); m != nil && m.kind == kindMap {
				tree = tree.with("matrix", m.without(o.Path))
			}
			if len(items) == 1 {
				tree = tree.put(o.Path, items[0])
			} else {
				tree = tree.put("matrix", tree.get("matrix").with(o.Path, v))
			}
			continue
		case "benchmark", "benchmarks":
			tree = tree.without("benchmark", "benchmarks")
			switch {
			case len(items) != 1:
				tree = tree.with("benchmarks", v)
			case items[0].kind == kindList:
				tree = tree.with("benchmarks", items[0])
			default: // so that benchmark.options can be set as well
				tree = tree.with("benchmark", items[0])
			}
			continue
		}
		if len(items) == 1 && (!strings.HasPrefix(o.Path, "select.") || items[0].kind == kindNull) {
			v = items[0]
		} else if len(items) == 1 && slices.Contains([]string{"select.sample", "select.limit"}, o.Path) {
			v = items[0]
		}
		tree = tree.put(o.Path, v)
	}
	return tree
}

type layout struct {
	reg  *Registry
	errs *errorList
	dir  string
	out  *Effective

	models  *node // where models by name are written
	prompts *node // the prompt of all arms
	lookup  func(string) (string, bool)
	vars    *Env // nil: not read yet
}

// env is the value of a variable in the environment, or in env_file.
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
		if l.vars, err = NewEnv(l.lookup, file); err != nil { // which is told when the run is made ready
			l.vars, _ = NewEnv(l.lookup, "")
		}
	}
	return l.vars.Lookup(name)
}

func (l *layout) decode(n *node, v any, root string) {
	d := &decoder{reg: l.reg, errs: l.errs, root: root}
	d.decode(n, reflect.ValueOf(v).Elem(), "")
}

func (l *layout) fail(n *node, key, msg, hint string) {
	at := pos{}
	if n != nil {
		at = n.at
	}
	l.errs.add(at, key, msg, hint)
}

func (l *layout) run(tree *node) {
	def := parse("defaults", []byte(defaults), l.errs)
	full := merge(tree, def, "limits", "phases", "sandbox", "retries", "pools", "images")
	f := &l.out.File
	l.models = full.get("models")
	l.decode(full, f, "")
	// What was decoded is checked even when something else was wrong, so that all is told at once.
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
		l.model(m, full.get("models").get(name), "models."+name)
	}
	for name, m := range f.Roles {
		if named, ok := f.Models[m.Name]; ok && named != nil {
			f.Roles[name] = named
			continue
		}
		l.model(m, full.get("roles").get(name), "roles."+name)
	}

	// From here on the arms say it all.
	f.Agent, f.Model, f.Prompt, f.Params, f.Limits = nil, nil, nil, nil, nil
	f.Matrix, f.Include, f.Exclude, f.Models, f.Tape = nil, nil, nil, nil, nil
	f.Sandbox = &Sandbox{Driver: f.Sandbox.Driver}
}

// merge lays over on top of base. Mappings under the deep keys are merged one level down.
func merge(over, base *node, deep ...string) *node {
	if over == nil || over.kind == kindNull {
		return base
	}
	out := over
	for _, e := range base.entries {
		v := over.get(e.key)
		switch {
		case v == nil:
			out = out.with(e.key, e.val)
		case slices.Contains(deep, e.key) && v.kind == kindMap && e.val.kind == kindMap:
			out = out.with(e.key, merge(v, e.val))
		}
	}
	return out
}

// JSON is the effective configuration as the plan of a run stores it.
func (e *Effective) JSON() ([]byte, error) { return json.Marshal(&e.File) }

// YAML is the effective configuration as people read it: itself a configuration.
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
	return yaml.Marshal(n.written())
}
