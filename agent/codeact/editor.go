package codeact

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// editorTool has the name and parameters of OpenHands' tool, which models know.
var editorTool = model.Tool{
	Name: "str_replace_editor",
	Description: `Views and edits text files in the sandbox; all paths are absolute. ` +
		`view: a file with line numbers, a picture (png, jpeg, gif, webp), or the names in a folder, two levels deep; ` +
		`long views are cut, so give view_range. ` +
		`create: a new file; it does not overwrite. ` +
		`str_replace: puts new_str in the place of old_str, which must occur exactly once, with its white space; add ` +
		`lines around it until it does. ` +
		`insert: puts new_str after line insert_line. ` +
		`undo_edit: takes the last change of the file back.`,
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"command":{"type":"string","enum":["view","create","str_replace","insert","undo_edit"],"description":"What ` +
		`to do."},` +
		`"path":{"type":"string","description":"The absolute path of the file or folder, such as /app/main.py."},` +
		`"file_text":{"type":"string","description":"For create: the content of the file."},` +
		`"old_str":{"type":"string","description":"For str_replace: the text to replace."},` +
		`"new_str":{"type":"string","description":"For str_replace: the new text; without it the old text is deleted. ` +
		`For insert: the text to insert."},` +
		`"insert_line":{"type":"integer","description":"For insert: the number of the line after which the text ` +
		`comes; 0 is the beginning of the file."},` +
		`"view_range":{"type":"array","items":{"type":"integer"},"description":"For view of a file: the first and the ` +
		`last line, such as [11, 30]; [11, -1] is to the end."}},` +
		`"required":["command","path"]}`),
}

func parseEditor(args json.RawMessage) (event.Event, error) {
	var a struct {
		Command string          `json:"command"`
		Path    *string         `json:"path"`
		Text    *string         `json:"file_text"`
		Old     *string         `json:"old_str"`
		New     *string         `json:"new_str"`
		Line    json.RawMessage `json:"insert_line"`
		Range   json.RawMessage `json:"view_range"`
	}
	known := []string{"command", "file_text", "insert_line", "new_str", "old_str", "path", "view_range"}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(args, &given); err != nil {
		return event.Event{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, name) && name != "security_risk" { // models trained with OpenHands add it
			return event.Event{}, fmt.Errorf("there is no argument %s; there are %s", quote(name), strings.Join(known, ", "))
		}
	}
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(args, &a); errors.As(err, &wrong) {
		return event.Event{}, fmt.Errorf("%s must be a string", wrong.Field)
	} else if err != nil {
		return event.Event{}, err
	}
	if a.Path == nil || *a.Path == "" {
		return event.Event{}, errors.New("path is missing")
	}
	need := func(what *string, name string) error {
		if what == nil {
			return fmt.Errorf("%s needs %s", a.Command, name)
		}
		return nil
	}
	or := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	edit := event.Edit{Command: a.Command, Path: *a.Path}
	var err error
	switch a.Command {
	case "view":
		lines, err := numbers(a.Range)
		return event.New(event.FromAgent, event.Read{Path: *a.Path, Lines: lines}), err
	case event.EditCreate:
		edit.Text, err = or(a.Text), need(a.Text, "file_text")
	case event.EditReplace:
		edit.Old, edit.Text, err = or(a.Old), or(a.New), need(a.Old, "old_str")
	case event.EditInsert:
		edit.Text = or(a.New)
		if edit.Line, err = number(a.Line); err != nil || len(a.Line) == 0 {
			err = errors.New("insert needs insert_line, a whole number")
		} else {
			err = need(a.New, "new_str")
		}
	case event.EditUndo:
	case "":
		err = errors.New("command is missing")
	default:
		err = fmt.Errorf("there is no command %s; there are view, create, str_replace, insert and undo_edit",
			quote(a.Command))
	}
	return event.New(event.FromAgent, edit), err
}

// number returns a whole number, or one in quotes, which some models send.
func number(raw json.RawMessage) (int, error) {
	if len(raw) == 0 {
		return 0, nil
	}
	return strconv.Atoi(strings.TrimSuffix(strings.Trim(string(raw), `"`), ".0"))
}

// numbers returns a list of whole numbers, which may be in quotes, too.
func numbers(raw json.RawMessage) (out []int, err error) {
	wrong := errors.New("view_range must be two whole numbers, such as [11, 30]")
	text := strings.Trim(string(raw), `"`)
	if text == "" || text == "null" {
		return nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal([]byte(text), &list) != nil || len(list) != 2 {
		return nil, wrong
	}
	for _, x := range list {
		n, err := number(x)
		if err != nil {
			return nil, wrong
		}
		out = append(out, n)
	}
	return out, nil
}
