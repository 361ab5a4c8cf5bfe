package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The example agents of examples/agent-python, played as a run would.

const (
	python   = "/usr/bin/python3"
	examples = "../../examples/agent-python/"
)

func needPython(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(python); err != nil {
		t.Skipf("needs %s: %v", python, err)
	}
}

func pythonAgent(t *testing.T) Config {
	needPython(t)
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return config(t, m{"where": "host", "run": []string{python, "{files}"},
		"files": filepath.Join(wd, examples, "agent.py")})
}

func TestPythonWithoutModel(t *testing.T) {
	box := func(context.Context) (sandbox.Sandbox, error) { return newBox(t), nil }
	s := agenttest.NewSession(agenttest.Setup{Goal: "6 × 7?",
		Outputs: map[string]string{"pwd; ls -a": "/workspace\n.\n..\n"}})
	ans, err := pythonAgent(t).Agent(box).Run(t.Context(), s)
	if err != nil || ans.GaveUp != "no model; here is /workspace . .. " {
		t.Errorf("Run: %+v, %v", ans, err)
	}
}

// The model runs a command, gets a call wrong, and answers with what it saw.
func TestPythonWithModel(t *testing.T) {
	n := 0
	replies := replies(func(r *model.Request) (*model.Response, error) {
		last := r.Messages[len(r.Messages)-1]
		n++
		if n == 1 {
			if last.Role != model.User || event.PlainText(last.Parts) != "6 × 7?" || len(r.Tools) != 1 {
				return nil, fmt.Errorf("first request: %+v", r)
			}
			return &model.Response{Calls: []event.ReplyCall{
				{ID: "c1", Name: "sh", Args: `{"command":"expr 6 \\* 7"}`}, {ID: "c2", Name: "sh", Args: `{`}}}, nil
		}
		if seen := r.Messages[len(r.Messages)-2]; event.PlainText(seen.Parts) != "exit code 0\n42\n" ||
			seen.CallID != "c1" ||
			last.CallID != "c2" || !strings.HasPrefix(event.PlainText(last.Parts), "not a call of sh") {
			return nil, errors.New("second request is wrong")
		}
		return &model.Response{Parts: event.Text("42")}, nil
	})
	box := func(context.Context) (sandbox.Sandbox, error) { return newBox(t), nil }
	s := agenttest.NewSession(agenttest.Setup{Goal: "6 × 7?", Model: replies,
		Outputs: map[string]string{`expr 6 \* 7`: "42\n"}})
	ans, err := pythonAgent(t).Agent(box).Run(t.Context(), s)
	if err != nil || ans.Text() != "42" {
		t.Errorf("Run: %+v, %v", ans, err)
	}
}

func TestPythonInside(t *testing.T) {
	needPython(t)
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := config(t, m{"run": python + ` "$ROOT{files}" "$ROOT{instruction_file}"`,
		"files": filepath.Join(wd, examples, "inside.py")})
	b := newBox(t)
	ans, err := c.Agent(nil).Run(t.Context(), agenttest.NewSession(agenttest.Setup{Goal: "Say forty-two", Sandbox: b}))
	if err != nil || ans.Text() != "forty-two" {
		t.Errorf("Run: %+v, %v", ans, err)
	}
	notes, err := os.ReadFile(filepath.Join(b.root, "workspace/notes.txt"))
	if err != nil || string(notes) != "stage 1: 13 characters to read\n" {
		t.Errorf("notes.txt: %q, %v", notes, err)
	}
}
