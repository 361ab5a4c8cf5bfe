package config

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const docs = "../../docs/"

var (
	heading = regexp.MustCompile(`(?m)^#{2,3} (.+)$`)
	blocks  = regexp.MustCompile("(?s)```yaml\n(.*?)```")
)

// sections returns the parts of a page by heading, in lower case.
func sections(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(docs + page)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	at := heading.FindAllStringSubmatchIndex(string(text), -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		out[strings.ToLower(string(text[m[2]:m[3]]))] = string(text[m[1]:end])
	}
	return out
}

// docs/configuration.md has a row for every key of the schema, in the matching section.
func TestDocNamesAllKeys(t *testing.T) {
	b, err := Schema(testRegistry())
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]any
		AnyOf      []object
	}
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	page := sections(t, "configuration.md")
	check := func(section string, keys map[string]any) {
		text, ok := page[section]
		if !ok {
			t.Errorf("the page has no section %q", section)
			return
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			row := regexp.MustCompile("(?m)^\\|( `[a-z_]+`,)* `" + k + "`[ ,]")
			if !row.MatchString(text) {
				t.Errorf("section %q has no row for %s", section, k)
			}
		}
	}
	if len(schema.Properties) == 0 || len(schema.Defs) < 10 {
		t.Fatalf("%d keys, %d parts", len(schema.Properties), len(schema.Defs))
	}
	check("all keys", schema.Properties)
	for name, o := range schema.Defs {
		for _, x := range append(o.AnyOf, o) {
			if x.Properties != nil {
				check(strings.ToLower(name), x.Properties)
			}
		}
	}
}

// The examples in the docs match the schema that evalrun prints.
func TestDocExamples(t *testing.T) {
	schema, err := os.ReadFile("../../cmd/evalrun/testdata/baseline/configuration.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	s := resolved(t, schema)
	n := 0
	for _, page := range []string{"configuration.md", "agents.md"} {
		text, err := os.ReadFile(docs + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks.FindAllStringSubmatch(string(text), -1) {
			var v any
			if err := yaml.Unmarshal([]byte(b[1]), &v); err != nil {
				t.Errorf("%s: %v:\n%s", page, err, b[1])
				continue
			}
			if _, ok := v.(map[string]any); !ok { // a script
				continue
			}
			n++
			asJSON, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			json.Unmarshal(asJSON, &v)
			if err := s.Validate(v); err != nil {
				t.Errorf("%s: %v:\n%s", page, err, b[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("%d examples", n)
	}
}
