package script

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/agenttest"
)

var docBlock = regexp.MustCompile("(?s)<!-- script(?:: (\\S+))? -->\n```[a-z]+\n(.*?)```")

// The scripts in docs/agents.md are scripts, and together they show every key.
func TestDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := docBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 3 {
		t.Fatalf("%d scripts", len(blocks))
	}
	all := ""
	for i, b := range blocks {
		name := b[1]
		if name == "" {
			name = fmt.Sprintf("block%d.yaml", i)
		}
		s, err := Parse(name, []byte(b[2]))
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		all += b[2]
		if i > 0 {
			continue
		}
		// The first one does what the page says.
		ses, log := session(agenttest.Setup{Kinds: []string{"run"}})
		a, err := s.For("any").Run(t.Context(), ses)
		if ran := strings.Join(log(), "; "); err != nil || a.Text() != "42" ||
			!strings.Contains(ran, `"echo hello \u003e note.txt"`) {
			t.Errorf("%q, %v, ran %s", a.Text(), err, ran)
		}
	}
	for _, k := range append([]string{"task", "stage", "do", "times", "args", "dir", "user", "timeout", "gave_up",
		"outputs", "role"}, kinds...) {
		if !regexp.MustCompile(`\b` + k + `"?:`).MatchString(all) {
			t.Errorf("no example of %s", k)
		}
	}
}
