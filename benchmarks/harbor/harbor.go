package harbor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/harbor/compose"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Benchmark of Harbor tasks.
type Benchmark struct {
	name   string
	o      Options
	source datasets.Source
}

// New makes the benchmark of a task's folder, a folder of such, a dataset.toml or a registry.json.
// Tasks are read when they are asked for.
func New(path string, raw json.RawMessage) (*Benchmark, error) {
	o, err := parseOptions(raw)
	if err != nil {
		return nil, fmt.Errorf("options of harbor: %w", err)
	}
	b := &Benchmark{o: o}
	b.name, b.source, err = format.Open(path, format.SourceOptions{
		Include: o.TaskNames, Exclude: o.ExcludeNames, Limit: o.NTasks, ExtraInstructions: o.ExtraInstructions,
		Dataset: o.Dataset, Root: o.Root, Fetch: o.Fetch, Cache: o.Cache,
	})
	if err != nil {
		return nil, fmt.Errorf("harbor: %w", err)
	}
	return b, nil
}

func (b *Benchmark) Name() string            { return b.name }
func (b *Benchmark) Source() datasets.Source { return b.source }

// decode is the task that a datasets.Task of this benchmark holds.
func decode(t datasets.Task) (*format.Task, error) {
	var d format.Task
	if err := json.Unmarshal(t.Data, &d); err != nil {
		return nil, &benchmarks.TaskError{Task: t.ID, Err: err}
	}
	return &d, nil
}

// Needs the agent's machine with its sidecars, and one for each environment that verifiers have of
// their own. What cannot be run here is skipped with the reason.
func (b *Benchmark) Needs(dt datasets.Task, o benchmarks.Options) (benchmarks.Needs, error) {
	t, err := decode(dt)
	if err != nil {
		return benchmarks.Needs{}, err
	}
	if why := b.skipReason(t, o); why != "" {
		return benchmarks.Needs{Skip: why}, nil
	}
	allowed := b.allowedVariables()
	late := false
	main, err := b.agentMachine(t, dt.Files, o, func(name string) (string, error) {
		v, err := allowed(name)
		late = late || err == nil
		return v, err
	})
	if err != nil {
		return skipOrFail(t, err)
	}
	n := benchmarks.Needs{Agent: []sandbox.Spec{main.Spec}, InTurn: true, Late: late}
	var envs []*format.Environment
	for i := range t.Steps {
		v := &t.Steps[i].Verifier
		n.GradeLive = n.GradeLive || !v.Separate || t.Steps[i].MinReward != nil
		if _, err := v.Env.Resolve("verifier.env", allowed); err != nil {
			return skipOrFail(t, err)
		}
		if !v.Separate ||
			slices.ContainsFunc(envs, func(e *format.Environment) bool { return sameEnvironment(e, v.Environment) }) {
			continue
		}
		envs = append(envs, v.Environment)
		g, err := b.verifierMachine(t, i, dt.Files, o, allowed)
		if err != nil {
			return skipOrFail(t, err)
		}
		n.Grader = append(n.Grader, g.Spec)
	}
	if _, err := format.ResolveServers(t.Environment.MCP, allowed); err != nil {
		return skipOrFail(t, err)
	}
	b.phaseTimes(t, &n)
	return n, nil
}

func sameEnvironment(a, b *format.Environment) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// allowedVariables looks up the names that the run allows; their values are not known yet.
func (b *Benchmark) allowedVariables() format.Lookup {
	return func(name string) (string, error) {
		if slices.Contains(b.o.Env, name) {
			return format.Placeholder, nil
		}
		return "", &format.MissingVariable{Name: name}
	}
}

// variables gives the values of the names that the run allows, by the host.
func (b *Benchmark) variables(h benchmarks.Host) format.Lookup {
	return func(name string) (string, error) {
		if !slices.Contains(b.o.Env, name) {
			return "", &format.MissingVariable{Name: name}
		}
		v, err := h.Secret(name)
		if err != nil {
			return "", &format.MissingVariable{Name: name, Err: err}
		}
		return v, nil
	}
}

// skipOrFail turns errors about what this run does not provide into a reason to skip; others stay.
func skipOrFail(t *format.Task, err error) (benchmarks.Needs, error) {
	if format.OnlyMissing(err) || compose.OnlyRefused(err) {
		return benchmarks.Needs{Skip: oneLine(err)}, nil
	}
	return benchmarks.Needs{}, &benchmarks.TaskError{Task: t.Name, Err: err}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// skipReason says why a task cannot be run here; "": it can.
func (b *Benchmark) skipReason(t *format.Task, o benchmarks.Options) string {
	var why []string
	if s := b.nonPublicHosts(t, o); s != "" {
		why = append(why, s)
	}
	check := func(e *format.Environment, who string) {
		if e.OS == "windows" {
			why = append(why, who+" is a Windows container")
		}
		if e.TPU != nil {
			why = append(why, fmt.Sprintf("%s wants a TPU (%s)", who, e.TPU.Type))
		}
		if e.GPUs > 0 && b.o.GPUs != "ignore" {
			why = append(why, fmt.Sprintf("%s wants %d GPU(s); gpus: ignore runs it without", who, e.GPUs))
		}
		if e.Refused != "" {
			why = append(why, e.Refused)
		}
	}
	check(&t.Environment, "the environment")
	for i := range t.Steps {
		if v := &t.Steps[i].Verifier; v.Separate && t.Environment.OS != "windows" {
			check(v.Environment, "the verifier")
		}
	}
	slices.Sort(why)
	return strings.ReplaceAll(strings.Join(slices.Compact(why), "; "), "\n", "; ")
}
