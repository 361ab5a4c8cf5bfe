// Command bench measures the overhead of evalrun, each figure next to a lower bound measured in the
// same minute on the same machine, and writes docs/performance.md. A missed target is reported but
// never causes a failure.
//
// Usage: go run ./scripts/bench [-only REGEXP] [-write]
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runtime/local"
)

func main() {
	local.Init() // must come first: the local driver restarts this program in its sandboxes
	only := flag.String("only", "", "measure what matches `REGEXP` alone")
	write := flag.Bool("write", false, "write docs/performance.md")
	binary := flag.String("evalrun", "", "the program; empty: it is built")
	humaneval := flag.String("humaneval", "../shared/data/HumanEval.jsonl.gz", "the published HumanEval.jsonl[.gz]")
	golden := flag.String("golden", cmp.Or(os.Getenv("EVALRUN_GOLDEN"), "../shared/golden/browsergym"),
		"recordings of the reference browser environment")
	flag.Parse()
	if *binary != "" { // it is started from other directories
		abs, err := filepath.Abs(*binary)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		*binary = abs
	}
	if err := run(*only, *binary, *humaneval, *golden, *write); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A figure is one row of the table.
type figure struct {
	name   string
	target string
	value  string
	met    string // yes, no, or why it was not measured
	floor  string
	ratio  string
}

type bench struct {
	work, evalrun, humaneval, golden string
	floors                           floors
	figures                          []figure
}

func run(only, binary, humaneval, golden string, write bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "evalrun-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := &bench{work: work, evalrun: binary, humaneval: humaneval, golden: golden}
	if b.evalrun == "" {
		b.evalrun = filepath.Join(work, "evalrun")
		if out, err := exec.Command("go", "build", "-o", b.evalrun, "./cmd/evalrun").CombinedOutput(); err != nil {
			return fmt.Errorf("building evalrun: %w\n%s", err, out)
		}
	}
	if b.floors, err = measureFloors(work); err != nil {
		return err
	}
	begun := time.Now()
	for _, m := range []struct {
		name string
		do   func() error
	}{
		{"sessions", b.sessions}, {"at-once", b.atOnce}, {"many", b.many},
		{"sandbox", b.sandbox}, {"acting", b.acting}, {"humaneval", b.humanEval}, {"start", b.start},
		{"containers", b.docker}, {"container-commands", b.containerCommands}, {"browser", b.browser},
	} {
		if !match.MatchString(m.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s …\n", m.name)
		if err := m.do(); err != nil {
			b.figures = append(b.figures, figure{name: m.name, met: "not measured: " + firstLine(err)})
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
	page := b.page(time.Since(begun))
	fmt.Print(page)
	if write {
		return os.WriteFile("docs/performance.md", []byte(page), 0o644)
	}
	return nil
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}

// add records a figure with the upper limit max. floor is the cost of the bare operation, in the
// same unit.
func (b *bench) add(name string, value, max, floor float64, unit func(float64) string, floorName string) {
	f := figure{name: name, value: unit(value), target: "≤ " + unit(max), met: "yes"}
	if value > max {
		f.met = "no"
	}
	if floor > 0 {
		f.floor = floorName + " " + unit(floor)
		f.ratio = fmt.Sprintf("%.1f", value/floor)
	}
	b.figures = append(b.figures, f)
	fmt.Fprintf(os.Stderr, "  %s: %s (%s) floor %s\n", f.name, f.value, f.target, f.floor)
}

// addLeast records a figure with the lower limit min.
func (b *bench) addLeast(name string, value, min, floor float64, unit func(float64) string, floorName string) {
	b.add(name, value, min, floor, unit, floorName)
	f := &b.figures[len(b.figures)-1]
	f.target, f.met = "≥ "+unit(min), "yes"
	if value < min {
		f.met = "no"
	}
}

// note records a figure without a target.
func (b *bench) note(name, value string) {
	b.figures = append(b.figures, figure{name: name, value: value})
	fmt.Fprintf(os.Stderr, "  %s: %s\n", name, value)
}

func (b *bench) page(took time.Duration) string {
	var s strings.Builder
	s.WriteString(`# Performance

This page shows how much CPU, memory and time evalrun needs in addition to the work itself. You can use it to choose a
machine, and repeat the measurements on yours. The machine should be idle.

` + "```" + `
make bench                                      # measure everything and write this page
go run ./scripts/bench -only 'sandbox|start'    # measure a part and print the tables
` + "```" + `

`)
	fmt.Fprintf(&s, `Measured on %s, %d cores (%s), Go %s, in %v.

A floor is the cost of the same operation without evalrun, measured in the same run. Times depend on the machine; the
ratio to the floor depends on it much less. A session is complete: all events in the journal with fsync, a grade, a
verdict, and Parquet files.

| floor | |
|---|---|
| exec of /bin/true | %s |
| append of 4 KiB and fsync | %s |
| python3 -c pass | %s |

| measurement | result | target | met | floor | result / floor |
|---|---|---|---|---|---|
`, time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), cpu(), strings.TrimPrefix(runtime.Version(), "go"),
		took.Round(time.Second),
		ms(b.floors.exec), ms(b.floors.fsync), ms(b.floors.python))
	for _, f := range b.figures {
		fmt.Fprintf(&s, "| %s | %s | %s | %s | %s | %s |\n", f.name, f.value, f.target, f.met, f.floor, f.ratio)
	}
	s.WriteString(`
## How it is measured

* **CPU** is user and system time of evalrun and its child processes, minus that of a run with one session, divided by
  the number of sessions. **Memory** is the maximum resident set size.
* **At once** means that all sessions are open at the same time. Each waits 50 ms for each of its 20 replies, so the
  ideal is 1.0 s.
* **Local sandboxes:** medians of 50. The memory of one is the proportional set size of its processes, with 200 alive.
* **Executor, persistent shell, editor:** in a local sandbox; medians of 201 and 21. 100 MB of output go through the
  shell's terminal; medians of 5. The kernel's driver of terminals is the limit, so the floor is a terminal whose reader
  drops everything. **Searches** run in this process, without limits of hits but the usual one; ripgrep is started each
  time. They alternate; medians of 11.
* **HumanEval:** the floor is the same 164 programs under bare python3, with the same number at a time.
* **Full browser step:** an action, the reward, marks, accessibility tree, DOM snapshot, properties, screenshot and
  three texts, on login-user of MiniWoB++. Bare calls are the minimum of DevTools calls that this needs, one after
  the other, with their answers ignored. Medians of 31; steps alternate with bare calls. Medians of 11 for BrowserGym.
* **Browser reset:** evalrun has opened the page ahead, as for an episode that starts half a second after another one.
  Bare calls open their page.
* **Screenshots** need whole frames of the browser, which draws 60 per second: one until elements are visible, and two
  or three for the image. The same holds for bare calls.
`)
	return s.String()
}

func cpu() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// Units. Values are in seconds or bytes.
func ms(v float64) string {
	switch {
	case v >= 1:
		return fmt.Sprintf("%.2f s", v)
	case v >= 0.01:
		return fmt.Sprintf("%.0f ms", v*1e3)
	}
	return fmt.Sprintf("%.2f ms", v*1e3)
}

func mb(v float64) string {
	if v < 10e6 {
		return fmt.Sprintf("%.1f MB", v/1e6)
	}
	return fmt.Sprintf("%.0f MB", v/1e6)
}

func perSecond(v float64) string { return fmt.Sprintf("%.1f/s", v) }

func times(v float64) string { return fmt.Sprintf("%.2f ×", v) }
