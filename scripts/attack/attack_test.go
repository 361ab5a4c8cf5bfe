// Package attack runs the evalrun program against bad input and hostile agents, and writes what was
// expected and what happened to docs/attacks.md. Most runs have another trial, the bystander, which
// must be scored. After each run no process, file, control group or mount may be left.
package attack

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/scripts/leftovers"
)

// A row is one use of evalrun.
type row struct {
	group, name string
	files       map[string]string // of the work folder
	prepare     func(t *testing.T, dir string)
	args        []string // of evalrun; "-o run" and --progress none are added to run
	run         func(t *testing.T, w *work) *exec.Cmd
	env         []string

	exit   int
	said   []string          // texts that must be printed
	trials map[string]string // "arm/task" or "task": what must begin what is said of it, as "scored broke 0"
	errors map[string]string // likewise: a text in the trial's error
	check  func(t *testing.T, w *work)
}

// A work is a row's folder.
type work struct {
	dir, tmp       string
	stdout, stderr bytes.Buffer
	exit           int
	verdicts       map[string]record.Verdict // by "arm/task"
}

func (w *work) path(name string) string { return filepath.Join(w.dir, name) }

var evalrun string

func TestMain(m *testing.M) {
	leftovers.OwnMounts()
	if os.Getenv("EVALRUN_TEST_LOCAL") == "" {
		os.Exit(m.Run()) // the tests say why they are skipped
	}
	dir, err := os.MkdirTemp("", "evalrun-attack-")
	if err == nil {
		evalrun = filepath.Join(dir, "evalrun")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", evalrun, "../../cmd/evalrun").CombinedOutput(); err != nil {
			err = fmt.Errorf("building evalrun: %w\n%s", err, out)
		}
	}
	if err == nil { // what a row leaves behind comes to us
		err = leftovers.Adopt()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestAttacks(t *testing.T) {
	if evalrun == "" {
		t.Skip("set EVALRUN_TEST_LOCAL=1 to attack evalrun on this machine; needs what the driver local needs, and a " +
			"few minutes")
	}
	var table strings.Builder
	for _, group := range [][]row{configRows(), dataRows(), taskRows(), agentRows(), modelRows(t), folderRows()} {
		for i, r := range group {
			if testing.Short() && i%5 != 0 {
				continue
			}
			t.Run(r.group+"/"+r.name, func(t *testing.T) { r.play(t, &table) })
		}
	}
	if *update && !testing.Short() {
		page := attacksIntro + "| group | attack | wanted | got |\n|---|---|---|---|\n" + table.String()
		if err := os.WriteFile("../../docs/attacks.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// attacksIntro is how docs/attacks.md begins.
const attacksIntro = `# Attacks

This page shows what evalrun does with bad input and with agents that attack it: which exit code and message, or which
status a trial gets. Each row is a run of the program; in most, another trial runs at the same time, which has to be
scored. After a row nothing may be left: no process, file, control group or mount. Attacks on grades are in
[grading.md](grading.md), attacks by web pages in [hostile-pages.md](hostile-pages.md).

    EVALRUN_TEST_LOCAL=1 go test ./scripts/attack -run TestAttacks -update

This command plays the attacks and writes their results here.

`

var update = flag.Bool("update", false, "write docs/attacks.md")

func (r *row) play(t *testing.T, table *strings.Builder) {
	dir := t.TempDir()
	w := &work{dir: dir, tmp: filepath.Join(dir, "tmp"), verdicts: map[string]record.Verdict{}}
	if err := os.Mkdir(w.tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range r.files {
		if err := os.WriteFile(w.path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r.prepare != nil {
		r.prepare(t, dir)
	}
	before := leftovers.Now(w.tmp)
	args := r.args
	if len(args) > 0 && args[0] == "run" {
		args = append(slices.Clone(args), "-o", w.path("run"), "--progress", "none")
	}
	cmd := exec.Command(evalrun, args...)
	if r.run != nil {
		cmd = r.run(t, w)
	}
	w.start(cmd, r.env)
	w.wait(t, cmd)
	w.scan(t)
	w.clean(t, before)

	if w.exit != r.exit {
		t.Errorf("exit code %d, want %d", w.exit, r.exit)
	}
	said := w.stdout.String() + w.stderr.String()
	for _, s := range r.said {
		if !strings.Contains(said, s) {
			t.Errorf("nothing is said of %q", s)
		}
	}
	if strings.ContainsAny(said, "\x1b\x00\u202e\u009b") {
		t.Error("control characters reached the terminal")
	}
	var rows []string
	line := func(what, want, got string) {
		if !strings.HasPrefix(got, want) {
			got = "**" + got + "**"
		}
		got = strings.NewReplacer(w.dir+"/", "", "|", "\\|", "<", "&lt;").Replace(got)
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", r.group, what, want, got))
	}
	line(r.name, fmt.Sprintf("exit %d", r.exit), fmt.Sprintf("exit %d", w.exit)+firstLine(said, w.exit))
	for _, key := range sorted(r.trials) {
		got, fault := w.trial(key)
		line("— "+key, r.trials[key], got)
		if !strings.HasPrefix(got, r.trials[key]) {
			t.Errorf("%s: %s, want %s", key, got, r.trials[key])
		}
		if want := r.errors[key]; !strings.Contains(fault, want) {
			t.Errorf("%s: error %q, want one with %q", key, fault, want)
		}
	}
	if r.check != nil {
		r.check(t, w)
	}
	for _, l := range rows {
		table.WriteString(l)
	}
	if t.Failed() {
		t.Logf("stdout:\n%.3000s\nstderr:\n%.3000s", w.stdout.String(), w.stderr.String())
	}
}

func firstLine(s string, exit int) string {
	if exit == 0 {
		return ""
	}
	_, s, ok := strings.Cut(s, "evalrun:")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return ": " + first
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (w *work) start(cmd *exec.Cmd, env []string) {
	cmd.Dir = w.dir
	cmd.Env = append(append(os.Environ(), "TMPDIR="+w.tmp, "NO_COLOR=1"), env...)
	cmd.Stdout, cmd.Stderr = &w.stdout, &w.stderr
}

// wait runs a command for at most three minutes.
func (w *work) wait(t *testing.T, cmd *exec.Cmd) {
	if cmd.Process == nil {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	timer := time.AfterFunc(3*time.Minute, func() { cmd.Process.Signal(syscall.SIGQUIT) })
	defer timer.Stop()
	cmd.Wait()
	w.exit = cmd.ProcessState.ExitCode()
}

// scan reads the final verdicts of the run folder, where there is one.
func (w *work) scan(t *testing.T) {
	data, err := os.ReadFile(w.path("run/journal/control.jsonl"))
	if err != nil {
		return
	}
	name := map[string]string{}
	for line := range bytes.Lines(data) {
		var l struct {
			E record.Entry `json:"e"`
		}
		if json.Unmarshal(line, &l) != nil {
			continue
		}
		switch l.E.Kind {
		case record.KindAttempt:
			var a record.Attempt
			if err := json.Unmarshal(l.E.Data, &a); err != nil {
				t.Error(err)
			}
			name[l.E.Trial] = a.ArmName + "/" + a.Task
		case record.KindVerdict:
			var v record.Verdict
			if err := json.Unmarshal(l.E.Data, &v); err != nil {
				t.Error(err)
			}
			if v.Final {
				w.verdicts[name[l.E.Trial]] = v
			}
		}
	}
}

// trial says what became of one: its status, end, limit, reward and flags.
func (w *work) trial(key string) (string, string) {
	for name, v := range w.verdicts {
		if _, task, _ := strings.Cut(name, "/"); name != key && task != key {
			continue
		}
		parts := []string{string(v.Status)}
		if v.End != "" {
			parts = append(parts, string(v.End))
		}
		if v.Limit != "" {
			parts = append(parts, v.Limit)
		}
		if v.Reward != nil {
			parts = append(parts, strconv.FormatFloat(*v.Reward, 'g', 3, 64))
		}
		fault := ""
		for _, s := range v.Scores {
			fault = s.Why
		}
		if v.Error != nil {
			fault = v.Error.Text
			parts = append(parts, v.Error.Class)
		}
		return strings.Join(append(parts, v.Flags...), " "), fault
	}
	return "no verdict", ""
}

func (w *work) clean(t *testing.T, before leftovers.Set) {
	if left := leftovers.After(w.tmp, before, 15*time.Second); len(left) > 0 {
		t.Errorf("left over:\n\t%s", strings.Join(left, "\n\t"))
	}
}
