package harbor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"
	"github.com/evalrun/evalrun/benchmarks/harbor/verify"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options of the benchmark.
type Options struct {
	TaskNames    []string `json:"task_names,omitempty" min:"1" doc:"Only tasks whose name matches one of these patterns, such as 'acme/*'."`
	ExcludeNames []string `json:"exclude_task_names,omitempty" doc:"Leave out tasks whose name matches one of these patterns."`
	NTasks       int      `json:"n_tasks,omitempty" min:"1" doc:"Only the first N of these tasks."`

	Timeout         float64  `json:"timeout_multiplier,omitempty" min:"0" doc:"Factor of all time limits that tasks set. Default 1."`
	AgentTimeout    *float64 `json:"agent_timeout_multiplier,omitempty" doc:"Factor of the agent's limit, in place of timeout_multiplier."`
	VerifierTimeout *float64 `json:"verifier_timeout_multiplier,omitempty" doc:"Factor of the verifier's limit, in place of timeout_multiplier."`
	BuildTimeout    *float64 `json:"build_timeout_multiplier,omitempty" doc:"Factor of the limit of building and starting machines, in place of timeout_multiplier."`
	SetupTimeout    *float64 `json:"setup_timeout_multiplier,omitempty" doc:"Factor of the limits of health checks and of a step's setup.sh, in place of timeout_multiplier."`

	ExtraInstructions []string          `json:"extra_instructions,omitempty" doc:"Files whose text is added to every instruction."`
	Env               []string          `json:"env,omitempty" doc:"Names that tasks may take from this machine by ${NAME}; their values are among the configuration's secrets."`
	VerifierEnv       map[string]string `json:"verifier_env,omitempty" doc:"Variables for every verifier, over the task's own."`

	AllowHosts      []string `json:"allow_hosts,omitempty" doc:"Hosts that every machine may reach beside what its task allows."`
	AgentAllowHosts []string `json:"agent_allow_hosts,omitempty" doc:"Hosts that may be reached while the agent works, beside what its task allows."`

	ForceBuild bool     `json:"force_build,omitempty" doc:"Build from a task's Dockerfile although it names an image."`
	CPUs       float64  `json:"cpus,omitempty" min:"0" doc:"Cores of every main machine, in place of the task's."`
	MemoryMB   int64    `json:"memory_mb,omitempty" min:"0" doc:"Memory of every main machine in MiB, in place of the task's."`
	GPUs       string   `json:"gpus,omitempty" enum:"skip,ignore" doc:"What becomes of tasks that ask for a GPU: skip (the default), or ignore, to run them without."`
	Integrity  string   `json:"integrity,omitempty" enum:"off,flag,confirm,confirm-all,require,warn,fail" doc:"The key integrity of the run, for this benchmark alone."`
	Work       []string `json:"work,omitempty" doc:"Paths of what counts as an agent's work, in place of those that evalrun takes from the task; a relative path is in the working directory. Of a folder of the system, such as /etc, name files."`

	Dataset string `json:"dataset,omitempty" doc:"Which dataset of a registry.json, as NAME or NAME@VERSION."`
	Root    string `json:"root,omitempty" doc:"Folder that the paths of a registry.json or dataset.toml are in. Default: the file's own."`
	Fetch   bool   `json:"fetch,omitempty" doc:"Fetch tasks that a registry names by repository and commit, with this machine's git, into the cache."`
	Cache   string `json:"cache,omitempty" doc:"Folder of fetched tasks. Default: evalrun/harbor in the user's cache folder."`
}

// parseOptions reads the benchmark's options.
func parseOptions(raw json.RawMessage) (o Options, err error) {
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil {
			return o, err
		}
	}
	return o, o.check()
}

func (o *Options) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for name, f := range map[string]*float64{"timeout_multiplier": &o.Timeout,
		"agent_timeout_multiplier":    o.AgentTimeout,
		"verifier_timeout_multiplier": o.VerifierTimeout, "build_timeout_multiplier": o.BuildTimeout,
		"setup_timeout_multiplier": o.SetupTimeout} {
		if f != nil && (*f < 0 || math.IsNaN(*f) || math.IsInf(*f, 0) || *f == 0 && f != &o.Timeout) {
			bad("%s: %v; want a factor above 0", name, *f)
		}
	}
	for _, p := range slices.Concat(o.TaskNames, o.ExcludeNames) {
		if err := format.CheckPattern(p); err != nil {
			bad("pattern %q: %w", p, err)
		}
	}
	if o.NTasks < 0 || o.CPUs < 0 || o.MemoryMB < 0 {
		bad("n_tasks, cpus and memory_mb must not be negative")
	}
	for _, n := range o.Env {
		if !format.ValidVariable(n) {
			bad("env: %q is no name of a variable", n)
		}
	}
	for _, list := range [][]string{o.AllowHosts, o.AgentAllowHosts} {
		for i, h := range list {
			clean, err := format.NormalizeHost(h)
			if err != nil {
				bad("allowed host %w", err)
			}
			list[i] = clean
		}
	}
	if o.GPUs != "" && o.GPUs != "skip" && o.GPUs != "ignore" {
		bad("gpus: %q; want skip or ignore", o.GPUs)
	}
	if o.Integrity != "" && !slices.Contains(verify.IntegrityValues, o.Integrity) {
		bad("integrity: %q; want one of %s", o.Integrity, strings.Join(verify.IntegrityValues[:5], ", "))
	}
	if err := verify.CheckWork(o.Work); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// times are a task's limits as the run scales them.
type times struct{ o *Options }

// Agent, Verifier, Build and Setup scale a limit of that phase. No limit stays none.
func (t times) Agent(d time.Duration) time.Duration    { return t.o.scale(d, t.o.AgentTimeout) }
func (t times) Verifier(d time.Duration) time.Duration { return t.o.scale(d, t.o.VerifierTimeout) }
func (t times) Build(d time.Duration) time.Duration    { return t.o.scale(d, t.o.BuildTimeout) }
func (t times) Setup(d time.Duration) time.Duration    { return t.o.scale(d, t.o.SetupTimeout) }

// Health scales a check's own limits, as those of setting up. None stays none.
func (t times) Health(h *sandbox.Health) *sandbox.Health {
	if h == nil {
		return nil
	}
	scaled := *h
	scaled.Timeout, scaled.StartPeriod = t.Setup(h.Timeout), t.Setup(h.StartPeriod)
	return &scaled
}

// times of the run.
func (o *Options) times() times { return times{o} }

func (o *Options) scale(d time.Duration, f *float64) time.Duration {
	by := o.Timeout
	if f != nil {
		by = *f
	}
	if by == 0 || d == 0 {
		return d
	}
	return format.Seconds(d.Seconds() * by)
}
