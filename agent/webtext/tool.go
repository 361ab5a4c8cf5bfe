// Package webtext is shared by the agents that use a browser. It has the tool that controls the
// browser ([Tool]), the list of actions that an environment's browser accepts ([Actions]), and the
// rendering of observations ([View]). The browser belongs to the environment; this package does not
// import one.
package webtext

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/browsergym/action"
)

// Name is the name of the tool.
const Name = "browser"

// Tool returns an action set as one tool with code as its argument, for models that call tools.
// Environments with a browser offer it. Other agents read the action set from it ([Actions]).
func Tool(o action.Options) (agent.Tool, error) {
	set, err := action.New(o)
	if err != nil {
		return agent.Tool{}, fmt.Errorf("the browser's tool: %w", err)
	}
	return agent.Tool{
		Name:        Name,
		Description: about + strings.TrimRight(set.Describe(true, true), "\n"),
		Schema:      schema,
		Parse:       Parse,
		Browser:     &agent.Browser{Subsets: o.Subsets, Single: o.Single, Strict: o.Strict},
	}, nil
}

const about = `Works a web browser by calls, which are written as in Python, with literal arguments, and are no program: there are no variables and no other functions. ` +
	`Elements of the page are named by their bid, which the last observation shows in square brackets before each; look at it before you act, since bids change with the page. ` +
	`Each use of the tool returns what the page looks like then, or why a call failed. Coordinates are pixels from the upper left corner of what is visible.
`

var schema = json.RawMessage(`{"type":"object","properties":{"code":{"type":"string","description":"The calls, such as click('a51')."}},"required":["code"]}`)

// Parse converts the tool's arguments to an action.
func Parse(args json.RawMessage) (event.Body, error) {
	var a struct {
		Code *string `json:"code"`
	}
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, errors.New("code must be a string")
	}
	if a.Code == nil || strings.TrimSpace(*a.Code) == "" {
		return nil, errors.New("code is missing or empty; to wait and look again, call noop()")
	}
	return event.Browse{Code: *a.Code}, nil
}

// Actions returns the actions that an environment's browser accepts, as declared by its tool. task
// is false if no tool declares any: then the browser is not part of the task but may be used, and
// has no user to chat with. ok is false if there is no browser.
func Actions(env agent.Env) (o action.Options, task, ok bool) {
	if !env.Can(event.Browse{}.Kind()) {
		return o, false, false
	}
	for _, t := range env.Tools() {
		if t.Browser != nil {
			return action.Options{Subsets: t.Browser.Subsets, Single: t.Browser.Single, Strict: t.Browser.Strict}, true,
				true
		}
	}
	return action.Options{Subsets: []string{"bid", "nav", "tab"}}, false, true
}
