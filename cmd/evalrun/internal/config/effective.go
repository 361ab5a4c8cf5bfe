package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
)

// An Effective configuration is complete: defaults filled in, the matrix laid out as listed arms, prompts read, paths absolute.
// As a File it can be stored and parsed again, with the same arms as outcome.
type Effective struct {
	File
	// Arms are those of File.Arms, in their order, as the record of a run holds them.
	Records []record.Arm
	// Notes are remarks for the user: cells of the matrix that came to the same arm, say.
	Notes []string
}

// A Source is where a configuration comes from.
type Source struct {
	Name string // for messages; "" when there is no file
	Data []byte
	Dir  string     // paths in Data are relative to it
	Over []Override // what the command line says; it wins
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
  time: 30m
  turns: 100
  steps: 500
  output: 64MiB
phases: {image: 30m, start: 5m, command: 5m, collect: 2m, grade: 10m, close: 1m, grace: 10s}
repeats: 1
seed: 1
min_coverage: 1
retries: {attempts: 3, pause_after: 10, wait: 1s}
pools: {connections: 64}
sandbox: {driver: auto}
`

// armKeys are what an arm inherits from the run, in the order of an effective configuration.
var armKeys = []string{"agent", "model", "prompt", "params", "limits", "sandbox"}

// mergeKeys are merged key by key; the others are replaced as a whole.
var mergeKeys = []string{"params", "limits", "sandbox"}

// Parse reads a configuration and makes it complete. Its error is of type [Errors] and holds all that is wrong, unless a file
// could not be read.
func Parse(src Source, reg *Registry) (*Effective, error) {
	errs := new(errorList)
	tree := &node{kind: kindMap, at: pos{file: src.Name, line: 1, col: 1}}
	if src.Data != nil {
		if tree = parse(src.Name, src.Data, errs); tree == nil {
			return nil, errs.err()
		}
		if tree.kind != kindMap {
			errs.add(tree.at, "", "a configuration is a mapping of keys to values, found "+tree.kind.String(), "")
			return nil, errs.err()
		}
	}
	tree = override(tree, src.Over, errs)

	l := &layout{reg: reg, errs: errs, dir: src.Dir, out: new(Effective)}
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
			if o.YAML {
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
			tree = tree.without("benchmark", "benchmarks").with("benchmarks", v)
			continue
		}
		if len(items) == 1 && !strings.HasPrefix(o.Path, "select.") {
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
	full := merge(tree, def, "limits", "phases", "sandbox", "retries", "pools")
	f := &l.out.File
	l.decode(full, f, "")
	// What was decoded is checked even when something else was wrong, so that all is told at once.
	l.benchmarks(full)
	l.arms(full)
	if len(l.errs.list) > 0 {
		return
	}
	l.bounds(full)
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
		case v == nil || v.kind == kindNull:
			out = out.with(e.key, e.val)
		case slices.Contains(deep, e.key) && v.kind == kindMap && e.val.kind == kindMap:
			out = out.with(e.key, merge(v, e.val))
		}
	}
	return out
}

func (l *layout) benchmarks(tree *node) {
	f := &l.out.File
	nodes := []*node{}
	if b := tree.get("benchmarks"); b != nil && b.kind == kindList {
		nodes = b.list
	} else if b != nil && b.kind != kindNull {
		nodes = []*node{b}
	}
	if f.Benchmark != nil {
		f.Benchmarks = append([]Benchmark{*f.Benchmark}, f.Benchmarks...)
		nodes = append([]*node{tree.get("benchmark")}, nodes...)
	}
	if len(f.Benchmarks) == 0 {
		if len(l.errs.list) > 0 { // a mistyped key, most likely
			return
		}
		l.errs.add(pos{file: tree.at.file}, "benchmark", "no benchmark is named", "add a line such as: benchmark: quickstart")
		return
	}
	seen := map[string]bool{}
	for i := range f.Benchmarks {
		b := &f.Benchmarks[i]
		if i >= len(nodes) || b.Name == "" { // was not decoded
			continue
		}
		n := nodes[i]
		at := cmpNode(n.get("name"), n)
		k, msg, hint := l.reg.name("benchmark", l.reg.Benchmarks, b.Name, &b.Path, l.dir)
		if msg != "" {
			l.fail(at, "benchmark", msg, hint)
			continue
		}
		l.options(k, "benchmark "+b.Name, b.Path, &b.Options, n)
		key := b.Name + ":" + b.Path
		if seen[key] {
			l.fail(at, "benchmarks", fmt.Sprintf("benchmark %s is there twice", key), "")
		}
		seen[key] = true
		b.Select = b.Select.over(f.Select)
		l.selects(b.Select, cmpNode(n.get("select"), tree.get("select"), n))
	}
	f.Benchmark, f.Select = nil, nil
}

func cmpNode(nodes ...*node) *node {
	for _, n := range nodes {
		if n != nil {
			return n
		}
	}
	return nil
}

// Selection is s as a plan takes it.
func (s *Select) Selection() plan.Selection {
	if s == nil {
		return plan.Selection{}
	}
	return plan.Selection{IDs: s.IDs, Tags: s.Tags, Filter: s.Filter, Sample: s.Sample, Limit: s.Limit}
}

// over fills what s leaves open from base.
func (s *Select) over(base *Select) *Select {
	if s == nil {
		return base
	}
	if base == nil {
		return s
	}
	c := *s
	if c.IDs == nil {
		c.IDs = base.IDs
	}
	if c.Tags == nil {
		c.Tags = base.Tags
	}
	if c.Filter == nil {
		c.Filter = base.Filter
	}
	if c.Sample == 0 {
		c.Sample = base.Sample
	}
	if c.Limit == 0 {
		c.Limit = base.Limit
	}
	return &c
}

func (l *layout) selects(s *Select, n *node) {
	if s == nil {
		return
	}
	if err := s.Selection().Check(); err != nil {
		l.fail(cmpNode(n.get("filter"), n.get("ids"), n), "select", err.Error(), "")
	}
}

// options decodes a kind's own options strictly.
func (l *layout) options(k *Kind, what, arg string, rawOpts *json.RawMessage, n *node) {
	on := n.get("options")
	if on != nil && on.kind != kindNull {
		if k.Options == nil {
			l.fail(on, "options", what+" has no options", "")
			return
		}
		before := len(l.errs.list)
		v := reflect.New(k.Options)
		d := &decoder{reg: l.reg, errs: l.errs, root: ""}
		d.decode(on, v.Elem(), "options")
		if len(l.errs.list) > before {
			return
		}
		if err := absolutePaths(rawOpts, k.Paths, l.dir); err != nil {
			l.fail(on, "options", what+": "+err.Error(), "")
			return
		}
	} else {
		*rawOpts = nil
	}
	if k.Check != nil {
		if err := k.Check(arg, *rawOpts); err != nil {
			l.fail(cmpNode(on, n), "options", what+": "+err.Error(), "")
		}
	}
}

// absolutePaths rewrites options that are paths.
func absolutePaths(opts *json.RawMessage, keys []string, dir string) error {
	if len(keys) == 0 {
		return nil
	}
	var m map[string]any
	if err := json.Unmarshal(*opts, &m); err != nil {
		return err
	}
	for _, k := range keys {
		if s, ok := m[k].(string); ok && s != "" {
			m[k] = abs(dir, s)
		}
	}
	b, err := json.Marshal(m)
	*opts = b
	return err
}

func (l *layout) arms(tree *node) {
	base := &node{kind: kindMap, at: tree.at}
	for _, k := range armKeys {
		if v := tree.get(k); v != nil {
			base = base.with(k, v)
		}
	}
	var trees []*node
	if a := tree.get("arms"); a != nil && a.kind == kindList {
		for _, x := range a.list {
			if x.kind == kindMap {
				trees = append(trees, merge(x, base, mergeKeys...))
			}
		}
	}
	listed := len(trees)
	trees = append(trees, l.matrix(tree, base)...)
	if len(trees) == 0 && tree.get("matrix") == nil && tree.get("arms") == nil {
		trees = l.plain(base)
	}
	if len(trees) == 0 && len(l.errs.list) == 0 {
		l.fail(cmpNode(tree.get("matrix"), tree.get("arms"), tree), "arms", "no arm is left to run", "see matrix, exclude and arms")
		return
	}

	f := &l.out.File
	f.Arms = nil
	places := map[string]*node{}
	byID := map[string]string{}
	for i, t := range trees {
		root := fmt.Sprintf("arms[%d].", i)
		if i >= listed {
			root = ""
		}
		var a Arm
		before := len(l.errs.list)
		l.decode(t, &a, root)
		if len(l.errs.list) > before {
			continue
		}
		rec, ok := l.arm(&a, t, root, tree.get("tape"))
		if !ok {
			continue
		}
		at := cmpNode(t.get("name"), t)
		if first, ok := byID[rec.ID]; ok {
			if i >= listed && a.Name == first {
				continue // oracle needs no model, so all its cells are one
			}
			if i >= listed {
				l.out.Notes = append(l.out.Notes, fmt.Sprintf("arm %q is the same as %q and is left out", a.Name, first))
				continue
			}
			l.fail(at, root+"name", fmt.Sprintf("arm %q is the same as arm %q: nothing that is compared differs", a.Name, first), "")
			continue
		}
		if first, ok := places[a.Name]; ok {
			l.fail(at, root+"name", fmt.Sprintf("two arms are called %q; the first is at %s", a.Name, first.at), "give each arm a name of its own")
			continue
		}
		byID[rec.ID], places[a.Name] = a.Name, at
		f.Arms = append(f.Arms, a)
		l.out.Records = append(l.out.Records, rec)
	}
	l.gates(tree)
}

// plain makes the arms of a configuration that lists none: with a model codeact, with nothing at all oracle and nop, which
// together show that benchmark and machine work.
func (l *layout) plain(base *node) []*node {
	if base.get("agent") != nil {
		return []*node{base}
	}
	word := func(s string) *node { return &node{kind: kindString, text: s, at: base.at} }
	if base.get("model") != nil {
		return []*node{base.with("agent", word("codeact"))}
	}
	l.out.Notes = append(l.out.Notes, "no agent is named, so oracle and nop are run; add --agent NAME, or -m VENDOR/MODEL for codeact")
	return []*node{base.with("agent", word("oracle")), base.with("agent", word("nop"))}
}

// arm checks a decoded arm, reads what it names, and gives it its identity.
func (l *layout) arm(a *Arm, t *node, root string, tape *node) (record.Arm, bool) {
	before := len(l.errs.list)
	if a.Agent == nil {
		if a.Model == nil {
			l.fail(t, root+"agent", "an arm without agent and model", "name an agent")
			return record.Arm{}, false
		}
		a.Agent = &Agent{Name: "codeact"}
	}
	an := cmpNode(t.get("agent"), t)
	k, msg, hint := l.reg.name("agent", l.reg.Agents, a.Agent.Name, &a.Agent.Arg, l.dir)
	if msg != "" {
		l.fail(cmpNode(an.get("name"), an), root+"agent", msg, hint)
		return record.Arm{}, false
	}
	l.options(k, "agent "+k.Name, a.Agent.Arg, &a.Agent.Options, an)

	label := ""
	if k.Model && a.Model != nil {
		label = l.named(a)
		l.model(a.Model, t.get("model"), root+"model")
		if a.Model.Tape == nil && l.out.File.Tape != nil {
			c := *l.out.File.Tape
			c.File = abs(l.dir, c.File)
			a.Model.Tape = &c
		}
	} else if k.NeedsModel {
		l.fail(an, root+"model", fmt.Sprintf("agent %s needs a model", k.Name), "add -m openai/NAME, or the key model")
	} else {
		a.Model, a.Params = nil, nil
		delete(a.Axes, "model")
	}
	if k.Prompt && a.Prompt != nil {
		l.prompt(a.Prompt, cmpNode(t.get("prompt"), t), root+"prompt")
	} else {
		a.Prompt = nil
		delete(a.Axes, "prompt")
	}
	if s := a.Sandbox; s != nil {
		n := cmpNode(t.get("sandbox"), t)
		if s.Memory != 0 && s.Memory < 16<<20 {
			l.fail(cmpNode(n.get("memory"), n), root+"sandbox.memory", fmt.Sprintf("memory %s is less than a machine needs to start", s.Memory), "the least is 16MiB")
		}
		if a.Sandbox.Image != "" && strings.HasPrefix(s.Image, "dir:") {
			s.Image = "dir:" + abs(l.dir, strings.TrimPrefix(s.Image, "dir:"))
		}
		s.Driver = ""
		if reflect.ValueOf(*s).IsZero() {
			a.Sandbox = nil
		}
	}
	if len(l.errs.list) > before {
		return record.Arm{}, false
	}
	if a.Name == "" {
		a.Name = armName(a, label)
	}
	if bad := badName(a.Name); bad != "" {
		l.fail(cmpNode(t.get("name"), t), root+"name", fmt.Sprintf("arm name %q %s", a.Name, bad), "")
		return record.Arm{}, false
	}
	def, err := definition(a, k, l.command())
	if err != nil {
		l.fail(an, root+"agent", err.Error(), "")
		return record.Arm{}, false
	}
	rec := record.Arm{Name: a.Name, Agent: a.Agent.Name, Axes: maps.Clone(a.Axes)}
	if a.Model != nil {
		rec.Model = a.Model.Name
	}
	if a.Prompt != nil {
		rec.Prompt = a.Prompt.Name
	}
	if rec.ID, err = record.ArmID(def); err == nil {
		rec.Def, err = record.Canonical(def)
	}
	if err != nil {
		l.fail(t, root, err.Error(), "")
		return record.Arm{}, false
	}
	return rec, true
}

func (l *layout) command() Duration {
	if p := l.out.File.Phases; p != nil {
		return p.Command
	}
	return 0
}

func badName(s string) string {
	switch {
	case len(s) > 200:
		return "is longer than 200 bytes"
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "holds characters that cannot be shown"
	}
	return ""
}

// named replaces a model that is named in models by what stands there, and returns its label.
func (l *layout) named(a *Arm) string {
	name := a.Model.Name
	if m, ok := l.out.File.Models[name]; ok && m != nil {
		c := *m
		if a.Model.Tape != nil {
			c.Tape = a.Model.Tape
		}
		a.Model = &c
		return name
	}
	_, label, _ := strings.Cut(name, "/")
	return label
}

func (l *layout) model(m *Model, n *node, key string) {
	if m == nil {
		l.fail(n, key, "an empty model", "")
		return
	}
	vendor, name, ok := strings.Cut(m.Name, "/")
	at := cmpNode(n.get("name"), n)
	if !ok || name == "" {
		names := slices.Sorted(maps.Keys(l.out.File.Models))
		for _, v := range kindNames(l.reg.Vendors) {
			names = append(names, v+"/NAME")
		}
		l.fail(at, key, fmt.Sprintf("unknown model %q", m.Name), orKnown(m.Name, names))
		return
	}
	if l.reg.Vendor(vendor) == nil {
		l.fail(at, key, fmt.Sprintf("unknown vendor %q of model %q", vendor, m.Name), orKnown(vendor, l.reg.names("vendor")))
		return
	}
	if m.Key == "" && m.BaseURL == "" {
		if v := l.reg.Vendor(vendor).KeyVar; v != "" {
			m.Key = Secret("${" + v + "}")
		}
	}
	if m.BaseURL != "" && !strings.HasPrefix(m.BaseURL, "http://") && !strings.HasPrefix(m.BaseURL, "https://") {
		l.fail(cmpNode(n.get("base_url"), n), key+".base_url", fmt.Sprintf("base_url: %q is not an address", m.BaseURL), "it begins with http:// or https://")
	}
	if m.Tape != nil {
		m.Tape.File = abs(l.dir, m.Tape.File)
	}
}

const maxPrompt = 1 << 20

func (l *layout) prompt(p *Prompt, n *node, key string) {
	switch {
	case p.File != "" && p.Text != "":
		l.fail(n, key, "a prompt has a file or a text, not both", "")
		return
	case p.File == "" && p.Text == "":
		l.fail(n, key, "a prompt needs a file or a text", "")
		return
	case p.File != "":
		path := abs(l.dir, p.File)
		b, err := os.ReadFile(path)
		switch {
		case err != nil:
			l.fail(cmpNode(n.get("file"), n), key, "prompt: "+err.Error(), "paths are relative to the configuration's folder")
			return
		case len(b) > maxPrompt:
			l.fail(n, key, fmt.Sprintf("prompt %s is larger than 1MiB", path), "")
			return
		case !utf8.Valid(b):
			l.fail(n, key, fmt.Sprintf("prompt %s is not UTF-8 text", path), "")
			return
		case strings.TrimSpace(string(b)) == "":
			l.fail(n, key, fmt.Sprintf("prompt %s is empty", path), "")
			return
		}
		if p.Name == "" {
			p.Name = promptLabel(p.File)
		}
		p.Text, p.File = string(b), ""
	}
	if p.Name == "" {
		sum := sha256.Sum256([]byte(p.Text))
		p.Name = "prompt-" + hex.EncodeToString(sum[:3])
	}
}

func promptLabel(file string) string {
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// armName is agent, model and prompt, and the values of other axes.
func armName(a *Arm, modelLabel string) string {
	parts := []string{a.Agent.Name}
	if a.Model != nil {
		if a.Agent.Name == "codeact" { // the usual agent goes without saying
			parts = nil
		}
		parts = append(parts, modelLabel)
	}
	if a.Prompt != nil {
		parts = append(parts, a.Prompt.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(a.Axes)) {
		if k != "agent" && k != "model" && k != "prompt" {
			parts = append(parts, last(k)+"="+a.Axes[k])
		}
	}
	return strings.Join(parts, "+")
}

// definition is what makes an arm the arm it is. What only says how a service is reached (key, price, tape, pool sizes) is no
// part of it; neither is the driver, which is recorded with each attempt.
func definition(a *Arm, k *Kind, command Duration) (any, error) {
	def := struct {
		Agent   string            `json:"agent"`
		Arg     string            `json:"arg,omitempty"`
		Options map[string]string `json:"options,omitempty"`
		More    any               `json:"more,omitempty"`
		Model   string            `json:"model,omitempty"`
		BaseURL string            `json:"base_url,omitempty"`
		Params  map[string]string `json:"params,omitempty"`
		Prompt  string            `json:"prompt,omitempty"` // SHA-256 of the text
		Limits  any               `json:"limits,omitempty"`
		Sandbox *Sandbox          `json:"sandbox,omitempty"`
	}{Agent: a.Agent.Name, Sandbox: a.Sandbox}
	var err error
	if a.Agent.Options != nil {
		def.Options, err = explicit(a.Agent.Options)
		for _, key := range k.Paths { // known by their content, as Define gives it
			delete(def.Options, key)
		}
	}
	if err != nil {
		return nil, err
	}
	if a.Params != nil {
		if def.Params, err = explicit(a.Params); err != nil {
			return nil, err
		}
	}
	if !k.IsPath { // a file is known by its content, which Define gives
		def.Arg = a.Agent.Arg
	}
	if a.Model != nil {
		def.Model, def.BaseURL = a.Model.Name, a.Model.BaseURL
	}
	if a.Prompt != nil {
		sum := sha256.Sum256([]byte(a.Prompt.Text))
		def.Prompt = hex.EncodeToString(sum[:])
	}
	if l := a.Limits; l != nil {
		def.Limits = map[string]int64{
			"time_ns": int64(l.Time), "turns": int64(l.Turns), "steps": int64(l.Steps), "tokens": int64(l.Tokens),
			"cost_micro_usd": int64(l.Cost * 1e6), "output": int64(l.Output), "command_ns": int64(command),
		}
	}
	if k.Define != nil {
		more, err := k.Define(a.Agent.Arg, a.Agent.Options)
		if err != nil {
			return nil, err
		}
		def.More = more
	}
	return def, nil
}

// explicit returns the members of an object, each as JSON text: a temperature of 0 that was asked for is not the same as none, but canonical
// JSON has no zeros.
func explicit(v any) (map[string]string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var members map[string]any
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for k, m := range members {
		if b, err = json.Marshal(m); err != nil { // with sorted keys
			return nil, err
		}
		out[k] = string(b)
	}
	return out, nil
}

func (l *layout) gates(tree *node) {
	f := &l.out.File
	var names []string
	for _, a := range f.Arms {
		names = append(names, a.Name)
	}
	known := func(name string, n *node, key string) {
		if name != "" && !slices.Contains(names, name) && len(names) > 0 {
			l.fail(n, key, fmt.Sprintf("no arm is called %q", name), orKnown(name, names))
		}
	}
	list := tree.get("gates")
	for i := range f.Gates {
		g := &f.Gates[i]
		n := tree
		if list != nil && i < len(list.list) {
			n = list.list[i]
		}
		key := fmt.Sprintf("gates[%d]", i)
		known(g.Arm, cmpNode(n.get("arm"), n), key+".arm")
		known(g.Than, cmpNode(n.get("than"), n), key+".than")
		if g.Metric == "" {
			g.Metric = "mean"
		}
		switch {
		case g.Min == nil && g.Max == nil:
			l.fail(n, key, "a gate needs min or max", "")
		case g.Min != nil && g.Max != nil && *g.Min > *g.Max:
			l.fail(n, key, "a gate whose min is above its max can never pass", "")
		case g.Metric == "difference" && (g.Arm == "" || g.Than == ""):
			l.fail(n, key, "a gate on a difference needs arm and than", "")
		case g.Metric != "difference" && g.Than != "":
			l.fail(n, key, "than is for the metric difference", "")
		}
	}
}

// bounds finds limits that cannot be kept together.
func (l *layout) bounds(tree *node) {
	f := &l.out.File
	if f.Pools == nil || f.Pools.Memory == 0 {
		return
	}
	for _, a := range f.Arms {
		if a.Sandbox != nil && a.Sandbox.Memory > f.Pools.Memory {
			n := tree.get("pools").get("memory")
			l.fail(n, "pools.memory", fmt.Sprintf("pools.memory %s is less than one machine of arm %q, %s: no trial could start",
				f.Pools.Memory, a.Name, a.Sandbox.Memory), "raise pools.memory or lower sandbox.memory")
			return
		}
	}
}

// JSON is the effective configuration as the plan of a run stores it.
func (e *Effective) JSON() ([]byte, error) { return json.Marshal(&e.File) }

// YAML is the effective configuration as people read it: itself a configuration.
func (e *Effective) YAML() ([]byte, error) {
	b, err := e.JSON()
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(b)
}
