package format

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/evalrun/evalrun/agent"
)

// Env are variables whose values may be templates: a whole value ${NAME} or ${NAME:-default}.
// Anything else is literal.
type Env map[string]string

var template = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_.-]*)(?::-(.*))?\}$`)

// ValidVariable reports whether a template can name this variable.
func ValidVariable(name string) bool { return template.MatchString("${" + name + "}") }

// A MissingVariable is one of this machine that a task wants and the run does not give.
type MissingVariable struct {
	Where string // "environment.env.API_KEY"
	Name  string
	Err   error // what the run said; nil: it does not allow the name
}

func (e *MissingVariable) Error() string {
	s := fmt.Sprintf("%s wants the variable %s of this machine, and this run does not give it", e.Where, e.Name)
	if e.Err != nil {
		s += fmt.Sprintf(" (%v)", e.Err)
	}
	return s + fmt.Sprintf("; to allow it, add env: [%s] to the benchmark's options and secrets: {%s: ${%s}} to the "+
		"configuration", e.Name, e.Name, e.Name)
}

func (e *MissingVariable) Unwrap() error { return e.Err }

// A Lookup gives the value of a variable of this machine, or a *[Missing] without a Where.
type Lookup func(name string) (string, error)

// Resolve fills in the templates. where names the table, for errors, which are all reported.
func (e Env) Resolve(where string, get Lookup) (map[string]string, error) {
	out := make(map[string]string, len(e))
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(e)) {
		v, err := resolve(where+"."+k, e[k], get)
		if err != nil {
			errs = append(errs, err)
		}
		out[k] = v
	}
	return out, errors.Join(errs...)
}

func resolve(where, value string, get Lookup) (string, error) {
	m := template.FindStringSubmatchIndex(value)
	if m == nil {
		return value, nil
	}
	name := value[m[2]:m[3]]
	v, err := get(name)
	var missing *MissingVariable
	switch {
	case err == nil && (v != "" || m[4] < 0): // an empty one takes the default, as in a shell
		return v, nil
	case m[4] >= 0:
		return value[m[4]:m[5]], nil
	case errors.As(err, &missing):
		return "", &MissingVariable{Where: where, Name: name, Err: missing.Err}
	}
	return "", &MissingVariable{Where: where, Name: name, Err: err}
}

// Merge lays over on top of e.
func (e Env) Merge(over Env) Env {
	if len(over) == 0 {
		return e
	}
	out := Env{}
	maps.Copy(out, e)
	maps.Copy(out, over)
	return out
}

// ResolveServers fills in the templates of tool servers' headers and variables.
func ResolveServers(list []agent.MCPServer, get Lookup) ([]agent.MCPServer, error) {
	out := slices.Clone(list)
	var errs []error
	for i, s := range out {
		where := "environment.mcp_servers." + s.Name
		for _, part := range []struct {
			name string
			m    *map[string]string
		}{{"headers", &out[i].Headers}, {"env", &out[i].Env}} {
			if len(*part.m) == 0 {
				continue
			}
			m, err := Env(*part.m).Resolve(where+"."+part.name, get)
			if err != nil {
				errs = append(errs, err)
			}
			*part.m = m
		}
	}
	return out, errors.Join(errs...)
}
