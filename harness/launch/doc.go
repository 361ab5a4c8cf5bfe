// Package launch is evalrun as a library: it turns a configuration into benchmarks, agents, models,
// drivers, a run folder and a journal, starts the harness over them, and hands the journal to the
// reports. It is the only place that knows all of these.
//
// [Prepare] checks and opens what a configuration names, [Ready.Run] plays it, [Restore] takes a
// run up again from its folder, and [Results] and [Summary] read what came of it. What a
// configuration may name is a registry.Registry; package cmd/evalrun/builtin has that of evalrun
// itself. A program calls [Init] first of all, unless its sandboxes are not those of this machine.
package launch
