package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
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
	for _, format := range []string{JSONL, CSV} {
		if err := Export(dir, format, nil, reporttest.Plan(o), reporttest.Entries(o)); err != nil {
			t.Fatal(err)
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
				if s, ok := m[k].(string); ok && s != cs[i+1][j] && strings.ReplaceAll(s, "\r\n", "\n") != cs[i+1][j] && "'"+s != cs[i+1][j] {
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
	if err := Export(t.TempDir(), "xml", nil, p, es); err == nil || !strings.Contains(err.Error(), "jsonl and csv") {
		t.Error(err)
	}
	if err := Export(t.TempDir(), CSV, []string{"runs"}, p, es); err == nil || !strings.Contains(err.Error(), "trials, attempts") {
		t.Error(err)
	}
	dir := t.TempDir()
	damaged := func(yield func(record.Entry, error) bool) {
		if yield(record.Entry{}, errors.New("line 4 is damaged")) {
			es(yield)
		}
	}
	if err := Export(dir, JSONL, []string{"trials"}, p, damaged); err == nil || !strings.Contains(err.Error(), "line 4") {
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
	for in, want := range map[string]string{"": `""`, "a,b": `"a,b"`, `say "x"`: `"say ""x"""`, "two\nlines": "\"two\nlines\"", "-1": "'-1", "＝1": "'＝1", " pad": `" pad"`, "ok": "ok"} {
		if got := string(appendCell(nil, in)); got != want {
			t.Errorf("cell %q: %s, want %s", in, got, want)
		}
	}
}
