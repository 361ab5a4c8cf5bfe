package parquetlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/reporttest"
	"github.com/evalrun/evalrun/reports/schema"
)

// tableRows reads a table back, part by part.
func tableRows[T any](t *testing.T, dir, table string) []T {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "parquet", table, "*.parquet"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no parts of %s: %v", table, err)
	}
	slices.Sort(names)
	var all []T
	for _, n := range names {
		f, err := openFile(n)
		if err != nil {
			t.Fatalf("%s: %v", n, err)
		}
		for _, g := range f.RowGroups() {
			if err := readRows(g, func(rs []T) error { all = append(all, rs...); return nil }); err != nil {
				t.Fatalf("%s: %v", n, err)
			}
		}
		f.Close()
	}
	return all
}

// text is a row as text; Parquet does not tell a missing list from an empty one.
func text[T any](row T) string {
	v := reflect.ValueOf(&row).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice && f.Len() == 0 {
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		}
	}
	b, err := json.Marshal(row)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// everything is all rows of all tables, as text, to compare folders by.
func everything(t *testing.T, dir string) map[string][]string {
	t.Helper()
	m := map[string][]string{}
	for _, r := range tableRows[schema.Trial](t, dir, "trials") {
		m["trials"] = append(m["trials"], text(r))
	}
	slices.Sort(m["trials"]) // a trial that is decided again moves to the end
	for _, r := range tableRows[schema.Attempt](t, dir, "attempts") {
		m["attempts"] = append(m["attempts"], text(r))
	}
	for _, r := range tableRows[schema.Event](t, dir, "events") {
		m["events"] = append(m["events"], text(r))
	}
	for _, r := range tableRows[schema.ModelCall](t, dir, "model_calls") {
		m["model_calls"] = append(m["model_calls"], text(r))
	}
	for _, r := range tableRows[schema.Score](t, dir, "scores") {
		m["scores"] = append(m["scores"], text(r))
	}
	for _, r := range tableRows[schema.Test](t, dir, "tests") {
		m["tests"] = append(m["tests"], text(r))
	}
	for _, r := range tableRows[schema.Change](t, dir, "changes") {
		m["changes"] = append(m["changes"], text(r))
	}
	for _, r := range tableRows[schema.Arm](t, dir, "arms") {
		m["arms"] = append(m["arms"], text(r))
	}
	for _, r := range tableRows[schema.Task](t, dir, "tasks") {
		m["tasks"] = append(m["tasks"], text(r))
	}
	return m
}

// expected is what the builder says, by itself.
func expected(t *testing.T, o reporttest.Options) map[string][]string {
	t.Helper()
	b := schema.NewBuilder(reporttest.Plan(o).Run)
	var out schema.Batch
	trials := map[string]schema.Trial{}
	m := map[string][]string{}
	for e := range reporttest.Entries(o) {
		out.Reset()
		if err := b.Add(&e, &out); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Trials {
			trials[r.Trial] = r
		}
		for _, a := range out.Amends {
			r := trials[a.Trial]
			a.Apply(&r)
			trials[a.Trial] = r
		}
		for _, r := range out.Attempts {
			m["attempts"] = append(m["attempts"], text(r))
		}
		for _, r := range out.Events {
			m["events"] = append(m["events"], text(r))
		}
		for _, r := range out.Calls {
			m["model_calls"] = append(m["model_calls"], text(r))
		}
		for _, r := range out.Scores {
			m["scores"] = append(m["scores"], text(r))
		}
		for _, r := range out.Tests {
			m["tests"] = append(m["tests"], text(r))
		}
		for _, r := range out.Changes {
			m["changes"] = append(m["changes"], text(r))
		}
	}
	for _, r := range trials {
		m["trials"] = append(m["trials"], text(r))
	}
	slices.Sort(m["trials"])
	arms, tasks := schema.OfPlan(reporttest.Plan(o))
	for _, r := range arms {
		m["arms"] = append(m["arms"], text(r))
	}
	for _, r := range tasks {
		m["tasks"] = append(m["tasks"], text(r))
	}
	return m
}

func same(t *testing.T, what string, got, want map[string][]string) {
	t.Helper()
	for _, table := range slices.Sorted(maps.Keys(want)) {
		if len(got[table]) != len(want[table]) {
			t.Errorf("%s: %s has %d rows, want %d", what, table, len(got[table]), len(want[table]))
			continue
		}
		for i := range want[table] {
			if d := cmp.Diff(want[table][i], got[table][i]); d != "" {
				t.Errorf("%s: %s, row %d: (-want +got)\n%s", what, table, i, d)
				break
			}
		}
	}
}

func write(t *testing.T, dir string, p *record.Plan, entries []record.Entry, o Options) {
	t.Helper()
	o.Journal = func(from int64) iter.Seq2[record.Entry, error] {
		return func(yield func(record.Entry, error) bool) {
			for _, e := range after(entries, from) {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	if n := len(entries); n > 0 {
		o.Last = entries[n-1].Seq
	}
	w, err := Open(dir, p, o)
	if err != nil {
		t.Fatal(err)
	}
	for es := range slices.Chunk(after(entries, w.From()), 37) {
		w.Add(es)
		w.Add(es[len(es)/2:]) // twice is once
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func after(entries []record.Entry, from int64) []record.Entry {
	i := slices.IndexFunc(entries, func(e record.Entry) bool { return e.Seq >= from })
	if i < 0 {
		return nil
	}
	return entries[i:]
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	o := reporttest.Options{}
	write(t, dir, reporttest.Plan(o), reporttest.All(o), Options{})
	same(t, "written and read", everything(t, dir), expected(t, o))
	noLeftovers(t, dir)
}

func noLeftovers(t *testing.T, dir string) {
	t.Helper()
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if n := d.Name(); strings.Contains(n, ".tmp") || n == rebuilding || n == replaced {
			t.Errorf("left over: %s", path)
		}
		return err
	})
}

// small makes row groups and parts so small that a short run has many of them.
func small(t *testing.T) {
	t.Helper()
	old := cuts
	cuts = limits{groupRows: 40, groupBytes: 32 << 10, partGroups: 3, partBytes: 80 << 10}
	t.Cleanup(func() { cuts = old })
}

func TestManyParts(t *testing.T) {
	small(t)
	dir := t.TempDir()
	o := reporttest.Options{Tasks: 40}
	write(t, dir, reporttest.Plan(o), reporttest.All(o), Options{})
	same(t, "many parts", everything(t, dir), expected(t, o))
	parts, _ := filepath.Glob(filepath.Join(dir, "parquet", "events", "*.parquet"))
	if len(parts) < 5 {
		t.Errorf("only %d parts: the test tests nothing", len(parts))
	}
}

// A writer that ends anywhere and is taken up again gives the same rows, also when it died without
// a word.
func TestResume(t *testing.T) {
	small(t)
	o := reporttest.Options{Tasks: 10}
	plan, entries, want := reporttest.Plan(o), reporttest.All(o), expected(t, o)
	for _, n := range []int{0, 1, 333, 700, len(entries)} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d kill=%v", n, kill), func(t *testing.T) {
				dir := t.TempDir()
				w, err := Open(dir, plan, Options{Every: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				w.Add(entries[:n/2])
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
				st, err := os.ReadFile(filepath.Join(dir, "parquet", stateName))
				if err != nil && n/2 > 0 {
					t.Fatal(err)
				}
				w.Add(entries[n/2 : n])
				if kill {
					// What is on the disk when the process dies: some tables ahead of the state,
					// and a file half written.
					w.Flush()
					copyTree(t, dir, dir+"-killed")
					w.Close()
					dir += "-killed"
					t.Cleanup(func() { os.RemoveAll(dir) })
					if err := os.WriteFile(filepath.Join(dir, "parquet", stateName), st, 0o666); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, "parquet", "events", tmpPrefix+"x.tmp"), []byte("half"),
						0o666); err != nil {
						t.Fatal(err)
					}
				} else if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				var said bytes.Buffer
				write(t, dir, plan, entries, Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
				same(t, "resumed", everything(t, dir), want)
				noLeftovers(t, dir)
				if said.Len() > 0 {
					t.Errorf("it warns: %s", &said)
				}
			})
		}
	}
}

// A verdict that is seen once more, of an attempt that began before what is seen once more, is
// nothing to warn of.
func TestResumeBehindVerdict(t *testing.T) {
	o := reporttest.Options{}
	dir, plan := t.TempDir(), reporttest.Plan(o)
	var entries []record.Entry
	add := func(trial, kind string, data any) {
		b, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, record.Entry{V: 1, Seq: int64(len(entries) + 1), Time: reporttest.Epoch, Trial: trial,
			Attempt: 1, Kind: kind, Data: b})
	}
	done := record.Verdict{Final: true, Status: record.Scored}
	add("a", record.KindAttempt, record.Attempt{Attempt: 1})
	add("b", record.KindAttempt, record.Attempt{Attempt: 1})
	add("a", record.KindVerdict, done)
	var said bytes.Buffer
	log := Options{Log: slog.New(slog.NewTextHandler(&said, nil))}
	write(t, dir, plan, entries, log)
	add("b", record.KindVerdict, done)
	write(t, dir, plan, entries, log)
	if said.Len() > 0 {
		t.Errorf("it warns: %s", &said)
	}
	if n := len(tableRows[schema.Trial](t, dir, "trials")); n != 2 {
		t.Errorf("%d trials, want 2", n)
	}
}

// A crash between taking an old row out and publishing the new one loses neither: the entries since
// come again.
func TestCrashWhileReplacing(t *testing.T) {
	small(t)
	o := reporttest.Options{Tasks: 20}
	plan, entries, want := reporttest.Plan(o), reporttest.All(o), expected(t, o)
	first := slices.IndexFunc(entries, func(e record.Entry) bool {
		return strings.Contains(string(e.Data), `"why":"rerun"`)
	})
	dir := t.TempDir()
	write(t, dir, plan, entries[:first], Options{})
	tr := trials{table: newTable(filepath.Join(dir, "parquet"), "trials", plan.Run,
		axes[schema.Trial]{axisNames(plan), func(t *schema.Trial) map[string]string { return t.Axes }})}
	if ok, err := tr.resume(state{}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	before := len(tableRows[schema.Trial](t, dir, "trials"))
	for _, e := range entries[first:] {
		if e.Attempt > 1 {
			tr.replace(e.Trial, e.Seq)
		}
	}
	if err := tr.settle(); err != nil {
		t.Fatal(err)
	}
	if n := len(tableRows[schema.Trial](t, dir, "trials")); n >= before {
		t.Errorf("%d rows of %d are left: the test tests nothing", n, before)
	}
	write(t, dir, plan, entries, Options{})
	same(t, "after the crash", everything(t, dir), want)
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// A table that is damaged, lost or of another run is made again from the journal, and so is
// everything when the state is lost.
func TestDamage(t *testing.T) {
	small(t)
	o := reporttest.Options{}
	plan, entries, want := reporttest.Plan(o), reporttest.All(o), expected(t, o)
	last := func(dir string) string {
		names, _ := filepath.Glob(filepath.Join(dir, "parquet", "events", "*.parquet"))
		return slices.Max(names)
	}
	for name, damage := range map[string]func(dir string) error{
		"empty part": func(dir string) error { return os.Truncate(last(dir), 0) },
		"cut part":   func(dir string) error { return os.Truncate(last(dir), 300) },
		"no table":   func(dir string) error { return os.RemoveAll(filepath.Join(dir, "parquet", "scores")) },
		"no state":   func(dir string) error { return os.Remove(filepath.Join(dir, "parquet", stateName)) },
		"bad state": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "parquet", stateName), []byte("{"), 0o666)
		},
		"nothing": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "parquet")) },
		"half rebuilt": func(dir string) error {
			return os.Rename(filepath.Join(dir, "parquet"), filepath.Join(dir, replaced))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, plan, entries, Options{})
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			write(t, dir, plan, entries, Options{})
			same(t, "repaired", everything(t, dir), want)
			noLeftovers(t, dir)
		})
	}
}

// A folder that was copied piece by piece, while a process wrote it or from two places: tables that
// are older or newer than the others or than the journal, or of another one, are noticed and made
// anew. None of the rows is lost, and none is there that the journal has not.
func TestCopied(t *testing.T) {
	small(t)
	o := reporttest.Options{Tasks: 8}
	plan, entries, want := reporttest.Plan(o), reporttest.All(o), expected(t, o)
	half := slices.IndexFunc(entries, func(e record.Entry) bool {
		return e.Kind == record.KindVerdict && e.Seq > int64(len(entries)/2)
	}) + 1
	other := reporttest.All(reporttest.Options{Tasks: 8, Seed: 9}) // the same run, which went on elsewhere
	copied := slices.Concat(entries[:half], other[half:half+50])
	old, full, strange := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, old, plan, entries[:half], Options{})
	write(t, full, plan, entries, Options{})
	write(t, strange, plan, copied, Options{})
	in := func(dir string, name ...string) string {
		return filepath.Join(append([]string{dir, "parquet"}, name...)...)
	}
	put := func(t *testing.T, dir, from, name string) {
		t.Helper()
		if err := os.RemoveAll(in(dir, name)); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(in(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if st.IsDir() {
			copyTree(t, in(from, name), in(dir, name))
			return
		}
		data, err := os.ReadFile(in(from, name))
		if err == nil {
			err = os.WriteFile(in(dir, name), data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name    string
		from    string // all tables but those of with
		with    string // whence …
		tables  []string
		journal []record.Entry // as it is when the folder is opened
		says    string
	}{
		{"all older", old, "", nil, entries, ""},
		{"all newer", full, "", nil, entries[:half], "which ends at"},
		{"of another journal", strange, "", nil, entries, "not the one that they are of"},
		{"events older", full, old, []string{"events"}, entries, "events is older than the other tables"},
		{"trials and attempts older", full, old, []string{"trials", "attempts"}, entries,
			"is older than the other tables"},
		{"a newer state", old, full, []string{stateName}, entries, "is older than the other tables"},
		{"an older state, tables beyond the journal", full, old, []string{stateName}, entries[:half+20],
			"which ends at"},
		{"an older state", full, old, []string{stateName}, entries, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			copyTree(t, x.from, dir)
			for _, n := range x.tables {
				put(t, dir, x.with, n)
			}
			var said bytes.Buffer
			log := Options{Log: slog.New(slog.NewTextHandler(&said, nil))}
			write(t, dir, plan, x.journal, log)
			write(t, dir, plan, entries, Options{}) // the run goes on
			same(t, "taken up", everything(t, dir), want)
			if (said.Len() > 0) != (x.says != "") || !strings.Contains(said.String(), x.says) {
				t.Errorf("it says %q, want %q", &said, x.says)
			}
		})
	}
	t.Run("a part is missing", func(t *testing.T) {
		dir := t.TempDir()
		copyTree(t, full, dir)
		if err := os.Remove(in(dir, "events", "000000000001.parquet")); err != nil {
			t.Fatal(err)
		}
		write(t, dir, plan, entries, Options{})
		same(t, "taken up", everything(t, dir), want)
	})
}

func TestRebuild(t *testing.T) {
	o := reporttest.Options{}
	plan := reporttest.Plan(o)
	dir := t.TempDir()
	write(t, dir, plan, reporttest.All(o)[:200], Options{})
	if err := Rebuild(dir, plan, reporttest.Entries(o), Options{}); err != nil {
		t.Fatal(err)
	}
	same(t, "rebuilt", everything(t, dir), expected(t, o))
	noLeftovers(t, dir)

	// The same journal gives the same files, byte for byte, however it is cut into batches.
	again := t.TempDir()
	if err := Rebuild(again, plan, reporttest.Entries(o), Options{}); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"events", "attempts", "scores", "model_calls", "tests", "changes", "tasks"} {
		a, _ := os.ReadFile(filepath.Join(dir, "parquet", table, "000000000001.parquet"))
		b, _ := os.ReadFile(filepath.Join(again, "parquet", table, "000000000001.parquet"))
		if len(a) == 0 || string(a) != string(b) {
			t.Errorf("%s differs: %d and %d bytes", table, len(a), len(b))
		}
	}

	// A damaged entry is told, the rest is there.
	bad := func(yield func(record.Entry, error) bool) {
		if yield(record.Entry{}, fmt.Errorf("line 7 is damaged")) {
			reporttest.Entries(o)(yield)
		}
	}
	if err := Rebuild(again, plan, iter.Seq2[record.Entry, error](bad), Options{}); err == nil ||
		!strings.Contains(err.Error(), "line 7") {
		t.Errorf("error: %v", err)
	}
	same(t, "rebuilt with a damaged entry", everything(t, again), expected(t, o))
}

// Readers may look at any time: at every moment each table is there, whole, with no row twice, and
// with what was flushed.
func TestLive(t *testing.T) {
	small(t)
	dir := t.TempDir()
	o := reporttest.Options{Tasks: 20}
	entries := reporttest.All(o)
	w, err := Open(dir, reporttest.Plan(o), Options{Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for es := range slices.Chunk(entries, 11) {
			w.Add(es)
		}
	}()
	looks := 0
	for running := true; running; looks++ {
		select {
		case <-done:
			running = false
		default:
		}
		seen := map[int64]bool{}
		for _, e := range tableRows[schema.Event](t, dir, "events") {
			if seen[e.Seq] {
				t.Fatalf("event of entry %d is there twice", e.Seq)
			}
			seen[e.Seq] = true
		}
		trials := map[string]bool{}
		for _, r := range tableRows[schema.Trial](t, dir, "trials") {
			if trials[r.Trial] {
				t.Fatalf("trial %s is there twice", r.Trial)
			}
			trials[r.Trial] = true
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	same(t, "flushed", everything(t, dir), expected(t, o))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error("closed again:", err)
	}
	t.Logf("looked %d times", looks)
}

// Tables that do not change are not written again.
func TestQuiet(t *testing.T) {
	dir := t.TempDir()
	o := reporttest.Options{}
	w, err := Open(dir, reporttest.Plan(o), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Add(reporttest.All(o))
	stat := func() os.FileInfo {
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(dir, "parquet", "events", "000000000001.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if a, b := stat(), stat(); !os.SameFile(a, b) {
		t.Error("a table without news was written again")
	}
}

// When the disk refuses, nobody waits for the writer and Close says what happened.
func TestBroken(t *testing.T) {
	dir := t.TempDir()
	o := reporttest.Options{}
	w, err := Open(dir, reporttest.Plan(o), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "parquet", "events")); err != nil {
		t.Fatal(err)
	}
	big := reporttest.All(o)
	for range 60 {
		w.Add(big) // several times what the queue holds
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "events") {
		t.Errorf("error: %v", err)
	}
	if err := Rebuild(dir, reporttest.Plan(o), reporttest.Entries(o), Options{}); err != nil {
		t.Fatal(err)
	}
	same(t, "rebuilt", everything(t, dir), expected(t, o))
}

// What a file says of itself.
func TestMetadata(t *testing.T) {
	dir := t.TempDir()
	o := reporttest.Options{}
	write(t, dir, reporttest.Plan(o), reporttest.All(o), Options{})
	for _, table := range []string{"trials", "attempts", "events", "model_calls", "scores", "tests", "changes",
		"tasks", "arms"} {
		f, err := openFile(filepath.Join(dir, "parquet", table, "000000000001.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		m := meta{f: f.File}
		if m.int(keySchema) != schema.Schema || m.text(keyRun) != reporttest.Plan(o).Run || m.text(keyTable) != table ||
			m.err != nil {
			t.Errorf("%s: %v", table, f.Metadata().KeyValueMetadata)
		}
		_, ok := f.Schema().Lookup("axis_model")
		if want := table == "trials" || table == "arms"; ok != want {
			t.Errorf("%s has an axis: %v, want %v", table, ok, want)
		}
		f.Close()
	}
}

// Tables of an older version are made anew, also those of the plan.
func TestOlderSchema(t *testing.T) {
	small(t)
	dir := t.TempDir()
	o := reporttest.Options{}
	plan, entries := reporttest.Plan(o), reporttest.All(o)
	write(t, dir, plan, entries[:len(entries)/2], Options{})
	names, _ := filepath.Glob(filepath.Join(dir, "parquet", "*", "*.parquet"))
	for _, n := range names {
		var p part
		m, _, err := p.load(n)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.KeyValueMetadata {
			if m.KeyValueMetadata[i].Key == keySchema {
				m.KeyValueMetadata[i].Value = "1"
			}
		}
		for i := range m.Schema {
			switch c := &m.Schema[i]; c.Name {
			case "arm_axes":
				c.Name = "axes"
			case "outcome":
				c.Name = "end"
			}
		}
		if _, err := p.write(n, false, m, grow(n, p.end)); err != nil {
			t.Fatal(err)
		}
	}
	if v := Version(dir); v != 1 {
		t.Fatalf("version %d: the test tests nothing", v)
	}
	var said bytes.Buffer
	write(t, dir, plan, entries, Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	same(t, "made anew", everything(t, dir), expected(t, o))
	if said.Len() > 0 {
		t.Errorf("it warns: %s", &said)
	}
	names, _ = filepath.Glob(filepath.Join(dir, "parquet", "*", "*.parquet"))
	for _, n := range names {
		if v := versionOf(n); v != schema.Schema {
			t.Errorf("%s is of version %d", n, v)
		}
	}
	if v := Version(dir); v != schema.Schema {
		t.Errorf("version %d", v)
	}
}
