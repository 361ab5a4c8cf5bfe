package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The trivial task of these measurements, in Harbor's format.
const (
	dockerImage = "evalrun-test/bookworm:1"
	solve       = "echo 42 > /tmp/answer"
	verify      = "#!/bin/bash\nmkdir -p /logs/verifier\nif [ \"$(cat /tmp/answer)\" = 42 ]; then r=1; else r=0; fi\necho $r > /logs/verifier/reward.txt\n"
	taskTOML    = "schema_version = \"1.4\"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = " +
		"60\n[environment]\ndocker_image = \"" + dockerImage + "\"\nnetwork_mode = \"no-network\"\n"
	// openTOML is the variant for Harbor itself, which starts an additional container for a task
	// without a network.
	openTOML = "schema_version = \"1.4\"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = " +
		"60\n[environment]\ndocker_image = \"" + dockerImage + "\"\n"
)

// harborTask writes the task into dir.
func harborTask(dir, toml string) error {
	for name, text := range map[string]string{
		"task.toml": toml, "instruction.md": "Write 42 to /tmp/answer.\n", "environment/.keep": "",
		"solution/solve.sh": "#!/bin/bash\n" + solve + "\n", "tests/test.sh": verify,
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// separate gives the task's grader its own machine.
const separate = `[verifier.environment]
docker_image = "evalrun-bench/verifier:1"
network_mode = "no-network"
`

// docker measures trials of a trivial task in containers, next to the bare API and to Harbor.
func (b *bench) docker() error {
	e := newEngine()
	if err := e.call("GET", "/images/"+dockerImage+"/json", nil, nil); err != nil {
		return fmt.Errorf("the image %s is not there (scripts/setup-test makes it): %w", dockerImage, err)
	}
	task := filepath.Join(b.work, "trivial")
	if err := harborTask(task, taskTOML); err != nil {
		return err
	}
	e.trial(dockerImage) // warm-up
	b.ours(task, 1, 1)
	var cpu, floor1 float64
	for _, n := range []int{1, 4, 8} {
		trials := 8 * max(1, n/2)
		floor, err := b.atATime(n, trials, func() error { return e.trial(dockerImage) })
		if err != nil {
			return err
		}
		if n == 1 {
			floor1 = floor
		}
		u, err := b.ours(task, n, trials)
		if err != nil {
			return err
		}
		b.add(fmt.Sprintf("container trial, %d at once", n), u.wall/float64(trials), 1.25*floor, floor, ms, "bare API")
		cpu = u.cpu / float64(trials)
	}
	b.add("container trial: CPU of evalrun", cpu, 25e-3, 0, ms, "")
	if err := b.inFlight(task); err != nil {
		return err
	}
	if err := b.apart(e, floor1); err != nil {
		return err
	}
	return b.harbor(task)
}

// ours plays the task with the oracle. It returns the usage of the whole run minus that of a run
// without trials.
func (b *bench) ours(task string, n, trials int) (usage, error) {
	name := fmt.Sprintf("docker-%d-%d", n, time.Now().UnixNano())
	return b.play("run", "harbor:"+task, "--agent", "oracle", "--sandbox", "docker", "-n", strconv.Itoa(n), "--repeats",
		strconv.Itoa(trials),
		"-o", b.out(name), "--progress", "none")
}

// atATime calls f trials times, n of them concurrently, and returns the time per trial.
func (b *bench) atATime(n, trials int, f func() error) (float64, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	begun := time.Now()
	for i := range n {
		wg.Go(func() {
			for range trials/n + min(1, max(0, trials%n-i)) {
				if err := f(); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun).Seconds() / float64(trials), first
}

// inFlight measures evalrun's memory while trials are running.
func (b *bench) inFlight(task string) error {
	one, err := b.ours(task, 1, 8)
	if err != nil {
		return err
	}
	const n = 24
	many, err := b.ours(task, n, n)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("container trial: memory per trial, %d in flight", n), max(0, many.rss-one.rss)/(n-1), 1e6, 0,
		mb, "")
	return nil
}

// apart measures the cost of a separate container for the grader.
func (b *bench) apart(e *engine, floor float64) error {
	build := exec.Command("docker", "build", "-q", "-t", "evalrun-bench/verifier:1", "-")
	build.Stdin = strings.NewReader("FROM " + dockerImage + "\nRUN mkdir -p /tests && printf '" +
		strings.ReplaceAll(verify, "\n", `\n`) + "' > /tests/test.sh && chmod +x /tests/test.sh\n")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the verifier's image: %w\n%s", err, out)
	}
	defer exec.Command("docker", "rmi", "evalrun-bench/verifier:1").Run()
	one, err := b.atATime(1, 8, func() error {
		id, err := e.create(dockerImage)
		if err == nil {
			err = e.remove(id)
		}
		return err
	})
	if err != nil {
		return err
	}
	task := filepath.Join(b.work, "apart")
	if err := harborTask(task, "artifacts = [\"/tmp/answer\"]\n"+taskTOML+separate); err != nil {
		return err
	}
	shared, err := b.ours(filepath.Join(b.work, "trivial"), 1, 8)
	if err != nil {
		return err
	}
	two, err := b.ours(task, 1, 8)
	if err != nil {
		return err
	}
	b.add("additional time for a separate verifier", (two.wall-shared.wall)/8, 1.2*one, one, ms, "one more container")
	return nil
}

// containerCommands measures commands and files in a running container, next to the engine's own
// exec.
func (b *bench) containerCommands() error {
	cmd := exec.Command("go", "test", "./runtime/docker", "-run", "^$", "-bench", "^Benchmark(Exec|Shell|File)$",
		"-benchtime", "50x")
	cmd.Env = append(os.Environ(), "EVALRUN_TEST_DOCKER=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	took := map[string]float64{} // in seconds
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 4 && strings.HasPrefix(f[0], "Benchmark") && f[3] == "ns/op" {
			name, _, _ := strings.Cut(strings.TrimPrefix(f[0], "Benchmark"), "-")
			ns, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
			took[name] = ns / 1e9
		}
	}
	for _, row := range []struct {
		name, what string
		max, floor float64
	}{
		{"Exec/ours", "a command in a running container", 4e-3, took["Exec/bare"]},
		{"Exec/twenty", "20 commands in a running container", 100e-3, 20 * took["Exec/bare"]},
		{"Shell", "a command of a persistent shell in a container", 5e-3, took["Exec/bare"]},
		{"File/in", "1 MB into a container", 10e-3, 0},
		{"File/out", "1 MB out of a container", 10e-3, 0},
	} {
		if took[row.name] == 0 {
			return fmt.Errorf("%s was not measured:\n%s", row.name, out)
		}
		floor := ""
		if row.floor > 0 {
			floor = "bare exec"
		}
		b.add(row.what, took[row.name], row.max, row.floor, ms, floor)
	}
	return nil
}

// harbor runs Harbor on the same task, if Harbor can be set up.
func (b *bench) harbor(task string) error {
	out, err := exec.Command("scripts/harbor").Output()
	if err != nil {
		b.note("Harbor on the same task", "not measured: scripts/harbor could not set it up")
		return nil
	}
	dir := strings.TrimSpace(string(out))
	open := filepath.Join(b.work, "trivial-open")
	if err := harborTask(open, openTOML); err != nil {
		return err
	}
	fast := filepath.Join(b.work, "fast.yaml")
	if err := os.WriteFile(fast, []byte("services:\n  main:\n    stop_grace_period: 0s\n"), 0o644); err != nil {
		return err
	}
	for _, n := range []int{1, 4, 8} {
		trials := max(3, n)
		cmd := exec.CommandContext(context.Background(), filepath.Join(dir, "venv/bin/harbor"), "run", "-p", open, "-a",
			"oracle", "-n", strconv.Itoa(n), "-k", strconv.Itoa(trials),
			"--jobs-dir", filepath.Join(b.work, "jobs"), "-q", "--extra-docker-compose", fast)
		cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+filepath.Join(dir, "docker"), "HARBOR_TELEMETRY=off")
		var text bytes.Buffer
		cmd.Stdout, cmd.Stderr = &text, &text
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("harbor: %w\n%s", err, text.String())
		}
		wall, err := harborTime(filepath.Join(b.work, "jobs"))
		if err != nil {
			return err
		}
		os.RemoveAll(filepath.Join(b.work, "jobs"))
		r := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		cpu := float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
		u, err := b.ours(task, n, 2*trials)
		if err != nil {
			return err
		}
		us := u.wall / float64(2*trials)
		b.note(fmt.Sprintf("Harbor 0.24.0 at its fastest, %d at once", n),
			fmt.Sprintf("%s a trial, %s CPU; evalrun in the same minute %s: %.1f times as fast",
				ms(wall/float64(trials)), ms(cpu/float64(trials)), ms(us), wall/float64(trials)/us))
	}
	return nil
}

// harborTime returns the duration that Harbor reports for its only job, which excludes starting its
// interpreter.
func harborTime(jobs string) (float64, error) {
	names, err := filepath.Glob(filepath.Join(jobs, "*", "result.json"))
	if err != nil || len(names) != 1 {
		return 0, fmt.Errorf("harbor left %d results, not one", len(names))
	}
	raw, err := os.ReadFile(names[0])
	if err != nil {
		return 0, err
	}
	var res struct {
		Started  string `json:"started_at"`
		Finished string `json:"finished_at"`
		Stats    struct {
			Errors int `json:"n_errored_trials"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return 0, err
	}
	began, err1 := parseTime(res.Started)
	ended, err2 := parseTime(res.Finished)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("harbor's result says neither when it began nor when it ended: %s", raw)
	}
	return ended.Sub(began).Seconds(), nil
}

func parseTime(s string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	return time.Parse("2006-01-02T15:04:05.999999999", s)
}
