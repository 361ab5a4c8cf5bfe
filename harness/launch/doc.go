// Package launch is the only place that knows all implementations: it turns an effective
// configuration into benchmarks, agents, models, drivers, a run folder and a journal, starts the
// harness over them, and hands the journal to the reports.
//
// Begin with [Prepare], which makes a run
// ready.
package launch
