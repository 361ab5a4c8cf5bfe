package miniwob_test

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/benchmarks/miniwob"
)

func TestTasks(t *testing.T) {
	count := map[string]int{}
	groups := map[int]string{}
	for i, x := range miniwob.Tasks() {
		count["all"]++
		count[x.Category]++
		count[x.Split]++
		if x.WebGUM {
			count["webgum"]++
		}
		if x.Delay {
			count["delay"]++
		}
		if x.Random {
			count["random"]++
		}
		if x.Index != i || x.Name == "" || x.Category == "" {
			t.Errorf("%d: %+v", i, x)
		}
		if s, ok := groups[x.Group]; ok && s != x.Split {
			t.Errorf("%s: a split cuts through its group", x.Name)
		}
		groups[x.Group] = x.Split
	}
	want := map[string]int{"all": 125, "original": 77, "hidden test": 18, "debug": 12, "additional": 12, "nodelay": 6, "train": 62, "test": 63, "webgum": 56, "delay": 9, "random": 4}
	if fmt.Sprint(count) != fmt.Sprint(want) || len(groups) != 78 {
		t.Errorf("%v in %d groups, not %v in 78", count, len(groups), want)
	}
}

func TestSource(t *testing.T) {
	src := miniwob.Source(miniwob.TinyTest())
	n := 0
	for x, err := range src.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		again, err := src.Task(t.Context(), x.ID)
		if err != nil || string(again.Data) != string(x.Data) {
			t.Errorf("%s read again: %s, %v", x.ID, again.Data, err)
		}
		if want := []string{`{"page":"click-dialog.html","place":0}`, `{"page":"click-checkboxes.html","place":1}`}[n]; string(x.Data) != want {
			t.Errorf("%s: %s, not %s", x.ID, x.Data, want)
		}
		n++
	}
	if _, err := src.Task(t.Context(), "simon-says"); err == nil {
		t.Error("simon-says is no task")
	}
}

// The list is the published one, in its order.
func TestPublished(t *testing.T) {
	dir := os.Getenv("EVALRUN_TEST_DATA")
	if dir == "" {
		t.Skip("the published list is not there; name its folder by EVALRUN_TEST_DATA")
	}
	f, err := os.Open(filepath.Join(dir, "browsergym-metadata", "miniwob.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	tasks := miniwob.Tasks()
	if len(rows)-1 != len(tasks) {
		t.Fatalf("%d tasks, not %d", len(tasks), len(rows)-1)
	}
	for i, x := range tasks {
		comment, webgum := "", "False"
		if x.Delay {
			comment = "delay"
		}
		if x.WebGUM {
			webgum = "True"
		}
		if got, want := fmt.Sprint([]string{"miniwob." + x.Name, x.Category, comment, webgum, fmt.Sprint(x.Group), x.Split}), fmt.Sprint(rows[i+1]); got != want {
			t.Errorf("%d: %s, not %s", i, got, want)
		}
	}
}
