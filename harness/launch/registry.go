// Package launch is the only place that knows all implementations: it turns an effective
// configuration into benchmarks, agents, models, drivers, a run folder and a journal, starts the
// harness over them, and hands the journal to the reports.
//
// Begin with [Registry], which says what a configuration may name, and [Prepare], which makes a run
// ready.
package launch

import (
	"encoding/json"
	"reflect"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/command"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/config"
)

// benchKind is a benchmark that can be named.
type benchKind struct {
	config.Kind
	open func(path string, options json.RawMessage, br web.Browsers) (benchmarks.Benchmark, error)
}

// maker makes the agent of one session; it is harness.Arm.Agent.
type maker = func(b benchmarks.Benchmark, t datasets.Task) (agent.Agent, error)

// agentKind is an agent that can be named.
type agentKind struct {
	config.Kind
	open func(a *armContext) (maker, error)
}

// armContext is what an agent's maker is made from.
type armContext struct {
	arm     *config.Arm
	options json.RawMessage   // the agent's own
	secrets map[string]string // values of the variables it is given
	prompt  string
	machine command.Machine // for programs beside evalrun
	blind   bool            // browsers take no screenshots in this run
}

// Registry is what a configuration may name.
func Registry() *config.Registry {
	r := new(config.Registry)
	for _, k := range benchKinds() {
		r.Benchmarks = append(r.Benchmarks, k.Kind)
	}
	for _, k := range agentKinds() {
		r.Agents = append(r.Agents, k.Kind)
	}
	for _, k := range vendorKinds() {
		r.Vendors = append(r.Vendors, k.Kind)
	}
	for _, k := range driverKinds() {
		r.Drivers = append(r.Drivers, k.Kind)
	}
	return r
}

func optionsOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
