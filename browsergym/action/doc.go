// Package action is what an agent may do in a browser, as text: calls such as click('a12') or
// fill("7", 'x', True), parsed as Python literals without Python, allowed by sets, bound to
// parameters, and described to models.
//
// Names, signatures, grammar and errors are those of BrowserGym 0.14, so that published prompts and
// scores stay comparable; descriptions are our own. Executing a call is the business of package
// browsergym.
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

// An Error is what an agent is told of a failed action: Python's name of the exception, and its
// text.
type Error struct{ Kind, Text string }

func (e *Error) Error() string { return e.Kind + ": " + e.Text }
