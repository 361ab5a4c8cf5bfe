package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/reporttest"
	"github.com/evalrun/evalrun/reports/schema"
)

func jsonl(t *testing.T, path string) (rs []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for l := range bytes.Lines(data) {
		var m map[string]any
		if err := json.Unmarshal(l, &m); err != nil {
			t.Fatalf("%v in %s", err, l)
		}
		rs = append(rs, m)
	}
	return rs
}

func TestExport(t *testing.T) {
	o := reporttest.Options{}
	dir := t.TempDir()
	for _, k := range []Kind{JSONL, CSV} {
		files, err := Export(dir, &k, Setup{}, reporttest.Plan(o), reporttest.Entries(o))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != len(Tables) || files[0] != filepath.Join(dir, "trials."+k.Name) {
			t.Errorf("%s: files %q", k.Name, files)
		}
	}
	// Both forms have the same rows, and as many as the journal.
	for _, table := range Tables {
		js := jsonl(t, filepath.Join(dir, table+".jsonl"))
		f, err := os.Open(filepath.Join(dir, table+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		cs, err := csv.NewReader(f).ReadAll()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(js) == 0 || len(cs) != len(js)+1 {
			t.Errorf("%s: %d objects, %d lines", table, len(js), len(cs))
		}
		for i, m := range js {
			for k := range m {
				j := slices.Index(cs[0], k)
				if j < 0 {
					t.Fatalf("%s: %q is no column of %q", table, k, cs[0])
				}
				if s, ok := m[k].(string); ok && s != cs[i+1][j] && strings.ReplaceAll(s, "\r\n", "\n") != cs[i+1][j] &&
					"'"+s != cs[i+1][j] {
					t.Errorf("%s row %d: %s is %q and %q", table, i, k, s, cs[i+1][j])
				}
			}
		}
	}
	trials := jsonl(t, filepath.Join(dir, "trials.jsonl"))
	if len(trials) != 72 {
		t.Errorf("%d trials", len(trials))
	}
	amended, rerun := 0, 0
	for _, x := range trials {
		if x["amended_why"] != nil {
			amended++
			if x["reward"] != 1.0 {
				t.Errorf("amended to 1: %v", x)
			}
		}
		if x["status"] == "infra" {
			rerun++
		}
	}
	if amended != 1 || rerun != 0 {
		t.Errorf("%d amended, %d still infra", amended, rerun)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*.partial"))
	if left != nil {
		t.Errorf("left over: %q", left)
	}
}

func TestExportRefuses(t *testing.T) {
	o := reporttest.Options{}
	p, es := reporttest.Plan(o), reporttest.Entries(o)
	if _, err := Export(t.TempDir(), &CSV, Setup{Tables: []string{"runs"}}, p, es); err == nil ||
		!strings.Contains(err.Error(), "trials, attempts") {
		t.Error(err)
	}
	dir := t.TempDir()
	damaged := func(yield func(record.Entry, error) bool) {
		if yield(record.Entry{}, errors.New("line 4 is damaged")) {
			es(yield)
		}
	}
	if files, err := Export(dir, &JSONL, Setup{Tables: []string{"trials"}}, p, damaged); len(files) != 1 ||
		err == nil || !strings.Contains(err.Error(), "line 4") {
		t.Error(err)
	}
	if n := len(jsonl(t, filepath.Join(dir, "trials.jsonl"))); n != 72 {
		t.Errorf("%d trials beside the damage", n)
	}
	ents, _ := os.ReadDir(dir)
	if len(ents) != 1 {
		t.Errorf("asked for one table, got %v", ents)
	}
}

// A format of somebody else's gets each row once, of the tables that are asked for, and its files
// are there when it has succeeded, and only then.
func TestExporter(t *testing.T) {
	o := reporttest.Options{}
	var got Rows
	fail := errors.New("no more room")
	open := func(write, closed error, names ...string) *Kind {
		got = Rows{}
		return &Kind{Name: "own", Open: func(s Setup) (Exporter, error) {
			if s.Arg != "arg" || string(s.Options) != `{"x":1}` || !slices.Equal(s.Tables, []string{"trials", "arms"}) {
				t.Errorf("setup %+v", s)
			}
			for _, name := range names {
				w, err := s.Create(name)
				if err != nil {
					return nil, err
				}
				io.WriteString(w, name)
			}
			return &own{&got, write, closed}, nil
		}}
	}
	setup := Setup{Arg: "arg", Options: json.RawMessage(`{"x":1}`), Tables: []string{"arms", "trials"}}
	for _, tt := range []struct {
		kind *Kind
		want string // of the error
	}{
		{open(nil, nil, "a.txt", "below/b.txt"), ""},
		{open(fail, nil, "a.txt", "below/b.txt"), "export: no more room"},
		{open(nil, fail, "a.txt"), "export: no more room"},
		{open(nil, nil, "a.txt", "../b.txt"), `export: "../b.txt" is no name of a file below the folder of the export`},
		{open(nil, nil, "/tmp/b.txt"), `export: "/tmp/b.txt" is no name of a file below the folder of the export`},
		{open(nil, nil, "a.txt", "./a.txt"), "export: the file a.txt is written twice"},
	} {
		dir := t.TempDir()
		files, err := Export(dir, tt.kind, setup, reporttest.Plan(o), reporttest.Entries(o))
		var there []string
		filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
			if !d.IsDir() {
				there = append(there, path)
			}
			return nil
		})
		if tt.want != "" {
			if err == nil || err.Error() != tt.want || files != nil || there != nil {
				t.Errorf("error %v, want %s; files %q, there are %q", err, tt.want, files, there)
			}
			continue
		}
		if want := []string{filepath.Join(dir, "a.txt"), filepath.Join(dir, "below/b.txt")}; err != nil ||
			!slices.Equal(files, want) || !slices.Equal(there, want) {
			t.Errorf("error %v, files %q, there are %q, want %q", err, files, there, want)
		}
		if len(got.Trials) != 72 || len(got.Arms) == 0 || got.Tasks != nil || got.Events != nil || got.Scores != nil {
			t.Errorf("%d trials, %d arms, %d tasks, %d events, %d scores", len(got.Trials), len(got.Arms),
				len(got.Tasks), len(got.Events), len(got.Scores))
		}
	}
}

type own struct {
	got           *Rows
	write, closed error
}

func (x *own) Write(r *Rows) error {
	x.got.Arms, x.got.Tasks = append(x.got.Arms, r.Arms...), append(x.got.Tasks, r.Tasks...)
	x.got.Trials, x.got.Events, x.got.Scores = append(x.got.Trials, r.Trials...), append(x.got.Events, r.Events...),
		append(x.got.Scores, r.Scores...)
	return x.write
}

func (x *own) Close() error { return x.closed }

// Only in CSV, and only texts.
func TestFormulas(t *testing.T) {
	neg, text, why := -1.5, "  @SUM(1)", "\tx"
	row := schema.Score{Run: "r", Name: "=cmd|' /C calc'!A0", Text: &text, Why: &why, Value: &neg}
	fs := fieldsOf[schema.Score]()
	c := string(appendCSV(nil, fs, &row))
	for _, want := range []string{`,'=cmd|' /C calc'!A0,`, `,-1.5,`, `,'  @SUM(1),`, `,"'	x"`} {
		if want == `,"'	x"` {
			want = ",'\tx,"
		}
		if !strings.Contains(c, want) {
			t.Errorf("no %s in %s", want, c)
		}
	}
	if j := string(appendJSON(nil, fs, &row)); !strings.Contains(j, `"name":"=cmd|' /C calc'!A0"`) {
		t.Error(j)
	}
	for in, want := range map[string]string{"": `""`, "a,b": `"a,b"`, `say "x"`: `"say ""x"""`,
		"two\nlines": "\"two\nlines\"", "-1": "'-1", "＝1": "'＝1", " pad": `" pad"`, "ok": "ok"} {
		if got := string(appendCell(nil, in)); got != want {
			t.Errorf("cell %q: %s, want %s", in, got, want)
		}
	}
}
