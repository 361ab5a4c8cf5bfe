package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
)

// folderRows are run folders that are not what they should be.
func folderRows() []row {
	// done makes a run of one trial to be spoilt.
	done := func(spoil func(t *testing.T, run string)) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			write(t, dir, "tasks.yaml", one)
			cmd := exec.Command(evalrun, "run", "tasks:tasks.yaml", "--agent", "nop", "-o", "run", "--progress", "none")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("making the run: %v\n%s", err, out)
			}
			spoil(t, filepath.Join(dir, "run"))
		}
	}
	edit := func(name string, change func([]byte) []byte) func(t *testing.T, run string) {
		return func(t *testing.T, run string) {
			p := filepath.Join(run, name)
			data, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, change(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	well := map[string]string{"bystander": "scored answered 0"}
	resume, show := []string{"resume", "run", "--progress", "none"}, []string{"show", "run"}
	const journal = "journal/control.jsonl"
	folder := func(name string, args []string, exit int, trials map[string]string, spoil func(t *testing.T, run string),
		said ...string) row {
		return row{group: "folder", name: name, args: args, exit: exit, trials: trials, prepare: done(spoil),
			said: said}
	}
	nothing := func(*testing.T, string) {}
	empty := func(t *testing.T, run string) {
		if err := os.RemoveAll(run); err != nil {
			t.Fatal(err)
		}
		os.Mkdir(run, 0o755)
	}
	return []row{
		folder("resume of a finished run", resume, 0, well, nothing),
		folder("show", show, 0, well, nothing),
		folder("not a run, resume", resume, 2, nil, empty, "run"),
		folder("not a run, show", show, 2, nil, empty, "run"),
		folder("no such folder", []string{"resume", "nowhere"}, 2, nil, nothing, "nowhere"),
		folder("newer plan", resume, 2, nil, edit("plan.json", func(b []byte) []byte {
			return bytes.Replace(b, fmt.Appendf(nil, `"v": %d,`, rundir.Version), []byte(`"v": 99,`), 1)
		}), "form 99"),
		folder("newer journal", resume, 2, nil, newerJournal, "form 9", "newer"),
		folder("finished, last line torn", resume, 1, nil,
			edit(journal, func(b []byte) []byte { return b[:len(b)-20] }), "journal/control.jsonl", "--accept-loss"),
		folder("half a line more", resume, 0, well,
			edit(journal, func(b []byte) []byte { return append(b, `{"seq":9,"crc":"0`...) })),
		folder("zeros at the end", resume, 0, well,
			edit(journal, func(b []byte) []byte { return append(b, make([]byte, 4096)...) })),
		folder("bad line in the middle", resume, 1, nil, edit(journal, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"answered"`), []byte(`"answerde"`), 1)
		}), "journal/control.jsonl", "--accept-loss"),
		folder("plan cut short", resume, 1, nil, edit("plan.json", func(b []byte) []byte { return b[:len(b)/2] }),
			"plan.json"),
		folder("run into a folder in use", []string{"run", "tasks:tasks.yaml", "--agent", "nop"}, 2, well, nothing,
			"resume"),
		{group: "folder", name: "read-only, show", prepare: done(nothing), run: readOnly("show", "run"), trials: well},
		{group: "folder", name: "read-only, resume", prepare: done(nothing), run: readOnly("resume", "run"), exit: 2,
			trials: well, said: []string{"read-only"}},
		{group: "folder", name: "read-only, run", prepare: done(nothing),
			run: readOnly("run", "tasks:tasks.yaml", "--agent", "nop", "-o", "run/new"), exit: 2,
			said: []string{"read-only"}},
		{group: "folder", name: "in use",
			files: map[string]string{"tasks.yaml": one, "slow.yaml": "- do: [{sleep: 3s}, {finish: yes}]"}, run: inUse,
			exit: 2, said: []string{"in use"}, trials: map[string]string{"bystander": "scored answered 1"}},
		{group: "folder", name: "stopped, then resumed",
			files:  map[string]string{"tasks.yaml": one, "slow.yaml": "- do: [{sleep: 2s}, {finish: yes}]"},
			run:    stopped,
			trials: map[string]string{"bystander": "scored answered 1"}},
	}
}

// newerJournal makes the journal's first line one that a later version wrote.
func newerJournal(t *testing.T, run string) {
	p := filepath.Join(run, "journal", "control.jsonl")
	data, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	line, rest, _ := bytes.Cut(data, []byte("\n"))
	var l struct {
		Seq int64           `json:"seq"`
		E   json.RawMessage `json:"e"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		t.Fatal(err)
	}
	// As long as the line was, or the journal would be seen to be damaged first.
	e := bytes.Replace(l.E, fmt.Appendf(nil, `"v":%d,`, record.Version), []byte(`"v":9,`), 1)
	crc := crc32.Checksum(e, crc32.MakeTable(crc32.Castagnoli))
	line = fmt.Appendf(nil, `{"seq":%d,"crc":"%08x","e":%s}`+"\n", l.Seq, crc, e)
	if err := os.WriteFile(p, append(line, rest...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readOnly runs evalrun where the work folder is mounted read-only (root), or may not be written
// (others).
func readOnly(args ...string) func(t *testing.T, w *work) *exec.Cmd {
	return func(t *testing.T, w *work) *exec.Cmd {
		if os.Geteuid() != 0 {
			filepath.WalkDir(w.path("run"), func(p string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					os.Chmod(p, 0o555)
					t.Cleanup(func() { os.Chmod(p, 0o755) })
				}
				return nil
			})
			return exec.Command(evalrun, args...)
		}
		if _, err := exec.LookPath("unshare"); err != nil {
			t.Skip("needs unshare for a read-only mount")
		}
		const script = `mount --bind run run && mount -o remount,ro,bind run && cd "$PWD" && exec "$0" "$@"`
		return exec.Command("unshare", append([]string{"-m", "sh", "-c", script, evalrun}, args...)...)
	}
}

// inUse starts a slow run and resumes it while it goes.
func inUse(t *testing.T, w *work) *exec.Cmd {
	slow := exec.Command(evalrun, "run", "tasks:tasks.yaml", "--agent", "script:slow.yaml", "-o", "run", "--progress",
		"none")
	slow.Dir = w.dir
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, w.path("run/journal/control.jsonl"))
	cmd := exec.Command(evalrun, "resume", "run")
	w.start(cmd, nil)
	if err := cmd.Run(); err == nil {
		t.Error("a run in use was resumed")
	}
	if err := slow.Wait(); err != nil {
		t.Errorf("the run that was first: %v", err)
	}
	return again(cmd)
}

// again is a command that ends as cmd did: its row is about that one.
func again(cmd *exec.Cmd) *exec.Cmd {
	return exec.Command("sh", "-c", `exit "$0"`, strconv.Itoa(cmd.ProcessState.ExitCode()))
}

// stopped sends two signals to a run, and resumes it.
func stopped(t *testing.T, w *work) *exec.Cmd {
	slow := exec.Command(evalrun, "run", "tasks:tasks.yaml", "--agent", "script:slow.yaml", "-o", "run", "--progress",
		"none")
	slow.Dir = w.dir
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, w.path("run/journal/control.jsonl"))
	for range 2 {
		time.Sleep(200 * time.Millisecond)
		slow.Process.Signal(syscall.SIGINT)
	}
	slow.Wait()
	if c := slow.ProcessState.ExitCode(); c != 130 {
		t.Errorf("stopped with exit code %d, want 130", c)
	}
	return exec.Command(evalrun, "resume", "run", "--progress", "none")
}

func waitFor(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if fi, err := os.Stat(name); err == nil && fi.Size() > 0 {
			return
		}
	}
	t.Fatalf("%s did not come", name)
}

// holdsNo looks for a secret in all that a run keeps.
func holdsNo(t *testing.T, w *work, secret string) {
	t.Helper()
	filepath.WalkDir(w.path("run"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		if err == nil && bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s holds the key", p)
		}
		return err
	})
	if strings.Contains(w.stderr.String()+w.stdout.String(), secret) {
		t.Error("the key was printed")
	}
}
