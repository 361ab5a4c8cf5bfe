package action

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// Options of a [Set].
type Options struct {
	Subsets []string // "bid", "nav", "webarena" …; see [Subsets]
	Single  bool     // one call per action
	Strict  bool     // only calls in the text
	Retry   bool     // retry a call that timed out once, with force
	Custom  []*Spec  // actions of the caller, allowed by the subset "custom"
}

// A Set is a set of allowed actions. It is immutable after New.
type Set struct {
	o      Options
	specs  []*Spec
	byName map[string]*Spec
}

// New returns the actions of subsets, in their order; noop is always the first. Errors are
// *[Error].
func New(o Options) (*Set, error) {
	if len(o.Subsets) == 0 {
		return nil, &Error{"ValueError", "'action_subsets' is empty."}
	}
	s := &Set{o: o, byName: map[string]*Spec{}}
	take := func(x *Spec) {
		if s.byName[x.Name] == nil {
			s.byName[x.Name] = x
			s.specs = append(s.specs, x)
		}
	}
	add := func(name string) { take(specs[name]) }
	add("noop")
	for _, sub := range o.Subsets {
		if sub == "custom" {
			if len(o.Custom) == 0 {
				return nil, &Error{"ValueError", "'custom' is in 'action_subsets' but 'custom_actions' is empty."}
			}
			for _, x := range o.Custom {
				take(x)
			}
			continue
		}
		names, ok := subsets[sub]
		if !ok {
			return nil, &Error{"ValueError", "Unknown high-level action subspace: " + sub}
		}
		for _, n := range strings.Fields(names) {
			add(n)
		}
	}
	return s, nil
}

// Names returns the names of the allowed actions in order.
func (s *Set) Names() []string {
	var out []string
	for _, x := range s.specs {
		out = append(out, x.Name)
	}
	return out
}

// Specs returns the allowed actions in order.
func (s *Set) Specs() []*Spec { return s.specs }

// Retry reports whether a call that timed out is retried once, with force.
func (s *Set) Retry() bool { return s.o.Retry }

// Parse parses an agent's text and returns an error if a call is not allowed. It does not check
// arguments: see [Set.Bind].
func (s *Set) Parse(text string) ([]Call, error) {
	calls, err := Parse(text, s.o.Strict)
	switch {
	case err != nil:
		return nil, err
	case len(calls) == 0:
		return nil, &Error{"ValueError", "Received an empty action."}
	case len(calls) > 1 && s.o.Single:
		return nil, &Error{"ValueError", "Received a multi-action, only single-actions are allowed."}
	}
	for _, c := range calls {
		if s.byName[c.Name] == nil {
			return nil, &Error{"NameError", "Invalid action type '" + c.Name + "'."}
		}
	}
	line := 0
	for _, c := range calls {
		line++
		for i, n := range c.Named {
			if slices.ContainsFunc(c.Named[:i], func(m Named) bool { return m.Name == n.Name }) {
				return calls, &Error{"SyntaxError",
					fmt.Sprintf("keyword argument repeated: %s (<string>, line %d)", n.Name, line)}
			}
		}
	}
	return calls, nil
}

// Bind returns the argument or default of each parameter, in the order of the signature. Errors are
// *[Error] with Python's wording.
func (s *Set) Bind(c Call) ([]pyrepr.Value, error) {
	spec := s.byName[c.Name]
	if spec == nil {
		return nil, &Error{"NameError", "Invalid action type '" + c.Name + "'."}
	}
	for _, v := range c.Args {
		if hasInf(v) {
			return nil, &Error{"NameError", "name 'inf' is not defined"}
		}
	}
	for _, n := range c.Named {
		if hasInf(n.Value) {
			return nil, &Error{"NameError", "name 'inf' is not defined"}
		}
	}
	out := make([]pyrepr.Value, len(spec.Params))
	copy(out, c.Args)
	for _, n := range c.Named {
		i := slices.IndexFunc(spec.Params, func(p Param) bool { return p.Name == n.Name })
		if i < 0 {
			return nil, &Error{"TypeError", fmt.Sprintf("%s() got an unexpected keyword argument '%s'", c.Name, n.Name)}
		}
		if out[i] != nil {
			return nil, &Error{"TypeError", fmt.Sprintf("%s() got multiple values for argument '%s'", c.Name, n.Name)}
		}
		out[i] = n.Value
	}
	if len(c.Args) > len(spec.Params) {
		return nil, spec.tooMany(len(c.Args))
	}
	var missing []string
	for i, p := range spec.Params {
		switch {
		case out[i] != nil:
		case p.Default != nil:
			out[i] = p.Default
		default:
			missing = append(missing, "'"+p.Name+"'")
		}
	}
	if n := len(missing); n > 0 {
		text := missing[0]
		switch {
		case n == 2:
			text = missing[0] + " and " + missing[1]
		case n > 2:
			text = strings.Join(missing[:n-1], ", ") + ", and " + missing[n-1]
		}
		plural := "s"
		if n == 1 {
			plural = ""
		}
		return nil, &Error{"TypeError", fmt.Sprintf("%s() missing %d required positional argument%s: %s", c.Name, n,
			plural, text)}
	}
	return out, nil
}

func (s *Spec) tooMany(given int) *Error {
	required := 0
	for _, p := range s.Params {
		if p.Default == nil {
			required++
		}
	}
	takes := fmt.Sprint(len(s.Params))
	plural := "s"
	if required != len(s.Params) {
		takes = fmt.Sprintf("from %d to %d", required, len(s.Params))
	} else if required == 1 {
		plural = ""
	}
	were := "were"
	if given == 1 {
		were = "was"
	}
	return &Error{"TypeError", fmt.Sprintf("%s() takes %s positional argument%s but %d %s given", s.Name, takes, plural,
		given, were)}
}

// hasInf reports whether a value contains an infinity, which Python prints as a name that does not
// exist.
func hasInf(v pyrepr.Value) bool {
	switch v := v.(type) {
	case pyrepr.Float:
		return math.IsInf(float64(v), 0)
	case pyrepr.List:
		return slices.ContainsFunc(v, hasInf)
	case pyrepr.Tuple:
		return slices.ContainsFunc(v, hasInf)
	case pyrepr.Dict:
		return slices.ContainsFunc(v, func(p pyrepr.Pair) bool { return hasInf(p.Value) })
	}
	return false
}
