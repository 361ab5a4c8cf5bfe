package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/evalrun/evalrun/"

// table is who may import whom: for a package, which packages of ours, and which of others, its
// code (tests apart) imports at most. Names are patterns of path.Match over whole paths; "…/*" is
// one level. A package that no line fits fails the test, so that nobody adds one without saying
// where it belongs. The first line that fits counts. Levels are those of docs/architecture.md;
// arrows point down only.
var table = []struct {
	pkg   string
	ours  string // besides what stands below: nothing
	other string // modules; the standard library is free for all
}{
	// L0: the standard library only.
	{"agent/event", "", ""},
	{"runtime/sandbox", "", ""},
	{"harness/record", "", ""},
	{"datasets", "", ""},

	// Datasets: readers.
	{"internal/fsutil", "", ""},
	{"datasets/table", "datasets internal/fsutil", ""},
	{"datasets/parquet", "datasets datasets/table",
		"github.com/klauspost/compress github.com/andybalholm/brotli github.com/pierrec/lz4/v4"},
	{"datasets/formats", "datasets datasets/*", ""},
	{"internal/suggest", "", ""},
	{"internal/yamldoc", "internal/suggest", "github.com/goccy/go-yaml"},
	{"datasets/*", "datasets datasets/table", ""},

	// L1: models over events, drivers over the sandbox's contract, storage over the record.
	{"agent/model", "agent/event", ""},
	{"agent/model/price", "agent/event agent/model internal/yamldoc", ""},
	{"agent/model/meter", "agent/event agent/model agent/model/price", ""},
	{"agent/model/*", "agent/event agent/model internal/fsutil", ""},
	{"runtime/sandbox/sandboxtest", "runtime/sandbox runtime/sandbox/sandboxtest/verb", ""},
	{"runtime/sandbox/sandboxtest/helper", "runtime/sandbox/sandboxtest/verb", ""},
	{"runtime/sandbox/sandboxtest/verb", "", ""},
	{"runtime/executor", "runtime/sandbox runtime/executor/embed runtime/executor/internal/server internal/execproto " +
		"internal/fileop internal/hostpath internal/isolate",
		"golang.org/x/sys"},
	{"runtime/executor/embed", "", ""},
	{"runtime/executor/tracetest", "runtime/executor runtime/sandbox", ""},
	{"internal/execproto", "", ""},
	{"internal/hostpath", "", ""},
	{"internal/tail", "", ""},
	{"internal/search", "runtime/sandbox", "golang.org/x/sys github.com/bmatcuk/doublestar/v4"},
	{"internal/fileop", "runtime/sandbox internal/search", "golang.org/x/sys"},
	{"internal/isolate", "internal/execproto", "golang.org/x/sys"},
	{"runtime/executor/internal/server", "internal/isolate internal/execproto internal/fileop", "golang.org/x/sys"},
	{"runtime/executor/evalrun-init", "runtime/executor/internal/server", ""},
	{"runtime/executor/internal/hung", "runtime/executor/internal/server", ""},
	{"runtime/executor/tracetest", "runtime/sandbox runtime/executor", ""},
	{"runtime/egress", "runtime/sandbox runtime/executor internal/execproto", "gvisor.dev/gvisor golang.org/x/net"},
	{"runtime/egress/egresstest", "", "golang.org/x/sys"},
	{"runtime/local", "runtime/sandbox runtime/executor runtime/executor/* runtime/egress internal/execproto " +
		"internal/isolate", "golang.org/x/sys"},
	{"runtime/docker", "runtime/sandbox runtime/executor runtime/executor/* runtime/image runtime/egress " +
		"internal/execproto internal/isolate",
		"github.com/moby/moby/api github.com/moby/moby/client github.com/docker/go-connections " +
			"github.com/containerd/errdefs github.com/opencontainers/image-spec github.com/moby/docker-image-spec " +
			"golang.org/x/sys"},
	{"runtime/fake", "runtime/sandbox", ""},
	{"runtime/mcp", "runtime/sandbox internal/tail", "github.com/modelcontextprotocol/go-sdk"},
	{"runtime/jupyter", "internal/tail runtime/sandbox", ""},
	{"runtime/pool", "runtime/sandbox", ""},
	{"runtime/auto", "runtime/sandbox", ""},
	{"runtime/image", "runtime/sandbox", "github.com/moby/patternmatcher golang.org/x/sys"},
	{"runtime/image/imagetest", "runtime/sandbox runtime/image", ""},
	{"harness/ledger", "harness/record", ""},
	{"harness/journal", "harness/record harness/ledger harness/journal/internal/admit internal/fsutil",
		"github.com/klauspost/compress golang.org/x/sys"},
	{"harness/journal/internal/admit", "harness/record harness/ledger", ""},
	{"harness/journal/journaltest", "harness/record harness/ledger harness/journal/internal/admit",
		"github.com/google/go-cmp"},
	{"harness/blob", "harness/record", ""},
	{"harness/attach", "runtime/sandbox", ""},
	{"internal/termsafe", "", ""},
	{"harness/rundir", "harness/record internal/fsutil", "golang.org/x/sys"},
	{"browsergym/pyrepr", "", "golang.org/x/text"},
	{"browsergym/obs", "browsergym/pyrepr browsergym/obs/internal/libxml", "golang.org/x/image"},
	{"browsergym/obs/internal/libxml", "browsergym/pyrepr", ""},
	{"browsergym/cdp", "browsergym/obs internal/isolate", ""},
	{"browsergym/rng", "", ""},
	{"agent/webtext/html2text", "browsergym/pyrepr", ""},
	{"browsergym/action", "browsergym/pyrepr browsergym/rng", ""},

	// L2
	{"agent", "agent/event agent/model runtime/sandbox", ""},

	// L3: agents and their parts; environments; the contract of benchmarks.
	{"agent/agenttest", "agent agent/event agent/model runtime/sandbox", ""},
	{"agent/codeact", "agent agent/event agent/model agent/controller agent/memory agent/webtext browsergym/action",
		""},
	{"agent/webagent", "agent agent/event agent/model agent/controller agent/webtext browsergym/obs " +
		"browsergym/action browsergym/pyrepr", ""},
	{"agent/command", "agent agent/webtext agent/event agent/model runtime/sandbox", ""},
	{"agent/webtext", "agent agent/event browsergym/obs browsergym/action agent/webtext/html2text", ""},
	{"agent/script", "agent agent/event agent/model internal/yamldoc internal/fsutil", ""},
	{"agent/*", "agent agent/event agent/model runtime/sandbox", ""},
	{"browsergym", "browsergym/action browsergym/cdp browsergym/obs browsergym/pyrepr browsergym/rng", ""},
	{"browsergym/recordings", "browsergym browsergym/obs", ""},
	{"browsergym/recordings/recordingstest", "", ""},
	{"browsergym/browsers", "browsergym/cdp runtime/egress runtime/executor internal/isolate runtime/sandbox",
		"golang.org/x/sys"},
	{"runtime/workspace", "agent agent/event internal/hostpath runtime/sandbox runtime/executor runtime/mcp " +
		"runtime/jupyter",
		"golang.org/x/image mvdan.cc/sh/v3"},
	{"benchmarks", "agent agent/event agent/model datasets harness/record runtime/sandbox", ""},

	// L4: benchmarks, the harness, the reports.
	{"benchmarks/score", "", ""},
	{"benchmarks/filetree", "runtime/sandbox", ""},
	{"benchmarks/benchtest", "agent agent/event agent/model agent/agenttest benchmarks datasets harness/record " +
		"runtime/sandbox runtime/local runtime/docker", ""},
	{"benchmarks/benchtest/*", "agent agent/* benchmarks datasets harness/record runtime/sandbox runtime/local " +
		"runtime/fake", ""},
	{"benchmarks/tasks", benchmark + " benchmarks/web browsergym browsergym/* runtime/egress", ""},
	{"benchmarks/web", benchmark + " browsergym browsergym/*", ""},
	{"benchmarks/miniwob", benchmark + " benchmarks/miniwob/solve benchmarks/web browsergym browsergym/*", ""},
	{"benchmarks/miniwob/solve", "agent agent/event browsergym/obs browsergym/pyrepr", ""},
	{"benchmarks/openended", benchmark + " benchmarks/web browsergym browsergym/*", ""},
	{"benchmarks/assistantbench", benchmark + " benchmarks/web browsergym browsergym/* runtime/egress", ""},
	{"benchmarks/webarena", benchmark + " benchmarks/web browsergym browsergym/* runtime/egress", "golang.org/x/image"},
	{"benchmarks/harbor/compose", "internal/yamldoc runtime/sandbox", ""},
	{"benchmarks/harbor/format", "agent benchmarks benchmarks/filetree benchmarks/harbor/compose datasets " +
		"harness/record " +
		"internal/fsutil internal/suggest runtime/sandbox", "github.com/pelletier/go-toml/v2"},
	{"benchmarks/harbor/verify", "agent agent/event benchmarks benchmarks/filetree benchmarks/harbor/format " +
		"benchmarks/sandboxed benchmarks/score harness/record runtime/executor runtime/sandbox", ""},
	{"benchmarks/harbor", benchmark + " benchmarks/harbor/* runtime/executor runtime/egress", ""},
	{"benchmarks/terminalbench", benchmark + " benchmarks/harbor/*", ""},
	{"benchmarks/*", benchmark + " benchmarks/tasks benchmarks/web", ""},
	{"harness", "agent agent/event agent/model benchmarks datasets harness/ledger harness/record runtime/sandbox", ""},
	{"reports/stats", "", "gonum.org/v1/gonum"},
	{"reports/stats/statstest", "reports/stats", "gonum.org/v1/gonum"},
	{"reports/schema", "agent/event harness/ledger harness/record", ""},
	{"reports/parquetlog", "agent/event harness/record internal/fsutil harness/journal reports/schema",
		"github.com/parquet-go/parquet-go github.com/klauspost/compress/zstd"},
	{"reports/*", "agent/event harness/record harness/ledger harness/journal reports/stats reports/schema", ""},

	// L5
	{"harness/plan", "benchmarks datasets internal/suggest harness harness/ledger harness/record", ""},
	{"harness/queue", "harness", ""},
	{"harness/taskcheck", "benchmarks harness/journal harness/ledger harness/record harness/rundir", ""},

	// L6: the program. Only wire knows implementations.
	{"harness/config", "agent/model internal/suggest internal/yamldoc internal/fsutil harness/plan harness/record " +
		"runtime/egress runtime/sandbox", "github.com/goccy/go-yaml"},
	{"harness/registry", "agent agent/model benchmarks harness/config reports/export runtime/sandbox", ""},
	{"cmd/evalrun/internal/progress", "harness harness/record",
		"github.com/schollz/progressbar/v3 github.com/rivo/uniseg"},
	{"harness/launch", "agent agent/* agent/model/* benchmarks benchmarks/* browsergym browsergym/browsers " +
		"browsergym/cdp datasets internal/fsutil harness harness/* runtime/* reports/* harness/config", ""},
	{"cmd/evalrun/cli", "cmd/evalrun/internal/* datasets internal/suggest internal/fsutil internal/termsafe harness harness/* " +
		"reports/* runtime/image runtime/sandbox", "github.com/urfave/cli/v3 golang.org/x/term"},
	{"cmd/evalrun/builtin", "agent agent/* agent/model/openai benchmarks benchmarks/* harness/registry " +
		"reports/export runtime/docker runtime/fake runtime/local runtime/sandbox", ""},
	{"cmd/evalrun", "cmd/evalrun/builtin cmd/evalrun/cli", ""},
	{"examples/extend", "", ""}, // only a test; what it tests are modules of their own
	{"scripts/coverage", "reports/stats reports/stats/statstest", ""},
	{"scripts/*", "scripts/leftovers internal/search agent agent/* agent/model/* benchmarks/* browsergym " +
		"browsergym/* harness harness/* runtime/* reports/* datasets",
		"github.com/goccy/go-yaml github.com/klauspost/compress github.com/parquet-go/parquet-go golang.org/x/sync " +
			"golang.org/x/sys"},
}

const benchmark = "agent agent/webtext agent/event agent/model benchmarks benchmarks/filetree benchmarks/score benchmarks/sandboxed benchmarks/pygrade datasets datasets/* harness/record internal/fsutil internal/suggest internal/yamldoc runtime/sandbox runtime/workspace"

func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Standard", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen := 0
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen++
		name := strings.TrimPrefix(p.ImportPath, module)
		line := slices.IndexFunc(table, func(l struct{ pkg, ours, other string }) bool { return fits(l.pkg, name) })
		if line < 0 {
			t.Errorf("package %s is not in the table: add it, at the level where it belongs", name)
			continue
		}
		rule := table[line]
		for _, imp := range p.Imports {
			if local, ok := strings.CutPrefix(imp, module); ok {
				if !slices.ContainsFunc(strings.Fields(rule.ours),
					func(pattern string) bool { return fits(pattern, local) }) {
					t.Errorf("%s imports %s, which the table does not allow", name, local)
				}
				continue
			}
			if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
				continue // the standard library
			}
			if !slices.ContainsFunc(strings.Fields(rule.other),
				func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") }) {
				t.Errorf("%s imports %s, which the table does not allow", name, imp)
			}
		}
	}
	if seen < 20 {
		t.Errorf("go list found %d packages", seen)
	}
}

func fits(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}
