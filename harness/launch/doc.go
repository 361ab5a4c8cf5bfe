// Package launch is evalrun as a library. It turns a configuration into benchmarks, agents, models,
// drivers, a run folder and a journal, runs the harness with them, and passes the journal to the
// reports. It is the only package that imports all of these.
//
// [Prepare] checks and opens what a configuration names, [Ready.Run] runs it, [Restore] loads a run
// from its folder to resume it, and [Results] and [Summary] read its results. A registry.Registry
// lists what a configuration may name; package cmd/evalrun/builtin has evalrun's own. A program
// must call [Init] first in main, unless its sandboxes run on another machine.
package launch
