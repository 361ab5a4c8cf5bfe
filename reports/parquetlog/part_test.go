package parquetlog

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go/format"

	"github.com/evalrun/evalrun/reports/reporttest"
)

// A footer that somebody has read leads to the same bytes in every later version of the file, until
// the run ends: readers open names more than once. Then no room is wasted.
func TestVersionsAgree(t *testing.T) {
	small(t)
	dir := t.TempDir()
	o := reporttest.Options{Tasks: 12}
	entries := reporttest.All(o)
	w, err := Open(dir, reporttest.Plan(o), Options{Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	type version struct {
		data []byte
		part
	}
	read := func(path string) (v version) {
		if v.data, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		var meta format.FileMetaData
		if v.end, err = footer(bytes.NewReader(v.data), int64(len(v.data)), &meta); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		v.groups = meta.RowGroups
		return v
	}
	seen := map[string][]version{}
	compared, dead := 0, int64(0)
	for len(entries) > 0 {
		n := min(len(entries), 1+len(entries)%23)
		w.Add(entries[:n])
		entries = entries[n:]
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, table := range []string{"trials", "attempts", "events", "model_calls", "scores", "tests", "changes"} {
			parts, _ := filepath.Glob(filepath.Join(dir, "parquet", table, "*.parquet"))
			paths = append(paths, parts...)
		}
		for _, p := range paths {
			now := read(p)
			dead += now.dead()
			all := seen[p]
			if n := len(all); n > 0 && bytes.Equal(all[n-1].data, now.data) {
				continue
			}
			for _, old := range all {
				for i := range old.groups {
					begin, end := extent(&old.groups[i])
					if int64(len(now.data)) < end || !bytes.Equal(old.data[begin:end], now.data[begin:end]) {
						t.Fatalf("%s: row group %d of an earlier version is no longer at %d-%d", p, i, begin, end)
					}
					compared++
				}
			}
			seen[p] = append(all[max(0, len(all)-3):], now)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for p := range seen {
		if v := read(p); v.dead() != 0 {
			t.Errorf("%s: %d bytes belong to no row group", p, v.dead())
		}
	}
	same(t, "packed", everything(t, dir), expected(t, o))
	if compared < 1000 || dead == 0 {
		t.Errorf("%d row groups compared, %d bytes were dead: the test tests nothing", compared, dead)
	}
}

// Small row groups stay few, and each row is written a few times.
func TestSmallGroups(t *testing.T) {
	for _, batch := range []int{1, 3, 50} {
		var groups []int
		rows, wrote, most := 0, 0, 0
		for rows < 4096 {
			k := again(groups, batch)
			n := batch
			for _, g := range groups[k:] {
				n += g
			}
			groups = append(groups[:k], n)
			rows, wrote, most = rows+batch, wrote+n, max(most, len(groups))
		}
		if most > 36 || wrote > 6*rows {
			t.Errorf("%d rows at a time: up to %d row groups, each row written %.1f times", batch, most,
				float64(wrote)/float64(rows))
		}
		t.Logf("%d rows at a time: up to %d row groups, each row written %.1f times", batch, most,
			float64(wrote)/float64(rows))
	}
}
