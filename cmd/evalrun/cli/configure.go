package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/internal/fsutil"
	"github.com/evalrun/evalrun/internal/suggest"
)

// configOptions are the flags that modify a configuration. Each flag sets one key, so that flags
// and files are validated by the same rules.
type configOptions struct {
	workers, repeats, seed, sample, limit, shard string
	driver, time, turns, record, replay          string
	agents, models, ids, tags, filter, set       []string
	baseURL, prompt, budget, deadline            string
}

func textFlag(dst *string, name, usage string, alias ...string) cli.Flag {
	return &cli.StringFlag{Name: name, Aliases: alias, Usage: usage, Destination: dst}
}

func listFlag(dst *[]string, name, usage string, alias ...string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Aliases: alias, Usage: usage, Destination: dst}
}

// flags returns all of these flags.
func (o *configOptions) flags(reg *config.Registry) []cli.Flag {
	s, l := textFlag, listFlag
	return slices.Concat([]cli.Flag{
		l(&o.agents, "agent", "`AGENT` to evaluate: "+listing(reg.Agents)+"; repeat for several arms"),
		l(&o.models, "model", "`MODEL` as VENDOR/NAME; vendors: "+listing(reg.Vendors)+"; repeat for several arms",
			"m"),
		s(&o.baseURL, "base-url", "`URL` of another service with the vendor's protocol, for --model"),
		s(&o.prompt, "prompt", "`FILE` with the system prompt"),
		s(&o.repeats, "repeats", "run each task `N` times per arm"),
	}, o.playFlags(reg), o.selectFlags(), []cli.Flag{
		s(&o.turns, "turns", "at most `N` model replies per trial"),
		s(&o.budget, "budget", "the run may cost at most `USD`"),
		s(&o.deadline, "deadline", "stop the run at `TIME`, such as 06:00"),
		s(&o.record, "record", "record model replies to tape `FILE`"),
		s(&o.replay, "replay", "replay model replies from tape `FILE`"),
	})
}

// selectFlags returns the flags that select tasks, and --set.
func (o *configOptions) selectFlags() []cli.Flag {
	s, l := textFlag, listFlag
	return []cli.Flag{
		l(&o.ids, "ids", "only tasks whose id matches `PATTERN`; repeatable"),
		l(&o.tags, "tag", "only tasks with `TAG`, or without it if written !TAG; repeatable"),
		l(&o.filter, "filter", "only tasks with `FIELD=VALUE` (or FIELD!=VALUE); repeatable, all must hold"),
		s(&o.seed, "seed", "random seed `N`"),
		s(&o.sample, "sample", "a random sample of `N` tasks"),
		s(&o.limit, "limit", "only the first `N` tasks"),
		s(&o.shard, "shard", "only part `I/N` of the tasks, to split a run over machines"),
		l(&o.set, "set", "set `KEY=VALUE` of the configuration, such as limits.steps=20; repeatable"),
	}
}

// playFlags returns the flags of commands that run trials.
func (o *configOptions) playFlags(reg *config.Registry) []cli.Flag {
	return []cli.Flag{
		textFlag(&o.workers, "workers", "run `N` trials at once", "n"),
		textFlag(&o.driver, "sandbox", "sandbox `DRIVER`: auto (what each task needs), "+listing(reg.Drivers)),
		textFlag(&o.time, "time", "time limit of the agent per trial, a `DURATION` such as 10m"),
	}
}

// eachAgent splits "oracle,nop" into two agents. A value with an agent's argument may contain
// commas, so it stays unchanged.
func (a *app) eachAgent(values []string) []string {
	var out []string
	for _, v := range values {
		names := strings.Split(v, ",")
		if slices.ContainsFunc(names, func(name string) bool { return a.reg.Agent(name) == nil }) {
			names = []string{v}
		}
		out = append(out, names...)
	}
	return out
}

func (a *app) overrides(o *configOptions) ([]config.Override, error) {
	var out []config.Override
	add := func(flag, path string, values ...string) {
		if len(values) > 0 && values[0] != "" { // given; app.before rejects empty values
			out = append(out, config.Override{Flag: "--" + flag, Path: path, Values: values})
		}
	}
	add("agent", "agent", a.eachAgent(o.agents)...)
	add("model", "model", o.models...)
	if o.baseURL != "" && len(o.models) != 1 {
		return nil, usage("name the model's base_url in a configuration, under models",
			"--base-url needs exactly one --model")
	}
	add("base-url", "model.base_url", o.baseURL)
	add("prompt", "prompt", o.prompt)
	add("workers", "workers", o.workers)
	add("repeats", "repeats", o.repeats)
	add("seed", "seed", o.seed)
	add("ids", "select.ids", o.ids...)
	add("tag", "select.tags", o.tags...)
	add("filter", "select.filter", o.filter...)
	add("sample", "select.sample", o.sample)
	add("limit", "select.limit", o.limit)
	add("shard", "shard", o.shard)
	add("sandbox", "sandbox.driver", o.driver)
	add("time", "limits.time", o.time)
	add("turns", "limits.turns", o.turns)
	add("budget", "budget.cost", o.budget)
	add("deadline", "budget.deadline", o.deadline)
	if o.record != "" && o.replay != "" {
		return nil, usage("", "--record and --replay cannot go together")
	}
	add("replay", "tape.file", o.replay)
	if o.record != "" {
		add("record", "tape.file", o.record)
		add("record", "tape.mode", "record")
	}
	for _, s := range o.set {
		key, val, ok := strings.Cut(s, "=")
		if !ok || !plainKey(key) {
			return nil, usage("write --set limits.steps=20, say", "--set %q is not of the form KEY=VALUE", s)
		}
		out = append(out, config.Override{Flag: "--set " + key, Path: key, Values: []string{val}, YAML: true})
	}
	return out, nil
}

// plainKey reports whether a key consists of names separated by dots.
func plainKey(key string) bool { return !strings.Contains("."+key+".", "..") }

// configure builds the effective configuration from arguments (one file, or names of benchmarks)
// and flags.
func (a *app) configure(args []string, o *configOptions) (*config.Effective, error) {
	if len(args) == 0 {
		return nil, usage("evalrun run quickstart needs nothing else; see evalrun run --help",
			"nothing to run: name a benchmark or a configuration file")
	}
	over, err := a.overrides(o)
	if err != nil {
		return nil, err
	}
	if args, err = a.recognised(args); err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	src := config.Source{Dir: dir, Over: over, Env: a.Env}
	if len(args) == 1 && isFile(args[0]) {
		b, err := fsutil.ReadFile(args[0], 0)
		if err != nil {
			return nil, usage(hintFor(err, args[0]), "configuration: %w", err)
		}
		if len(b) > 4<<20 {
			return nil, usage("a benchmark's data is named as NAME:FILE", "%s is too large for a configuration",
				args[0])
		}
		if b == nil {
			b = []byte{}
		}
		// Paths in flags are relative to the working directory, those in the file to the file's
		// directory.
		for i := range src.Over {
			a.absolute(&src.Over[i], dir)
		}
		src.Name, src.Data, src.Dir = args[0], b, filepath.Dir(filepath.Join(dir, args[0]))
		if filepath.IsAbs(args[0]) {
			src.Dir = filepath.Dir(args[0])
		}
	} else {
		reg := a.reg
		for _, arg := range args {
			name, _, _ := strings.Cut(arg, ":")
			if reg.Benchmark(name) == nil {
				return nil, a.notBenchmark(reg, arg, name)
			}
		}
		src.Over = append([]config.Override{{Flag: strings.Join(args, " "), Path: "benchmarks", Values: args}}, over...)
	}
	return config.Parse(src, a.reg)
}

// isFile reports whether an argument looks like a configuration file.
func isFile(arg string) bool {
	switch filepath.Ext(arg) {
	case ".yaml", ".yml", ".json":
		return !strings.Contains(arg, ":")
	}
	return false
}

func (a *app) notBenchmark(reg *config.Registry, arg, name string) error {
	hint := "benchmarks: " + strings.Join(kindNames(reg.Benchmarks), ", ") + "; a configuration file ends in .yaml"
	var names []string
	for _, k := range reg.Benchmarks {
		names = append(names, k.Name)
	}
	if meant := suggest.Names(name, names); meant != nil {
		hint = fmt.Sprintf("did you mean %q?", meant[0]+strings.TrimPrefix(arg, name))
	}
	if isFile(arg) {
		return usage("name what it is to run in it, under benchmarks",
			"configuration %s: a configuration is given alone", arg)
	}
	return usage(hint, "unknown benchmark %q", arg)
}

// wrapped formats the names of kinds in several lines.
func wrapped(kinds []config.Kind) string {
	var b strings.Builder
	for i, name := range kindNames(kinds) {
		switch {
		case i > 0 && i%6 == 0:
			b.WriteString(",\n")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(name)
	}
	return b.String()
}

// listing formats the names of kinds for help texts.
func listing(kinds []config.Kind) string { return strings.Join(kindNames(kinds), ", ") }

func kindNames(kinds []config.Kind) []string {
	var out []string
	for _, k := range kinds {
		if k.Hidden {
			continue
		}
		name := k.Name
		switch {
		case k.Optional:
			name += "[:" + k.Arg + "]"
		case k.Arg != "":
			name += ":" + k.Arg
		}
		out = append(out, name)
	}
	return out
}

// absolute makes a path given by a flag independent of the configuration's directory.
func (a *app) absolute(o *config.Override, dir string) {
	join := func(p string) string {
		if filepath.IsAbs(p) {
			return p
		}
		return filepath.Join(dir, p)
	}
	switch o.Path {
	case "prompt", "tape.file":
		o.Values[0] = join(o.Values[0])
	case "agent":
		for i, v := range o.Values {
			name, arg, ok := strings.Cut(v, ":")
			if k := a.reg.Agent(name); ok && k != nil && k.IsPath {
				o.Values[i] = name + ":" + join(arg)
			}
		}
	}
}

func hintFor(err error, name string) string {
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(name)
		entries, _ := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if meant := suggest.Names(filepath.Base(name), names); meant != nil {
			return fmt.Sprintf("did you mean %q?", filepath.Join(dir, meant[0]))
		}
	}
	return ""
}
