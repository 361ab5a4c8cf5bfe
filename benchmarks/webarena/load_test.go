package webarena

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/datasets"
)

func TestRead(t *testing.T) {
	src, err := Read(WebArena, "file.json", []byte(`[
		{"task_id":0,"sites":["shopping"],"intent_template_id":7,"eval":{"eval_types":["string_match"],"reference_answers":{"exact_match":"x"}}},
		{"task_id":1,"sites":["shopping","wikipedia"],"eval":{"eval_types":["guess"]}},
		{"task_id":2,"sites":["wikipedia"],"eval":{"eval_types":["url_match"]}},
		{"task_id":3,"sites":["shopping","wikipedia"],"start_url":"http://a |AND| http://b","eval":{"eval_types":["url_match"],"reference_answers":null}},
		17]`))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	bad := 0
	for x, err := range src.Tasks(t.Context()) {
		if err != nil {
			if !errors.As(err, new(*datasets.BadTask)) {
				t.Errorf("%v is no bad task", err)
			}
			bad++
			continue
		}
		ids = append(ids, x.ID+" after "+strings.Join(x.After, ","))
	}
	if want := []string{"0 after ", "2 after ", "3 after 0"}; !slices.Equal(ids, want) || bad != 2 {
		t.Errorf("%q and %d bad ones, not %q and 2", ids, bad, want)
	}
	x, err := src.Task(t.Context(), "3")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Parse(WebArena, x.Data); err != nil || len(c.Starts()) != 2 {
		t.Errorf("read again: %+v, %v", c, err)
	}
	if _, err := Read(WebArena, "file.json", []byte(`{"a":1}`)); !errors.As(err, new(*datasets.Fatal)) {
		t.Errorf("an object: %v", err)
	}
}

// The published file and list of tasks: every configuration is understood, and splits and order are
// the published ones.
func TestPublishedTasks(t *testing.T) {
	data := os.Getenv("EVALRUN_TEST_DATA")
	if data == "" {
		t.Skip("published tasks are not there; name their folder by EVALRUN_TEST_DATA")
	}
	for _, tt := range []struct {
		d         Dialect
		list      string
		raw       string // "": configurations are made up from the list
		tasks     int
		dependent int
	}{
		{WebArena, "webarena.csv", "webarena/test.raw.json", 812, 807},
		{Lite, "webarenalite.csv", "", 165, 24},
		{Visual, "visualwebarena.csv", "", 910, 908},
	} {
		rows := list(t, filepath.Join(data, "browsergym-metadata", tt.list))
		var src datasets.Source
		var err error
		if tt.raw != "" {
			src, err = Open(tt.d, filepath.Join(data, tt.raw))
		} else {
			src, err = Read(tt.d, tt.list, madeUp(tt.d, rows))
		}
		if err != nil {
			t.Fatal(err)
		}
		i, dependent := 0, 0
		for x, err := range src.Tasks(t.Context()) {
			if err != nil {
				t.Errorf("%s: %v", tt.d, err)
				continue
			}
			r := rows[i]
			i++
			prefix := strings.TrimRight(r["task_name"], "0123456789")
			var after []string
			for _, a := range x.After {
				after = append(after, prefix+a)
			}
			want := strings.Fields(r["depends_on"])
			slices.Sort(after)
			slices.Sort(want)
			if prefix+x.ID != r["task_name"] || x.Fields["split"] != r["browsergym_split"] ||
				x.Fields["sites"] != r["sites"] || x.Fields["eval_types"] != r["eval_types"] ||
				!strings.EqualFold(x.Fields["requires_reset"], r["requires_reset"]) || !slices.Equal(after, want) {
				t.Errorf("%s: %s after %v, %v; published: %v", tt.d, x.ID, x.After, x.Fields, r)
			}
			if len(after) > 0 {
				dependent++
			}
		}
		if i != tt.tasks || i != len(rows) || dependent != tt.dependent {
			t.Errorf("%s: %d tasks, %d after others", tt.d, i, dependent)
		}
	}
}

func madeUp(d Dialect, rows []map[string]string) []byte {
	var all []string
	for _, r := range rows {
		quoted := func(s string) string { return `["` + strings.Join(strings.Fields(s), `","`) + `"]` }
		id := `"task_id":` + r["task_id"]
		if d == Lite {
			id = `"task_id":1000,"old_task_id":` + r["task_id"]
		}
		all = append(all, fmt.Sprintf(`{%s,"sites":%s,"require_reset":%s,"eval":{"eval_types":%s}}`, id,
			quoted(r["sites"]), strings.ToLower(r["requires_reset"]), quoted(r["eval_types"])))
	}
	return []byte("[" + strings.Join(all, ",") + "]")
}

func list(t *testing.T, name string) (out []map[string]string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows[1:] {
		m := map[string]string{}
		for i, k := range rows[0] {
			m[k] = r[i]
		}
		out = append(out, m)
	}
	return out
}
