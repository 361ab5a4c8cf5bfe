package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/local"
)

// TestReattach kills evalrun with SIGKILL, alone or with its process group, resumes, and compares
// what the agent has seen, the evidence and the verdict with those of a run that nobody disturbed.
// EVALRUN_TEST_KILLS sets the number of kills for each driver.
func TestReattach(t *testing.T) {
	for _, c := range []setting{{"local", "tasks"}, {"docker", "tasks"}, {"docker", "harbor"}} {
		t.Run(c.driver+"/"+c.benchmark, func(t *testing.T) {
			if c.driver == "docker" {
				if ok, err := dockerHere(t); err != nil {
					t.Fatal(err)
				} else if !ok {
					t.Skip("needs EVALRUN_TEST_DOCKER=1 and a Docker engine")
				}
			} else if _, err := launch.OpenDriver(t.Context(), &local.Kind, image.Options{}); err != nil {
				if os.Getenv("EVALRUN_TEST_LOCAL") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			reattachCases(t, c)
		})
	}
}

// A setting is a driver, and a benchmark with a task that asks for the same.
type setting struct{ driver, benchmark string }

// A moment is when a run is killed. It waits for it, and reports false if the run has ended.
type moment struct {
	name string
	nap  int // the nap that goes on until then; -1: none
	wait func(x *disturbed) bool
}

func reattachCases(t *testing.T, c setting) {
	inCommand := moment{name: "in a command", nap: 0, wait: func(x *disturbed) bool { return x.until(x.sleeps(0)) }}
	moments := [][]moment{
		{inCommand},
		{{name: "in a model call", nap: -1, wait: func(x *disturbed) bool {
			return x.until(func() bool { return x.asked.Load() == 2 })
		}}},
		{{name: "in grading", nap: 1, wait: func(x *disturbed) bool { return x.until(x.sleeps(1)) }}},
		{inCommand, {name: "once more", nap: 0, wait: func(x *disturbed) bool {
			return x.until(func() bool { return x.count(record.KindAttempt) == 2 })
		}}},
	}
	for step := range int64(3) { // the reply becomes durable, and then the action, and then the command runs
		moments = append(moments, []moment{{name: fmt.Sprint("after reply ", step), nap: -1, wait: func(x *disturbed) bool {
			if !x.until(func() bool { return x.answered.Load() > step }) {
				return false
			}
			time.Sleep(time.Duration(rand.Int64N(int64(30 * time.Millisecond))))
			return true
		}}})
	}
	kills := len(moments) + 1
	if testing.Short() {
		kills = 4
	}
	if s := os.Getenv("EVALRUN_TEST_KILLS"); s != "" {
		var err error
		if kills, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	twin := play(t, c, nil, 0)
	if twin.reward != 1 || len(twin.events) < 8 {
		t.Fatalf("the undisturbed run: %+v", twin)
	}
	var took []time.Duration
	for n, i := 0, 0; n < kills; i++ {
		ms := moments[i%len(moments)]
		got := play(t, c, ms, i)
		n += len(ms)
		took = append(took, got.took...)
		want := twin
		if got.again {
			want.counts = got.counts
		}
		if got.graded && c.benchmark == "harbor" { // the sandbox that is graded is gone, so that it plays again
			want.events, want.evidence = got.events, got.evidence
		}
		if diff := want.diff(got); diff != "" {
			t.Errorf("%s (run %d): %s", ms[0].name, i, diff)
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		t.Logf("%d kills; the attempt went on %v after the start of resume at the median, %v at most", kills,
			took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	}
}

// TestReattachStopped stops evalrun in a command and continues it, while another evalrun on this
// machine starts and ends.
func TestReattachStopped(t *testing.T) {
	if _, err := launch.OpenDriver(t.Context(), &local.Kind, image.Options{}); err != nil {
		t.Skip(err)
	}
	c := setting{"local", "tasks"}
	twin := play(t, c, nil, 0)
	x := disturb(t, c)
	x.start(x.run, 0)
	if !x.until(x.sleeps(0)) {
		t.Fatalf("evalrun has ended:\n%s", x.out.String())
	}
	x.cmd.Process.Signal(syscall.SIGSTOP)
	other := x.command(append(slices.Clone(x.run), "--agent", "nop", "-o", "other"))
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("the other run: %v\n%s", err, out)
	}
	x.wakeAll(-1)
	x.cmd.Process.Signal(syscall.SIGCONT)
	if diff := twin.diff(x.finish()); diff != "" {
		t.Error(diff)
	}
}

// A played is what a run has to show.
type played struct {
	took     []time.Duration // from the starts of resumes until the attempt went on
	again    bool            // a new attempt had to begin
	graded   bool            // it was killed when the evidence was durable, so that the new attempt only graded
	events   []string
	evidence []string
	reward   float64
	counts   string
}

func (p played) diff(q played) string {
	q.took, q.again, q.graded = p.took, p.again, p.graded
	return gocmp.Diff(p, q, gocmp.AllowUnexported(played{}))
}

// A disturbed is a run that is killed.
type disturbed struct {
	t        *testing.T
	dir      string
	host     string // name of the machine
	naps     [2]string
	run      []string
	cmd      *exec.Cmd
	out      *bytes.Buffer
	ended    chan struct{}
	asked    atomic.Int64 // the step that the model was asked for last
	answered atomic.Int64 // and the number of those that it has answered
	held     atomic.Int64 // the step whose call is not answered; -1: none
}

var napNumber atomic.Int64

// sums are digests of archives of files with their times, in evidence of harbor.
var sums = regexp.MustCompile(`"[0-9a-f]{64}","type":"application/x-tar[^}]*`)

func disturb(t *testing.T, c setting) *disturbed {
	x := &disturbed{t: t, dir: t.TempDir(), out: new(bytes.Buffer)}
	x.asked.Store(-1)
	x.held.Store(-1)
	id := fmt.Sprint(os.Getpid(), "0", napNumber.Add(1))
	x.naps, x.host = [2]string{"600." + id, "601." + id}, "reattach-"+id
	nap := func(i int) string { return "sh -c 'sleep " + x.naps[i] + "; true' 2>/dev/null" }
	steps := []string{
		"cd /workspace; pwd; echo one >> log",
		"echo two >> log; " + nap(0) + "; echo three >> log; echo woke",
		"pwd; cat log; cp log out.txt; touch -d @1000000000 out.txt",
	}
	s := modeltest.NewServer(t, func(c modeltest.Call) modeltest.Reply {
		step := 0
		for _, m := range c.Body.Messages {
			if m.Role == "tool" {
				step++
			}
		}
		x.asked.Store(int64(step))
		r := modeltest.Reply{Usage: event.Usage{In: 100, Out: 10}}
		if x.held.Load() == int64(step) {
			r.Fault = modeltest.Slow(time.Hour)
			return r
		}
		name, args := "finish", map[string]string{"message": "done"}
		if step < len(steps) {
			name, args = "execute_bash", map[string]string{"command": steps[step]}
		}
		text, _ := json.Marshal(args)
		r.Calls = []event.ReplyCall{{ID: fmt.Sprint("c", step), Name: name, Args: string(text)}}
		x.answered.Store(int64(step + 1))
		return r
	})
	files := map[string]string{
		"run.yaml": fmt.Sprintf("benchmark: tasks:tasks.yaml\nagent: codeact\nmodel: {name: openai/m, base_url: %q}\n", s.URL),
		"tasks.yaml": "name: count\ntasks:\n- id: three\n  instruction: Count.\n  grade:\n    collect: [out.txt]\n" +
			"    script: |\n      " + nap(1) + "\n      test \"$(wc -l < out.txt)\" = 3\n",
		"three/task.toml": "[environment]\ndocker_image = \"" + testImage + "\"\nworkdir = \"/workspace\"\n" +
			"network_mode = \"no-network\"\n[agent]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"example.com\"]\n",
		"three/instruction.md":     "Count.\n",
		"three/environment/ignore": "",
		"three/tests/test.sh": "#!/bin/sh\n" + nap(1) + "\n[ \"$(wc -l < /workspace/out.txt)\" = 3 ] && " +
			"echo 1 > /logs/verifier/reward.txt\n",
	}
	if c.benchmark == "harbor" {
		files["run.yaml"] = strings.Replace(files["run.yaml"], "tasks:tasks.yaml", "harbor:three", 1)
	}
	for name, text := range files {
		name = filepath.Join(x.dir, name)
		os.MkdirAll(filepath.Dir(name), 0o755)
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	x.run = []string{"run", "run.yaml", "--sandbox", c.driver, "-q", "-o", "out"}
	if c.driver == "docker" && c.benchmark == "tasks" {
		x.run = append(x.run, "--set", "sandbox.image="+testImage)
	}
	return x
}

// play plays a run, which is killed at the given moments.
func play(t *testing.T, c setting, kills []moment, round int) played {
	t.Helper()
	x := disturb(t, c)
	args := x.run
	var took []time.Duration
	anew, graded := false, false
	for i, m := range kills {
		if m.name == "in a model call" {
			x.held.Store(2)
		}
		begun := time.Now()
		x.start(args, m.nap)
		for !m.wait(x) {
			t.Fatalf("evalrun has ended, and was to be killed %s:\n%s", m.name, x.out.String())
		}
		group := (round+i)%2 == 0
		x.kill(group)
		args = []string{"resume", "out", "-q"}
		anew, graded = x.count(record.KindStage) == 0, x.count(record.KindEvidence) > 0
		if anew {
			break // the journal does not have that the agent has begun
		}
		if i > 0 {
			took = append(took, x.wentOn(begun, i+1))
		}
	}
	if round%4 < 2 { // the command ends while nobody listens
		x.wake(0)
	}
	x.held.Store(-1)
	begun := time.Now()
	x.start(args, -1)
	got := x.finish()
	got.again = anew || graded
	if got.graded = graded; len(kills) > 0 && !got.again {
		took = append(took, x.wentOn(begun, len(kills)+1))
	}
	got.took = took
	return got
}

// command is an evalrun on a machine of its own name, so that no other evalrun removes what it
// leaves when it is killed.
func (x *disturbed) command(args []string) *exec.Cmd {
	cmd := exec.Command("evalrun", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd = exec.Command("sh", append([]string{"-c", "echo " + x.host + " >/proc/sys/kernel/hostname && exec evalrun \"$@\"",
			"sh"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWUTS}
	}
	cmd.Dir = x.dir
	cmd.Env = append(os.Environ(), "OPENAI_API_KEY=", "HOME="+x.dir)
	return cmd
}

// start starts evalrun and ends all naps but one.
func (x *disturbed) start(args []string, nap int) {
	x.cmd = x.command(args)
	x.cmd.Stdout, x.cmd.Stderr = x.out, x.out
	if err := x.cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	ended := make(chan struct{})
	x.ended = ended
	cmd := x.cmd
	go func() {
		cmd.Wait()
		close(ended)
	}()
	x.t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	x.wakeAll(nap)
}

func (x *disturbed) kill(group bool) {
	pid := x.cmd.Process.Pid
	if group {
		pid = -pid
	}
	syscall.Kill(pid, syscall.SIGKILL)
	<-x.ended
}

// until waits for a condition, and reports false if evalrun has ended before.
func (x *disturbed) until(f func() bool) bool {
	for !f() {
		select {
		case <-x.ended:
			return f()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return true
}

// napping finds the processes of a nap.
func (x *disturbed) napping(i int) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, _ := os.ReadFile(f); string(b) == "sleep\x00"+x.naps[i]+"\x00" {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func (x *disturbed) sleeps(i int) func() bool { return func() bool { return len(x.napping(i)) > 0 } }

// wake ends a nap.
func (x *disturbed) wake(i int) {
	for _, pid := range x.napping(i) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// wakeAll ends all naps but one, until evalrun ends.
func (x *disturbed) wakeAll(but int) {
	ended := x.ended
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
			for i := range x.naps {
				if i != but {
					x.wake(i)
				}
			}
		}
	}()
}

// finish waits for the end and returns what the run has to show.
func (x *disturbed) finish() (p played) {
	t := x.t
	t.Helper()
	<-x.ended
	if !x.cmd.ProcessState.Success() {
		t.Fatalf("evalrun: %v\n%s\n%s", x.cmd.ProcessState, x.kinds(), x.out.String())
	}
	next, verdicts := int64(0), 0
	for _, e := range journalOf(x.dir) {
		switch e.Kind {
		case record.KindEvidence:
			p.evidence = append(p.evidence, sums.ReplaceAllString(string(e.Data), ""))
		case record.KindVerdict:
			var v record.Verdict
			if err := json.Unmarshal(e.Data, &v); err != nil {
				t.Fatal(err)
			}
			if !v.Final {
				continue
			}
			verdicts++
			if v.Status != record.Scored || v.Reward == nil {
				t.Errorf("the verdict is %s", e.Data)
				continue
			}
			p.reward = *v.Reward
			p.counts = fmt.Sprint(e.Attempt, v.Steps, v.Turns, v.BadCalls, v.End) // what it spent before is in another entry
		case record.KindEvent:
			ev, err := event.Default.Decode(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			if e.Attempt == 1 && ev.ID != next {
				t.Errorf("event %d where %d should be", ev.ID, next)
			}
			next++
			switch b := ev.Body.(type) {
			case event.Info:
				if b.What == record.Reattached {
					continue
				}
			case event.RunResult:
				b.WallMS = 0
				ev.Body = b
			}
			body, err := json.Marshal(ev.Body)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.NewReplacer(x.naps[0], "NAP", x.naps[1], "NAP").Replace(string(body))
			p.events = append(p.events, ev.Body.Kind()+" "+text)
		}
	}
	if verdicts != 1 {
		t.Errorf("%d final verdicts", verdicts)
	}
	left, _ := filepath.Glob(filepath.Join("/run/evalrun/local", "*.json"))
	for _, f := range left {
		if b, _ := os.ReadFile(f); bytes.Contains(b, []byte(runOf(x.t, x.dir))) {
			t.Errorf("left: %s", b)
		}
	}
	if strings.Contains(strings.Join(x.run, " "), "docker") {
		ps := exec.Command("docker", "ps", "-aq", "--filter", "label=evalrun.run="+runOf(x.t, x.dir))
		if left, err := ps.Output(); err != nil || len(left) > 0 {
			t.Errorf("left: %s%v", left, err)
		}
	}
	return p
}

// wentOn returns how long after begun the n-th attempt entry was written, which has to be of the
// first attempt.
func (x *disturbed) wentOn(begun time.Time, n int) time.Duration {
	x.t.Helper()
	for _, e := range journalOf(x.dir) {
		if e.Kind != record.KindAttempt {
			continue
		}
		if e.Attempt != 1 {
			x.t.Fatalf("a new attempt has begun:\n%s", x.out.String())
		}
		if n--; n == 0 {
			return e.Time.Sub(begun)
		}
	}
	x.t.Fatalf("the attempt did not go on:\n%s\n%s", x.kinds(), x.out.String())
	return 0
}

// kinds lists the entries of the journal, for a message.
func (x *disturbed) kinds() string {
	var b strings.Builder
	for _, e := range journalOf(x.dir) {
		fmt.Fprintf(&b, "%s %d/%s ", e.Time.Format("05.000"), e.Attempt, e.Kind)
	}
	return b.String()
}

func (x *disturbed) count(kind string) (n int) {
	for _, e := range journalOf(x.dir) {
		if e.Kind == kind {
			n++
		}
	}
	return n
}
