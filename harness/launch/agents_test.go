package launch

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/codeact"
	"github.com/evalrun/evalrun/agent/webagent"
)

// docs/agents.md describes every option of the agents that use a model.
func TestAgentOptionsInDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, typ := range map[string]reflect.Type{"codeact": reflect.TypeFor[codeact.Options](),
		"browse": reflect.TypeFor[webagent.Config]()} {
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

// An arm that would show images which its agent or model does not accept is refused before it runs.
func TestPicturesThatAreNotThere(t *testing.T) {
	for _, k := range []agent.Kind{webagent.Kind, codeact.Kind} {
		for _, c := range []struct {
			options, want string
			setup         agent.Setup
		}{
			{`{"screenshot": "plain"}`, "", agent.Setup{}},
			{`{"screenshot": "none"}`, "", agent.Setup{BlindModel: "m", NoPictures: true}},
			{`{"screenshot": "marks"}`, "browser.screenshots is false", agent.Setup{NoPictures: true}},
			{`{"screenshot": "marks"}`, "the model m takes no images", agent.Setup{BlindModel: "m"}},
		} {
			c.setup.Options = []byte(c.options)
			if _, err := k.Open(c.setup); (err == nil) != (c.want == "") || err != nil &&
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s: %v, want %q", k.Name, c.options, err, c.want)
			}
		}
	}
}
