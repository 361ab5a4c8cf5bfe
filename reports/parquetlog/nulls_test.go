package parquetlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/evalrun/evalrun/reports/reporttest"
	"github.com/evalrun/evalrun/reports/schema"
)

// A nullTable writes a table whose optional columns are null where a pattern says so, and knows
// what a reader has to find.
type nullTable struct {
	name  string
	axes  bool
	write func(root string, n int, isNull func(column, row int) bool) (want map[string][]string, err error)
}

const nullText = "\x00null"

// nullTables are all tables, those with columns of axes in both forms.
func nullTables() []nullTable {
	byTrial := func(t *schema.Trial) map[string]string { return t.Axes }
	byArm := func(a *schema.Arm) map[string]string { return a.Axes }
	names := []string{"model", "prompt"}
	return []nullTable{
		nullTableOf("trials", axes[schema.Trial]{}), nullTableOf("trials", axes[schema.Trial]{names, byTrial}),
		nullTableOf("attempts", axes[schema.Attempt]{}), nullTableOf("events", axes[schema.Event]{}),
		nullTableOf("model_calls", axes[schema.ModelCall]{}),
		nullTableOf("scores", axes[schema.Score]{}), nullTableOf("tests", axes[schema.Test]{}),
		nullTableOf("changes", axes[schema.Change]{}),
		nullTableOf("tasks", axes[schema.Task]{}),
		nullTableOf("arms", axes[schema.Arm]{}), nullTableOf("arms", axes[schema.Arm]{names, byArm}),
	}
}

func nullTableOf[T any](name string, ax axes[T]) nullTable {
	return nullTable{name, ax.names != nil,
		func(root string, n int, isNull func(column, row int) bool) (map[string][]string, error) {
			rs, want := nullRows[T](n, isNull)
			return want, writeAll(newTable(root, name, "run", ax), rs)
		}}
}

// nullRows makes n rows, and says what the optional columns hold, as text.
func nullRows[T any](n int, isNull func(column, row int) bool) ([]T, map[string][]string) {
	rs, want := make([]T, n), map[string][]string{}
	for r := range rs {
		v := reflect.ValueOf(&rs[r]).Elem()
		for c := range v.NumField() {
			f, tag := v.Field(c), v.Type().Field(c).Tag.Get("parquet")
			if f.Type() == reflect.TypeFor[time.Time]() {
				f.Set(reflect.ValueOf(reporttest.Epoch))
			}
			name, opts, _ := strings.Cut(tag, ",")
			if !slices.Contains(strings.Split(opts, ","), "optional") {
				continue
			}
			if isNull(c, r) {
				want[name] = append(want[name], nullText)
				continue
			}
			if f.Kind() == reflect.Pointer {
				f.Set(reflect.New(f.Type().Elem()))
				f = f.Elem()
			}
			text := "set"
			switch f.Kind() {
			case reflect.String:
				text = fmt.Sprintf("%s %d", name, r)
				f.SetString(text)
			case reflect.Int32, reflect.Int64:
				f.SetInt(int64(r + 1))
			case reflect.Float64:
				f.SetFloat(float64(r) + 0.5)
			case reflect.Bool:
				f.SetBool(true)
			default:
				f.Set(reflect.ValueOf(reporttest.Epoch))
			}
			want[name] = append(want[name], text)
		}
	}
	return rs, want
}

// found reads the named columns back with parquet-go.
func found(path string, columns []string) (map[string][]string, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	got := map[string][]string{}
	for _, name := range columns {
		leaf, ok := f.Schema().Lookup(name)
		if !ok {
			return nil, fmt.Errorf("no column %s", name)
		}
		for _, g := range f.RowGroups() {
			pages := g.ColumnChunks()[leaf.ColumnIndex].Pages()
			for {
				p, err := pages.ReadPage()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return nil, err
				}
				vs := make([]parquet.Value, p.NumValues())
				if n, err := p.Values().ReadValues(vs); n < len(vs) {
					return nil, err
				}
				for _, v := range vs {
					text := "set"
					switch {
					case v.IsNull():
						text = nullText
					case v.Kind() == parquet.ByteArray:
						text = string(v.ByteArray())
					}
					got[name] = append(got[name], text)
				}
				parquet.Release(p)
			}
			pages.Close()
		}
	}
	return got, nil
}

// nullDiff says where what was read is not what was written.
func nullDiff(table string, got, want map[string][]string) string {
	for name, ws := range want {
		gs := got[name]
		wrong, first := 0, -1
		for i := range ws {
			if i >= len(gs) || gs[i] != ws[i] {
				if wrong++; first < 0 {
					first = i
				}
			}
		}
		if wrong > 0 || len(gs) != len(ws) {
			return fmt.Sprintf("%s.%s: %d of %d values are not what was written; row %d is %q, want %q", table, name,
				wrong, len(ws), first, gs[first:min(first+1, len(gs))], ws[first])
		}
	}
	return ""
}

// nullPattern draws which cells are null. A few are as parquet-go once got them wrong: in a block
// of 64 rows, those from k to 2k are set.
func nullPattern(rng *rand.Rand) func(column, row int) bool {
	seed := rng.Uint64()
	share := []float64{0.01, 0.1, 0.5, 0.9, 0.99}[rng.IntN(5)]
	k := 1 + rng.IntN(31)
	blocks := rng.IntN(2) == 0
	return func(c, r int) bool {
		if blocks {
			k := 1 + (k+c)%31
			return r%64 < k || r%64 >= 2*k
		}
		return rand.New(rand.NewPCG(seed, uint64(c)<<32|uint64(r))).Float64() >= share
	}
}

// What is null is read as null, and what is set as it was, in every optional column of every table,
// whatever the pattern.
func TestNulls(t *testing.T) {
	tables := nullTables()
	rapid.Check(t, func(rt *rapid.T) {
		x := rapid.SampledFrom(tables).Draw(rt, "table")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		root := t.TempDir()
		want, err := x.write(root, rapid.IntRange(1, 300).Draw(rt, "rows"), nullPattern(rng))
		if err != nil {
			rt.Fatal(err)
		}
		var columns []string
		for name := range want {
			columns = append(columns, name)
		}
		got, err := found(filepath.Join(root, x.name, "000000000001.parquet"), columns)
		if err != nil {
			rt.Fatal(err)
		}
		if d := nullDiff(x.name, got, want); d != "" {
			rt.Fatal(d)
		}
	})
}

// DuckDB, which has nothing to do with the writer, sees the same.
func TestNullsReaders(t *testing.T) {
	readers(t)
	root := t.TempDir()
	type file struct {
		Path    string
		Columns []string
		table   string
		want    map[string][]string
	}
	var files []file
	for seed := range uint64(8) {
		for i, x := range nullTables() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			dir := fmt.Sprintf("%d-%d", seed, i)
			want, err := x.write(filepath.Join(root, dir), 1+rng.IntN(1000), nullPattern(rng))
			if err != nil {
				t.Fatal(err)
			}
			f := file{Path: filepath.Join(dir, x.name, "000000000001.parquet"), table: x.name, want: want}
			for name := range want {
				f.Columns = append(f.Columns, name)
			}
			files = append(files, f)
		}
	}
	list, err := json.Marshal(files)
	if err != nil {
		t.Fatal(err)
	}
	out := python(t, root, fmt.Sprintf(`
import duckdb, json
for f in json.loads(%q):
    got = {}
    for c in f["Columns"]:
        rs = duckdb.sql(f"""select "{c}" is null, case when typeof("{c}") = 'VARCHAR' then "{c}"::varchar else 'set' end from '{f["Path"]}' order by file_row_number""").fetchall()
        got[c] = ["\0null" if no else v for no, v in rs]
    print(json.dumps(got))
`, list))
	dec := json.NewDecoder(strings.NewReader(out))
	for _, f := range files {
		var got map[string][]string
		if err := dec.Decode(&got); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		if d := nullDiff(f.table, got, f.want); d != "" {
			t.Error(d)
		}
	}
}

// A column that may be null is a pointer: parquet-go 0.32 writes values that are not null in the
// place of nulls where the field is a plain value with the tag optional.
func TestOptionalIsPointer(t *testing.T) {
	for _, x := range []reflect.Type{
		reflect.TypeFor[schema.Trial](), reflect.TypeFor[schema.Attempt](), reflect.TypeFor[schema.Event](),
		reflect.TypeFor[schema.ModelCall](),
		reflect.TypeFor[schema.Score](), reflect.TypeFor[schema.Test](), reflect.TypeFor[schema.Task](),
		reflect.TypeFor[schema.Arm](),
		reflect.TypeFor[schema.EventCall](), reflect.TypeFor[schema.Page](), reflect.TypeFor[schema.Blob](),
	} {
		for i := range x.NumField() {
			f := x.Field(i)
			_, opts, _ := strings.Cut(f.Tag.Get("parquet"), ",")
			if optional := slices.Contains(strings.Split(opts, ","),
				"optional"); optional != (f.Type.Kind() == reflect.Pointer) {
				t.Errorf("%s.%s: a %s with the tag %q", x.Name(), f.Name, f.Type, f.Tag.Get("parquet"))
			}
		}
	}
}
