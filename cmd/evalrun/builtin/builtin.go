// Package builtin lists the benchmarks, agents, drivers and other kinds that come with evalrun. A
// program with its own kinds adds them to this registry.
package builtin

import (
	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/codeact"
	"github.com/evalrun/evalrun/agent/command"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/openai"
	"github.com/evalrun/evalrun/agent/nop"
	"github.com/evalrun/evalrun/agent/oracle"
	"github.com/evalrun/evalrun/agent/script"
	"github.com/evalrun/evalrun/agent/webagent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/assistantbench"
	"github.com/evalrun/evalrun/benchmarks/harbor"
	"github.com/evalrun/evalrun/benchmarks/humaneval"
	"github.com/evalrun/evalrun/benchmarks/miniwob"
	"github.com/evalrun/evalrun/benchmarks/openended"
	"github.com/evalrun/evalrun/benchmarks/qa"
	"github.com/evalrun/evalrun/benchmarks/quickstart"
	"github.com/evalrun/evalrun/benchmarks/tasks"
	"github.com/evalrun/evalrun/benchmarks/terminalbench"
	"github.com/evalrun/evalrun/benchmarks/webarena"
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/reports/export"
	"github.com/evalrun/evalrun/runtime/docker"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Kinds returns a new registry with all built-in kinds. The caller may modify it.
func Kinds() *registry.Registry {
	return &registry.Registry{
		Benchmarks: append([]benchmarks.Kind{
			quickstart.Kind, humaneval.Kind, qa.Kind, tasks.Kind, harbor.Kind, terminalbench.Kind, miniwob.Kind,
			openended.Kind, assistantbench.Kind,
		}, webarena.Kinds...),
		Agents:    []agent.Kind{oracle.Kind, nop.Kind, script.Kind, command.Kind, codeact.Kind, webagent.Kind},
		Models:    []model.Kind{openai.Kind},
		Sandboxes: []sandbox.Kind{local.Kind, docker.Kind, local.None, fake.Kind},
		Exporters: []export.Kind{export.JSONL, export.CSV},
	}
}
