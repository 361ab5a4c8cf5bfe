package codeact_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/codeact"
	"github.com/evalrun/evalrun/agent/controller"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
)

// The model of the suite runs a command and then finishes, in every stage.
func worker(_ context.Context, _ model.Binding, n int, req *model.Request) (*model.Response, error) {
	r := modeltest.Calls("execute_bash", fmt.Sprintf(`{"command":"echo %d"}`, n))
	if last := req.Messages[len(req.Messages)-1]; last.Role == model.ToolRole {
		r = modeltest.Calls("finish", `{"message":"done"}`)
	}
	return &r, nil
}

func TestSuite(t *testing.T) {
	agenttest.Run(t, agenttest.Suite{
		New: func(*testing.T) agent.Agent { return codeact.New(codeact.Config{}) },
		Setup: func(*testing.T) agenttest.Setup {
			return agenttest.Setup{Goal: "say hello", Model: modeltest.Func(worker).Client(),
				Outputs: map[string]string{"echo 0": "0\n"}}
		},
	})
}

// play runs the agent over a script and returns the log, the requests, and what came of it.
func play(t *testing.T, cfg codeact.Config, setup agenttest.Setup,
	replies ...model.Response) (*agenttest.Log, []model.Request, agent.Answer, error) {
	t.Helper()
	var reqs []model.Request
	script := modeltest.Script(replies...)
	setup.Model = modeltest.Func(func(ctx context.Context, b model.Binding, n int,
		req *model.Request) (*model.Response, error) {
		cp := *req
		cp.Messages = append([]model.Message(nil), req.Messages...)
		reqs = append(reqs, cp)
		return script(ctx, b, n, req)
	}).Client()
	if setup.Goal == "" {
		setup.Goal = "the task"
	}
	s := agenttest.NewSession(setup)
	ans, err := codeact.New(cfg).Run(t.Context(), s)
	if open := agenttest.LogOf(s).Open(); len(open) > 0 {
		t.Errorf("actions without an observation: %v", open)
	}
	return agenttest.LogOf(s), reqs, ans, err
}

// brief is a conversation in lines.
func brief(msgs []model.Message) []string {
	var out []string
	for _, m := range msgs {
		line := m.Role + ": " + strings.ReplaceAll(event.PlainText(m.Parts), "\n", "|")
		for _, p := range m.Parts {
			if p.Blob != nil {
				line += " <" + p.Blob.Type + ">"
			}
		}
		for _, c := range m.Calls {
			line += " " + c.ID + "=" + c.Name
		}
		if m.Role == model.System {
			line = "system"
		}
		if m.CallID != "" {
			line = m.CallID + " " + line
		}
		out = append(out, line)
	}
	return out
}

func TestSeveralCalls(t *testing.T) {
	shot := event.ToolResult{Parts: []event.Part{{Text: "a shot"},
		{Blob: &event.Blob{SHA256: "aa", Type: "image/png"}}}}
	setup := agenttest.Setup{
		Tools: []agent.Tool{{Name: "look", Description: "looks"},
			{Name: "pick", Parse: func(json.RawMessage) (event.Body, error) {
				return nil, errors.New("pick what?")
			}}},
		Step: func(_ context.Context, e event.Event) (event.Body, error) {
			switch b := e.Body.(type) {
			case event.Run:
				return event.RunResult{Code: 3, Output: b.Command + " ran", Dir: "/workspace"}, nil
			case event.ToolCall:
				return shot, nil
			}
			return event.Ack{Of: e.Body.Kind()}, nil
		},
	}
	log, reqs, ans, err := play(t, codeact.Config{}, setup,
		modeltest.Calls(
			"execute_bash", `{"command":"ls","timeout":"2.5"}`,
			"no_such", `{}`,
			"execute_bash", `{"command":`,
			"execute_bash", `{"cmd":"ls"}`,
			"look", ``,
			"pick", `{"x":1}`,
			"execute_bash", `[1]`,
			"execute_bash", `{"command":"C-c","is_input":"true"}`,
			"execute_bash", `{"command":"","is_input":"True"}`,
		),
		modeltest.Calls("finish", `{"message":"42"}`, "execute_bash", `{"command":"rm -rf /"}`),
	)
	if err != nil || ans.Text() != "42" || ans.GaveUp != "" {
		t.Fatalf("answer %+v, %v", ans, err)
	}
	var kinds, runs []string
	for _, e := range log.All() {
		if e.Body.Class() == event.Action {
			kinds = append(kinds, e.Body.Kind())
			if c := e.Call; c.Reply != "r1" && c.Reply != "r2" {
				t.Errorf("action %d points to the reply %q", e.ID, c.Reply)
			}
		}
		if r, ok := e.Body.(event.Run); ok {
			runs = append(runs, fmt.Sprintf("%q %v %v %v %v", r.Command, r.Session, r.Input, r.Blocking, e.Timeout))
		}
	}
	if d := cmp.Diff([]string{`"ls" true false true 2.5s`, `"C-c" true true false 0s`, `"" true false false 0s`},
		runs); d != "" {
		t.Errorf("commands (-want +got):\n%s", d)
	}
	want := []string{"run", "invalid", "invalid", "invalid", "tool", "invalid", "invalid", "run", "run", "finish"}
	if d := cmp.Diff(want, kinds); d != "" {
		t.Errorf("actions (-want +got):\n%s", d)
	}
	conv := []string{
		"system", "user: the task",
		"assistant:  call_0=execute_bash call_1=no_such call_2=execute_bash call_3=execute_bash call_4=look " +
			"call_5=pick call_6=execute_bash call_7=execute_bash call_8=execute_bash",
		"call_0 tool: ls ran|[exit code 3]|[working directory /workspace]",
		`call_1 tool: Error: there is no tool named "no_such"; the tools are execute_bash, finish, look, pick`,
		`call_2 tool: Error: the arguments of execute_bash are not a JSON object: "{\"command\":"`,
		"call_3 tool: Error: execute_bash: command is missing",
		"call_4 tool: a shot <image/png>",
		"call_5 tool: Error: pick: pick what?",
		`call_6 tool: Error: the arguments of execute_bash are not a JSON object: "[1]"`,
		"call_7 tool: C-c ran|[exit code 3]|[working directory /workspace]",
		"call_8 tool:  ran|[exit code 3]|[working directory /workspace]",
	}
	if d := cmp.Diff(conv, brief(reqs[1].Messages)); d != "" {
		t.Errorf("conversation (-want +got):\n%s", d)
	}
	var names []string
	for _, tool := range reqs[0].Tools {
		names = append(names, tool.Name)
	}
	if d := cmp.Diff([]string{"execute_bash", "finish", "look", "pick"}, names); d != "" {
		t.Errorf("tools (-want +got):\n%s", d)
	}
}

func TestWithoutCalls(t *testing.T) {
	t.Run("told to go on, then the answer", func(t *testing.T) {
		log, reqs, ans, err := play(t, codeact.Config{}, agenttest.Setup{},
			modeltest.Text("one"), modeltest.Text("two"), modeltest.Text("three"))
		if err != nil || ans.Text() != "three" {
			t.Fatalf("answer %q, %v", ans.Text(), err)
		}
		want := []string{"system", "user: the task", "assistant: one", "user: " + codeact.DefaultGoOn, "assistant: two",
			"user: " + codeact.DefaultGoOn}
		if d := cmp.Diff(want, brief(reqs[2].Messages)); d != "" {
			t.Errorf("conversation (-want +got):\n%s", d)
		}
		if all := log.All(); all[len(all)-2].Body.Kind() != "finish" {
			t.Error("the log does not say that the stage has ended")
		}
	})
	t.Run("insisted on", func(t *testing.T) {
		_, reqs, ans, err := play(t, codeact.Config{MaxIdle: 10}, agenttest.Setup{}, modeltest.Text("42"),
			modeltest.Text("42"))
		if err != nil || ans.Text() != "42" || len(reqs) != 2 {
			t.Errorf("answer %q after %d requests, %v", ans.Text(), len(reqs), err)
		}
	})
	t.Run("none allowed", func(t *testing.T) {
		_, reqs, ans, err := play(t, codeact.Config{MaxIdle: -1}, agenttest.Setup{}, modeltest.Text("42"))
		if err != nil || ans.Text() != "42" || len(reqs) != 1 {
			t.Errorf("answer %q after %d requests, %v", ans.Text(), len(reqs), err)
		}
	})
	t.Run("empty", func(t *testing.T) {
		_, reqs, ans, err := play(t, codeact.Config{}, agenttest.Setup{}, model.Response{},
			model.Response{Stop: "length"}, model.Response{})
		if err != nil || ans.Text() != "" || len(ans.Parts) != 0 {
			t.Errorf("answer %+v, %v", ans, err)
		}
		for _, m := range reqs[2].Messages {
			if m.Role == model.Assistant {
				t.Error("an empty assistant message was sent")
			}
		}
		if last := brief(reqs[2].Messages); !strings.Contains(last[len(last)-1], "limit on its length") {
			t.Errorf("said to a reply that was cut: %s", last[len(last)-1])
		}
	})
	t.Run("a call between", func(t *testing.T) {
		_, reqs, ans, err := play(t, codeact.Config{MaxIdle: 1}, agenttest.Setup{},
			modeltest.Text("a"), modeltest.Calls("execute_bash", `{"command":"x"}`), modeltest.Text("a"),
			modeltest.Calls("finish", `{"message":"b"}`))
		if err != nil || ans.Text() != "b" || len(reqs) != 4 {
			t.Errorf("answer %q after %d requests, %v: the count begins anew after a call", ans.Text(), len(reqs), err)
		}
	})
}

func TestGivesUp(t *testing.T) {
	_, _, ans, err := play(t, codeact.Config{}, agenttest.Setup{},
		modeltest.Calls("finish", `{"message":"no network","gave_up":true}`))
	if err != nil || ans.GaveUp != "no network" {
		t.Errorf("answer %+v, %v", ans, err)
	}
}

func TestSecondStage(t *testing.T) {
	log, _, _, err := play(t, codeact.Config{}, agenttest.Setup{Goal: "first"},
		modeltest.Calls("finish", `{"message":"1"}`, "execute_bash", `{"command":"too late"}`))
	if err != nil {
		t.Fatal(err)
	}
	_, reqs, ans, err := play(t, codeact.Config{}, agenttest.Setup{Goal: "second", Log: log},
		modeltest.Calls("finish", `{"message":"2"}`))
	if err != nil || ans.Text() != "2" {
		t.Fatalf("answer %q, %v", ans.Text(), err)
	}
	want := []string{
		"system", "user: first", "assistant:  call_0=finish call_1=execute_bash", "call_0 tool: Done.",
		"call_1 tool: This call was not executed: the work had ended before its turn came.", "user: second",
	}
	if d := cmp.Diff(want, brief(reqs[0].Messages)); d != "" {
		t.Errorf("conversation (-want +got):\n%s", d)
	}
	n := 0
	for _, e := range log.All() {
		if e.Body.Kind() == "system" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d system prompts in the log, want 1", n)
	}
}

// A log that ends in the middle of a reply is resumed at that point: the model is not asked again
// and no action is executed twice.
func TestTakenUp(t *testing.T) {
	whole, _, _, err := play(t, codeact.Config{}, agenttest.Setup{Outputs: map[string]string{"a": "1", "b": "2"}},
		modeltest.Calls("execute_bash", `{"command":"a"}`, "execute_bash", `{"command":"b"}`), modeltest.Text("hm"),
		modeltest.Calls("finish", `{"message":"3"}`))
	if err != nil {
		t.Fatal(err)
	}
	all := whole.All()
	var want []string
	for _, e := range all {
		want = append(want, e.Body.Class().String()+" "+e.Body.Kind())
	}
	replies := []model.Response{
		modeltest.Calls("execute_bash", `{"command":"a"}`, "execute_bash", `{"command":"b"}`), modeltest.Text("hm"),
		modeltest.Calls("finish", `{"message":"3"}`),
	}
	for cut := 1; cut < len(all); cut++ {
		if all[cut].Body.Class() == event.Observation {
			continue // an open action is answered "lost" before a log is taken up
		}
		log := &agenttest.Log{}
		left := replies
		for _, e := range all[:cut] {
			if _, err := log.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			if e.Body.Kind() == "reply" {
				left = left[1:]
			}
		}
		_, _, ans, err := play(t, codeact.Config{},
			agenttest.Setup{Log: log, Outputs: map[string]string{"a": "1", "b": "2"}}, left...)
		if err != nil || ans.Text() != "3" {
			t.Errorf("cut at %d: answer %q, %v", cut, ans.Text(), err)
		}
		var got []string
		for _, e := range log.All() {
			got = append(got, e.Body.Class().String()+" "+e.Body.Kind())
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("cut at %d (-want +got):\n%s", cut, d)
		}
	}
}

func TestModelErrors(t *testing.T) {
	for _, class := range []string{model.Auth, model.Context, model.Refused} {
		s := agenttest.NewSession(agenttest.Setup{Goal: "x", Model: modeltest.Fail(class).Client()})
		_, err := codeact.New(codeact.Config{}).Run(t.Context(), s)
		var e *model.Error
		if !errors.As(err, &e) || e.Class != class {
			t.Errorf("Run = %v, want class %s", err, class)
		}
	}
}

func TestStuck(t *testing.T) {
	same := modeltest.Calls("execute_bash", `{"command":"ls"}`)
	_, reqs, _, err := play(t, codeact.Config{}, agenttest.Setup{Outputs: map[string]string{"ls": "x"}}, same, same,
		same, same, same, same)
	var stuck *controller.StuckError
	if !errors.As(err, &stuck) || stuck.Pattern != "repeat" || len(reqs) != 4 {
		t.Errorf("after %d requests: %v", len(reqs), err)
	}
}

// The goal of each stage tells the model where the skills are and which servers exist.
func TestOffered(t *testing.T) {
	var reqs []model.Request
	client := modeltest.Func(func(ctx context.Context, _ model.Binding, n int,
		req *model.Request) (*model.Response, error) {
		reqs = append(reqs, *req)
		r := modeltest.Calls("finish", `{"message":"done"}`)
		return &r, nil
	}).Client()
	s := agenttest.NewSession(agenttest.Setup{Goal: "the task", Model: client})
	s.Goal.Skills = []string{"/skills"}
	s.Goal.MCP = []agent.MCPServer{{Name: "shop", Transport: "streamable-http", URL: "http://shop/mcp"},
		{Name: "files", Transport: "stdio", Command: "mcp-files", Args: []string{"/app"}}}
	if _, err := codeact.New(codeact.Config{}).Run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(brief(reqs[0].Messages), "\n")
	for _, want := range []string{"user: the task", "lie in /skills", "- shop: http://shop/mcp (streamable-http)",
		"- files: started by: mcp-files /app"} {
		if !strings.Contains(got, want) {
			t.Errorf("not told %q:\n%s", want, got)
		}
	}
	if strings.Contains(s.Goal.Text(), "SKILL.md") {
		t.Error("the session's own goal was changed")
	}
}
