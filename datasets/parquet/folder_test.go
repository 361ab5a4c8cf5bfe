package parquet_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	pq "github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/formats"
	"github.com/evalrun/evalrun/datasets/parquet"
	"github.com/evalrun/evalrun/datasets/table"
)

type short struct {
	Q string `parquet:"q"`
	N int64  `parquet:"n"`
}

func shard(t *testing.T, name string, first, n int) {
	t.Helper()
	var list []short
	for i := range n {
		list = append(list, short{fmt.Sprint("q", first+i), int64(first + i)})
	}
	put(t, name, encode(t, list, pq.MaxRowsPerRowGroup(3)))
}

func put(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The files of a folder are read in the order of their names, whatever their number, and rows are
// counted on.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	const shards, each = 60, 7
	for i := range shards {
		shard(t, filepath.Join(dir, fmt.Sprintf("train-%05d-of-%05d.parquet", i, shards)), i*each, each)
	}
	put(t, filepath.Join(dir, "README.md"), nil)
	put(t, filepath.Join(dir, ".cache", "x.parquet"), nil)
	f, err := formats.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	before, most, n := open(), 0, int64(0)
	for row, err := range f.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		place := filepath.Join(dir, fmt.Sprintf("train-%05d-of-%05d.parquet: row %d", n/each, shards, n%each+1))
		if want := fmt.Sprintf(`{"n":%d,"q":"q%d"}`, n, n); string(row.Data) != want || row.Number != n ||
			row.Place != place {
			t.Fatalf("row %d: %d, %s, %s", n, row.Number, row.Data, row.Place)
		}
		again, err := f.At(t.Context(), table.Row{Number: row.Number, Pos: (row.Pos*37 + 5) % (shards * each)})
		if want := fmt.Sprintf(`{"n":%d,"q":"q%[1]d"}`, again.Pos); err != nil || string(again.Data) != want {
			t.Fatalf("row %d again: %s, %v", again.Pos, again.Data, err)
		}
		most = max(most, open())
		n++
	}
	if n != shards*each {
		t.Errorf("%d rows", n)
	}
	if most > before+3 {
		t.Errorf("%d files were open at once", most-before)
	}
	if _, err := f.At(t.Context(), table.Row{Pos: shards * each}); err == nil {
		t.Error("a row behind the last one was found")
	}
}

// A column that a file lacks is null there; one of another type is an error.
func TestFolderColumns(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.parquet"), encode(t, []short{{"x", 1}}))
	put(t, filepath.Join(dir, "b.parquet"), encode(t, []struct {
		Q    string   `parquet:"q"`
		More []string `parquet:"more,list"`
	}{{"y", []string{"z"}}}))
	f := parquet.OpenFolder(dir)
	var got []string
	for row, err := range f.Rows(t.Context()) {
		got = append(got, string(row.Data))
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{`{"more":null,"n":1,"q":"x"}`, `{"more":["z"],"n":null,"q":"y"}`}; !slices.Equal(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if names, err := f.Columns(t.Context()); err != nil || !slices.Equal(names, []string{"q", "n", "more"}) {
		t.Errorf("columns %q, %v", names, err)
	}
	put(t, filepath.Join(dir, "c.parquet"), encode(t, []struct {
		N string `parquet:"n"`
	}{{"y"}}))
	want := `column "n" is INT64 in a.parquet, but text in c.parquet: the files of a folder have to agree`
	for _, err := range parquet.OpenFolder(dir).Rows(t.Context()) {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
}

func TestFolderRefused(t *testing.T) {
	good := encode(t, []short{{"x", 1}})
	for name, c := range map[string]struct {
		files []string // FIFO, LINK and DIR are made as such
		want  string
	}{
		"empty": {nil, "there is no file named *.parquet in the folder"},
		"other": {[]string{"a.jsonl", "b.txt"},
			"a folder of rows holds Parquet files, but there is a.jsonl: name the file itself"},
		"mixed": {[]string{"a.parquet", "b.csv.gz"},
			"there are a.parquet and b.csv.gz: a folder of rows holds files of one kind"},
		"splits": {[]string{"train-00000-of-00001.parquet", "test-00000-of-00001.parquet"},
			"it holds the parts of several data sets (test, train)"},
		"a part": {[]string{"train-00000-of-00003.parquet", "train-00002-of-00003.parquet"},
			"2 of the 3 parts that the names tell of are there"},
		"below":        {[]string{"a.parquet", "more/b.parquet"}, "its folder more holds Parquet files too"},
		"a pipe":       {[]string{"a.parquet", "FIFO.parquet"}, "it is a named pipe"},
		"a link":       {[]string{"LINK.parquet"}, "it is a named pipe"},
		"a folder":     {[]string{"DIR.parquet/x"}, "it is a folder"},
		"nobody":       {[]string{"DANGLING.parquet"}, "no such file"},
		"a device":     {[]string{"DEVICE.parquet"}, "it is a device"},
		"no parquet":   {[]string{"BAD.parquet"}, "BAD.parquet: not a Parquet file"},
		"all of a dir": {[]string{"x/a.txt"}, "there is no file named *.parquet in the folder"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fifo := filepath.Join(t.TempDir(), "fifo")
			for _, path := range append([]string{fifo}, c.files...) {
				full := filepath.Join(dir, path)
				var err error
				switch {
				case path == fifo:
					err = syscall.Mkfifo(fifo, 0o600)
				case strings.HasPrefix(path, "FIFO"):
					err = syscall.Mkfifo(full, 0o600)
				case strings.HasPrefix(path, "LINK"):
					err = os.Symlink(fifo, full)
				case strings.HasPrefix(path, "DANGLING"):
					err = os.Symlink("nobody", full)
				case strings.HasPrefix(path, "DEVICE"):
					err = os.Symlink("/dev/zero", full)
				case strings.HasPrefix(path, "BAD"):
					put(t, full, []byte("not what it says"))
				default:
					put(t, full, good)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			f, err := formats.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, err := range f.Rows(t.Context()) {
				n++
				if !errors.As(err, new(*datasets.Fatal)) || !strings.Contains(err.Error(), c.want) ||
					!strings.Contains(err.Error(), dir) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
			if n != 1 {
				t.Errorf("%d", n)
			}
		})
	}
}

// A file that is exchanged while the folder is used is noticed.
func TestFolderChanged(t *testing.T) {
	dir := t.TempDir()
	shard(t, filepath.Join(dir, "a.parquet"), 0, 5)
	shard(t, filepath.Join(dir, "b.parquet"), 5, 5)
	f := parquet.OpenFolder(dir)
	if _, err := f.At(t.Context(), table.Row{Pos: 1}); err != nil {
		t.Fatal(err)
	}
	shard(t, filepath.Join(dir, "c.tmp"), 100, 5)
	if err := os.Rename(filepath.Join(dir, "c.tmp"), filepath.Join(dir, "b.parquet")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.At(t.Context(), table.Row{Pos: 7}); err == nil ||
		!strings.Contains(err.Error(), "the file has changed") {
		t.Errorf("%v", err)
	}
}
