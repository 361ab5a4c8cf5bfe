package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/browsergym/action"
)

// A reading is the result of parsing an action's text.
type reading struct {
	Accepted bool   `json:"accepted"`
	Python   string `json:"python"`
	Error    string `json:"error"`
}

// parser compares the parsing of actions with the table actions/parser.json, if the recordings
// include it.
func (o *options) parser(c *tally) error {
	raw, err := os.ReadFile(filepath.Join(o.dir, "actions", "parser.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var rows []struct {
		Text    string   `json:"text"`
		Loose   reading  `json:"loose"`
		Strict  reading  `json:"strict"`
		Single  reading  `json:"single"`
		Binding []string `json:"binding"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &rows)
	}
	if err != nil {
		return fmt.Errorf("the parser's table: %w", err)
	}
	all := strings.Fields("chat infeas bid coord nav tab")
	for _, r := range rows {
		for _, m := range []struct {
			name string
			o    action.Options
			want reading
		}{
			{"loose", action.Options{Subsets: all}, r.Loose},
			{"strict", action.Options{Subsets: all, Strict: true}, r.Strict},
			{"single", action.Options{Subsets: all, Single: true}, r.Single},
		} {
			set, err := action.New(m.o)
			if err != nil {
				return err
			}
			calls, err := set.Parse(r.Text)
			if err != nil && len(r.Binding) > 0 &&
				strings.HasPrefix(err.Error(), "SyntaxError: keyword argument repeated") {
				err = nil // the table lists it among the bindings
			}
			got := reading{Accepted: err == nil}
			if err != nil {
				got.Error = err.Error()
			} else {
				for _, call := range calls {
					got.Python += call.String() + "\n"
				}
			}
			c.add(fmt.Sprintf("%q", r.Text), difference{"parser, " + m.name, fmt.Sprint(got), fmt.Sprint(m.want)},
				unexcused)
		}
		set, err := action.New(action.Options{Subsets: all})
		if err != nil {
			return err
		}
		calls, perr := set.Parse(r.Text)
		for i, want := range r.Binding {
			got := "ok"
			if perr != nil {
				got = perr.Error()
			} else if i >= len(calls) {
				got = "no such call"
			} else if _, err := set.Bind(calls[i]); err != nil {
				got = err.Error()
			}
			c.add(fmt.Sprintf("%q, call %d", r.Text, i), difference{"parser, arguments", got, want}, unexcused)
		}
	}
	return nil
}
