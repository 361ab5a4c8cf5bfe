package action

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
	"github.com/evalrun/evalrun/browsergym/rng"
)

// Describe describes the actions to a model. long adds a paragraph about each action, examples adds
// example calls.
func (s *Set) Describe(long, examples bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d kinds of actions can be taken.\n\n", len(s.specs))
	for _, x := range s.specs {
		b.WriteString(x.Signature() + "\n")
		if long {
			b.WriteString("    " + x.Doc + "\n")
		}
		if examples {
			b.WriteString("    Examples:\n")
			for _, e := range x.Examples {
				b.WriteString("        " + e + "\n")
			}
			b.WriteString("\n")
		}
	}
	if s.o.Single {
		b.WriteString("One call is allowed at a time.\n Example:\n")
	} else {
		b.WriteString("Several calls may be given at once. They run in order, and nothing of the page is seen " +
			"between them, so that more than two or three of them usually fail.\n Example:\n")
	}
	b.WriteString(s.Example() + "\n")
	return b.String()
}

// Example returns an example of an answer: one call if only one is allowed, else up to three. The
// same set always returns the same examples, those of published prompts.
func (s *Set) Example() string {
	var pool []string
	for _, name := range []string{"fill", "click", "mouse_click", "keyboard_type"} {
		if x := s.byName[name]; x != nil {
			pool = append(pool, x.Examples...)
		}
	}
	if pool == nil {
		for _, x := range s.specs {
			pool = append(pool, x.Examples...)
		}
	}
	rng.NewRandom(1).Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	n := min(3, len(pool))
	if s.o.Single {
		n = 1
	}
	return strings.Join(pool[:n], "\n")
}

// A Tool is an action as a tool for a model.
type Tool struct {
	Name, Description string
	Schema            json.RawMessage // JSON Schema of its parameters
}

// Tools returns the actions as tools, each making one call.
func (s *Set) Tools(examples bool) []Tool {
	var out []Tool
	for _, x := range s.specs {
		doc := x.Doc
		if examples {
			doc += "\n\nExamples:"
			for _, e := range x.Examples {
				doc += "\n- " + e
			}
		}
		out = append(out, Tool{x.Name, doc, x.schema()})
	}
	return out
}

// schema writes the JSON by hand to keep the properties in the order of the signature.
func (s *Spec) schema() json.RawMessage {
	var props, required []string
	for _, p := range s.Params {
		typ := map[string]string{"float": "number", "int": "number", "bool": "boolean"}[p.Type]
		if typ == "" {
			typ = "string"
		}
		prop := strconv.Quote(p.Name) + `:{"type":"` + typ + `"`
		if p.Default != nil {
			prop += `,"default":` + jsonOf(p.Default)
		} else {
			required = append(required, strconv.Quote(p.Name))
		}
		props = append(props, prop+"}")
	}
	return json.RawMessage(`{"type":"object","properties":{` + strings.Join(props, ",") + `},"required":[` +
		strings.Join(required, ",") + `]}`)
}

// jsonOf encodes a default value, which is one of few types.
func jsonOf(v pyrepr.Value) string {
	switch v := v.(type) {
	case pyrepr.Str:
		return strconv.Quote(string(v))
	case pyrepr.Bool:
		return strconv.FormatBool(bool(v))
	}
	return pyrepr.Repr(v)
}
