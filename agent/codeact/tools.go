package codeact

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/webtext"
	"github.com/evalrun/evalrun/browsergym/action"
)

// tools are the tools offered to the model in one run: this package's, then the environment's. An
// environment's tool replaces one of this package with the same name.
type tools struct {
	offered []model.Tool
	parse   map[string]func(args json.RawMessage) (event.Event, error)
}

// newTools returns the tools of a run. which and jupyter are those of a Config, and served are tools of
// the task's tool servers.
func newTools(s *agent.Session, which string, jupyter bool, served []agent.Tool) (tools, error) {
	t := tools{parse: map[string]func(json.RawMessage) (event.Event, error){}}
	theirs := slices.Concat(s.Tools(), served)
	own := which == "" || which == "openhands" || which == "search"
	if !own && s.Can("run") {
		box, ok := agent.As[agent.ToolBox](s)
		if !ok || box.ToolSet(which) == nil {
			return t, fmt.Errorf("the environment has no set of tools named %q", which)
		}
		theirs = slices.Concat(theirs, box.ToolSet(which))
	}
	for _, tool := range theirs {
		t.parse[tool.Name] = func(args json.RawMessage) (event.Event, error) {
			if tool.Parse == nil {
				return event.New(event.FromAgent, event.ToolCall{Name: tool.Name, Args: args}), nil
			}
			b, err := tool.Parse(args)
			if err == nil && (b == nil || b.Class() != event.Action) {
				err = errors.New("these arguments make no action")
			}
			return event.New(event.FromAgent, b), err
		}
	}
	ours := func(tool model.Tool, parse func(json.RawMessage) (event.Event, error)) {
		if t.parse[tool.Name] == nil {
			t.offered = append(t.offered, tool)
			t.parse[tool.Name] = parse
		}
	}
	if own && s.Can("run") {
		ours(bashTool, parseBash)
	}
	if own && s.Can(event.Edit{}.Kind()) && s.Can(event.Read{}.Kind()) {
		ours(editorTool, parseEditor)
	}
	if which == "search" && s.Can(event.Glob{}.Kind()) && s.Can(event.Grep{}.Kind()) {
		ours(globTool, parseGlob)
		ours(grepTool, parseGrep)
	}
	if jupyter && s.Can(event.Cell{}.Kind()) {
		ours(cellTool, parseCell)
	}
	if s.Can(event.Browse{}.Kind()) {
		tool, err := webtext.Tool(action.Options{Subsets: []string{"bid", "nav"}})
		if err != nil {
			return t, err
		}
		ours(model.Tool{Name: tool.Name, Description: tool.Description, Schema: tool.Schema}, parseBrowser)
	}
	ours(finishTool, parseFinish)
	for _, tool := range theirs {
		t.offered = append(t.offered, model.Tool{Name: tool.Name, Description: tool.Description, Schema: tool.Schema})
	}
	return t, nil
}

func (t tools) names() []string {
	var names []string
	for _, tool := range t.offered {
		names = append(names, tool.Name)
	}
	return names
}

// action converts call i of a reply into an action. A call that cannot be parsed becomes an
// event.Invalid, whose answer tells the model why.
func (t tools) action(r *event.Reply, i int) event.Event {
	call := r.Calls[i]
	e, err := t.understand(call)
	if err != nil {
		why := err.Error()
		if r.Stop == "length" {
			why += "; the reply had reached the limit on its length and was cut"
		}
		e = event.New(event.FromAgent, event.Invalid{Name: call.Name, Args: call.Args, Why: why})
	}
	e.Call = &event.Call{Reply: r.ID, ID: call.ID, Name: call.Name, Index: i, Of: len(r.Calls)}
	return e
}

func (t tools) understand(call event.ReplyCall) (event.Event, error) {
	parse := t.parse[call.Name]
	if parse == nil {
		return event.Event{}, fmt.Errorf("there is no tool named %q; the tools are %s", call.Name,
			strings.Join(t.names(), ", "))
	}
	args := strings.TrimSpace(call.Args)
	if args == "" {
		args = "{}" // several models send this for a tool without arguments
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &object); err != nil || object == nil {
		return event.Event{}, fmt.Errorf("the arguments of %s are not a JSON object: %s", call.Name, quote(call.Args))
	}
	e, err := parse(json.RawMessage(args))
	if err != nil {
		return event.Event{}, fmt.Errorf("%s: %w", call.Name, err)
	}
	return e, nil
}

// quote returns what a model wrote, cut to a few lines.
func quote(s string) string {
	const limit = 400
	if len(s) > limit {
		return strconv.Quote(strings.ToValidUTF8(s[:limit], "")) + " …"
	}
	return strconv.Quote(s)
}

var bashTool = model.Tool{
	Name: "execute_bash",
	Description: `Runs a command in a bash shell in the sandbox and returns what it prints, with its exit code. The shell is persistent: ` +
		`the directory, variables and background jobs are kept for the next call. Run one command at a time; join several with && or ;. ` +
		`A call also returns when its command prints nothing for a while. The command then goes on: an empty command returns more of its output, ` +
		`and with is_input you can type for it or press a key.`,
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"command":{"type":"string","description":"The command to run. Empty: return more output of the running command. With is_input: the text to type, or the key C-c, C-d or C-z."},` +
		`"is_input":{"type":"string","enum":["true","false"],"description":"If true, the command is input for the running command. Default false."},` +
		`"timeout":{"type":"number","description":"Seconds to wait for the command, also if it prints nothing. Give it to commands that take long."}},` +
		`"required":["command"]}`),
}

func parseBash(args json.RawMessage) (event.Event, error) {
	var a struct {
		Command *string         `json:"command"`
		Input   json.RawMessage `json:"is_input"`
		Timeout json.RawMessage `json:"timeout"`
	}
	if err := json.Unmarshal(args, &a); err != nil {
		return event.Event{}, errors.New("command must be a string")
	}
	if a.Command == nil {
		return event.Event{}, errors.New("command is missing")
	}
	run := event.Run{Command: *a.Command, Session: true, Input: strings.Trim(string(a.Input), `"`) == "true"}
	var timeout time.Duration
	// A number, or a quoted number, which some models send.
	if s := strings.Trim(string(a.Timeout), `"`); s != "" && s != "null" {
		secs, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(secs) || secs <= 0 {
			return event.Event{}, fmt.Errorf("timeout must be a number of seconds above 0, not %s", quote(s))
		}
		timeout, run.Blocking = time.Duration(min(secs, 86400)*float64(time.Second)), true
	}
	e := event.New(event.FromAgent, run)
	e.Timeout = timeout
	return e, nil
}

func parseBrowser(args json.RawMessage) (event.Event, error) {
	b, err := webtext.Parse(args)
	return event.New(event.FromAgent, b), err
}

var finishTool = model.Tool{
	Name:        "finish",
	Description: `Says that the task is over. Call it once, last and alone; what would follow it is not done.`,
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"message":{"type":"string","description":"The answer, if the task asks for one; else a short account of what was done."},` +
		`"gave_up":{"type":"boolean","description":"True if the task could not be done; the message says why."}},` +
		`"required":["message"]}`),
}

func parseFinish(args json.RawMessage) (event.Event, error) {
	var a struct {
		Message string `json:"message"`
		GaveUp  bool   `json:"gave_up"`
	}
	if err := json.Unmarshal(args, &a); err != nil {
		return event.Event{}, errors.New("message must be a string, gave_up true or false")
	}
	return event.New(event.FromAgent, event.Finish{Message: a.Message, GaveUp: a.GaveUp}), nil
}
