package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/harness/record"
)

var now = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

func plan() *record.Plan {
	return &record.Plan{Run: RunID(now), Name: "Nightly", Created: now, Seed: 7, Repeats: 1,
		Config: json.RawMessage(`{"a":1}`)}
}

// A child process holds the folder given as its argument until its stdin is closed.
func TestMain(m *testing.M) {
	if path := os.Getenv("RUNDIR_TEST_HOLD"); path != "" {
		d, err := Open(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = d // not closed, as after a crash
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestCreateOpenView(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	d, err := New(root, plan())
	if err != nil {
		t.Fatal(err)
	}
	if got := filepath.Base(d.Path()); got != "2026-11-21T093000Z-nightly" {
		t.Errorf("name %s", got)
	}
	second, err := New(root, plan())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if got := filepath.Base(second.Path()); got != "2026-11-21T093000Z-nightly-2" {
		t.Errorf("name of the second %s", got)
	}
	if r, err := d.Run(); err != nil || r.Run != "" {
		t.Errorf("run.json before it is there: %+v, %v", r, err)
	}
	exit := 3
	want := &record.Run{Run: d.Plan().Run, Started: now, Version: "1.2", Exit: &exit}
	if err := d.WriteRun(want); err != nil {
		t.Fatal(err)
	}
	v, err := View(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.Run(); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("run.json: %+v, %v", got, err)
	}
	if v.Plan().Seed != 7 || v.Plan().V != Version || !v.Plan().Created.Equal(now) {
		t.Errorf("plan: %+v", v.Plan())
	}
	if err := v.WriteRun(want); err == nil {
		t.Error("a view wrote")
	}
	if _, err := Open(d.Path()); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if o, held := Holder(d.Path()); !held || o.PID != os.Getpid() {
		t.Errorf("holder %+v, %v", o, held)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if o, held := Holder(d.Path()); held {
		t.Errorf("still held by %+v", o)
	}
	if d, err = Open(d.Path()); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Previous() != nil {
		t.Errorf("the last one ended in order, but %+v", d.Previous())
	}
	if _, err := Create(d.Path(), plan()); !errors.Is(err, ErrExists) ||
		!strings.Contains(err.Error(), "evalrun resume") {
		t.Errorf("created over a run: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(d.Path(), "*"+partial))
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	make := func(name, plan string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p, planFile), []byte(plan), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		path string
		is   error
		says string
	}{
		{dir, ErrNotARun, "plan.json"},
		{file, ErrNotARun, "evalrun run"},
		{filepath.Join(dir, "none"), ErrNotARun, "no such folder"},
		{make("newer", `{"v":99,"run":[1,2]}`), ErrNewer, "form 99, this program reads up to 2"},
		{make("torn", `{"v":1,"run":`), nil, "damaged"},
		{make("other", `{"name":"npm package"}`), nil, "no version"},
	} {
		for what, open := range map[string]func(string) (*Dir, error){"open": Open, "view": View} {
			_, err := open(c.path)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s %s: %v", what, c.path, err)
			}
		}
	}
	if _, err := Create(dir, plan()); !errors.Is(err, ErrExists) {
		t.Errorf("created in a folder of somebody: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, lockFile)); err == nil {
		t.Error("a refused folder was written to")
	}
}

// A folder from somebody else cannot redirect our writes, and its pipes do not block us.
func TestGenuine(t *testing.T) {
	for _, name := range []string{"plan.json", "run.json", "lock", "summary.json", "journal", "journal/control.jsonl",
		"journal/events/0001.jsonl", "blobs/ab", "parquet", "parquet/trials", "parquet/trials/1.parquet"} {
		for what, make := range map[string]func(string) error{
			"a link": func(n string) error { return os.Symlink(t.TempDir(), n) },
			"a pipe": func(n string) error { return syscall.Mkfifo(n, 0o644) },
		} {
			d, err := New(t.TempDir(), plan())
			if err != nil {
				t.Fatal(err)
			}
			d.Close()
			at := filepath.Join(d.Path(), name)
			os.RemoveAll(at)
			os.MkdirAll(filepath.Dir(at), 0o755)
			if err := make(at); err != nil {
				t.Fatal(err)
			}
			for _, open := range []func(string) (*Dir, error){Open, View} {
				if _, err := open(d.Path()); err == nil || !strings.Contains(err.Error(), name+" is "+what) {
					t.Errorf("%s is %s: %v", name, what, err)
				}
			}
		}
	}
}

func TestLockDies(t *testing.T) {
	d, err := Create(filepath.Join(t.TempDir(), "run"), plan())
	if err != nil {
		t.Fatal(err)
	}
	path := d.Path()
	d.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "RUNDIR_TEST_HOLD="+path)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(out, buf); err != nil || string(buf) != "held\n" {
		t.Fatalf("%q, %v", buf, err)
	}
	_, err = Open(path)
	var inUse *InUse
	if !errors.As(err, &inUse) || inUse.Owner.PID != cmd.Process.Pid ||
		!strings.Contains(err.Error(), "on this machine") {
		t.Errorf("%v", err)
	}
	if _, err := View(path); err != nil {
		t.Errorf("view: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	d, err = Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if p := d.Previous(); p == nil || p.PID != cmd.Process.Pid || p.Boot == "" {
		t.Errorf("previous %+v", p)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"":                        "2026-11-21T093000Z",
		"Nightly Run":             "2026-11-21T093000Z-nightly-run",
		"../../etc/passwd":        "2026-11-21T093000Z-etc-passwd",
		"  é -- ü ":               "2026-11-21T093000Z",
		strings.Repeat("ab ", 40): "2026-11-21T093000Z-" + strings.Repeat("ab-", 13) + "a",
	} {
		if got := Name(now, name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	ids := []string{RunID(now), RunID(now.Add(time.Second)), RunID(now)}
	if ids[0] == ids[2] || !slices.IsSorted(ids[:2]) || Safe(ids[0]) != ids[0] {
		t.Errorf("run IDs %q", ids)
	}
	for _, id := range []string{"", "..", "a/b", "A", "-rf", ".git", strings.Repeat("a", 65), "con:", "a\x00"} {
		if got := Safe(id); strings.Trim(got, "0123456789abcdefx") != "" || got == Safe(id+"x") {
			t.Errorf("%q: %s", id, got)
		}
	}
	if Safe("trials") != "trials" || Safe("9f0a_1-x") != "9f0a_1-x" {
		t.Error("a harmless ID was changed")
	}
}
