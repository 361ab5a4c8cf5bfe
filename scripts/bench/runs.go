package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A usage is the resource usage of a run of evalrun.
type usage struct{ wall, cpu, rss float64 }

// play runs evalrun and returns its resource usage.
func (b *bench) play(args ...string) (usage, error) {
	cmd := exec.Command(b.evalrun, args...)
	cmd.Dir = b.work
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	t := time.Now()
	err := cmd.Run()
	u := usage{wall: time.Since(t).Seconds()}
	if err != nil {
		return u, fmt.Errorf("evalrun %s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	r := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	u.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	u.rss = float64(r.Maxrss) * 1024
	return u, nil
}

// trials plays n sessions of a script in the fake sandbox, one per task.
func (b *bench) trials(n, workers int, script string) (usage, error) {
	_, u, err := b.repeated(n, 1, workers, script)
	return u, err
}

func (b *bench) repeated(n, repeats, workers int, script string) (run string, u usage, err error) {
	name := fmt.Sprintf("%d-%d-%d-%d", n, repeats, workers, time.Now().UnixNano())
	var tasks strings.Builder
	for i := range n {
		fmt.Fprintf(&tasks, `{"id":"t%d","instruction":"say yes","answer":"yes"}`+"\n", i)
	}
	files := map[string]string{name + ".jsonl": tasks.String(), name + ".yaml": script}
	for f, text := range files {
		if err := os.WriteFile(filepath.Join(b.work, f), []byte(text), 0o644); err != nil {
			return "", u, err
		}
	}
	u, err = b.play("run", "tasks:"+name+".jsonl", "--agent", "script:"+name+".yaml", "--sandbox", "fake", "-n",
		strconv.Itoa(workers), "-o", b.out(name),
		"--repeats", strconv.Itoa(repeats), "--progress", "none")
	return b.out(name), u, err
}

func (b *bench) out(name string) string { return filepath.Join(b.work, "run-"+name) }

const (
	oneCall    = `[{do: [{run: "true"}, {finish: "yes"}]}]`
	twentyCall = `[{do: [{run: "true", times: 20}, {finish: "yes"}]}]`
	slowReply  = `[{do: [{do: [{sleep: 50ms}, {run: "true"}], times: 20}, {finish: "yes"}]}]`
)

// sessions measures the CPU time of a session.
func (b *bench) sessions() error {
	for _, m := range []struct {
		name   string
		n      int
		script string
		max    float64
		events float64 // number of write barriers that fsync without sharing would need
	}{
		{"CPU of a session of 20 commands, fake sandbox", 2000, twentyCall, 4e-3, 20},
		{"CPU of a session of one command, fake sandbox", 10000, oneCall, 0.3e-3, 1},
	} {
		one, err := b.trials(1, 1, m.script)
		if err != nil {
			return err
		}
		all, err := b.trials(m.n, 64, m.script)
		if err != nil {
			return err
		}
		b.add(m.name, (all.cpu-one.cpu)/float64(m.n-1), m.max, 0, ms, "")
		b.note("— sessions per second, cores used",
			fmt.Sprintf("%.0f/s, %.1f", float64(m.n)/all.wall, all.cpu/all.wall))
	}
	return nil
}

func (b *bench) atOnce() error {
	const ideal = 1.0
	one, err := b.trials(1000, 1000, slowReply)
	if err != nil {
		return err
	}
	b.add("1,000 sessions at once, 20 replies of 50 ms: time", one.wall, 1.6, ideal, ms, "ideal")
	b.add("1,000 sessions at once: memory", one.rss, 150e6, 0, mb, "")
	ten, err := b.trials(10000, 10000, slowReply)
	if err != nil {
		return err
	}
	b.add("10,000 sessions at once: memory", ten.rss, 700e6, 0, mb, "")
	b.note("— 10,000 sessions at once: time", ms(ten.wall))
	return nil
}

// many measures whether costs per trial grow with the number of finished trials. The plan is the
// same except for the number of repeats.
func (b *bench) many() error {
	_, ten, err := b.repeated(1000, 10, 64, oneCall)
	if err != nil {
		return err
	}
	run, hundred, err := b.repeated(1000, 100, 64, oneCall)
	if err != nil {
		return err
	}
	b.add("memory after 100,000 sessions, relative to 10,000", hundred.rss/ten.rss, 1.1, 0, times, "")
	b.note("— after 10,000, and after 100,000", fmt.Sprintf("%s and %s", mb(ten.rss), mb(hundred.rss)))
	t := time.Now()
	data, err := os.ReadFile(filepath.Join(run, "journal", "control.jsonl"))
	if err != nil {
		return err
	}
	bytes.Count(data, []byte("\n"))
	read := time.Since(t).Seconds()
	decided, err := b.untilLeft(run)
	if err != nil {
		return err
	}
	b.add("resume after 100,000 sessions: until it prints what is left", decided, 1, read, ms, "reading the journal")
	u, err := b.play("resume", run, "--progress", "none")
	if err != nil {
		return err
	}
	b.note("— until its end, with the summary; memory", ms(u.wall)+", "+mb(u.rss))
	all, err := b.trials(100_000, 64, oneCall)
	if err != nil {
		return err
	}
	b.note("— memory of a run with 100,000 tasks, one session each", mb(all.rss))
	return nil
}

// untilLeft returns how long a resume takes until it reports the number of remaining trials.
func (b *bench) untilLeft(run string) (float64, error) {
	cmd := exec.Command(b.evalrun, "resume", run, "--progress", "none")
	cmd.Dir = b.work
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	t := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	took := 0.0
	s := bufio.NewScanner(pipe)
	for s.Scan() {
		if took == 0 && strings.Contains(s.Text(), "trials are left") {
			took = time.Since(t).Seconds()
		}
	}
	if err := cmd.Wait(); err != nil {
		return 0, err
	}
	if took == 0 {
		return 0, fmt.Errorf("resume did not say what is left")
	}
	return took, nil
}

// humanEval compares the oracle's run with running the same programs with bare python3.
func (b *bench) humanEval() error {
	abs, err := filepath.Abs(b.humaneval)
	if err != nil {
		return err
	}
	if _, err := os.Stat(abs); err != nil {
		return err
	}
	programs, err := b.programs(abs)
	if err != nil {
		return err
	}
	const workers = 4
	run := func() (float64, error) {
		name := fmt.Sprintf("humaneval-%d", time.Now().UnixNano())
		u, err := b.play("run", "humaneval:"+abs, "--agent", "oracle", "--sandbox", "local", "-n",
			strconv.Itoa(workers), "-o", b.out(name), "--progress", "none")
		return u.wall, err
	}
	bare := func() (float64, error) {
		t := time.Now()
		errs := make(chan error, len(programs))
		slots := make(chan struct{}, workers)
		for _, p := range programs {
			slots <- struct{}{}
			go func() {
				errs <- exec.Command(python, p).Run()
				<-slots
			}()
		}
		for range programs {
			if err := <-errs; err != nil {
				return 0, fmt.Errorf("bare python3: %w", err)
			}
		}
		return time.Since(t).Seconds(), nil
	}
	var ours, floor []float64
	for range 3 { // alternate, so that both are measured under the same load
		o, err := run()
		if err != nil {
			return err
		}
		f, err := bare()
		if err != nil {
			return err
		}
		ours, floor = append(ours, o), append(floor, f)
	}
	b.add(fmt.Sprintf("HumanEval oracle, 164 sandboxes, %d at a time", workers), mid(ours), 1.5*mid(floor), mid(floor),
		ms, "bare python3")
	return nil
}

// programs writes the complete program of each task, as a person would run it.
func (b *bench) programs(data string) ([]string, error) {
	open := exec.Command("zcat", "-f", data)
	text, err := open.Output()
	if err != nil {
		return nil, err
	}
	var out []string
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var t struct {
			Prompt     string `json:"prompt"`
			Solution   string `json:"canonical_solution"`
			Test       string `json:"test"`
			EntryPoint string `json:"entry_point"`
		}
		if err := json.Unmarshal(s.Bytes(), &t); err != nil {
			return nil, err
		}
		name := filepath.Join(b.work, fmt.Sprintf("p%d.py", len(out)))
		text := t.Prompt + t.Solution + "\n" + t.Test + "\ncheck(" + t.EntryPoint + ")\n"
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, s.Err()
}

func (b *bench) start() error {
	v, err := median(30, func() error { _, err := b.play("--version"); return err })
	if err != nil {
		return err
	}
	b.add("evalrun --version", v, 30e-3, b.floors.exec, ms, "exec")
	var firsts []float64
	for range 5 {
		name := fmt.Sprintf("first-%d", time.Now().UnixNano())
		began := time.Now()
		if _, err := b.play("run", "quickstart", "--agent", "oracle", "--limit", "4", "-o", b.out(name), "--progress",
			"none"); err != nil {
			return err
		}
		t, err := firstAttempt(b.out(name))
		if err != nil {
			return err
		}
		firsts = append(firsts, t.Sub(began).Seconds())
	}
	b.add("time until the first trial of quickstart starts", mid(firsts), 150e-3, b.floors.exec, ms, "exec")
	return nil
}

func firstAttempt(run string) (time.Time, error) {
	f, err := os.Open(filepath.Join(run, "journal", "control.jsonl"))
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return time.Time{}, err
		}
		var l struct {
			E struct {
				Time time.Time `json:"time"`
				Kind string    `json:"kind"`
			} `json:"e"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return time.Time{}, err
		}
		if l.E.Kind == "attempt" {
			return l.E.Time, nil
		}
	}
}
