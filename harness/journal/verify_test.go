package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/journal/journaltest"
	"github.com/evalrun/evalrun/harness/record"
)

// long fills a journal with several segments, all but the last compressed.
func long(t *testing.T, dir, run string) {
	t.Helper()
	opts := journal.Options{SegmentBytes: 2000, NoSync: true, Run: run}
	j := open(t, dir, opts)
	for n := range 60 {
		id := fmt.Sprint(n)
		put(t, j, journaltest.Begin(id, 1, 1), event(id, 0), journaltest.Verdict(id, 1, 1, true, record.Scored))
	}
	if err := j.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, opts)
	eventually(t, "all but the last are packed", func() bool {
		left, _ := filepath.Glob(filepath.Join(dir, "events", "*.jsonl"))
		return len(left) == 1
	})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// Whatever is removed from a journal is reported with its file. After a repair the journal
// continues, and no number is assigned twice.
func TestVerify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	long(t, dir, "run")
	if ls, err := journal.Verify(dir, "run", journal.Witness{File: "w", Seq: 180, Trials: 60}); err != nil ||
		len(ls) > 0 {
		t.Fatalf("an undamaged journal: %v, %v", ls, err)
	}
	other := filepath.Join(t.TempDir(), "journal")
	long(t, other, "run")
	foreign := filepath.Join(t.TempDir(), "journal")
	long(t, foreign, "another")
	segs, _ := filepath.Glob(filepath.Join(dir, "events", "*"))
	if len(segs) < 4 {
		t.Fatalf("segments: %q", segs)
	}
	last := "events/" + filepath.Base(segs[len(segs)-1])
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) func(string) {
		return func(dir string) { must(os.Remove(filepath.Join(dir, name))) }
	}
	cut := func(name string) func(string) {
		return func(dir string) {
			st, err := os.Stat(filepath.Join(dir, name))
			must(err)
			must(os.Truncate(filepath.Join(dir, name), st.Size()/2))
		}
	}
	for _, c := range []struct {
		what   string
		damage func(dir string)
		names  string
		bare   bool // detected even without a mark
	}{
		{"control deleted", remove("control.jsonl"), "control.jsonl", true},
		{"control cut", cut("control.jsonl"), "control.jsonl", true},
		{"control emptied", func(dir string) { must(os.Truncate(filepath.Join(dir, "control.jsonl"), 0)) },
			"control.jsonl", true},
		{"control exchanged", func(dir string) {
			data, err := os.ReadFile(filepath.Join(other, "control.jsonl"))
			must(err)
			must(os.WriteFile(filepath.Join(dir, "control.jsonl"), data, 0o644))
		}, "control.jsonl", false},
		{"all exchanged", func(dir string) {
			must(os.RemoveAll(dir))
			must(os.CopyFS(dir, os.DirFS(foreign)))
		}, "mark", false},
		{"all deleted", func(dir string) { must(os.RemoveAll(dir)) }, "control.jsonl", true},
		{"the first segment deleted", remove("events/0001.jsonl.zst"), "events/0001.jsonl", true},
		{"a segment deleted", remove("events/0002.jsonl.zst"), "events/0002.jsonl", true},
		{"the last segment deleted", remove(last), last, false},
		{"the last segment cut", cut(last), last, false},
	} {
		for _, bare := range []bool{false, true} {
			if bare && !c.bare {
				continue
			}
			dir := copyTree(t, dir)
			c.damage(dir)
			if bare {
				os.Remove(filepath.Join(dir, "mark"))
			}
			ws := []journal.Witness{{File: "w", Seq: 180}, {File: "x", Trials: 60}}
			ls, err := journal.Verify(dir, "run", ws...)
			if err != nil || len(ls) == 0 || ls[0].File != c.names {
				t.Errorf("%s, without a mark %v: %v, %v; want %s", c.what, bare, ls, err, c.names)
				continue
			}
			if !bare && !strings.Contains(c.what, "all deleted") {
				if _, err := journal.Open(dir, journal.Options{Run: "run"}); !errors.Is(err, journal.ErrLost) ||
					!strings.Contains(err.Error(), "journal/"+c.names) {
					t.Errorf("%s: opened: %v", c.what, err)
				}
			}
			if strings.HasSuffix(c.what, "exchanged") {
				continue // the whole journal is another run's
			}
			if _, err := journal.Repair(dir, 180); err != nil {
				t.Errorf("%s, without a mark %v: repair: %v", c.what, bare, err)
				continue
			}
			for i, err := range journal.Scan(dir) {
				if err != nil {
					t.Errorf("%s, without a mark %v: scan after the repair: %v %v", c.what, bare, i, err)
				}
			}
			if ls, err := journal.Verify(dir, "run", journal.Witness{File: "w", Seq: 180}); err != nil || len(ls) > 0 {
				t.Errorf("%s, without a mark %v: found after the repair: %v, %v", c.what, bare, ls, err)
			}
			j := open(t, dir, journal.Options{Run: "run", NoSync: true})
			if seq := j.Recovered().Seq; seq < 180 {
				t.Errorf("%s, without a mark %v: goes on after entry %d: numbers are given twice", c.what, bare, seq)
			}
			put(t, j, journaltest.Begin("new", 1, 1))
			if err := j.Close(); err != nil {
				t.Error(err)
			}
			if got := scan(t, dir); got[len(got)-1].Trial != "new" {
				t.Errorf("%s: the last entry is %+v", c.what, got[len(got)-1])
			}
		}
	}
}

// Damage inside files is reported with the file by their readers.
func TestScanNamesFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	long(t, dir, "")
	n := len(scan(t, dir))
	rewrite := func(name string, f func([]byte) []byte) func(string) {
		return func(dir string) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), f(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	half := func(b []byte) []byte { return b[:len(b)/2] }
	zero := func(b []byte) []byte { return make([]byte, len(b)) }
	none := func([]byte) []byte { return nil }
	double := func(b []byte) []byte { return append(b, b...) }
	flip := func(b []byte) []byte { b[len(b)/3] ^= 0x10; return b }
	for name, files := range map[string][]string{"packed": {"events/0002.jsonl.zst"}, "control": {"control.jsonl"}} {
		for what, f := range map[string]func([]byte) []byte{"half": half, "zero": zero, "none": none, "double": double,
			"flip": flip} {
			dir := copyTree(t, dir)
			rewrite(files[0], f)(dir)
			named, read := false, 0
			for _, err := range journal.Scan(dir) {
				switch {
				case err == nil:
					read++
				case strings.Contains(err.Error(), strings.TrimSuffix(files[0], ".zst")):
					named = true
				}
			}
			ls, err := journal.Verify(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range ls {
				named = named || strings.HasPrefix(l.File, strings.TrimSuffix(files[0], ".zst"))
			}
			if !named {
				t.Errorf("%s, %s: %s is not named; %d of %d entries read", name, what, files[0], read, n)
			}
			if read > n {
				t.Errorf("%s, %s: %d entries read, there are %d", name, what, read, n)
			}
			if name == "control" && what != "none" {
				read, bad := map[int64]bool{}, 0
				for e, err := range journal.Control(dir) {
					if err != nil {
						bad++
					} else if read[e.Seq] {
						t.Errorf("%s: entry %d is read twice", what, e.Seq)
					} else {
						read[e.Seq] = true
					}
				}
				if bad == 0 && what != "half" && what != "zero" {
					t.Errorf("%s: nothing is said of control.jsonl", what)
				}
			}
		}
	}
	swapped := copyTree(t, dir)
	a, b := filepath.Join(swapped, "events/0001.jsonl.zst"), filepath.Join(swapped, "events/0003.jsonl.zst")
	for _, r := range [][2]string{{a, a + "x"}, {b, a}, {a + "x", b}} {
		if err := os.Rename(r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	for _, err := range journal.Scan(swapped) {
		if err != nil {
			told = append(told, err.Error())
		}
	}
	if len(told) == 0 || !strings.Contains(strings.Join(told, "\n"), "events/000") {
		t.Errorf("swapped segments: %q", told)
	}
}

// A mark that is damaged, or older than the journal, reports nothing wrong.
func TestMark(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j := open(t, dir, journal.Options{NoSync: true})
	put(t, j, journaltest.Begin("a", 1, 1), event("a", 0))
	if err := j.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(dir, "mark"))
	if err != nil || len(old) != 512 {
		t.Fatalf("%d bytes, %v", len(old), err)
	}
	put(t, j, event("a", 1), journaltest.Verdict("a", 1, 1, true, record.Scored))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for what, m := range map[string][]byte{"older": old, "empty": nil, "zeros": make([]byte, 512), "cut": old[:200],
		"text": []byte(strings.Repeat("x", 512))} {
		if err := os.WriteFile(filepath.Join(dir, "mark"), m, 0o644); err != nil {
			t.Fatal(err)
		}
		if ls, err := journal.Verify(dir, "any"); err != nil || len(ls) > 0 {
			t.Errorf("%s: %v, %v", what, ls, err)
		}
		if m == nil {
			os.Remove(filepath.Join(dir, "mark"))
			if ls, err := journal.Verify(dir, "any"); err != nil || len(ls) > 0 {
				t.Errorf("none: %v, %v", ls, err)
			}
		}
	}
	j = open(t, dir, journal.Options{NoSync: true})
	if w := j.Recovered(); len(w.Warnings()) > 0 || w.Cut > 0 {
		t.Errorf("%+v", w)
	}
	if golden, err := journal.Verify("testdata/v1/journal", "any", journal.Witness{File: "w", Seq: 3}); err != nil ||
		len(golden) > 0 {
		t.Errorf("the journal of the first version: %v, %v", golden, err)
	}
}
