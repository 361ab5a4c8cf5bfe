// Command browser-night plays MiniWoB++ like an overnight run: all tasks, two seeds each, two arms
// (a script, and an agent whose model replies come from a tape), 16 trials concurrently, killed
// with SIGKILL several times and resumed. Then it checks that
//
//   - every trial has exactly one final verdict, and nothing follows it;
//   - the tables have goal, actions, rewards and screenshots, and the screenshot files are
//     pictures;
//   - DuckDB, if installed, reads the same, and could read the tables while the run was active;
//   - evalrun compare works;
//   - nothing is left over: no browser, no profile directory, no other process or file.
//
// Usage: go run ./scripts/browser-night -pages FOLDER
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/scripts/leftovers"
)

func main() {
	leftovers.OwnMounts()
	n := &night{}
	flag.StringVar(&n.pages, "pages", os.Getenv("EVALRUN_TEST_MINIWOB"),
		"folder html of MiniWoB++; default $EVALRUN_TEST_MINIWOB, else .cache/miniwob")
	flag.StringVar(&n.binary, "evalrun", "", "the program; empty: it is built")
	flag.StringVar(&n.python, "python", os.Getenv("EVALRUN_TEST_PYTHON"),
		"a python3 with duckdb; default $EVALRUN_TEST_PYTHON, else .cache/venv; none: without")
	flag.IntVar(&n.workers, "workers", 16, "trials at once")
	flag.IntVar(&n.repeats, "seeds", 2, "of each task")
	flag.IntVar(&n.limit, "tasks", 0, "only the first so many; 0: all 125")
	flag.IntVar(&n.kills, "kills", 4, "how often the run is killed")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the moments")
	keep := flag.Bool("keep", false, "keep the work folder also when all is well")
	flag.Parse()
	fmt.Printf("seed %d\n", *seed)
	n.rng = rand.New(rand.NewPCG(*seed, 0))
	err := n.main()
	if n.work != "" && err == nil && !*keep {
		os.RemoveAll(n.work)
	} else if n.work != "" {
		fmt.Printf("work folder: %s\n", n.work)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "browser-night:", err)
		os.Exit(1)
	}
}

type night struct {
	pages, binary, python string
	workers, repeats      int
	limit, kills          int
	rng                   *rand.Rand
	work, tmp, run        string
}

func (n *night) main() (err error) {
	if err := n.prepare(); err != nil {
		return err
	}
	before := leftovers.Now(n.tmp)

	url, stop, err := serve()
	if err != nil {
		return err
	}
	tape := filepath.Join(n.work, "tape.jsonl")
	begun := time.Now()
	rec := filepath.Join(n.work, "recorded")
	err = n.whole(n.command("run", "record.yaml", "--record", tape, "--set", "models.clicks.base_url="+url, "-o", rec,
		"--progress", "none"), rec)
	stop()
	if err != nil {
		return fmt.Errorf("recording the tape: %w", err)
	}
	took := time.Since(begun)
	fmt.Printf("the tape: one arm undisturbed in %v\n", took.Round(time.Second))
	if err := lengthen(tape); err != nil {
		return err
	}

	begun = time.Now()
	if err := n.disturbed(tape, 2*took); err != nil {
		return err
	}
	took = time.Since(begun)
	if err := n.check(took); err != nil {
		return err
	}
	if left := leftovers.After(n.tmp, before, 30*time.Second); len(left) > 0 {
		return fmt.Errorf("left over:\n  %s", strings.Join(left, "\n  "))
	}
	fmt.Println("nothing is left: no browser, no profile folder")
	return nil
}

func (n *night) prepare() (err error) {
	first := func(names ...string) string {
		for _, name := range names {
			if name == "" {
				continue
			}
			if abs, err := filepath.Abs(name); err == nil {
				if _, err := os.Stat(abs); err == nil {
					return abs
				}
			}
		}
		return ""
	}
	if n.pages = first(n.pages, ".cache/miniwob/miniwob/html"); n.pages == "" {
		return errors.New("the pages of MiniWoB++ are not there; name their folder html with -pages, or run make setup")
	}
	if n.python != "none" {
		n.python = first(n.python, ".cache/venv/bin/python")
	}
	if n.work, err = os.MkdirTemp("", "evalrun-night-"); err != nil {
		return err
	}
	// Become the subreaper, so that orphans of a killed run become children of this process.
	if err := leftovers.Adopt(); err != nil {
		return err
	}
	n.tmp, n.run = filepath.Join(n.work, "tmp"), filepath.Join(n.work, "run")
	if err := os.Mkdir(n.tmp, 0o777); err != nil {
		return err
	}
	// A browser may run as another user, who needs access to its profile in this directory.
	if err := errors.Join(os.Chmod(n.work, 0o755), os.Chmod(n.tmp, 0o777|os.ModeSticky)); err != nil {
		return err
	}
	if n.binary == "" {
		n.binary = filepath.Join(n.work, "evalrun")
		build := exec.Command("go", "build", "-o", n.binary, "./cmd/evalrun")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building evalrun: %w", err)
		}
	} else if n.binary, err = filepath.Abs(n.binary); err != nil {
		return err
	}
	some := ""
	if n.limit > 0 {
		some = fmt.Sprintf(", select: {limit: %d}", n.limit)
	}
	common := fmt.Sprintf(`name: night
benchmark: {name: miniwob, path: %q%s}
repeats: %d
workers: %d
browser: {contexts: %d}
retries: {attempts: 5, budget: 1000, pause_after: 1000}
models:
  clicks: {name: openai/clicks, base_url: "http://127.0.0.1:9/v1", price: {in: 0.1, out: 0.4}}
arms:
  - {name: model, agent: browse, model: clicks, limits: {steps: 6}}
`, n.pages, some, n.repeats, n.workers, n.workers)
	for name, text := range map[string]string{
		"record.yaml": common,
		"night.yaml":  common + "  - {name: script, agent: \"script:script.yaml\"}\n",
		"script.yaml": `- do:
    - browse: ""
    - browse: click("nothing has this bid")
    - browse: mouse_click(80, 100)
    - browse: keyboard_press("Tab")
    - browse: keyboard_press("Enter")
    - finish: done
`,
	} {
		if err := os.WriteFile(filepath.Join(n.work, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// command returns an evalrun command that uses our temporary directory, so that leftovers there are
// found.
func (n *night) command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.binary, args...)
	cmd.Dir = n.work
	cmd.Env = append(os.Environ(), "TMPDIR="+n.tmp)
	return cmd
}

// disturbed plays both arms. It kills the run several times in its middle, resumes it each time,
// and finally lets it finish.
func (n *night) disturbed(tape string, took time.Duration) error {
	cmd := n.command("run", "night.yaml", "--replay", tape, "--set", "tape.loose=true", "-o", n.run, "--progress",
		"none")
	for k := 1; k <= n.kills; k++ {
		after := time.Duration((0.2 + 0.8*n.rng.Float64()) * float64(took) / float64(n.kills+1))
		killed, err := n.kill(cmd, after)
		if err != nil {
			return err
		}
		cmd = n.command("resume", n.run, "--progress", "none")
		if !killed {
			fmt.Printf("it ended before kill %d\n", k)
			break
		}
		v, err := finals(n.run)
		if err != nil {
			return fmt.Errorf("after kill %d: %w", k, err)
		}
		fmt.Printf("kill %d after %v: %d final verdicts\n", k, after.Round(time.Millisecond), len(v))
	}
	return n.whole(cmd, n.run)
}

// whole runs a command that completes a run. On an overloaded machine pages time out, which counts
// as an infrastructure failure; such trials are replayed, as a user would do.
func (n *night) whole(cmd *exec.Cmd, run string) error {
	out, err := cmd.CombinedOutput()
	for range 2 {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 {
			break
		}
		fmt.Println("not all trials are evidence; rerun")
		out, err = n.command("rerun", run, "--progress", "none").CombinedOutput()
	}
	if err != nil {
		return fmt.Errorf("evalrun %s: %w\n%s", cmd.Args[1], err, out)
	}
	return nil
}

// kill lets a command run for a while, with a concurrent reader of its tables, and then kills only
// that process. It returns false if the command had already ended.
func (n *night) kill(cmd *exec.Cmd, after time.Duration) (bool, error) {
	var text strings.Builder
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		return false, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	reader := make(chan error, 1)
	go func() { reader <- n.readLive(ctx) }()
	var ended bool
	var err error
	select {
	case <-ctx.Done():
		cmd.Process.Signal(syscall.SIGKILL)
		<-done
	case err = <-done:
		ended = true
		cancel()
	}
	rerr := <-reader
	if err != nil {
		return false, fmt.Errorf("%s before it was killed: %w\n%s", strings.Join(cmd.Args[1:3], " "), err,
			text.String())
	}
	return !ended, rerr
}
