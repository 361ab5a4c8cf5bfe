// Package format reads tasks in Harbor's format: a folder with a task.toml, an instruction, an
// environment to build or pull, tests and mostly a solution.
//
// [Load] reads one folder into a [Task], a plain value with every default filled in, old names
// resolved and each step's verifier decided. [Open] lists the tasks of a folder, a dataset.toml or
// a registry.json, whose repositories it fetches with git when that is allowed.
//
// A task folder is untrusted: it is read below the folder only and within bounds, errors name the
// file and line, and what a task wants from this machine (host paths, host variables, privileges)
// is refused by name. Nothing here starts a sandbox; package sandbox only lends types for network
// policies and health checks.
package format
