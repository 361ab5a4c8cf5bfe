package config

import (
	"encoding/json"
	"path"
	"reflect"
	"strings"

	"github.com/evalrun/evalrun/internal/yamldoc"
)

// Schema returns the JSON Schema of a configuration, generated from the structs that decode it.
func Schema(reg *Registry) ([]byte, error) {
	g := &schemaGen{reg: reg, defs: map[string]any{}, types: map[string]reflect.Type{}}
	root := g.object(reflect.TypeFor[File]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "A run of evalrun"
	root["$defs"] = g.defs
	return json.MarshalIndent(root, "", "  ")
}

type schemaGen struct {
	reg   *Registry
	defs  map[string]any
	types map[string]reflect.Type // types of the entries in defs
}

type obj = map[string]any

var notationType = reflect.TypeFor[yamldoc.Notation]()

func (g *schemaGen) object(t reflect.Type) obj {
	props := obj{}
	var required []string
	for _, f := range yamldoc.Fields(t) {
		s := g.value(f.Type)
		if f.Enum != nil {
			s["enum"] = f.Enum
		}
		if f.Names != "" {
			s["enum"] = g.reg.names(f.Names)
		}
		switch {
		case f.Min == nil:
		case f.Type.Kind() == reflect.Slice:
			s["minItems"] = *f.Min // a single value is not restricted by minItems
		default:
			s["minimum"] = *f.Min
		}
		if f.Max != nil {
			s["maximum"] = *f.Max
		}
		if f.Required {
			required = append(required, f.Name)
		} else {
			s = orNull(s)
		}
		if f.Doc != "" {
			s["description"] = f.Doc
		}
		props[f.Name] = s
	}
	o := obj{"type": "object", "properties": props, "additionalProperties": false}
	if required != nil {
		o["required"] = required
	}
	return o
}

// orNull adds null, which stands for the default of a key.
func orNull(s obj) obj {
	if len(s) == 0 {
		return s
	}
	if e, ok := s["enum"].([]string); ok {
		var all []any
		for _, x := range e {
			all = append(all, x)
		}
		s["enum"] = append(all, nil)
	}
	switch t := s["type"].(type) {
	case string:
		s["type"] = []string{t, "null"}
	case []string:
		s["type"] = append(t, "null")
	default:
		return obj{"anyOf": []any{s, obj{"type": "null"}}}
	}
	return s
}

func (g *schemaGen) value(t reflect.Type) obj {
	if t.Kind() == reflect.Pointer && !t.Implements(notationType) {
		return g.value(t.Elem())
	}
	elem := t
	if t.Kind() == reflect.Pointer {
		elem = t.Elem()
	}
	if reflect.PointerTo(elem).Implements(notationType) {
		return g.scalar(elem)
	}
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return obj{}
	case reflect.TypeFor[axis]():
		return obj{"anyOf": []any{obj{"type": "array", "minItems": 1},
			obj{"type": "object", "minProperties": 1}}}
	case reflect.TypeFor[raw]():
		return obj{}
	}
	switch t.Kind() {
	case reflect.Struct:
		name := t.Name()
		// Options of different kinds may have types with the same name.
		if old := g.types[name]; old != nil && old != t {
			name = path.Base(t.PkgPath()) + "." + name
		}
		if _, ok := g.defs[name]; !ok {
			g.defs[name], g.types[name] = nil, t // set before descending, so that a recursive type ends here
			o, short := g.object(t), obj{"type": "string", "minLength": 1}
			switch t {
			case reflect.TypeFor[Benchmark]():
				g.kinds(o, short, g.reg.Benchmarks)
			case reflect.TypeFor[Agent]():
				g.kinds(o, short, g.reg.Agents)
			case reflect.TypeFor[Model](): // the short form is also a name from models
				var names []string
				for _, k := range g.reg.Vendors {
					names = append(names, k.Name+"/NAME")
				}
				o["properties"].(obj)["name"].(obj)["examples"] = names
			}
			if reflect.PointerTo(t).Implements(reflect.TypeFor[yamldoc.Setter]()) {
				o = obj{"anyOf": []any{short, o}}
			}
			g.defs[name] = o
		}
		return obj{"$ref": "#/$defs/" + name}
	case reflect.Slice:
		list := obj{"type": "array", "items": g.value(t.Elem())}
		if yamldoc.Single(t.Elem()) {
			return obj{"anyOf": []any{g.value(t.Elem()), list}}
		}
		return list
	case reflect.Map:
		return obj{"type": "object", "additionalProperties": orNull(g.value(t.Elem()))}
	case reflect.String:
		return obj{"type": []string{"string", "number"}}
	case reflect.Bool:
		return obj{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return obj{"type": "integer"}
	case reflect.Uint64:
		return obj{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return obj{"type": "number"}
	}
	return obj{}
}

// kinds restricts an object's name to the names of kinds, each with its own options, and allows a
// text as the short form.
func (g *schemaGen) kinds(o, short obj, kinds []Kind) {
	names := kindNames(kinds)
	o["properties"].(obj)["name"] = obj{"type": "string", "enum": names,
		"description": o["properties"].(obj)["name"].(obj)["description"]}
	short["pattern"] = "^(" + strings.Join(names, "|") + ")(:|$)"
	var all []any
	for _, k := range kinds {
		options := obj{"type": "null"} // for a kind without options
		if k.Options != nil {
			options = orNull(g.object(k.Options))
		}
		all = append(all, obj{
			"if":   obj{"properties": obj{"name": obj{"const": k.Name}}},
			"then": obj{"properties": obj{"options": options}},
		})
	}
	o["allOf"] = all
}

func (g *schemaGen) scalar(t reflect.Type) obj {
	v := reflect.New(t).Interface().(yamldoc.Notation)
	_, pattern, example := v.Notation()
	s := obj{"type": "string", "pattern": pattern, "examples": []string{example}}
	switch v.(type) {
	case *Count:
		return obj{"anyOf": []any{obj{"type": "integer", "minimum": 0}, s}}
	case *Network:
		return obj{"anyOf": []any{s, obj{"type": "array", "items": obj{"type": "string"}}}}
	}
	return s
}

// A Key is a key that the command line can set, with its description.
type Key struct{ Path, Doc string }

// Settable returns the keys that --set accepts, in the order of the schema, without keys inside
// lists and maps. It includes the options of the given benchmark and agent; either may be nil.
func Settable(benchmark, agent *Kind) []Key {
	return keysOf(reflect.TypeFor[File](), "", map[string]*Kind{"benchmark.options": benchmark, "agent.options": agent})
}

// OptionKeys returns the keys of a kind's own options.
func OptionKeys(k *Kind) []Key {
	if k.Options == nil {
		return nil
	}
	return keysOf(k.Options, "", nil)
}

// keysOf returns the keys of a struct. kinds gives the kind whose options belong at a key.
func keysOf(t reflect.Type, at string, kinds map[string]*Kind) (out []Key) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(notationType) || t == reflect.TypeFor[axis]() ||
		t == reflect.TypeFor[raw]() || strings.Count(at, ".") > 7 {
		return nil
	}
	for _, f := range yamldoc.Fields(t) {
		p := yamldoc.Join(at, f.Name)
		out = append(append(out, Key{p, f.Doc}), keysOf(f.Type, p, kinds)...)
		if k := kinds[p]; k != nil && k.Options != nil {
			out = append(out, keysOf(k.Options, p, nil)...)
		}
	}
	return out
}
