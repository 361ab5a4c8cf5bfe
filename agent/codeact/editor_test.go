package codeact

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
)

func TestParseEditor(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{`{"command":"view","path":"/a"}`, "{Path:/a Lines:[] Plain:false}"},
		{`{"command":"view","path":"/a","view_range":[1,-1]}`, "{Path:/a Lines:[1 -1] Plain:false}"},
		{`{"command":"view","path":"/a","view_range":"[1, 3]"}`, "{Path:/a Lines:[1 3] Plain:false}"},
		{`{"command":"view","path":"/a","view_range":["1",3.0]}`, "{Path:/a Lines:[1 3] Plain:false}"},
		{`{"command":"view","path":"/a","view_range":null}`, "{Path:/a Lines:[] Plain:false}"},
		{`{"command":"view","path":"/a","view_range":[1]}`, "error: view_range must be two whole numbers"},
		{`{"command":"view","path":"/a","view_range":[1,2.5]}`, "error: view_range must be two whole numbers"},
		{`{"command":"view","path":"/a","view_range":{}}`, "error: view_range must be two whole numbers"},
		{`{"command":"create","path":"/a","file_text":""}`, "{Command:create Path:/a Text: Old: Line:0}"},
		{`{"command":"create","path":"/a"}`, "error: create needs file_text"},
		{`{"command":"create","path":"/a","file_text":null}`, "error: create needs file_text"},
		{`{"command":"create","path":"/a","file_text":{"a":1}}`, "error: file_text must be a string"},
		{`{"command":"str_replace","path":"/a","old_str":"x","new_str":"y"}`,
			"{Command:str_replace Path:/a Text:y Old:x Line:0}"},
		{`{"command":"str_replace","path":"/a","old_str":"x"}`, "{Command:str_replace Path:/a Text: Old:x Line:0}"},
		{`{"command":"str_replace","path":"/a","new_str":"x"}`, "error: str_replace needs old_str"},
		{`{"command":"insert","path":"/a","new_str":"x","insert_line":3}`, "{Command:insert Path:/a Text:x Old: Line:3}"},
		{`{"command":"insert","path":"/a","new_str":"x","insert_line":"0"}`, "{Command:insert Path:/a Text:x Old: Line:0}"},
		{`{"command":"insert","path":"/a","new_str":"x","insert_line":"three"}`,
			"error: insert needs insert_line, a whole number"},
		{`{"command":"insert","path":"/a","new_str":"x"}`, "error: insert needs insert_line"},
		{`{"command":"insert","path":"/a","insert_line":1}`, "error: insert needs new_str"},
		{`{"command":"undo_edit","path":"/a","security_risk":"LOW"}`, "{Command:undo_edit Path:/a Text: Old: Line:0}"},
		{`{"command":"undo_edit"}`, "error: path is missing"},
		{`{"path":"/a"}`, "error: command is missing"},
		{`{"command":"delete","path":"/a"}`, `error: there is no command "delete"; there are view, create`},
		{`{"command":"view","path":"/a","content":"x"}`,
			`error: there is no argument "content"; there are command, file_text`},
		{`{"command":1,"path":"/a"}`, "error: command must be a string"},
	} {
		e, err := parseEditor([]byte(c.args))
		got := fmt.Sprintf("%+v", e.Body)
		if err != nil {
			got = "error: " + err.Error()
		} else if e.Source != event.FromAgent {
			t.Errorf("%s: from %v", c.args, e.Source)
		}
		if got != c.want && !(err != nil && strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
}
