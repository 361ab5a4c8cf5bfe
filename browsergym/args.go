package browsergym

import (
	"fmt"
	"strconv"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// An agent's arguments may have any type. Errors about them have the wording of the reference,
// whose layers check them in different ways: Python itself, the driver's client, and the driver,
// which uses the names of JavaScript's types.

func failure(kind, format string, a ...any) error {
	return &cdp.Failure{Kind: kind, Text: fmt.Sprintf(format, a...)}
}

// jsType returns the driver's name for a value's type.
func jsType(v pyrepr.Value) string {
	switch v.(type) {
	case pyrepr.Str:
		return "string"
	case pyrepr.Int, pyrepr.Float:
		return "number"
	case pyrepr.Bool:
		return "boolean"
	}
	return "object"
}

// jsArgType is jsType for an argument that the client leaves out if it is None.
func jsArgType(v pyrepr.Value) string {
	if _, none := v.(pyrepr.None); none {
		return "undefined"
	}
	return jsType(v)
}

// text converts an argument that must be a string. api and param are its names in the driver, for
// the error.
func text(v pyrepr.Value, api, param string) (string, error) {
	if s, ok := v.(pyrepr.Str); ok {
		return string(s), nil
	}
	return "", failure("Error", "%s: %s: expected string, got %s", api, param, jsArgType(v))
}

// textOf is text for calls whose client uses the argument itself.
func textOf(v pyrepr.Value, api, param, method string) (string, error) {
	if _, none := v.(pyrepr.None); none {
		return "", failure("TypeError", "%s() missing 1 required positional argument: '%s'", method, param)
	}
	return text(v, api, param)
}

// number converts a value that Python's arithmetic accepts.
func number(v pyrepr.Value) (float64, bool) {
	switch v := v.(type) {
	case pyrepr.Int:
		f, _ := strconv.ParseFloat(string(v), 64) // infinite if out of range
		return f, true
	case pyrepr.Float:
		return float64(v), true
	case pyrepr.Bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// scaled converts coordinates and divides them by the page's scale.
func scaled(vs []pyrepr.Value, scale float64) ([]float64, error) {
	out := make([]float64, len(vs))
	for i, v := range vs {
		f, ok := number(v)
		if !ok {
			return nil, failure("TypeError", "unsupported operand type(s) for /: '%s' and 'float'", v.Type())
		}
		out[i] = f / scale
	}
	return out, nil
}

// button converts a mouse button.
func button(v pyrepr.Value, api string) (string, error) {
	switch v := v.(type) {
	case pyrepr.None:
		return "left", nil
	case pyrepr.Str:
		if v == "left" || v == "right" || v == "middle" {
			return string(v), nil
		}
	}
	return "", failure("Error", "%s: button: expected one of (left|right|middle)", api)
}

// items returns the items of a list or tuple.
func items(v pyrepr.Value) ([]pyrepr.Value, bool) {
	switch v := v.(type) {
	case pyrepr.List:
		return v, true
	case pyrepr.Tuple:
		return v, true
	}
	return nil, false
}

// modifiers converts the keys held down during a click.
func modifiers(v pyrepr.Value, api string) ([]string, error) {
	if _, none := v.(pyrepr.None); none {
		return nil, nil
	}
	list, ok := items(v)
	if !ok {
		return nil, failure("Error", "%s: modifiers: expected array, got %s", api, jsType(v))
	}
	out := []string{}
	for i, v := range list {
		s, _ := v.(pyrepr.Str)
		switch s {
		case "Alt", "Control", "ControlOrMeta", "Meta", "Shift":
			out = append(out, string(s))
		default:
			return nil, failure("Error", "%s: modifiers[%d]: expected one of (Alt|Control|ControlOrMeta|Meta|Shift)",
				api, i)
		}
	}
	return out, nil
}

// options converts the options to be selected.
func options(v pyrepr.Value) ([]string, error) {
	var list []pyrepr.Value
	switch v := v.(type) {
	case pyrepr.Str:
		list = []pyrepr.Value{v}
	case pyrepr.List, pyrepr.Tuple:
		list, _ = items(v)
	case pyrepr.Dict:
		for _, p := range v {
			list = append(list, pyrepr.Str(p.Key))
		}
	case pyrepr.None:
	default:
		return nil, failure("TypeError", "'%s' object is not iterable", v.Type())
	}
	out := []string{}
	for i, v := range list {
		s, ok := v.(pyrepr.Str)
		if !ok {
			return nil, failure("Error", "Locator.select_option: options[%d].valueOrLabel: expected string, got %s", i,
				jsType(v))
		}
		out = append(out, string(s))
	}
	return out, nil
}

// files converts paths to upload. Errors about them are reported only once a file chooser is open.
func files(v pyrepr.Value) ([]string, error) {
	list := []pyrepr.Value{v}
	if l, ok := v.(pyrepr.List); ok {
		list = l
	}
	out, strange := []string{}, pyrepr.Value(nil)
	for _, v := range list {
		if s, ok := v.(pyrepr.Str); ok {
			out = append(out, string(s))
		} else if strange == nil {
			strange = v
		}
	}
	switch {
	case strange == nil:
		return out, nil
	case len(out) > 0:
		return nil, failure("Error", "File paths cannot be mixed with buffers")
	}
	return nil, failure("AttributeError", "'%s' object has no attribute 'get'", strange.Type())
}

// index converts a Python index into a list of n.
func index(v pyrepr.Value, n int) (int, error) {
	var i int
	switch v := v.(type) {
	case pyrepr.Int:
		k, err := strconv.Atoi(string(v))
		if err != nil {
			return 0, failure("IndexError", "cannot fit 'int' into an index-sized integer")
		}
		i = k
	case pyrepr.Bool:
		if v {
			i = 1
		}
	default:
		return 0, failure("TypeError", "list indices must be integers or slices, not %s", v.Type())
	}
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return 0, failure("IndexError", "list index out of range")
	}
	return i, nil
}

// isTrue returns Python's truth value of v.
func isTrue(v pyrepr.Value) bool {
	switch v := v.(type) {
	case pyrepr.Str:
		return v != ""
	case pyrepr.None:
		return false
	case pyrepr.List:
		return len(v) > 0
	case pyrepr.Tuple:
		return len(v) > 0
	case pyrepr.Dict:
		return len(v) > 0
	}
	f, _ := number(v)
	return f != 0
}
