// Command crash kills runs of evalrun with SIGKILL at random moments, resumes each until it is
// finished, and compares the results with those of an undisturbed run:
//
//   - every trial has the same verdict;
//   - models: each reply reaches its own request, through stages and agents of the protocol, and at
//     most the calls in flight are paid for twice;
//   - after its final verdict a trial has only amendments, and no trial has two final verdicts;
//   - nothing is left over: processes, files in the temporary directory, state files, control
//     groups, mounts.
//
// Usage: go run ./scripts/crash -n 200
//
// The seed is printed. The same seed gives the same kill times, as far as the machine's timing is
// reproducible.
package main

import (
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
	if len(os.Args) == 2 && os.Args[1] == "-agent" {
		if err := protocolAgent(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leftovers.OwnMounts()
	n := flag.Int("n", 200, "kills in all")
	trials := flag.Int("trials", 300, "trials of a run")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the moments")
	drivers := flag.String("drivers", "fake,local", "drivers, in turn")
	binary := flag.String("evalrun", "", "the program; empty: it is built")
	keep := flag.Bool("keep", false, "keep the work folder also when all is well")
	verbose := flag.Bool("v", false, "tell of every kill")
	flag.Parse()
	if *binary != "" { // it is started from other directories
		if abs, err := filepath.Abs(*binary); err == nil {
			*binary = abs
		}
	}
	c := &crash{trials: *trials, rng: rand.New(rand.NewPCG(*seed, 0)), binary: *binary, verbose: *verbose}
	fmt.Printf("seed %d\n", *seed)
	err := c.main(*n, strings.Split(*drivers, ","))
	if c.work != "" && (err == nil && !*keep) {
		os.RemoveAll(c.work)
	} else if c.work != "" {
		fmt.Printf("work folder: %s\n", c.work)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

type crash struct {
	trials  int
	rng     *rand.Rand
	binary  string
	verbose bool
	work    string
	calls   int64 // recorded as paid, in all rounds
	lost    int64 // answered but not recorded, because they were in flight at a kill
	config  string
	model   *service
}

func (c *crash) main(n int, drivers []string) (err error) {
	if c.work, err = os.MkdirTemp("", "evalrun-crash-"); err != nil {
		return err
	}
	// Become the subreaper, so that orphans of a killed run become children of this process.
	if err := leftovers.Adopt(); err != nil {
		return err
	}
	if c.binary == "" {
		c.binary = filepath.Join(c.work, "evalrun")
		build := exec.Command("go", "build", "-o", c.binary, "./cmd/evalrun")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building evalrun: %w", err)
		}
	}
	if c.model, err = newService(); err != nil {
		return err
	}
	defer c.model.server.Close()
	if c.config, err = writeBenchmark(c.work, c.trials, c.model.addr); err != nil {
		return err
	}
	if err := os.Mkdir(c.tmp(), 0o755); err != nil {
		return err
	}
	kills, begun := 0, time.Now()
	for i, driver := range drivers {
		want, took, err := c.undisturbed(driver)
		if err != nil {
			return fmt.Errorf("%s: the undisturbed run: %w", driver, err)
		}
		fmt.Printf("%s: %d trials undisturbed in %v\n", driver, len(want), took.Round(time.Millisecond))
		rounds, before := 0, kills
		for kills < n*(i+1)/len(drivers) {
			k, err := c.round(driver, took, want, rounds, n*(i+1)/len(drivers)-kills)
			kills += k
			rounds++
			if err != nil {
				return fmt.Errorf("%s: round %d, after %d kills: %w", driver, rounds, kills, err)
			}
		}
		fmt.Printf("%s: %d kills in %d runs, every verdict as undisturbed, nothing left over\n", driver, kills-before,
			rounds)
	}
	fmt.Printf("%d model calls paid, %d of them lost in flight\n", c.calls+c.lost, c.lost)
	fmt.Printf("%d passed, 0 failed\n", kills)
	if c.verbose {
		fmt.Printf("in %v\n", time.Since(begun).Round(time.Second))
	}
	return nil
}

func (c *crash) tmp() string { return filepath.Join(c.work, "tmp") }

func (c *crash) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.binary, args...)
	cmd.Dir = c.work
	cmd.Env = append(os.Environ(), "TMPDIR="+c.tmp())
	return cmd
}

func (c *crash) runArgs(driver, out string) []string {
	return []string{"run", c.config, "--sandbox", driver, "--progress", "none", "-o", out}
}

func (c *crash) undisturbed(driver string) (verdicts, time.Duration, error) {
	out := filepath.Join(c.work, "undisturbed-"+driver)
	before := leftovers.Now(c.tmp())
	begun := time.Now()
	text, err := c.command(c.runArgs(driver, out)...).CombinedOutput()
	took := time.Since(begun)
	if err != nil {
		return nil, 0, fmt.Errorf("%w\n%s", err, text)
	}
	v, err := scan(out)
	if err == nil && len(v) != c.trials {
		err = fmt.Errorf("%d final verdicts, want %d", len(v), c.trials)
	}
	right := 0
	for _, x := range v {
		if x == "scored answered 1" {
			right++
		}
	}
	// all trials of the two arms that call a model
	if least := c.trials * 2 / 5; err == nil && right < least {
		err = fmt.Errorf("%d trials are right, want %d at least", right, least)
	}
	return v, took, errors.Join(err, clean(c.tmp(), before))
}

// round plays one run, which is killed at most max times.
func (c *crash) round(driver string, took time.Duration, want verdicts, round, max int) (kills int, err error) {
	out := filepath.Join(c.work, fmt.Sprintf("%s-%d", driver, round))
	before := leftovers.Now(c.tmp())
	served := c.model.served.Load()
	cmd := c.command(c.runArgs(driver, out)...)
	left := 1.0 // fraction of trials left
	for kills < max && (kills == 0 || c.rng.IntN(3) > 0) {
		// Most kills hit the middle of a run; starts and ends are chosen more often than their
		// share of the time.
		after := time.Duration(c.rng.Float64() * (0.1 + left) * float64(took))
		switch c.rng.IntN(5) {
		case 0:
			after = time.Duration(c.rng.Float64() * float64(100*time.Millisecond))
		case 1:
			after = time.Duration(left*float64(took)) - time.Duration(c.rng.Float64()*float64(100*time.Millisecond))
		}
		killed, err := c.kill(cmd, after)
		if err != nil {
			return kills, err
		}
		v, err := scan(out)
		if err != nil {
			return kills, fmt.Errorf("after kill %d: %w", kills+1, err)
		}
		cmd = c.command(c.next(driver, out)...)
		if !killed { // too late: resume must find nothing to do
			break
		}
		kills++
		left = 1 - float64(len(v))/float64(len(want))
		if c.verbose {
			fmt.Printf("  %s %d: kill %d after %v, %d final verdicts\n", driver, round, kills,
				after.Round(time.Millisecond), len(v))
		}
	}
	text, err := cmd.CombinedOutput()
	if err != nil {
		return kills, fmt.Errorf("the last resume: %w\n%s", err, text)
	}
	got, err := scan(out)
	if err != nil {
		return kills, err
	}
	if err := same(want, got); err != nil {
		return kills, err
	}
	if err := clean(c.tmp(), before); err != nil {
		return kills, err
	}
	recorded, err := paid(out)
	if err != nil {
		return kills, err
	}
	if err := charged(out, recorded); err != nil {
		return kills, err
	}
	c.calls += recorded
	lost := c.model.served.Load() - served - recorded
	c.lost += lost
	if lost < 0 || lost > int64(kills*workers) {
		return kills, fmt.Errorf("%d calls are recorded as paid and %d were answered besides; after %d kills with %d "+
			"workers at most %d may be",
			recorded, lost, kills, workers, kills*workers)
	}
	return kills, os.RemoveAll(out)
}

// next returns the arguments that continue a killed run. If it was killed before its plan was
// written, it is started again.
func (c *crash) next(driver, out string) []string {
	if _, err := os.Stat(filepath.Join(out, "plan.json")); err != nil {
		return c.runArgs(driver, out)
	}
	return []string{"resume", out, "--progress", "none"}
}

// kill lets a command run for a while and then kills only that process. It returns false if the
// command had already ended.
func (c *crash) kill(cmd *exec.Cmd, after time.Duration) (bool, error) {
	var text strings.Builder
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		return false, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-time.After(after): // immediately if negative
	case err := <-done:
		if err != nil {
			return false, fmt.Errorf("%s before it was killed: %w\n%s", strings.Join(cmd.Args[1:3], " "), err,
				text.String())
		}
		return false, nil
	}
	cmd.Process.Signal(syscall.SIGKILL)
	<-done
	return true, nil
}
