package table_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/formats"
	"github.com/evalrun/evalrun/datasets/jsonl"
	"github.com/evalrun/evalrun/datasets/table"
)

func byID(r table.Row) (datasets.Task, error) {
	f, err := r.Fields()
	if err != nil {
		return datasets.Task{}, err
	}
	if !f.Has("id") {
		return datasets.Task{}, f.Missing("id")
	}
	id, err := f.Text("id")
	return datasets.Task{ID: id, Data: r.Data}, err
}

func source(t *testing.T, path string) datasets.Source {
	t.Helper()
	f, err := formats.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return table.New(f, byID)
}

func write(t *testing.T, name string, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func pack(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

// read lists IDs, and errors without their folder.
func read(t *testing.T, s datasets.Source) (out []string) {
	t.Helper()
	for task, err := range s.Tasks(t.Context()) {
		if err == nil {
			out = append(out, task.ID)
			continue
		}
		kind := "?"
		if errors.As(err, new(*datasets.BadTask)) {
			kind = "bad"
		} else if errors.As(err, new(*datasets.Fatal)) {
			kind = "fatal"
		}
		text := err.Error()
		out = append(out, kind+" "+text[strings.LastIndex(text[:strings.IndexAny(text+" ", " ")], "/")+1:])
	}
	return out
}

func TestRead(t *testing.T) {
	good := []byte("{\"id\":\"a\",\"x\":\"ü\"}\n\n  {\"id\":\"b\"}  \r\n{\"id\":3}")
	for name, c := range map[string]struct {
		file string
		text []byte
		want []string
	}{
		"jsonl":      {"t.jsonl", good, []string{"a", "b", "3"}},
		"packed":     {"t.jsonl.gz", pack(good), []string{"a", "b", "3"}},
		"byte order": {"t.jsonl", append([]byte("\xef\xbb\xbf"), good...), []string{"a", "b", "3"}},
		"empty":      {"t.jsonl", nil, nil},
		"broken line": {"t.jsonl", []byte("{\"id\":\"a\"}\n{\"id\":\n{\"id\":\"b\"}\n"),
			[]string{"a", "bad t.jsonl:2: not JSON: unexpected end of JSON input", "b"}},
		"no object": {"t.jsonl", []byte("[1]\n{\"id\":\"b\"}\n"),
			[]string{"bad t.jsonl:1: not a JSON object; each line holds one, as in {\"question\": …}", "b"}},
		"not UTF-8": {"t.jsonl", []byte("{\"id\":\"a\"}\n{\"id\":\"\xff\"}\n"),
			[]string{"a", "bad t.jsonl:2: byte 8 of the line is not UTF-8; convert the file, with iconv say"}},
		"UTF-16": {"t.jsonl", []byte("\xff\xfe{\x00"),
			[]string{"fatal t.jsonl: the file is UTF-16; convert it to UTF-8, with iconv say"}},
		"cut short": {"t.jsonl.gz", pack(bytes.Repeat(good, 100))[:60],
			[]string{"fatal t.jsonl.gz: unpacking: the file is cut short; fetch it again"}},
		"not packed": {"t.jsonl.gz", good, []string{"fatal t.jsonl.gz: unpacking: gzip: invalid header"}},
		"twice": {"t.jsonl", []byte("{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"a\"}\n"),
			[]string{"a", "b", "fatal t.jsonl:3: task ID \"a\" is used twice; the first is at line 1: give each row " +
				"an ID of its own"}},
		"missing column": {"t.jsonl", []byte("{\"x\":1,\"a\":2}\n"),
			[]string{"fatal t.jsonl:1: no column named id; the columns are a, x"}},
		"missing later": {"t.jsonl", []byte("{\"id\":1}\n{\"x\":1}\n"),
			[]string{"1", "bad t.jsonl:2: no column named id; the columns are x"}},
		"csv":        {"t.csv", []byte("id,x\n1,\"a\nb\"\n\n2,\"c,\"\"d\"\n"), []string{"1", "2"}},
		"tsv":        {"t.tsv", []byte("id\tx\n1\ta,b\n"), []string{"1"}},
		"csv packed": {"t.csv.gz", pack([]byte("\xef\xbb\xbfid,x\r\n1,2\r\n")), []string{"1"}},
		"csv fields": {"t.csv", []byte("id,x\n1,\"a\nb\"\n2\n3,4\n"),
			[]string{"1", "bad t.csv:4: the record has 1 fields, the header 2", "3"}},
		"csv quote": {"t.csv", []byte("id,x\n1,a\"b\n3,4\n"),
			[]string{"bad t.csv:2: column 4: bare \" in non-quoted-field", "3"}},
		"csv missing": {"t.csv", []byte("no,x\n1,2\n"),
			[]string{"fatal t.csv:2: no column named id; the columns are no, x"}},
		"csv empty": {"t.csv", nil,
			[]string{"fatal t.csv:1: the file is empty; its first line has to name the columns"}},
		"csv twice": {"t.csv", []byte("id,id\n"), []string{"fatal t.csv:1: column \"id\" is named twice"}},
		"csv not UTF-8": {"t.csv", []byte("id\n\xff\n1\n"),
			[]string{"bad t.csv:2: column \"id\" is not UTF-8; convert the file, with iconv say", "1"}},
		"not parquet": {"t.parquet", []byte("hello"),
			[]string{"fatal t.parquet: not a Parquet file: it is too short"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := source(t, write(t, c.file, c.text))
			got := read(t, s)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("have %q\nwant %q", got, c.want)
			}
			for _, id := range c.want { // again, by ID, from a source that has not read anything yet
				if strings.Contains(id, " ") || strings.Contains(fmt.Sprint(c.want), "fatal") {
					continue
				}
				task, err := source(t, s.(fmt.Stringer).String()).Task(t.Context(), id)
				if err != nil || task.ID != id {
					t.Errorf("task %q: %v, %v", id, task.ID, err)
				}
			}
		})
	}
	if got := read(t, source(t, "/no/such.jsonl")); fmt.Sprint(got) != "[fatal such.jsonl: no such file]" {
		t.Errorf("a missing file: %q", got)
	}
	if _, err := formats.Open("t.xlsx"); err == nil {
		t.Error("a format that nobody knows was opened")
	}
}

// A small file that unpacks without end does not fill the disk.
func TestUnpacksWithoutEnd(t *testing.T) {
	defer table.UnpacksTo(table.UnpacksTo(1 << 20))
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"t.jsonl.gz": {strings.Repeat("\n", 8<<20), "t.jsonl.gz: unpacking: it is more than 1 MiB"},
		"t.csv.gz":   {"id\n" + strings.Repeat("\n", 8<<20), "t.csv.gz: unpacking: it is more than 1 MiB"},
		"s.jsonl.gz": {`{"id":"a","x":"` + strings.Repeat("y", 1<<19) + `"}`, "a"},
	} {
		got := read(t, source(t, write(t, name, pack([]byte(c.text)))))
		if len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %.300q", name, got)
		}
	}
}

// A line of 100 MB is passed over; it costs no more memory than the longest that is read.
func TestLongLine(t *testing.T) {
	p := filepath.Join(t.TempDir(), "t.jsonl")
	f, err := os.Create(p)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("{\"id\":\"a\"}\n")
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for range 100 {
		f.Write(chunk)
	}
	f.WriteString("\n{\"id\":\"b\"}\n")
	f.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := read(t, table.New(jsonl.Open(p), byID))
	runtime.ReadMemStats(&after)
	if want := "[a bad t.jsonl:2: the line is longer than 64 MiB, the most that is read b]"; fmt.Sprint(got) != want {
		t.Errorf("have %q, want %s", got, want)
	}
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 6*jsonl.MaxLine {
		t.Errorf("%d MB were allocated", grew>>20)
	}
}

func TestParquet(t *testing.T) {
	type choices struct {
		Text  []string `parquet:"text,list"`
		Label []string `parquet:"label"`
	}
	type row struct {
		ID      string   `parquet:"id"`
		N       *int64   `parquet:"n,optional"`
		F       float64  `parquet:"f"`
		Choices choices  `parquet:"choices"`
		Answers []string `parquet:"answers,list"`
		Image   []byte   `parquet:"image"`
	}
	var buf bytes.Buffer
	w := pq.NewGenericWriter[row](&buf, pq.MaxRowsPerRowGroup(64))
	n := int64(7)
	for i := range 200 {
		r := row{ID: fmt.Sprint(i), F: 0.5, Choices: choices{Text: []string{"u", "v"}, Label: []string{"A", "B"}},
			Image: []byte{0xff, 0xfe}}
		if i%2 == 0 {
			r.N, r.Answers = &n, []string{"x"}
		}
		if _, err := w.Write([]row{r}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	s := source(t, write(t, "t.parquet", buf.Bytes()))
	if got := read(t, s); len(got) != 200 || got[199] != "199" {
		t.Fatalf("%d rows, %q", len(got), got)
	}
	for id, want := range map[string]string{
		"150": `{"answers":["x"],"choices.label":["A","B"],"choices.text":["u","v"],"f":0.5,"id":"150","n":7}`,
		"151": `{"answers":[],"choices.label":["A","B"],"choices.text":["u","v"],"f":0.5,"id":"151","n":null}`,
	} {
		task, err := s.Task(t.Context(), id)
		if err != nil || string(task.Data) != want {
			t.Errorf("row %s: %s, %v\nwant %s", id, task.Data, err, want)
		}
	}
	damaged := bytes.Clone(buf.Bytes())
	for i := 100; i < len(damaged)-2000; i += 7 {
		damaged[i] ^= 0x55
	}
	for _, err := range source(t, write(t, "d.parquet", damaged)).Tasks(t.Context()) {
		_ = err // anything but a panic
	}
}

func TestChanged(t *testing.T) {
	p := write(t, "t.jsonl", []byte("{\"id\":\"a\"}\n{\"id\":\"b\"}\n"))
	s := source(t, p)
	read(t, s)
	if err := os.WriteFile(p, []byte("{\"id\":\"b\"}\n{\"id\":\"a\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Task(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("a file that changed: %v", err)
	}
	if _, err := s.Task(t.Context(), "c"); !errors.Is(err, datasets.ErrNoTask) {
		t.Errorf("no such task: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	for _, err := range s.Tasks(ctx) {
		if !errors.Is(err, why) {
			t.Errorf("an ended context: %v", err)
		}
	}
}

func FuzzJSONL(f *testing.F) {
	f.Add([]byte("{\"id\":\"a\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for task, err := range source(t, write(t, "t.jsonl", b)).Tasks(t.Context()) {
			if err == nil && !json.Valid(task.Data) {
				t.Errorf("a task of %q", task.Data)
			}
		}
	})
}
