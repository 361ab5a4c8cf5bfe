// Package action defines the actions of an agent in a browser. Actions are text: calls such as
// click('a12') or fill("7", 'x', True). The package parses them as Python literals without Python,
// checks them against sets of allowed actions, binds their parameters, and describes them to
// models.
//
// Names, signatures, grammar and errors are those of BrowserGym 0.14, so that results are
// comparable with published prompts and scores; the descriptions are our own. Package browsergym
// executes the calls.
package action

import "github.com/evalrun/evalrun/browsergym/pyrepr"

// A Call is one call of an action.
type Call struct {
	Name  string
	Args  []pyrepr.Value
	Named []Named
}

// A Named argument.
type Named struct {
	Name  string
	Value pyrepr.Value
}

// String is the call in Python.
func (c Call) String() string {
	b := append([]byte(c.Name), '(')
	for i, a := range c.Args {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = a.Append(b)
	}
	for i, a := range c.Named {
		if i > 0 || len(c.Args) > 0 {
			b = append(b, ", "...)
		}
		b = a.Value.Append(append(append(b, a.Name...), '='))
	}
	return string(append(b, ')'))
}

// An Error is the error of an action as shown to the agent: the name of Python's exception and its
// text.
type Error struct{ Kind, Text string }

func (e *Error) Error() string { return e.Kind + ": " + e.Text }
