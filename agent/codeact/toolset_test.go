package codeact

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
)

// A box is an environment with a sandbox, and a set of tools if it is named.
type box struct{ set string }

func (b box) Tools() []agent.Tool { return nil }

func (b box) Can(kind string) bool {
	return slices.Contains([]string{"run", "read", "edit", "glob", "grep", "run_ipython"}, kind)
}

func (b box) Step(context.Context, event.Event) (event.Event, error) { panic("not called") }

func (b box) ToolSet(name string) []agent.Tool {
	if name != b.set {
		return nil
	}
	return []agent.Tool{{Name: "bash", Schema: json.RawMessage(`{}`)}, {Name: "ls", Schema: json.RawMessage(`{}`)}}
}

func TestTools(t *testing.T) {
	for _, c := range []struct{ which, want string }{
		{"", "execute_bash str_replace_editor finish"},
		{"openhands", "execute_bash str_replace_editor finish"},
		{"search", "execute_bash str_replace_editor glob grep finish"},
		{"deerflow", "finish bash ls"},
	} {
		got, err := newTools(&agent.Session{Env: box{"deerflow"}}, c.which, false, nil)
		if err != nil || strings.Join(got.names(), " ") != c.want {
			t.Errorf("%q: %v %v, want %s", c.which, got.names(), err, c.want)
		}
	}
	if _, err := newTools(&agent.Session{Env: box{}}, "deerflow", false, nil); err == nil ||
		!strings.Contains(err.Error(), `no set of tools named "deerflow"`) {
		t.Errorf("an environment without the set: %v", err)
	}
	set, err := newTools(&agent.Session{Env: box{}}, "", true, nil)
	if err != nil || strings.Join(set.names(), " ") != "execute_bash str_replace_editor execute_ipython_cell finish" {
		t.Errorf("with Jupyter: %v %v", set.names(), err)
	}
	for args, want := range map[string]event.Body{
		`{"code":"1+1"}`: event.Cell{Code: "1+1", Extra: true}, `{"code":""}`: event.Cell{Extra: true}, `{}`: nil, `{"code":7}`: nil,
	} {
		e, err := set.understand(event.ReplyCall{Name: "execute_ipython_cell", Args: args})
		if (err == nil) != (want != nil) || err == nil && e.Body != want {
			t.Errorf("%s: %#v %v", args, e.Body, err)
		}
	}
	if set, err = newTools(&agent.Session{Env: box{"deerflow"}}, "deerflow", false, nil); err != nil {
		t.Fatal(err)
	}
	e, err := set.understand(event.ReplyCall{Name: "bash", Args: `{"command":"ls"}`})
	if call, ok := e.Body.(event.ToolCall); err != nil || !ok || call.Name != "bash" || string(call.Args) != `{"command":"ls"}` {
		t.Errorf("a call of the set: %#v %v", e.Body, err)
	}
}

// served is an environment that reaches tool servers.
type served struct{ box }

func (served) ServerTools(context.Context) ([]agent.Tool, []string, error) {
	return []agent.Tool{{Name: "mcp__shop__buy", Schema: json.RawMessage(`{"type":"object"}`)}}, []string{"the server bank: it is closed"}, nil
}

func TestServerTools(t *testing.T) {
	goal := agent.Goal{Parts: event.Text("Buy milk."), MCP: []agent.MCPServer{{Name: "shop"}, {Name: "bank"}}}
	s := &agent.Session{Env: served{}, Goal: goal}
	list, notes, ok, err := serverTools(t.Context(), s)
	if err != nil || !ok || len(list) != 1 {
		t.Fatalf("%v %v %v %v", list, notes, ok, err)
	}
	set, err := newTools(s, "", false, list)
	if err != nil || !slices.Contains(set.names(), "mcp__shop__buy") {
		t.Errorf("%v %v", set.names(), err)
	}
	if got := withOffers(goal, ok, notes).Text(); !strings.HasSuffix(got, "are there:\n- the server bank: it is closed") ||
		strings.Contains(got, "speak to them") {
		t.Errorf("the goal: %q", got)
	}
	if _, _, ok, err := serverTools(t.Context(), &agent.Session{Env: box{}, Goal: goal}); ok || err != nil {
		t.Errorf("an environment that reaches none: %v %v", ok, err)
	}
}

func TestParseSearch(t *testing.T) {
	for _, c := range []struct {
		tool, args string
		want       event.Body
		err        string
	}{
		{"glob", `{"pattern":"*.go"}`, event.Glob{Pattern: "*.go"}, ""},
		{"glob", `{"pattern":"*.go","path":"/a"}`, event.Glob{Pattern: "*.go", Path: "/a"}, ""},
		{"glob", `{}`, nil, "pattern is missing"},
		{"glob", `{"pattern":1}`, nil, "pattern must not be a number"},
		{"grep", `{"pattern":"a.b","include":"*.go","ignore_case":true}`,
			event.Grep{Pattern: "a.b", Include: "*.go", IgnoreCase: true}, ""},
		{"grep", `{"path":"/a"}`, nil, "pattern is missing"},
		{"grep", `{"pattern":"a","ignore_case":"yes"}`, nil, "ignore_case must not be a string"},
	} {
		parse := parseGlob
		if c.tool == "grep" {
			parse = parseGrep
		}
		e, err := parse(json.RawMessage(c.args))
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s %s: %v, want %s", c.tool, c.args, err, c.err)
		case c.err == "" && (err != nil || e.Body != c.want):
			t.Errorf("%s %s: %#v %v", c.tool, c.args, e.Body, err)
		}
	}
}
