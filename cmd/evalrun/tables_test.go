package main

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/schema"
)

// tablesCommand is "tables RUN": it prints for each table of a run its rows and its version.
func tablesCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: tables RUN")
	}
	dir := ts.MkAbs(filepath.Join(args[0], "parquet"))
	folders, err := os.ReadDir(dir)
	ts.Check(err)
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		n, version := int64(0), ""
		parts, err := os.ReadDir(filepath.Join(dir, folder.Name()))
		ts.Check(err)
		for _, part := range parts {
			f, err := os.Open(filepath.Join(dir, folder.Name(), part.Name()))
			ts.Check(err)
			st, err := f.Stat()
			ts.Check(err)
			p, err := parquet.OpenFile(f, st.Size())
			ts.Check(err)
			n += p.NumRows()
			version, _ = p.Lookup("evalrun.schema")
			f.Close()
		}
		fmt.Fprintf(ts.Stdout(), "%s %d rows, schema %s\n", folder.Name(), n, version)
	}
}

// newerCommand is "newer WHAT RUN": it makes a part of a run's folder look as if a later version of
// evalrun had written it.
func newerCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: newer WHAT RUN")
	}
	dir := ts.MkAbs(args[1])
	switch args[0] {
	case "plan.json", "run.json":
		name := filepath.Join(dir, args[0])
		data, err := os.ReadFile(name)
		ts.Check(err)
		var v map[string]any
		ts.Check(json.Unmarshal(data, &v))
		v["v"] = 99
		data, err = json.Marshal(v)
		ts.Check(err)
		ts.Check(os.WriteFile(name, data, 0o644))
	case "control.jsonl", "events/0001.jsonl":
		f, err := os.OpenFile(filepath.Join(dir, "journal", args[0]), os.O_WRONLY|os.O_APPEND, 0)
		ts.Check(err)
		defer f.Close()
		e := fmt.Sprintf(`{"v":%d,"seq":1000000,"time":"2026-11-21T10:00:00.000000Z","kind":"vendor","data":{}}`,
			record.Version+1)
		_, err = fmt.Fprintf(f, "{\"seq\":1000000,\"crc\":\"%08x\",\"e\":%s}\n",
			crc32.Checksum([]byte(e), crc32.MakeTable(crc32.Castagnoli)), e)
		ts.Check(err)
	case "tables":
		f, err := os.Create(filepath.Join(dir, "parquet", "scores", "000000999999.parquet"))
		ts.Check(err)
		defer f.Close()
		w := parquet.NewGenericWriter[struct{ X int64 }](f,
			parquet.KeyValueMetadata("evalrun.schema", strconv.Itoa(schema.Schema+1)))
		ts.Check(w.Close())
	default:
		ts.Fatalf("newer what? %s", strings.Join(args, " "))
	}
}
