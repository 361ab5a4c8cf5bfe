package miniwob_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks/miniwob"
	"github.com/evalrun/evalrun/benchmarks/web"
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
	want := map[string]int{"all": 125, "original": 77, "hidden test": 18, "debug": 12, "additional": 12, "nodelay": 6,
		"train": 62, "test": 63, "webgum": 56, "delay": 9, "random": 4}
	if fmt.Sprint(count) != fmt.Sprint(want) || len(groups) != 78 {
		t.Errorf("%v in %d groups, not %v in 78", count, len(groups), want)
	}
}

// folder makes a folder with empty pages, which is enough to look at tasks.
func folder(t *testing.T) string {
	dir := t.TempDir()
	for _, d := range []string{"core", "common", "miniwob"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "core", "core.js"), []byte("core"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, x := range miniwob.Tasks() {
		if err := os.WriteFile(filepath.Join(dir, "miniwob", x.Name+".html"), []byte("<title>"+x.Name),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSource(t *testing.T) {
	dir := folder(t)
	read := func(dir, options string) (ids []string, seeds map[string][]int, digests map[string]string) {
		t.Helper()
		b, err := miniwob.New(dir, json.RawMessage(options), web.Browsers{})
		if err != nil {
			t.Fatal(err)
		}
		seeds, digests = map[string][]int{}, map[string]string{}
		for x, err := range b.Source().Tasks(t.Context()) {
			if err != nil {
				ids = append(ids, err.Error())
				continue
			}
			again, err := b.Source().Task(t.Context(), x.ID)
			if err != nil || !reflect.DeepEqual(again, x) {
				t.Errorf("%s read again: %+v, %v", x.ID, again, err)
			}
			var d struct{ Seeds []int }
			if err := json.Unmarshal(x.Data, &d); err != nil {
				t.Fatal(err)
			}
			ids, seeds[x.ID], digests[x.ID] = append(ids, x.ID), d.Seeds, x.Digest
		}
		return ids, seeds, digests
	}
	ids, seeds, first := read(dir, "")
	if len(ids) != 125 || fmt.Sprint(seeds[ids[0]], seeds[ids[124]]) != "[28 14 7 20 18] [20 5 0 4 11]" {
		t.Errorf("%d tasks, with seeds %v and %v", len(ids), seeds[ids[0]], seeds[ids[124]])
	}
	if ids, seeds, _ := read(dir, `{"subset": "tiny"}`); fmt.Sprint(ids, seeds) != "[click-dialog click-checkboxes] "+
		"map[click-checkboxes:[7 20] click-dialog:[28 14]]" {
		t.Error(ids, seeds)
	}
	ids, train, _ := read(dir, `{"split": "train"}`)
	if len(ids) != 62 || fmt.Sprint(train["visual-addition"]) != fmt.Sprint(seeds["visual-addition"]) {
		t.Errorf("%d tasks for training, with seeds %v", len(ids), train)
	}
	if _, seeds, _ := read(dir, `{"seeds": [3, 4]}`); fmt.Sprint(seeds["click-test"]) != "[3 4]" {
		t.Error(seeds["click-test"])
	}
	if ids, _, _ := read(filepath.Join(dir, "miniwob"), ""); len(ids) != 125 {
		t.Errorf("by the folder of the pages: %d tasks", len(ids))
	}

	os.WriteFile(filepath.Join(dir, "miniwob", "click-link.html"), []byte("changed"), 0o644)
	os.Remove(filepath.Join(dir, "miniwob", "click-pie.html"))
	ids, _, second := read(dir, "")
	if len(ids) != 125 || !strings.Contains(ids[0], `task "click-pie": its page is not there`) {
		t.Errorf("a page is missing: %d, %s", len(ids), ids[0])
	}
	for id := range second {
		if (first[id] != second[id]) != (id == "click-link") {
			t.Errorf("%s: digest %s, then %s", id, first[id], second[id])
		}
	}
	os.WriteFile(filepath.Join(dir, "core", "core.js"), []byte("changed"), 0o644)
	if _, _, third := read(dir, ""); third["click-test"] == second["click-test"] {
		t.Error("what all pages share has changed, and no task has")
	}
}

func TestOptions(t *testing.T) {
	dir := folder(t)
	for options, want := range map[string]string{
		`{"subset": "small"}`:            `subset: "small" is unknown; there is tiny`,
		`{"split": "valid"}`:             `split: "valid" is unknown; there are train and test`,
		`{"at_least": 2}`:                "at_least: a page's score is from 0 to 1",
		`{"max_steps": -1}`:              "max_steps: want a number from 0, which is the default, to 10000, not -1",
		`{"seeds_for": 99999999}`:        "seeds_for: want a number",
		`{"width": 99999}`:               "width: want a number from 0, which is the default, to 4096",
		`{"actions": ["bid", "what"]}`:   `actions: there is no subset "what"; there are assistantbench, bid, chat,`,
		`{"seed": 3}`:                    "unknown field",
		`{"seeds": [1, -1]}`:             "seeds: a seed is from 0",
		`{"split": "x", "height": 5000}`: "height", // all at once
	} {
		if _, err := miniwob.New(dir, json.RawMessage(options), web.Browsers{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", options, err, want)
		}
		if err := miniwob.CheckOptions(json.RawMessage(options)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, checked: %v, not %s", options, err, want)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "core")); err != nil {
		t.Fatal(err)
	}
	if _, err := miniwob.New(dir, nil, web.Browsers{}); err == nil || !strings.Contains(err.Error(), "no folder core") {
		t.Errorf("without core: %v", err)
	}
	if _, err := miniwob.New(t.TempDir(), nil, web.Browsers{}); err == nil ||
		!strings.Contains(err.Error(), "has no pages of MiniWoB++") {
		t.Errorf("an empty folder: %v", err)
	}
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	if _, err := miniwob.New("", nil, web.Browsers{}); err == nil ||
		!strings.Contains(err.Error(), "evalrun tasks fetch miniwob") {
		t.Errorf("nothing was fetched: %v", err)
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
		if got, want := fmt.Sprint([]string{"miniwob." + x.Name, x.Category, comment, webgum, fmt.Sprint(x.Group),
			x.Split}), fmt.Sprint(rows[i+1]); got != want {
			t.Errorf("%d: %s, not %s", i, got, want)
		}
	}
}
