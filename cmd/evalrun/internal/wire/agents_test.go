package wire

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/browse"
)

// docs/agents.md names every option of the agents that are models.
func TestAgentOptionsInDoc(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, typ := range map[string]reflect.Type{"codeact": reflect.TypeFor[codeactOptions](), "browse": reflect.TypeFor[browse.Config]()} {
		_, section, ok := strings.Cut(string(text), "\n## "+name+"\n")
		if !ok {
			t.Errorf("no section on %s", name)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for i := range typ.NumField() {
			tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if tag != "" && tag != "-" && !strings.Contains(section, "`"+tag+"`") {
				t.Errorf("%s: the page does not name the option %s", name, tag)
			}
		}
	}
}
