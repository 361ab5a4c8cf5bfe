package launch

import (
	"fmt"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/registry"
)

// OpenBenchmark makes a configured benchmark, for looking at its tasks.
func OpenBenchmark(kinds *registry.Registry, b config.Benchmark) (benchmarks.Benchmark, error) {
	return openBenchmark(kinds, b, benchmarks.Setup{})
}

// openBenchmark makes a configured benchmark that may play in browsers.
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
	return k.Open(s)
}
