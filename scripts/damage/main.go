// Command damage damages run directories of evalrun at random and runs show, compare, export,
// regrade and resume on them. It compares the results with those of an undamaged twin:
//
//   - no command panics or hangs;
//
//   - if a command's output differs from that of the twin, the command names a damaged file and
//     exits with status 1;
//
//   - a resume that refuses to continue does so with --accept-loss, and ends with the verdicts of
//     the undisturbed run, or names what cannot be continued;
//
//   - every later show reports what a resume continued without;
//
//   - a flipped bit in the events or blobs of a finished run is found by show --verify;
//
//   - no command reports anything about undamaged copies.
//
// Most damages affect one file of a finished or unfinished run: a flipped bit, a truncation, zeros,
// a deletion, duplicated content, or an exchange with another file of the run. Some affect several
// files: a directory, the mark and run.json, or the summaries or tables are deleted, or
// control.jsonl is rolled back to an earlier state, with or without its mark.
//
// Usage: go run ./scripts/damage -n 300
//
// The seed is printed. The same seed gives the same damages, as far as the runs are the same.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

func main() {
	n := flag.Int("n", 300, "damages in all")
	controls := flag.Int("controls", 50, "undamaged copies in all")
	trials := flag.Int("trials", 36, "trials of a run")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the damages")
	only := flag.Int("only", -1, "only the damage with this number, counted from 0")
	driver := flag.String("sandbox", "fake", "sandbox driver of the runs")
	binary := flag.String("evalrun", "", "the program; empty: it is built")
	jobs := flag.Int("j", 4, "folders at once")
	keep := flag.Bool("keep", false, "keep the work folder also when all is well")
	verbose := flag.Bool("v", false, "tell of every damage")
	flag.Parse()
	d := &damager{trials: *trials, seed: *seed, driver: *driver, binary: *binary, verbose: *verbose,
		counts: map[string]int{}}
	fmt.Printf("seed %d\n", *seed)
	err := d.main(*n, *controls, *only, max(1, *jobs))
	if d.work != "" && err == nil && !*keep {
		os.RemoveAll(d.work)
	} else if d.work != "" {
		fmt.Printf("work folder: %s\n", d.work)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "damage:", err)
		os.Exit(1)
	}
}

type damager struct {
	trials  int
	seed    uint64
	driver  string
	binary  string
	verbose bool
	work    string
	config  string
	truth   verdicts // of the undisturbed run
	bases   []*base

	mu     sync.Mutex
	counts map[string]int
}

// A base is an undamaged run directory with the output of the commands.
type base struct {
	name    string
	dir     string
	whole   bool // all trials are decided
	decided verdicts
	compare string
	exports map[string]string
}

func (d *damager) main(n, controls, only, jobs int) (err error) {
	if d.work, err = os.MkdirTemp("", "evalrun-damage-"); err != nil {
		return err
	}
	if d.binary == "" {
		d.binary = filepath.Join(d.work, "evalrun")
		build := exec.Command("go", "build", "-o", d.binary, "./cmd/evalrun")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building evalrun: %w", err)
		}
	} else if d.binary, err = filepath.Abs(d.binary); err != nil {
		return err
	}
	if d.config, err = writeBenchmark(d.work, d.trials); err != nil {
		return err
	}
	if err := d.makeBases(); err != nil {
		return err
	}
	var failures []error
	each := func(n int, what string, f func(i int) error) {
		var wg sync.WaitGroup
		next := make(chan int)
		for range jobs {
			wg.Go(func() {
				for i := range next {
					if err := f(i); err != nil {
						d.mu.Lock()
						failures = append(failures, fmt.Errorf("%s %d: %w", what, i, err))
						d.mu.Unlock()
					}
				}
			})
		}
		for i := range n {
			if only < 0 || what == "damage" && only == i {
				next <- i
			}
		}
		close(next)
		wg.Wait()
	}
	each(controls, "control", d.control)
	fmt.Printf("%d undamaged copies: %d failed\n", controls, len(failures))
	each(n, "damage", d.one)
	d.report()
	fmt.Printf("%d passed, %d failed\n", n+controls-len(failures), len(failures))
	return errors.Join(failures...)
}

// random returns the random source of damage i, which is independent of the others.
func (d *damager) random(kind, i int) *rand.Rand {
	return rand.New(rand.NewPCG(d.seed, uint64(kind)<<32|uint64(i)))
}

// An answer is the result of a command.
type answer struct {
	code     int
	out, err string
}

func (d *damager) ask(dir string, args ...string) (answer, error) {
	cmd := exec.Command(d.binary, args...)
	cmd.Dir = dir
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		return answer{}, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return answer{}, err
		}
	case <-time.After(5 * time.Minute):
		cmd.Process.Kill()
		<-done
		return answer{}, fmt.Errorf("evalrun %s: no answer in 5 minutes", strings.Join(args, " "))
	}
	a := answer{cmd.ProcessState.ExitCode(), out.String(), stderr.String()}
	if strings.Contains(a.err, "panic") || strings.Contains(a.err, "goroutine ") || a.code < 0 {
		return a, fmt.Errorf("evalrun %s: exit code %d\n%s", strings.Join(args, " "), a.code, a.err)
	}
	return a, nil
}

func (d *damager) makeBases() error {
	finished := filepath.Join(d.work, "finished", "run")
	if err := os.MkdirAll(filepath.Dir(finished), 0o755); err != nil {
		return err
	}
	if a, err := d.ask(filepath.Dir(finished), d.runArgs()...); err != nil || a.code != 0 {
		return fmt.Errorf("the undisturbed run: %w, exit code %d\n%s", err, a.code, a.err)
	}
	whole, err := os.Stat(filepath.Join(finished, "journal", "control.jsonl"))
	if err != nil {
		return err
	}
	d.bases = append(d.bases, &base{name: "finished", dir: finished})
	rng := d.random(0, 0)
	for i := 0; i < 3; {
		half := filepath.Join(d.work, fmt.Sprintf("half-%d", i), "run")
		if err := os.MkdirAll(filepath.Dir(half), 0o755); err != nil {
			return err
		}
		cmd := exec.Command(d.binary, d.runArgs()...)
		cmd.Dir = filepath.Dir(half)
		if err := cmd.Start(); err != nil {
			return err
		}
		killed := killAt(cmd, filepath.Join(half, "journal", "control.jsonl"),
			int64((0.1+0.8*rng.Float64())*float64(whole.Size())))
		b := &base{name: fmt.Sprintf("half %d", i), dir: half}
		// If it was killed between a write and its sync, it has lines that nothing depends on yet:
		// losing these is not damage.
		if killed && promised(half) {
			if err := d.learn(b); err != nil {
				return err
			}
		}
		if len(b.decided) == 0 || len(b.decided) == d.trials { // killed too early, or too late
			if err := os.RemoveAll(half); err != nil {
				return err
			}
			continue
		}
		d.bases = append(d.bases, b)
		i++
	}
	if err := d.learn(d.bases[0]); err != nil {
		return err
	}
	if d.truth = d.bases[0].decided; len(d.truth) != d.trials {
		return fmt.Errorf("%d verdicts of %d trials", len(d.truth), d.trials)
	}
	packed, err := d.pack(finished)
	if err != nil {
		return err
	}
	if err := d.learn(packed); err != nil {
		return err
	}
	d.bases = append(d.bases, packed)
	for _, b := range d.bases {
		b.whole = len(b.decided) == d.trials
		fmt.Printf("%s: %d of %d trials decided\n", b.name, len(b.decided), d.trials)
	}
	return nil
}

// killAt kills a command once a file has reached a size. It returns false if the command ended
// before.
func killAt(cmd *exec.Cmd, file string, size int64) bool {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case <-done:
			return false
		case <-time.After(time.Millisecond):
		}
		if st, err := os.Stat(file); err == nil && st.Size() >= size {
			time.Sleep(time.Duration(st.Size()%20) * time.Millisecond)
			cmd.Process.Kill()
			return <-done != nil
		}
	}
}

// promised reports whether a journal's mark covers everything in its files.
func promised(run string) bool {
	var m struct{ Control, Events struct{ End int64 } }
	data, err := os.ReadFile(filepath.Join(run, "journal", "mark"))
	if err != nil || json.NewDecoder(bytes.NewReader(data)).Decode(&m) != nil {
		return false
	}
	for name, end := range map[string]int64{"control.jsonl": m.Control.End, "events/0001.jsonl": m.Events.End} {
		if st, err := os.Stat(filepath.Join(run, "journal", name)); err != nil || st.Size() != end {
			return false
		}
	}
	return true
}

func (d *damager) runArgs() []string {
	return []string{"run", d.config, "--sandbox", d.driver, "--progress", "none", "-o", "run"}
}
