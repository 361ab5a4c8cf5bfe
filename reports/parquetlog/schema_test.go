package parquetlog

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/reports/reporttest"
)

const schemaDoc = "../../docs/schema.md"

// documented are the columns that docs/schema.md lists for each table, with their types.
func documented(t *testing.T) map[string][][2]string {
	t.Helper()
	doc, err := os.ReadFile(schemaDoc)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][][2]string{}
	table, columns := "", false
	for l := range strings.Lines(string(doc)) {
		switch l = strings.TrimSpace(l); {
		case strings.HasPrefix(l, "## "):
			table, columns = strings.TrimPrefix(l, "## "), false
		case l == "| column | type | meaning |":
			columns = true
		case !strings.HasPrefix(l, "|"):
			columns = false
		case columns && !strings.HasPrefix(l, "|--"):
			c := strings.Split(l, "|")
			m[table] = append(m[table], [2]string{strings.TrimSpace(c[1]), strings.TrimSpace(c[2])})
		}
	}
	return m
}

// The page lists exactly the columns of the files, in their order.
func TestSchemaDocument(t *testing.T) {
	dir := t.TempDir()
	o := reporttest.Options{}
	write(t, dir, reporttest.Plan(o), reporttest.All(o), Options{})
	docs := documented(t)
	for _, table := range []string{"trials", "attempts", "events", "model_calls", "scores", "tests", "changes",
		"tasks", "arms"} {
		f, err := openFile(filepath.Join(dir, "parquet", table, "000000000001.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		var have, want []string
		for _, c := range f.Schema().Fields() {
			if n := c.Name(); !strings.HasPrefix(n, "axis_") {
				have = append(have, n)
			} else if !slices.Contains(have, "axis_*") {
				have = append(have, "axis_*")
			}
		}
		f.Close()
		for _, c := range docs[table] {
			want = append(want, c[0])
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s has the columns %q, docs/schema.md says %q", table, have, want)
		}
	}
}

// readers is the Python that has DuckDB and pandas. polars is looked at where it is there.
func readers(t *testing.T) string {
	t.Helper()
	const gate = "EVALRUN_TEST_PARQUET_READERS"
	if os.Getenv(gate) != "1" {
		t.Skipf("reads the files with DuckDB and pandas where %s=1 (EVALRUN_TEST_PYTHON names a python3 that has "+
			"duckdb, pandas, pyarrow, and perhaps polars)", gate)
	}
	python := os.Getenv("EVALRUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	return python
}

const polars = `
try: import polars as pl
except ImportError: pl = None
`

func python(t *testing.T, dir, program string) string {
	t.Helper()
	cmd := exec.Command(readers(t), "-")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(polars + program)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\nof\n%s", err, out, program)
	}
	return string(out)
}

// The worked queries run as they stand, and find something.
func TestWorkedQueries(t *testing.T) {
	readers(t)
	doc, err := os.ReadFile(schemaDoc)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := reporttest.Options{Tasks: 40}
	write(t, dir, reporttest.Plan(o), reporttest.All(o), Options{})
	blocks := regexp.MustCompile("(?s)\\*\\*(\\d+)\\. .*?```(sql|python)\n(.*?)```").FindAllStringSubmatch(string(doc),
		-1)
	if len(blocks) != 13 {
		t.Fatalf("%d worked queries", len(blocks))
	}
	for _, b := range blocks {
		program := b[3]
		if b[2] == "sql" {
			program = fmt.Sprintf("import duckdb\nrows = duckdb.sql(%q).fetchall()\nassert rows, 'no "+
				"rows'\nprint(rows)\n", b[3])
		}
		out := python(t, dir, program)
		t.Logf("query %s:\n%s", b[1], out[:min(len(out), 600)])
	}
}

// Three readers that have nothing to do with each other see the types that the page says, all rows,
// and hostile texts whole; they read a live run as well.
func TestReaders(t *testing.T) {
	readers(t)
	small(t)
	dir := t.TempDir()
	o := reporttest.Options{Tasks: 40}
	entries := reporttest.All(o)
	w, err := Open(dir, reporttest.Plan(o), Options{Every: time.Millisecond}) // far more versions than a run makes
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var program bytes.Buffer
	program.WriteString("import duckdb\n")
	for table, cols := range documented(t) {
		fmt.Fprintf(&program, "got = {r[0]: r[1] for r in duckdb.sql(\"describe select * from "+
			"'parquet/%s/*.parquet'\").fetchall()}\n", table)
		for _, c := range cols {
			if c[0] == "axis_*" {
				c[0] = "axis_model"
			}
			fmt.Fprintf(&program, "assert got[%q] == %q, (%q, %[1]q, got[%[1]q])\n", c[0], c[1], table)
		}
	}
	python(t, dir, program.String()) // before there is a row

	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for es := range slices.Chunk(entries, 1+len(entries)/200) {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			w.Add(es)
		}
	}()
	python(t, dir, `
import duckdb, time, pandas as pd
seen, end = 0, time.time() + 3
while time.time() < end:
    n, ids, texts = duckdb.sql("select count(*), count(distinct seq), count(distinct (seq, kind, output, data, blobs)) from 'parquet/events/*.parquet'").fetchall()[0]
    assert n == texts, (n, texts)
    assert n == ids, (n, ids)
    assert n >= seen, (n, seen)
    seen = n
    t = pd.read_parquet("parquet/trials", columns=["trial_id"])
    assert t.trial_id.is_unique
    n, ids = duckdb.sql("select count(*), count(distinct trial_id) from (select * from 'parquet/trials/*.parquet')").fetchall()[0]
    assert n == ids, (n, ids)
    for again in range(5 if pl else 0):
        try:
            pl.read_parquet("parquet/scores/*.parquet").height
            break
        except pl.exceptions.ComputeError: # it asks for a file's size and opens it later; see docs/schema.md
            if again == 4: raise
`)
	close(stop)
	<-done
	w.Close()

	if err := Rebuild(dir, reporttest.Plan(o), reporttest.Entries(o), Options{}); err != nil {
		t.Fatal(err)
	}
	want := expected(t, o)
	program.Reset()
	program.WriteString("import duckdb, pandas as pd, pyarrow.parquet as pq, glob\n")
	for table, rs := range want {
		fmt.Fprintf(&program, "assert duckdb.sql(\"select count(*) from "+
			"'parquet/%[1]s/*.parquet'\").fetchall()[0][0] == %[2]d\n"+
			"assert len(pd.read_parquet('parquet/%[1]s')) == %[2]d\n"+
			"assert not pl or pl.read_parquet('parquet/%[1]s/*.parquet').height == %[2]d\n", table, len(rs))
	}
	program.WriteString(`
evil = "red\x1b[0m\x00nul \u202eevil\u2066 \ufffd\ufffd\n"
assert duckdb.sql("select count(*) from 'parquet/events/*.parquet' where output like '%evil%'").fetchall()[0][0] > 0
for out in (pd.read_parquet("parquet/events").output.dropna().tolist(),
            pl.read_parquet("parquet/events/*.parquet")["output"].drop_nulls().to_list() if pl else [evil],
            [r[0] for r in duckdb.sql("select output from 'parquet/events/*.parquet' where output is not null").fetchall()]):
    assert any(o.endswith(evil) for o in out)
t = pd.read_parquet("parquet/trials")
assert str(t.started_at.dtype).startswith("datetime64[us, UTC"), t.started_at.dtype
assert t[t.model == "acme/small"].cost_usd.isna().all() and t[(t.model != "acme/small") & (t.status == "scored")].cost_usd.notna().all()
assert t.amended_at.notna().sum() == 1
m = pq.ParquetFile(sorted(glob.glob("parquet/trials/*.parquet"))[0])
assert m.metadata.metadata[b"evalrun.schema"] == b"2" and m.schema_arrow.field("arm_axes").type.key_type == "string"
assert duckdb.sql("select count(*) from 'parquet/tasks/*.parquet' where fields['difficulty'] = 'hard'").fetchall()[0][0] == 20
`)
	python(t, dir, program.String())
}

// The line of the page that reads both versions of the tables finds the rows of both, and of one
// alone.
func TestBothVersions(t *testing.T) {
	readers(t)
	doc, err := os.ReadFile(schemaDoc)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)\\*\\*Versions\\.\\*\\* .*?```sql\n(.*?)```").FindSubmatch(doc)
	if m == nil {
		t.Fatal("the page has no such line")
	}
	dir := t.TempDir()
	o := reporttest.Options{}
	write(t, filepath.Join(dir, "runs", "new"), reporttest.Plan(o), reporttest.All(o), Options{})
	python(t, dir, fmt.Sprintf(`
import duckdb, os, shutil
new, old = "runs/new/parquet/trials/", "runs/old/parquet/trials/"
os.makedirs(old)
duckdb.sql(f"copy (select * rename (arm_axes as axes, outcome as \"end\") from '{new}*.parquet') to '{old}1.parquet' (format parquet)")
n, ended, axes = duckdb.sql(f"select count(*), count(outcome), count(*) filter (arm_axes['prompt'] = 'full') from '{new}*.parquet'").fetchall()[0]
assert n and ended and axes
def look(runs):
    found = duckdb.sql(%q)
    assert not {"axes", "end"} & set(found.columns) and "reward" in found.columns, found.columns
    got = duckdb.sql("select count(*), count(outcome), count(*) filter (arm_axes['prompt'] = 'full') from found").fetchall()[0]
    assert got == (runs * n, runs * ended, runs * axes), got
look(2)
shutil.rmtree("runs/new")
look(1)
`, strings.TrimSpace(string(m[1]))))
}
