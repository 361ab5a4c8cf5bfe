package launch

import (
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/registry"
)

// errNoValue is a mistake in a kind, which would otherwise be a panic or a failure of each trial.
var errNoValue = errors.New("its Open returned neither a value nor an error")

// OpenBenchmark opens a configured benchmark for listing its tasks.
func OpenBenchmark(kinds *registry.Registry, b config.Benchmark) (benchmarks.Benchmark, error) {
	return openBenchmark(kinds, b, benchmarks.Setup{})
}

// openBenchmark opens a configured benchmark whose sessions may use browsers.
func (r *Ready) openBenchmark(b config.Benchmark) (benchmarks.Benchmark, error) {
	return openBenchmark(r.o.Kinds, b, benchmarks.Setup{
		Browsers: r.browsers, Getenv: func(name string) string { v, _ := r.env.Lookup(name); return v },
	})
}

func openBenchmark(kinds *registry.Registry, b config.Benchmark, s benchmarks.Setup) (benchmarks.Benchmark, error) {
	k := kinds.Benchmark(b.Name)
	if k == nil {
		return nil, fmt.Errorf("unknown benchmark %q", b.Name)
	}
	s.Arg, s.Options = b.Path, b.Options
	bench, err := k.Open(s)
	if err == nil && bench == nil {
		err = fmt.Errorf("benchmark %s: %w", b.Name, errNoValue)
	}
	return bench, err
}
