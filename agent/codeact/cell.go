package codeact

import (
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

var cellTool = model.Tool{
	Name: "execute_ipython_cell",
	Description: `Runs a cell of Python in a Jupyter kernel in the sandbox, and returns what it prints, the value of its last line, and plots as pictures. ` +
		`Variables and imports are kept for the next cell. The kernel works in the shell's directory. Magics such as %timeit can be used; ` +
		`input() cannot. A cell that takes too long is interrupted. These functions are defined: ` +
		`open_file(path, line_number=1, context_lines=100), goto_line(line_number), scroll_down(), scroll_up(), ` +
		`search_file(search_term, file_path=None), search_dir(search_term, dir_path='./'), find_file(file_name, dir_path='./').`,
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"code":{"type":"string","description":"The Python code of the cell."}},"required":["code"]}`),
}

func parseCell(args json.RawMessage) (event.Event, error) {
	var a struct {
		Code *string `json:"code"`
	}
	if err := json.Unmarshal(args, &a); err != nil {
		return event.Event{}, errors.New("code must be a string")
	}
	if a.Code == nil {
		return event.Event{}, errors.New("code is missing")
	}
	return event.New(event.FromAgent, event.Cell{Code: *a.Code, Extra: true}), nil
}
