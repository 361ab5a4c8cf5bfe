package codeact

import (
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// globTool and grepTool have the names and parameters of OpenHands' tools.
var (
	globTool = model.Tool{
		Name: "glob",
		Description: `Finds files by name, below a folder of the sandbox, in the order of their paths. Hidden files, ` +
			`and those that .gitignore names, are left out, unless the pattern names them.`,
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"pattern":{"type":"string","description":"The glob, such as **/*.py or src/**/*.{js,ts}. Without a slash ` +
			`it is matched with the names of files at any depth."},` +
			`"path":{"type":"string","description":"The folder. Default: the current one."}},"required":["pattern"]}`),
	}
	grepTool = model.Tool{
		Name: "grep",
		Description: `Finds lines by a regular expression (RE2), in the text files below a folder of the sandbox, or in ` +
			`one file. Each is shown as path:line:text. Hidden files, and those that .gitignore names, are left out.`,
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"pattern":{"type":"string","description":"The regular expression."},` +
			`"path":{"type":"string","description":"The folder or file. Default: the current folder."},` +
			`"include":{"type":"string","description":"Search only files that match this glob, such as *.py."},` +
			`"ignore_case":{"type":"boolean","description":"Ignore the case of letters. Default false."}},` +
			`"required":["pattern"]}`),
	}
)

func parseGlob(args json.RawMessage) (event.Event, error) {
	var g event.Glob
	err := parseSearch(args, &g, &g.Pattern)
	return event.New(event.FromAgent, g), err
}

func parseGrep(args json.RawMessage) (event.Event, error) {
	var g event.Grep
	err := parseSearch(args, &g, &g.Pattern)
	return event.New(event.FromAgent, g), err
}

// parseSearch decodes arguments into an action, whose fields have the same names.
func parseSearch(args json.RawMessage, to any, pattern *string) error {
	err := json.Unmarshal(args, to)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return errors.New(wrong.Field + " must not be a " + wrong.Value)
	case err == nil && *pattern == "":
		return errors.New("pattern is missing")
	}
	return err
}
