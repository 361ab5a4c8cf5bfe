package launch

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/webagent"
	"github.com/evalrun/evalrun/harness/config"
)

// docs/agents.md names every option of the agents that are models.
func TestAgentOptionsInDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, typ := range map[string]reflect.Type{"codeact": reflect.TypeFor[codeactOptions](), "browse": reflect.TypeFor[webagent.Config]()} {
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

// An arm that would show pictures that nobody takes, or that its model does not, is refused before
// it plays.
func TestPicturesThatAreNotThere(t *testing.T) {
	no := false
	for _, open := range []func(*armContext) (maker, error){openBrowse, openCodeact} {
		for _, c := range []struct {
			options, want string
			a             armContext
		}{
			{`{"screenshot": "plain"}`, "", armContext{arm: &config.Arm{}}},
			{`{"screenshot": "none"}`, "", armContext{arm: &config.Arm{Model: &config.Model{Images: &no}}, blind: true}},
			{`{"screenshot": "marks"}`, "browser.screenshots is false", armContext{arm: &config.Arm{}, blind: true}},
			{`{"screenshot": "marks"}`, "takes no images", armContext{arm: &config.Arm{Model: &config.Model{Images: &no}}}},
		} {
			c.a.options = []byte(c.options)
			if _, err := open(&c.a); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.options, err, c.want)
			}
		}
	}
}
