// Package harbor runs tasks in Harbor's format: a folder with a task.toml, an instruction, an
// environment to build or pull, tests and mostly a solution. docs/harbor.md says, field by field,
// what is done with each and which test shows it.
//
// [Load] reads one folder into a [Task], a plain value with every default filled in, old names
// resolved and each step's verifier decided; it is a task's Data, so that planning needs no disk.
// [New] makes the benchmark of a folder of tasks, a dataset.toml or a registry.json.
// [Benchmark.Needs] says which machines a task wants, and why one cannot run here. Playing and
// grading build on these.
//
// Everything in a task folder was written by somebody else: it is read below the folder only,
// within bounds, and what it asks for that would reach this machine (host paths, host variables,
// privileges) is refused by name.
package harbor
