package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/journal/journaltest"
	"github.com/evalrun/evalrun/harness/record"
)

// sample fills a journal: d is decided, o is open, r is between two attempts. It ends with events.
func sample(t *testing.T, dir string, opts journal.Options) []record.Entry {
	t.Helper()
	j := open(t, dir, opts)
	ev := func(trial string, attempt int, n int) record.Entry {
		return journaltest.Entry(record.KindEvent, trial, attempt, 1, fmt.Sprintf(`{"id":%d,"text":"x"}`, n))
	}
	for _, e := range []record.Entry{
		journaltest.Begin("d", 1, 1), ev("d", 1, 0), journaltest.Begin("o", 1, 1), ev("o", 1, 0), ev("d", 1, 1),
		journaltest.Entry(record.KindEvidence, "o", 1, 1, `{"stage":0,"end":"answered","data":{}}`), ev("o", 1, 1),
		journaltest.Verdict("d", 1, 1, true, record.Scored), journaltest.Begin("r", 1, 1), ev("r", 1, 0),
		journaltest.Verdict("r", 1, 1, false, record.Infra), ev("o", 1, 2), ev("o", 1, 3),
	} {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := j.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return scan(t, dir)
}

func copyTree(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "journal")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// lineOf returns which line of data an offset is in.
func lineOf(data []byte, off int) int { return bytes.Count(data[:off], []byte("\n")) }

func seqs(es []record.Entry) []int64 {
	var out []int64
	for _, e := range es {
		out = append(out, e.Seq)
	}
	return out
}

// repaired repairs a journal that lost a part of a file, after checking that Open reports that file
// and changes nothing.
func repaired(t *testing.T, dir, file string) journal.Recovery {
	t.Helper()
	before := tree(t, dir)
	if _, err := journal.Open(dir, journal.Options{}); !errors.Is(err, journal.ErrLost) ||
		!strings.Contains(err.Error(), "journal/"+file) {
		t.Fatalf("open: %v, want that %s has lost something", err, file)
	}
	if d := cmp.Diff(before, tree(t, dir)); d != "" {
		t.Fatalf("a refused journal was changed:\n%s", d)
	}
	ds, err := journal.Repair(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	return journal.Recovery{Damages: ds}
}

// Every single damaged byte loses at most the lines it is in. These and their attempts are
// reported.
func TestFlipEveryByte(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	opts := journal.Options{NoSync: true}
	all := sample(t, dir, opts)
	byLine := map[string][]record.Entry{}
	for _, e := range all {
		name := "events/0001.jsonl"
		if e.Kind != record.KindEvent {
			name = "control.jsonl"
		}
		byLine[name] = append(byLine[name], e)
	}
	for name, entries := range byLine {
		orig, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		step := 11
		if os.Getenv("EVALRUN_TEST_THOROUGH") != "" {
			step = 1
		}
		for off := 0; off < len(orig); off += step {
			dir := copyTree(t, dir)
			data := bytes.Clone(orig)
			data[off] ^= 0x08 // a newline becomes STX; a digit stays a digit or becomes a bracket
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
			line := lineOf(orig, off)
			hurt := entries[line : line+1]
			if orig[off] == '\n' && line+1 < len(entries) {
				hurt = entries[line : line+2]
			}
			rec := repaired(t, dir, name)
			torn := off == len(orig)-1
			if torn && name == "control.jsonl" {
				continue // what is left is as after a cut: see TestCutEverywhere
			}
			j := open(t, dir, opts)
			if !torn && len(rec.Damages) == 0 {
				t.Fatalf("%s byte %d: nothing found", name, off)
			}
			want := slices.DeleteFunc(slices.Clone(all), func(e record.Entry) bool {
				return slices.ContainsFunc(hurt, func(h record.Entry) bool { return h.Seq == e.Seq })
			})
			if got := scan(t, dir); !slices.Equal(seqs(got), seqs(want)) {
				t.Fatalf("%s byte %d: left %v, want %v", name, off, seqs(got), seqs(want))
			}
			for _, h := range hurt {
				touched := journal.Touched{Trial: h.Trial, Attempt: h.Attempt}
				if !torn && !slices.Contains(rec.Touched(), touched) {
					t.Fatalf("%s byte %d: %v is not among %v", name, off, touched, rec.Touched())
				}
			}
			st, err := journal.ReadState(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, touched := range rec.Touched() {
				if s, ok := st.Trial(touched.Trial); ok && int(s.Last) == touched.Attempt && !s.Damaged {
					t.Fatalf("%s byte %d: the state says nothing of %v: %+v", name, off, touched, s)
				}
			}
			// The journal continues, assigns no number twice, and finds no damage the next time.
			if err := j.Append(t.Context(), journaltest.Begin("n", 1, 1)); err != nil {
				t.Fatal(err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = open(t, dir, opts)
			if w := j.Recovered().Warnings(); len(w) > 0 {
				t.Fatalf("%s byte %d: found again: %q", name, off, w)
			}
			got := scan(t, dir)
			if len(got) != len(want)+1 || got[len(got)-1].Trial != "n" {
				t.Fatalf("%s byte %d: after going on: %v", name, off, seqs(got))
			}
			j.Close()
		}
	}
}

// A file cut at any offset loses only what was cut.
func TestCutEverywhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	opts := journal.Options{NoSync: true}
	all := sample(t, dir, opts)
	for _, name := range []string{"events/0001.jsonl", "control.jsonl"} {
		orig, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for size := len(orig) - 1; size >= 0; size -= 11 {
			dir := copyTree(t, dir)
			if err := os.Truncate(filepath.Join(dir, name), int64(size)); err != nil {
				t.Fatal(err)
			}
			whole := lineOf(orig, size)
			isEvents := name != "control.jsonl"
			n := 0
			lastControl := int64(0)
			for _, e := range all { // the last control entry that is left
				if e.Kind != record.KindEvent {
					if n++; isEvents || n <= whole {
						lastControl = e.Seq
					}
				}
			}
			var want []int64
			n = 0
			gap := false
			for _, e := range all {
				if (e.Kind == record.KindEvent) == isEvents {
					if n++; n > whole {
						gap = gap || e.Seq > lastControl
						continue
					}
				}
				if !gap {
					want = append(want, e.Seq)
				}
			}
			if ls, err := journal.Verify(dir, ""); err != nil || len(ls) == 0 || ls[0].File != name {
				t.Fatalf("%s cut to %d bytes: %v, %v", name, size, ls, err)
			}
			// as after a crash that left what is there, or of an older form: nobody knows what
			// there was
			bare := copyTree(t, dir)
			os.Remove(filepath.Join(bare, "mark"))
			if _, err := journal.Repair(bare, 0); err != nil {
				t.Fatal(err)
			}
			if got := seqs(scan(t, bare)); !slices.Equal(got, want) {
				t.Fatalf("%s cut to %d bytes, without a mark: left %v, want %v", name, size, got, want)
			}
			if rec := repaired(t, dir, name); len(rec.Damages) == 0 {
				t.Fatalf("%s cut to %d bytes: nothing found", name, size)
			}
			if ls, err := journal.Verify(dir, ""); err != nil || len(ls) > 0 {
				t.Fatalf("%s cut to %d bytes: found after the repair: %v, %v", name, size, ls, err)
			}
			j := open(t, dir, opts)
			if got := seqs(scan(t, dir)); !slices.Equal(got, want) {
				t.Fatalf("%s cut to %d bytes: left %v, want %v", name, size, got, want)
			}
			j.Close()
			j = open(t, dir, opts)
			if w := j.Recovered(); len(w.Damages) > 0 || w.Cut > 0 {
				t.Fatalf("%s cut to %d bytes: found again: %q", name, size, w.Warnings())
			}
			j.Close()
		}
	}
}

func TestNewerForm(t *testing.T) {
	for _, line := range []string{
		fmt.Sprintf(`{"v":%d,"seq":14,"time":"2026-11-21T10:00:00.000000Z","trial":"o","attempt":1,"kind":"stage","data":{}}`, record.Version+1),
		fmt.Sprintf(`{"v":%d,"seq":14,"time":[2026],"subject":{"trial":"o"}}`, record.Version+1),
	} {
		for _, name := range []string{"control.jsonl", "events/0001.jsonl"} {
			dir := filepath.Join(t.TempDir(), "journal")
			sample(t, dir, journal.Options{NoSync: true})
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			f.WriteString(journal.Seal(14, line))
			f.WriteString(`{"torn`)
			f.Close()
			before := tree(t, dir)
			if _, err := journal.Open(dir, journal.Options{}); !errors.Is(err, journal.ErrNewer) ||
				!strings.Contains(err.Error(), fmt.Sprintf("form %d", record.Version+1)) {
				t.Errorf("open: %v", err)
			}
			if d := cmp.Diff(before, tree(t, dir)); d != "" {
				t.Errorf("a refused journal was changed:\n%s", d)
			}
			last := error(nil)
			for _, err := range journal.Scan(dir) {
				last = err
			}
			if !errors.Is(last, journal.ErrNewer) {
				t.Errorf("scan: %v", last)
			}
			if _, err := journal.ReadState(dir); name == "control.jsonl" && !errors.Is(err, journal.ErrNewer) {
				t.Errorf("state: %v", err)
			}
		}
	}
}

// tree returns all files below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		out[strings.TrimPrefix(name, dir)] = string(data)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// After whole segments were removed, the verdicts stay, and open attempts are reported.
func TestSegmentGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	sample(t, dir, journal.Options{NoSync: true})
	if err := os.RemoveAll(filepath.Join(dir, "events")); err != nil {
		t.Fatal(err)
	}
	var missing *journal.Missing
	n := 0
	for _, err := range journal.Scan(dir) {
		if err == nil {
			n++
		} else if !errors.As(err, &missing) {
			t.Errorf("scan: %v", err)
		}
	}
	if n != 6 || missing == nil {
		t.Errorf("%d entries, %v", n, missing)
	}
	rec := repaired(t, dir, "events/0001.jsonl")
	j := open(t, dir, journal.Options{NoSync: true})
	if d := cmp.Diff([]journal.Touched{{Trial: "o", Attempt: 1}}, rec.Touched()); d != "" {
		t.Errorf("touched: %s", d)
	}
	rec.State = j.Recovered().State
	if s, _ := rec.State.Trial("d"); !s.Decided || s.Status() != record.Scored || s.Damaged {
		t.Errorf("d: %+v", s)
	}
	if s, _ := rec.State.Trial("o"); s.Decided || s.Open != 1 || !s.Damaged {
		t.Errorf("o: %+v", s)
	}
	if got := scan(t, dir); len(got) != 6 {
		t.Errorf("%d entries", len(got))
	}
}

func TestState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	sample(t, dir, journal.Options{NoSync: true})
	st, err := journal.ReadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	type standing struct {
		Decided              bool
		Status               record.Status
		End                  record.End
		Last, Open, Evidence int32
		Fence                int64
	}
	want := map[string]standing{
		"d": {Decided: true, Status: record.Scored, End: record.Answered, Last: 1, Fence: 1},
		"o": {Last: 1, Open: 1, Fence: 1, Evidence: 1},
		"r": {Status: record.Infra, Last: 1, Fence: 1},
	}
	got := map[string]standing{}
	for id, s := range st.All() {
		got[id] = standing{s.Decided, s.Status(), s.End(), s.Last, s.Open, s.Evidence, s.Fence}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if st.Len() != 3 || st.Fence() != 1 || st.Seq() != 11 {
		t.Errorf("%d trials, fence %d, seq %d", st.Len(), st.Fence(), st.Seq())
	}
	if _, ok := st.Trial("none"); ok {
		t.Error("a trial that was never begun is known")
	}
	ev, err := st.Evidence("o")
	if err != nil || len(ev) != 1 || ev[0].Kind != record.KindEvidence || ev[0].Seq != 6 {
		t.Errorf("evidence: %+v, %v", ev, err)
	}
	if empty, err := journal.ReadState(t.TempDir()); err != nil || empty.Len() != 0 {
		t.Errorf("no journal: %v", err)
	}
}
