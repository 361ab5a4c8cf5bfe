package browsergym

import (
	"fmt"
	"strconv"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// An agent's arguments may be of any type. What is wrong with them is said as the reference says
// it, whose layers each look at them in their own way: Python itself, the driver's client, and the
// driver, which speaks of JavaScript's types.

func failure(kind, format string, a ...any) error {
	return &cdp.Failure{Kind: kind, Text: fmt.Sprintf(format, a...)}
}

// jsType is what the driver calls a value's type.
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

// jsArgType is as jsType, of an argument that the client leaves out when it is None.
func jsArgType(v pyrepr.Value) string {
	if _, none := v.(pyrepr.None); none {
		return "undefined"
	}
	return jsType(v)
}

// text is an argument that has to be a text, for a call of the driver: api and param are its names
// there.
func text(v pyrepr.Value, api, param string) (string, error) {
	if s, ok := v.(pyrepr.Str); ok {
		return string(s), nil
	}
	return "", failure("Error", "%s: %s: expected string, got %s", api, param, jsArgType(v))
}

// textOf is as text, for those calls whose client wants the argument itself.
func textOf(v pyrepr.Value, api, param, method string) (string, error) {
	if _, none := v.(pyrepr.None); none {
		return "", failure("TypeError", "%s() missing 1 required positional argument: '%s'", method, param)
	}
	return text(v, api, param)
}

// number is what arithmetic takes for a number.
func number(v pyrepr.Value) (float64, bool) {
	switch v := v.(type) {
	case pyrepr.Int:
		f, _ := strconv.ParseFloat(string(v), 64) // beyond the range: infinite
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

// scaled are coordinates, divided by the page's scale.
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

// button is a mouse button.
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

// items are those of a list or a tuple.
func items(v pyrepr.Value) ([]pyrepr.Value, bool) {
	switch v := v.(type) {
	case pyrepr.List:
		return v, true
	case pyrepr.Tuple:
		return v, true
	}
	return nil, false
}

// modifiers are keys that are held while clicking.
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

// options are what is to be selected.
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

// files are paths to upload. What is wrong with them shows only once a file chooser is open.
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

// index is the place that an index of Python means in a list of n.
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

// isTrue is what Python takes for true.
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
