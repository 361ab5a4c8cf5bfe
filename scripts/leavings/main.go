// Command leavings lets an agent leave hostile things behind (leave.py generates them at random:
// names, depth, counts, kinds, sizes, modes, holes, loops, times, owners, attributes, processes,
// answers). It checks that this never excludes a trial from the score: each trial's status is
// "scored", with the drivers local and docker and with each way of grading. Afterwards the run is
// shown, exported, verified and regraded, and trials are rendered as pages.
//
// Usage: go run ./scripts/leavings -cases 10000
//
// The seed is printed. A trial is identified by "WAY KIND SEED COUNT"; -only replays such a trial.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed leave.py
var leave string

type options struct {
	cases   int
	batch   int // cases per trial, if a trial can have several
	seed    int
	drivers []string
	only    string
	binary  string
	dir     string
	workers int
}

func main() {
	o := options{}
	flag.IntVar(&o.cases, "cases", 10_000, "cases in all")
	flag.IntVar(&o.batch, "batch", 50, "cases in a trial, of those that do not replace what is collected")
	flag.IntVar(&o.seed, "seed", int(time.Now().Unix()%1_000_000)*100_000, "of the first case")
	drivers := flag.String("drivers", "local,docker", "sandbox drivers")
	flag.StringVar(&o.only, "only", "", `play only this trial, "WAY KIND SEED COUNT"`)
	flag.StringVar(&o.binary, "evalrun", "", "the program; empty: it is built")
	flag.IntVar(&o.workers, "j", 4, "trials at once")
	keep := flag.Bool("keep", false, "keep the work folder also when all is well")
	flag.Parse()
	o.drivers = strings.Split(*drivers, ",")
	var err error
	if o.dir, err = os.MkdirTemp("", "evalrun-leavings-"); err == nil {
		err = fuzz(context.Background(), o, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	}
	if err != nil || *keep {
		fmt.Println("work folder:", o.dir)
	} else {
		os.RemoveAll(o.dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leavings:", err)
		os.Exit(1)
	}
}

// Kinds of cases. A trial has many file cases; each of the other kinds concerns everything that is
// collected.
const (
	files     = "files"
	root      = "root"
	processes = "processes"
	answer    = "answer"
)

// A way is a way of grading: a task without its instruction, which says what to leave behind.
type way struct {
	name      string
	benchmark string   // tasks, qa, humaneval, harbor, terminalbench
	task      string   // for the benchmark tasks: keys of the task
	kinds     []string // kinds of cases that affect it
	toml      string   // for harbor: the end of task.toml
}

const look = `script: 'find . | wc -l; find . -type f -exec cat {} + | wc -c; true'`

var ways = []way{
	{
		name: "script", benchmark: "tasks",
		task:  "grade: {" + look + "}",
		kinds: []string{files, root, processes},
	},
	{
		name: "collect", benchmark: "tasks",
		task:  "grade: {collect: [out, out/deep/a.txt, ., /tmp/out, reward], " + look + "}",
		kinds: []string{files, root, processes},
	},
	{
		name: "partial", benchmark: "tasks",
		task:  `grade: {partial: true, script: 'cat reward > "$REWARD"; cat "$ANSWER" >> "$REWARD"'}`,
		kinds: []string{files, root, answer},
	},
	{
		name: "shared", benchmark: "tasks",
		task:  "leave: true\n    grade: {shared: true, timeout: 20s, " + look + "}",
		kinds: []string{files, root, processes},
	},
	{
		name: "function", benchmark: "tasks",
		task:  "grade: {function: {name: f, check: 'def check(f): assert f() == 1'}}",
		kinds: []string{files, root, answer},
	},
	{name: "stages", benchmark: "tasks", kinds: []string{files, root, processes}},
	{name: "exact", benchmark: "tasks", task: "answer: [yes, 42]", kinds: []string{answer}},
	{
		name: "numeric", benchmark: "tasks",
		task:  "grade: {scorer: numeric, answer: ['42'], tolerance: 0.1}",
		kinds: []string{answer},
	},
	{
		name: "choice", benchmark: "tasks",
		task:  "grade: {scorer: choice, answer: [B]}",
		kinds: []string{answer},
	},
	{
		name: "regex", benchmark: "tasks",
		task:  "grade: {scorer: regex, answer: ['(a*)*b$']}",
		kinds: []string{answer},
	},
	{
		name: "includes", benchmark: "tasks",
		task: "grade: {scorer: includes, ignore_case: true, ignore_punctuation: true, ignore_articles: true, " +
			"answer: [yes]}",
		kinds: []string{answer},
	},
	{name: "qa", benchmark: "qa", kinds: []string{answer}},
	{name: "humaneval", benchmark: "humaneval", kinds: []string{files, root, answer}},
	{name: "hshared", benchmark: "harbor", kinds: []string{files, root, processes}},
	{
		name: "hseparate", benchmark: "harbor",
		toml:  "environment_mode = \"separate\"\n",
		kinds: []string{files, root, processes},
	},
	{
		name: "hhook", benchmark: "harbor",
		toml:  "[[verifier.collect]]\ncommand = \"find /app | wc -l; cp -a /app/. /logs/artifacts\"\n",
		kinds: []string{files, root, processes},
	},
	{
		name: "hsteps", benchmark: "harbor",
		toml:  "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"b\"\n",
		kinds: []string{files, root, processes},
	},
	{name: "terminal", benchmark: "terminalbench", kinds: []string{files, root, processes}},
}

// image is the image of the containers; scripts/test-images builds it.
const image = "evalrun-test/bookworm:1"

// A trial plays some cases.
type trial struct {
	way  way
	kind string
	seed int
	n    int
}

func (t trial) String() string { return fmt.Sprintf("%s %s %d %d", t.way.name, t.kind, t.seed, t.n) }
func (t trial) id() string     { return strings.ReplaceAll(t.String(), " ", "-") }

// draw distributes the cases over the ways. Where files are collected, half of the trials have many
// file cases. The other trials have one case each: they replace what is collected, leave processes,
// or answer.
func draw(o options, driver string, cases int) (out []trial) {
	r := rand.New(rand.NewPCG(uint64(o.seed), uint64(len(driver))))
	var open []way
	for _, w := range ways {
		// their tasks need images
		if w.benchmark != "harbor" && w.benchmark != "terminalbench" || driver == "docker" {
			open = append(open, w)
		}
	}
	for seed := o.seed; cases > 0; {
		w := open[r.IntN(len(open))]
		t := trial{w, w.kinds[r.IntN(len(w.kinds))], seed, 1}
		if t.kind == answer {
			t.n = min(cases, 1+r.IntN(3))
		}
		if slices.Contains(w.kinds, files) && r.IntN(2) == 0 {
			t.kind = files
			t.n = min(cases, o.batch)
		}
		out, seed, cases = append(out, t), seed+t.n, cases-t.n
	}
	return out
}

// fuzz plays all cases. If there are several drivers, the last one gets a tenth of the cases,
// because containers are much slower.
func fuzz(ctx context.Context, o options, say func(format string, args ...any)) error {
	say("seed %d", o.seed)
	if o.binary == "" {
		o.binary = filepath.Join(o.dir, "evalrun")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", o.binary,
			"github.com/evalrun/evalrun/cmd/evalrun").CombinedOutput(); err != nil {
			return fmt.Errorf("building evalrun: %w\n%s", err, out)
		}
	}
	for _, d := range o.drivers {
		// leave.py removes what it finds, so it needs an isolating sandbox
		if d != "local" && d != "docker" {
			return fmt.Errorf("driver %q: want local or docker", d)
		}
	}
	var errs []error
	for i, driver := range o.drivers {
		cases := o.cases
		switch {
		case len(o.drivers) > 1 && i == len(o.drivers)-1:
			cases = o.cases / 10
		case len(o.drivers) > 1:
			cases = o.cases - o.cases/10
		}
		list := draw(o, driver, cases)
		if o.only != "" {
			t, err := parse(o.only)
			if err != nil {
				return err
			}
			list = []trial{t}
		}
		for _, b := range []string{"tasks", "qa", "humaneval", "harbor", "terminalbench"} {
			var some []trial
			for _, t := range list {
				if t.way.benchmark == b {
					some = append(some, t)
				}
			}
			if len(some) == 0 {
				continue
			}
			n := 0
			for _, t := range some {
				n += t.n
			}
			began := time.Now()
			if err := o.play(ctx, driver, b, some); err != nil {
				errs = append(errs, fmt.Errorf("%s on %s: %w", b, driver, err))
			}
			say("%s on %s: %d cases in %d trials, %v", b, driver, n, len(some), time.Since(began).Round(time.Second))
		}
	}
	return errors.Join(errs...)
}

func parse(s string) (t trial, err error) {
	name := ""
	if _, err := fmt.Sscan(s, &name, &t.kind, &t.seed, &t.n); err != nil {
		return t, fmt.Errorf("%q: want WAY KIND SEED COUNT", s)
	}
	i := slices.IndexFunc(ways, func(w way) bool { return w.name == name })
	if i < 0 {
		return t, fmt.Errorf("there is no way %q", name)
	}
	t.way = ways[i]
	return t, nil
}

// play plays trials of one benchmark in one run, and runs all commands on it.
func (o *options) play(ctx context.Context, driver, benchmark string, list []trial) error {
	dir := filepath.Join(o.dir, driver+"-"+benchmark)
	if err := write(dir, driver, benchmark, list, o.workers); err != nil {
		return err
	}
	evalrun := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, o.binary, args...)
		cmd.Dir = dir
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err == nil && strings.Contains(stderr.String(), "panic") {
			err = errors.New("a panic")
		}
		if err != nil {
			err = fmt.Errorf("evalrun %s: %w\n%.3000s\n%.2000s", strings.Join(args, " "), err, stderr.String(), out)
		}
		return out, err
	}
	var errs []error
	ask := func(args ...string) []byte {
		out, err := evalrun(args...)
		if err != nil {
			errs = append(errs, err)
		}
		return out
	}
	ask("run", "run.yaml", "-o", "run", "-q", "--progress", "none")
	if _, err := os.Stat(filepath.Join(dir, "run")); err != nil {
		return errors.Join(errs...)
	}
	trials := ask("show", "run", "--trials", "--json")
	n := 0
	for line := range strings.Lines(string(trials)) {
		var row struct {
			Trial, Task, Status string
			Attempts            int
			Error               json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			return fmt.Errorf("show --trials: %w: %.200s", err, line)
		}
		n++
		if row.Status != "scored" || row.Attempts != 1 {
			errs = append(errs, fmt.Errorf("%q is %s after %d attempts: %.500s", strings.ReplaceAll(row.Task, "-", " "),
				row.Status, row.Attempts, row.Error))
		}
		if n%10 == 1 {
			ask("show", "run", "--trial", row.Trial, "--full")
			ask("show", "run", "--trial", row.Trial, "--html", "page.html")
		}
	}
	if n != len(list) {
		errs = append(errs, fmt.Errorf("%d trials of %d are shown", n, len(list)))
	}
	ask("show", "run")
	ask("show", "run", "--markdown")
	ask("show", "run", "--verify")
	for _, f := range []string{"jsonl", "csv"} {
		ask("export", "run", "--format", f, "-o", "table."+f)
	}
	if out := ask("regrade", "run", "-q", "--json"); len(out) > 0 {
		var sum struct{ Failed int }
		if err := json.Unmarshal(out, &sum); err == nil && sum.Failed > 0 {
			errs = append(errs, fmt.Errorf("%d trials could not be graded again", sum.Failed))
		}
	}
	return errors.Join(errs...)
}

// write writes the benchmark and the configuration.
func write(dir, driver, benchmark string, list []trial, workers int) error {
	out := map[string]string{"leave.py": leave}
	machine := driver + ", memory: 512MB, disk: 256MB"
	if driver == "docker" && benchmark != "harbor" && benchmark != "terminalbench" {
		machine += ", image: '" + image + "'"
	}
	conf := fmt.Sprintf("workers: %d\nagent: {name: command, options: {files: leave.py, run: [python3, '{files}', "+
		"'{instruction_file}']}}\n"+
		"limits: {time: 1m}\nsandbox: {driver: %s}\n", workers, machine)
	switch benchmark {
	case "tasks":
		conf += "benchmark: tasks:tasks.yaml\n"
		var b strings.Builder
		b.WriteString("tasks:\n")
		for _, t := range list {
			fmt.Fprintf(&b, "  - id: %s\n", t.id())
			if t.way.name == "stages" {
				fmt.Fprintf(&b, "    stages:\n      - {instruction: '%s', grade: {%s}}\n      - {instruction: '%s', "+
					"files: {out/deep/a.txt: x, b.txt: y}, setup: 'echo > c.txt', grade: {%s}}\n",
					t, look, trial{t.way, t.kind, t.seed + 1, t.n}, look)
				continue
			}
			fmt.Fprintf(&b, "    instruction: %s\n    %s\n", t, t.way.task)
		}
		out["tasks.yaml"] = b.String()
	case "qa":
		conf += "benchmark: qa:qa.jsonl\n"
		var b strings.Builder
		for _, t := range list {
			fmt.Fprintf(&b, "{\"id\": %q, \"question\": %q, \"answer\": \"#### 42\"}\n", t.id(), t)
		}
		out["qa.jsonl"] = b.String()
	case "humaneval":
		conf += "benchmark: humaneval:humaneval.jsonl\n"
		var b strings.Builder
		for _, t := range list {
			fmt.Fprintf(&b, `{"task_id": %q, "prompt": "def f():\n    \"\"\" %s \"\"\"\n", "canonical_solution": "    return 1\n", "test": "def check(f):\n    assert f() == 1\n", "entry_point": "f"}`+"\n", t.id(), t)
		}
		out["humaneval.jsonl"] = b.String()
	case "terminalbench":
		conf += "benchmark: terminalbench:tasks\n"
		for _, t := range list {
			at := "tasks/" + t.id() + "/"
			out[at+"task.yaml"] = "instruction: " + t.String() + "\ndifficulty: easy\nparser_name: swebench\n"
			out[at+"Dockerfile"] = "FROM " + image + "\nWORKDIR /app\n"
			out[at+"run-tests.sh"] = "#!/bin/bash\nfind /app | wc -l\necho 'SWEBench results starts here'\necho PASSED\necho 'SWEBench results ends here'\n"
			out[at+"tests/want.txt"] = "x\n"
		}
	case "harbor":
		conf += "benchmark: harbor:tasks\n"
		const test = "#!/bin/bash\nfind /app /logs/artifacts | wc -l\necho 1 > /logs/verifier/reward.txt\n"
		for _, t := range list {
			at := "tasks/" + t.id() + "/"
			out[at+"task.toml"] = "schema_version = \"1.3\"\nartifacts = [\"/app\", " +
				"\"/tmp/out\"]\n[environment]\nnetwork_mode = \"no-network\"\nmemory_mb = " +
				"512\n[verifier]\ntimeout_sec = 60\n" + t.way.toml
			out[at+"environment/Dockerfile"] = "FROM " + image + "\nWORKDIR /app\n"
			out[at+"instruction.md"] = t.String()
			out[at+"tests/test.sh"] = test
			if t.way.name == "hsteps" {
				out[at+"steps/a/instruction.md"] = t.String()
				out[at+"steps/b/instruction.md"] = trial{t.way, t.kind, t.seed + 1, t.n}.String()
				out[at+"steps/b/workdir/out/deep/a.txt"] = "x"
				out[at+"steps/b/workdir/setup.sh"] = "#!/bin/bash\necho > c.txt\n"
			}
			if t.way.name == "hseparate" {
				out[at+"tests/Dockerfile"] = "FROM " + image + "\nCOPY --chmod=755 test.sh /tests/test.sh\n"
			}
		}
	}
	out["run.yaml"] = conf
	for name, text := range out {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
