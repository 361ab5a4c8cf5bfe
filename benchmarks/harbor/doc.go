// Package harbor runs tasks in Harbor's format: a folder with a task.toml, an instruction, an
// environment to build or pull, tests and mostly a solution. docs/harbor.md says, field by field,
// what is done with each and which test shows it.
//
// Package format reads the tasks. This package plays them: [New] makes a benchmark of a path and
// the run's options, [Benchmark.Needs] says which machines a task wants and why one cannot run
// here, and an episode starts the machines, sets network policies, and prepares each step for the
// agent.
package harbor
