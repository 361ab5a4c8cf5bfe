package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var docBlock = regexp.MustCompile("(?s)<!-- command -->\n```yaml\n(.*?)```")

// The configurations in docs/agents.md are right, and the page names every option and placeholder.
func TestDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	if err := os.MkdirAll(filepath.Join(base, "my-agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	blocks := docBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 3 {
		t.Fatalf("%d configurations", len(blocks))
	}
	for _, b := range blocks {
		asJSON, err := yaml.YAMLToJSON([]byte(b[1]))
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Agent struct {
				Name    string
				Options json.RawMessage
			}
		}
		if err := json.Unmarshal(asJSON, &c); err != nil || c.Agent.Name != "command" {
			t.Errorf("%v: %s", err, b[1])
			continue
		}
		if _, err := Parse(c.Agent.Options, base); err != nil {
			t.Errorf("%v: %s", err, b[1])
		}
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		if tag := reflect.TypeFor[Config]().Field(i).Tag.Get("json"); tag != "" && tag != "-" &&
			!strings.Contains(string(text), "`"+tag+"`") {
			t.Errorf("the page does not name the option %s", tag)
		}
	}
	for _, p := range []string{"files", "instruction_file", "instruction", "dir", "stage", "seed", "skills",
		"mcp_config", "prompt_file"} {
		if !placeholder.MatchString("{"+p+"}") || !strings.Contains(string(text), "`{"+p+"}`") {
			t.Errorf("{%s} is no placeholder, or not on the page", p)
		}
	}
}
