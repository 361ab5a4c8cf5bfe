package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/harness/record"
)

// TestTwoRuns plays a run, and gc, beside another run of the same machine, which has a container that
// a trial uses and one that was started ahead. Nothing of it is removed.
func TestTwoRuns(t *testing.T) {
	if ok, err := dockerHere(t); err != nil {
		t.Fatal(err)
	} else if !ok {
		t.Skip("needs EVALRUN_TEST_DOCKER=1 and a Docker engine")
	}
	start := func(do string) (dir string, cmd *exec.Cmd) {
		dir = t.TempDir()
		for name, text := range map[string]string{
			"tasks.yaml": "name: two\ntasks:\n- {id: a, instruction: Wait., answer: \"1\"}\n",
			"agent.yaml": "- do:\n" + do + "  - finish: \"1\"\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd = exec.Command("evalrun", "run", "tasks:tasks.yaml", "--agent", "script:agent.yaml", "--sandbox", "docker",
			"--set", "sandbox.image="+testImage, "--repeats", "4", "-n", "1", "-o", "out", "-q")
		cmd.Dir = dir
		return dir, cmd
	}
	// The first trial waits until the other run has ended; the others have nothing to wait for.
	long, first := start("  - run: echo kept > /tmp/file; n=0; " +
		"until [ -e /tmp/go ] || [ $n = 600 ]; do sleep 0.1; n=$((n+1)); done; cat /tmp/file\n")
	var out strings.Builder
	first.Stdout, first.Stderr = &out, &out
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Wait() }()
	containers := func(dir string, filters ...string) []string {
		args := []string{"ps", "-aq", "--filter", "label=evalrun.run=" + runOf(t, dir)}
		for _, f := range filters {
			args = append(args, "--filter", f)
		}
		ids, err := exec.Command("docker", args...).Output()
		if err != nil {
			t.Error(err)
		}
		return strings.Fields(string(ids))
	}
	until := func(what string, f func() bool) {
		for !f() {
			select {
			case err := <-ended:
				t.Fatalf("the run has ended before %s: %v\n%s", what, err, out.String())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	until("its plan", func() bool {
		_, err := os.Stat(filepath.Join(long, "out/plan.json"))
		return err == nil
	})
	until("a container is started ahead", func() bool {
		return machineOf(t, long) != "" &&
			len(containers(long, "label=evalrun.role=ahead", "status=running")) == 1
	})
	before := containers(long)

	short, second := start("  - run: \"true\"\n")
	if out, err := second.CombinedOutput(); err != nil {
		t.Fatalf("the other run: %v\n%s", err, out)
	}
	gc := exec.Command("evalrun", "gc")
	gc.Dir = short
	if out, err := gc.CombinedOutput(); err != nil {
		t.Errorf("gc: %v\n%s", err, out)
	}
	if now := containers(long); strings.Join(now, " ") != strings.Join(before, " ") {
		t.Errorf("the containers %v are %v after the other run", before, now)
	}
	// Each trial's container is let go when it is in use.
	for done := map[string]bool{}; ; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
		case <-time.After(100 * time.Millisecond):
			for _, e := range journalOf(long) {
				var m record.Machine
				if e.Kind == record.KindMachine && json.Unmarshal(e.Data, &m) == nil && !done[m.ID] {
					done[m.ID] = true
					exec.Command("docker", "exec", m.ID, "touch", "/tmp/go").Run()
				}
			}
			continue
		}
		break
	}
	for _, dir := range []string{long, short} {
		scored, ahead := 0, 0
		for _, e := range journalOf(dir) {
			var v record.Verdict
			if e.Kind == record.KindVerdict && json.Unmarshal(e.Data, &v) == nil {
				if v.Status == record.Scored && e.Attempt == 1 {
					scored++
				}
				if v.Ahead > 0 {
					ahead++
				}
			}
		}
		if scored != 4 || dir == long && ahead == 0 {
			t.Errorf("%d trials of 4 were scored at once, %d with containers started ahead", scored, ahead)
		}
		if left := containers(dir); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "out/run.json"))
		var run struct{ Limits map[string]string }
		if err == nil {
			err = json.Unmarshal(raw, &run)
		}
		if err != nil || run.Limits["memory of all machines"] == "" || run.Limits["machines started ahead"] == "" {
			t.Errorf("the run's limits are %v, %v", run.Limits, err)
		}
	}
}
