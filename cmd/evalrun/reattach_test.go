package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// TestReattach kills evalrun with SIGKILL, resumes, and looks at what the agent has seen.
func TestReattach(t *testing.T) {
	if ok, err := dockerHere(t); err != nil {
		t.Fatal(err)
	} else if !ok {
		t.Skip("needs EVALRUN_TEST_DOCKER=1 and a Docker engine")
	}
	for _, c := range []struct {
		name  string
		kills []string
	}{
		{"in a command", []string{inCommand}},
		{"between actions", []string{asleep}},
		{"twice", []string{inCommand, reattached}},
	} {
		t.Run(c.name, func(t *testing.T) { reattach(t, c.kills) })
	}
}

// When a run is killed.
const (
	inCommand  = "the long command runs"
	asleep     = "the agent sleeps after its second command"
	reattached = "the attempt goes on"
)

const (
	reattachTasks = "name: count\ntasks:\n- {id: three, instruction: Count., answer: \"3\"}\n"
	reattachAgent = `- do:
  - run: cd /tmp; pwd
  - run: echo begun >> log; echo out; WAIT; echo ended >> log; echo late
  - sleep: 8s
  - run: pwd; cat log
  - finish: "3"
`
)

func reattach(t *testing.T, kills []string) {
	dir := t.TempDir()
	wait := "until [ -e go ]; do sleep 0.1; done"
	if kills[0] == asleep {
		wait = "true"
	}
	for name, text := range map[string]string{"tasks.yaml": reattachTasks,
		"agent.yaml": strings.Replace(reattachAgent, "WAIT", wait, 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"run", "tasks:tasks.yaml", "--agent", "script:agent.yaml", "--sandbox", "docker", "--set",
		"sandbox.image=" + testImage, "-o", "out", "-q"}
	for _, when := range kills {
		cmd := exec.Command("evalrun", args...)
		var out bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			cmd.Wait()
			close(ended)
		}()
		for !seen(t, dir, when) {
			select {
			case <-ended:
				t.Fatalf("evalrun has ended before %q:\n%s", when, out.String())
			case <-time.After(20 * time.Millisecond):
			}
		}
		cmd.Process.Kill()
		<-ended
		args = []string{"resume", "out", "-q"}
	}
	if kills[0] != asleep { // the command may end now
		if out, err := exec.Command("docker", "exec", machineOf(t, dir), "touch", "/tmp/go").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	cmd := exec.Command("evalrun", args...)
	cmd.Dir = dir
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("resume: %v\n%s", err, out)
	}
	var outputs []string
	var verdict string
	var attempts, verdicts, notes int
	next := int64(0)
	all := journalOf(t, dir)
	slices.SortFunc(all, func(a, b record.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, e := range all {
		if e.Attempt > 1 {
			t.Fatalf("a new attempt has begun, after %s:\n%s", verdict, out)
		}
		switch e.Kind {
		case record.KindAttempt:
			if attempts++; attempts == len(kills)+1 {
				t.Logf("reattached %v after the start of resume", e.Time.Sub(begun).Round(time.Millisecond))
			}
		case record.KindVerdict:
			verdicts++
			verdict = string(e.Data)
			if !bytes.Contains(e.Data, []byte(`"status":"scored"`)) {
				t.Errorf("the verdict is %s", e.Data)
			}
		case record.KindEvent:
			ev, err := event.Default.Decode(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			if ev.ID != next {
				t.Errorf("event %d where %d should be", ev.ID, next)
			}
			next++
			switch b := ev.Body.(type) {
			case event.RunResult:
				outputs = append(outputs, b.Output)
				if b.Full != "" {
					t.Errorf("a short output has a file %s", b.Full)
				}
			case event.Info:
				if b.What == "reattached" {
					notes++
				}
			}
		}
	}
	if attempts != len(kills)+1 || notes != len(kills) || verdicts != 1 {
		t.Errorf("%d attempt entries, %d notes, %d verdicts after %d kills", attempts, notes, verdicts, len(kills))
	}
	want := []string{"/tmp\n", "out\nlate\n", "/tmp\nbegun\nended\n"}
	if strings.Join(outputs, "|") != strings.Join(want, "|") {
		t.Errorf("the agent saw %q, not %q", outputs, want)
	}
	ps := exec.Command("docker", "ps", "-aq", "--filter", "label=evalrun.run="+runOf(t, dir))
	if left, err := ps.Output(); err != nil || len(left) > 0 {
		t.Errorf("left: %s%v", left, err)
	}
}

// seen reports whether a run has come so far.
func seen(t *testing.T, dir, when string) bool {
	results, attempts := 0, 0
	if id := machineOf(t, dir); when == inCommand && id != "" {
		out, _ := exec.Command("docker", "exec", id, "cat", "/tmp/log").Output()
		return string(out) == "begun\n"
	}
	for _, e := range journalOf(t, dir) {
		switch e.Kind {
		case record.KindAttempt:
			attempts++
		case record.KindEvent:
			if ev, err := event.Default.Decode(e.Data); err == nil {
				if _, ok := ev.Body.(event.RunResult); ok {
					results++
				}
			}
		}
	}
	switch when {
	case reattached:
		return attempts == 2
	case asleep:
		return results == 2
	}
	return false
}

// machineOf returns the name of the agent's sandbox, "" if there is none yet.
func machineOf(t *testing.T, dir string) string {
	for _, e := range journalOf(t, dir) {
		if e.Kind != record.KindMachine {
			continue
		}
		var m record.Machine
		if err := json.Unmarshal(e.Data, &m); err != nil {
			t.Fatal(err)
		}
		return m.ID
	}
	return ""
}

// journalOf returns what is complete in a run's journal: the control entries, and then the others.
func journalOf(t *testing.T, dir string) (all []record.Entry) {
	names, _ := filepath.Glob(filepath.Join(dir, "out/journal/events/*.jsonl"))
	for _, name := range append([]string{filepath.Join(dir, "out/journal/control.jsonl")}, names...) {
		text, _ := os.ReadFile(name)
		for line := range bytes.Lines(text) {
			var l struct{ E record.Entry }
			if json.Unmarshal(line, &l) == nil && l.E.Kind != "" {
				all = append(all, l.E)
			}
		}
	}
	return all
}

func runOf(t *testing.T, dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "out/plan.json"))
	var p struct{ Run string }
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Run == "" {
		t.Fatalf("plan.json: %v", err)
	}
	return p.Run
}
