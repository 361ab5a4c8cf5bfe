package attack

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// taskRows are benchmarks whose own parts misbehave. The bystander goes on beside each.
func taskRows() []row {
	tasks := func(name, text, task string, exit int, want, fault string) row {
		return row{group: "tasks", name: name, files: map[string]string{"tasks.yaml": one + text},
			args: []string{"run", "tasks:tasks.yaml", "--agent", "command:echo yes", "--sandbox", "local", "--set",
				"retries.attempts=1"}, exit: exit,
			trials: map[string]string{"bystander": "scored answered 1", task: want},
			errors: map[string]string{task: fault}}
	}
	grade := func(name, script, want string) row {
		limit := "30m" // however busy the machine is
		if strings.HasPrefix(name, "hangs") {
			limit = "4s"
		}
		return tasks("grader "+name, "  - id: t\n    instruction: say yes\n    grade:\n      partial: true\n    "+
			"  timeout: "+limit+"\n      script: |\n        "+
			strings.ReplaceAll(script, "\n", "\n        ")+"\n", "t", 0, want, "")
	}
	hangs := tasks("set-up hangs", "  - {id: t, instruction: say yes, answer: yes, setup: 'sleep 1000000'}\n", "t", 3,
		"infra", "")
	hangs.args = append(hangs.args, "--set", "phases.start=10s")
	return []row{
		tasks("no instruction", "  - {id: t, answer: yes}\n", "t", 0, "skipped", "instruction"),
		tasks("no grade", "  - {id: t, instruction: say yes}\n", "t", 0, "skipped", ""),
		tasks("set-up fails", "  - {id: t, instruction: say yes, answer: yes, setup: 'echo cannot >&2; exit 3'}\n", "t",
			3, "infra task", "3"),
		hangs,
		grade("is fine", `echo 1 > "$REWARD"`, "scored answered 1"),
		grade("hangs", "sleep 1000000", "scored answered 0 no_reward"),
		grade("hangs and ignores signals", "trap '' TERM INT HUP\nwhile :; do sleep 1; done",
			"scored answered 0 no_reward"),
		grade("leaves daemons", "setsid sleep 1000000 &\necho 1 > \"$REWARD\"", "scored answered 1"),
		grade("writes no reward", "true", "scored answered 0 no_reward"),
		grade("fails", "exit 9", "scored answered 0 no_reward"),
		grade("writes NaN", `echo nan > "$REWARD"`, "scored answered 0 no_reward"),
		grade("writes infinity", `echo inf > "$REWARD"`, "scored answered 0 no_reward"),
		grade("writes 1e400", `echo 1e400 > "$REWARD"`, "scored answered 0 no_reward"),
		grade("writes 2", `echo 2 > "$REWARD"`, "scored answered 0 no_reward"),
		grade("writes two rewards", `printf '1\n0\n' > "$REWARD"`, "scored answered 0 no_reward"),
		grade("writes a large reward", `head -c 100000000 /dev/zero | tr '\0' 1 > "$REWARD"`,
			"scored answered 0 no_reward"),
		grade("writes a link as reward", `rm -f "$REWARD"; ln -s /etc/passwd "$REWARD"`, "scored answered 0 no_reward"),
		grade("prints 1 GB", `head -c 1000000000 /dev/zero; echo 1 > "$REWARD"`, "scored answered 1"),
		grade("prints escape codes", `printf '\033[2J\033]0;x\007'; echo 1 > "$REWARD"`, "scored answered 1"),
	}
}

// agentRows are hostile agents.
func agentRows() []row {
	const answered = "scored answered 0"
	script := row{group: "agents", name: "script", prepare: func(t *testing.T, dir string) {
		for _, name := range []string{"tasks.yaml", "agents.yaml"} {
			data, err := os.ReadFile(filepath.Join(testdata, name))
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, name, string(data))
		}
	}, args: []string{"run", "tasks:tasks.yaml", "--agent", "script:agents.yaml", "--sandbox", "local"},
		trials: map[string]string{
			"bystander": "scored answered 1", "crash": "scored broke 0", "panic": "scored broke 0",
			"exits-at-once": answered,
			"hang":          "scored limit time 0", "hang-in-a-command": answered, "ignores-signals": answered,
			"floods":          "scored limit output 0",
			"floods-for-ever": "scored limit", "fork-bomb": answered, "leaves-daemons": answered,
			"fills-the-disk":   answered,
			"fills-the-inodes": answered, "fills-the-memory": answered, "kills-everything": answered,
			"stops-everything": answered,
			"writes-rewards":   answered, "writes-test-files": answered, "breaks-the-tests": answered,
			"changes-the-shell":   answered,
			"prints-escape-codes": answered, "bytes": answered, "links": answered, "devices": answered,
			"looks-around": answered,
		},
		errors: map[string]string{"crash": "crashed", "panic": "the agent's own code fails"},
		check: func(t *testing.T, w *work) {
			seesNothing(t, w)
			tellsPlainly(t, w)
		},
	}
	rows := []row{script}

	// Programs: inside the sandbox and beside evalrun, an arm each.
	const start = `read L; echo '{"type":"start","protocol":1}'; `
	arms := []struct{ name, where, run, want, fault string }{
		{"in-right", "sandbox", `echo yes`, "scored answered 1", ""},
		{"in-exits-at-once", "sandbox", `exit 0`, answered, ""},
		{"in-crashes", "sandbox", `echo no >&2; exit 3`, "scored broke 0",
			"it left with status 3; its stderr ends: no"},
		{"in-segfaults", "sandbox", `kill -SEGV $$`, "scored broke 0", "SIGSEGV"},
		{"in-hangs", "sandbox", `sleep 1000000`, "scored limit time 0", ""},
		{"in-floods", "sandbox", `head -c 300000000 /dev/zero`, "scored limit output 0", ""},
		// or no process is left for its sleep
		{"in-fork-bomb", "sandbox", `b() { b | b & }; b; sleep 1000000`, "scored", ""},
		{"in-memory", "sandbox", `head -c 2000000000 /dev/zero | tail`, "scored broke 0", ""},
		{"in-kills-all", "sandbox", `kill -9 -1`, "scored broke 0", "SIGKILL"},
		{"in-bytes", "sandbox", `printf 'yes\0\377\033[2J'`, answered, ""},
		{"in-no-program", "sandbox", `exec /no/such/program`, "scored broke 0", "127"},
		{"host-right", "host", start + `echo '{"type":"finish","answer":{"parts":[{"text":"yes"}]}}'`,
			"scored answered 1", ""},
		{"host-exits-at-once", "host", `exit 0`, "scored broke 0", "it left with status 0 before it said start"},
		{"host-crashes", "host", start + `echo no >&2; exit 3`, "scored broke 0", "its stderr ends: no"},
		{"host-hangs", "host", start + `sleep 1000000`, "scored limit time 0", ""},
		{"host-daemons", "host", start +
			`setsid sleep 1000006 & (setsid sh -c 'sleep 1000007 & sleep 1000008' &); echo '{"type":"finish","answer":{}}'`, answered, ""},
		{"host-floods", "host", start + `head -c 100000000 /dev/zero`, "scored broke 0", "longer than 16 MiB"},
		{"host-floods-stderr", "host", start + `head -c 100000000 /dev/zero >&2; echo '{"type":"finish","answer":{}}'`,
			answered, ""},
		{"host-escape-codes", "host", start + `printf '\033[2J\n'`, "scored broke 0", `is not JSON: "\x1b[2J"`},
		{"host-nul", "host", start + `printf '\0\n'`, "scored broke 0", "NUL"},
		{"host-not-utf8", "host", start + `printf '\377\n'`, "scored broke 0", "not UTF-8"},
		{"host-many", "host", start + `yes '{"type":"step","id":1,"kind":"run","body":{"command":"sleep 1"}}'`,
			"scored broke 0", "wait for their answers"},
		{"host-version", "host", `echo '{"type":"start","protocol":9}'`, "scored broke 0", "protocol 9"},
		{"host-no-program", "host", `exec /no/such/program`, "scored broke 0", "127"},
	}
	var conf strings.Builder
	conf.WriteString("benchmark: tasks:tasks.yaml\nsandbox: {driver: local, memory: 256MB, pids: 64}\nlimits: {time: " +
		"30m}\narms:\n")
	command := row{group: "agents", name: "command", files: map[string]string{"tasks.yaml": one},
		args:   []string{"run", "c.yaml"},
		trials: map[string]string{}, errors: map[string]string{}, check: tellsPlainly}
	for _, a := range arms {
		conf.WriteString("  - name: " + a.name + "\n    agent:\n      name: command\n      options:\n        where: " +
			a.where + "\n        run: |-\n          " + a.run + "\n")
		if strings.Contains(a.run, "; sleep 1000000") || strings.HasPrefix(a.run, "sleep") { // it never ends
			conf.WriteString("    limits: {time: 15s}\n")
		}
		key := a.name + "/bystander"
		command.trials[key], command.errors[key] = a.want, a.fault
	}
	command.files["c.yaml"] = conf.String()
	return append(rows, command)
}

const testdata = "testdata"

// seesNothing looks for what of this machine must not be in a trajectory.
func seesNothing(t *testing.T, w *work) {
	t.Helper()
	host, _ := os.Hostname()
	secrets := []string{w.dir, "TMPDIR=", "EVALRUN_TEST_LOCAL"}
	if len(host) > 3 {
		secrets = append(secrets, host)
	}
	files, _ := filepath.Glob(w.path("run/journal/events/*.jsonl"))
	blobs, _ := filepath.Glob(w.path("run/blobs/*/*"))
	if len(files) == 0 {
		t.Error("the run has no events")
	}
	for _, name := range append(files, blobs...) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		for _, s := range secrets {
			if i := bytes.Index(data, []byte(s)); i >= 0 {
				t.Errorf("%s shows %q: …%.200q…", filepath.Base(name), s, data[max(0, i-100):])
			}
		}
	}
}

// tellsPlainly shows every trial and looks for control characters.
func tellsPlainly(t *testing.T, w *work) {
	t.Helper()
	out, err := exec.Command(evalrun, "show", w.path("run")).CombinedOutput()
	if err != nil {
		t.Errorf("show: %v\n%.1000s", err, out)
	}
	data, err := os.ReadFile(w.path("run/journal/control.jsonl"))
	if err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, f := range strings.Split(string(data), `"trial":"`)[1:] {
		id, _, _ := strings.Cut(f, `"`)
		if seen[id] {
			continue
		}
		seen[id] = true
		one, err := exec.Command(evalrun, "show", w.path("run"), "--trial", id).CombinedOutput()
		if err != nil {
			t.Errorf("show --trial %s: %v\n%.1000s", id, err, one)
		}
		out = append(out, one...)
	}
	for _, r := range string(bytes.ToValidUTF8(out, []byte("?"))) {
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x202e {
			t.Errorf("show prints the control character %U", r)
			return
		}
	}
}
