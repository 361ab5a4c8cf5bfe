package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/miniwob"
)

// Fetched lists the benchmarks whose data [Fetch] can download.
var Fetched = []string{"miniwob"}

// Fetch downloads the data of a benchmark into the user's folder and returns a description of it.
func Fetch(ctx context.Context, benchmark, from string) (string, error) {
	if !slices.Contains(Fetched, benchmark) {
		return "", fmt.Errorf("benchmark %q fetches nothing; there is %s", benchmark, strings.Join(Fetched, ", "))
	}
	f, err := miniwob.Fetch(ctx, from)
	if err != nil {
		return "", err
	}
	what := "pages that no published version has"
	if f.Version != "" {
		what = "the pages of miniwob " + f.Version
	}
	return fmt.Sprintf("%s: %d files, %.1f MB, %s (digest %.12s)", f.Dir, f.Files, float64(f.Bytes)/1e6, what,
		f.Digest), nil
}
