package launch

import (
	"context"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/registry"
)

// Tasks calls each for the tasks that a configuration would plan. It opens only the benchmarks and
// stops reading once a limit is reached. It is for listing tasks.
func Tasks(ctx context.Context, kinds *registry.Registry, eff *config.Effective, each func(record.Task) error) error {
	r := &Ready{Eff: eff, o: Options{Kinds: kinds}}
	for _, c := range eff.Benchmarks {
		b, err := OpenBenchmark(kinds, c)
		if err != nil {
			return err
		}
		r.benches = append(r.benches, harness.Bench{Benchmark: b})
	}
	spec, err := r.spec()
	if err != nil {
		return err
	}
	return plan.List(ctx, spec, each)
}

// Work returns the paths that count as the agent's work of a task, as far as they are known without
// a machine; see [benchmarks.WorkNamer].
func Work(b benchmarks.Benchmark, t datasets.Task) ([]record.WorkPath, error) {
	if namer, ok := b.(benchmarks.WorkNamer); ok {
		return namer.Work(t, benchmarks.Options{})
	}
	return nil, nil
}
