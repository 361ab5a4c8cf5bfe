package config

import (
	"encoding/json"
	"path"
	"reflect"
	"strings"
)

// Schema is the JSON Schema of a configuration. It is made from the structs that decode it.
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
	types map[string]reflect.Type // of defs
}

type obj = map[string]any

func (g *schemaGen) object(t reflect.Type) obj {
	props := obj{}
	var required []string
	for _, f := range fieldsOf(t) {
		s := g.value(f.typ)
		if f.doc != "" {
			s["description"] = f.doc
		}
		if f.enum != nil {
			s["enum"] = f.enum
		}
		if f.names != "" {
			s["enum"] = g.reg.names(f.names)
		}
		switch {
		case f.min == nil:
		case f.typ.Kind() == reflect.Slice:
			s["minItems"] = *f.min // says nothing of a single value
		default:
			s["minimum"] = *f.min
		}
		if f.max != nil {
			s["maximum"] = *f.max
		}
		if f.required {
			required = append(required, f.name)
		}
		props[f.name] = s
	}
	o := obj{"type": "object", "properties": props, "additionalProperties": false}
	if required != nil {
		o["required"] = required
	}
	return o
}

func (g *schemaGen) value(t reflect.Type) obj {
	if t.Kind() == reflect.Pointer && !t.Implements(scalarType) {
		return g.value(t.Elem())
	}
	elem := t
	if t.Kind() == reflect.Pointer {
		elem = t.Elem()
	}
	if reflect.PointerTo(elem).Implements(scalarType) {
		return g.scalar(elem)
	}
	switch t {
	case rawType:
		return obj{}
	case nodeAxis:
		return obj{"anyOf": []any{obj{"type": "array", "minItems": 1}, obj{"type": "object", "minProperties": 1, "additionalProperties": obj{"type": "object"}}}}
	case nodeRaw:
		return obj{}
	}
	switch t.Kind() {
	case reflect.Struct:
		name := t.Name()
		if old := g.types[name]; old != nil && old != t { // options may have types of any name
			name = path.Base(t.PkgPath()) + "." + name
		}
		if _, ok := g.defs[name]; !ok {
			g.defs[name], g.types[name] = nil, t // a type that holds itself ends here
			o, short := g.object(t), obj{"type": "string", "minLength": 1}
			switch t {
			case reflect.TypeFor[Benchmark]():
				g.kinds(o, short, g.reg.Benchmarks)
			case reflect.TypeFor[Agent]():
				g.kinds(o, short, g.reg.Agents)
			case reflect.TypeFor[Model](): // or a name from models
				var names []string
				for _, k := range g.reg.Vendors {
					names = append(names, k.Name+"/NAME")
				}
				o["properties"].(obj)["name"].(obj)["examples"] = names
			}
			if reflect.PointerTo(t).Implements(reflect.TypeFor[shorter]()) {
				o = obj{"anyOf": []any{short, o}}
			}
			g.defs[name] = o
		}
		return obj{"$ref": "#/$defs/" + name}
	case reflect.Slice:
		list := obj{"type": "array", "items": g.value(t.Elem())}
		if single(t.Elem()) {
			return obj{"anyOf": []any{g.value(t.Elem()), list}}
		}
		return list
	case reflect.Map:
		return obj{"type": "object", "additionalProperties": g.value(t.Elem())}
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

// kinds lets an object have the names of kinds, each with its own options, and a text be the short
// form of one.
func (g *schemaGen) kinds(o, short obj, kinds []Kind) {
	names := kindNames(kinds)
	o["properties"].(obj)["name"] = obj{"type": "string", "enum": names, "description": o["properties"].(obj)["name"].(obj)["description"]}
	short["pattern"] = "^(" + strings.Join(names, "|") + ")(:|$)"
	var all []any
	for _, k := range kinds {
		options := obj{"not": obj{}} // it has none
		if k.Options != nil {
			options = g.object(k.Options)
		}
		all = append(all, obj{
			"if":   obj{"properties": obj{"name": obj{"const": k.Name}}},
			"then": obj{"properties": obj{"options": options}},
		})
	}
	o["allOf"] = all
}

func (g *schemaGen) scalar(t reflect.Type) obj {
	v := reflect.New(t).Interface().(scalar)
	_, pattern, example := v.what()
	s := obj{"type": "string", "pattern": pattern, "examples": []string{example}}
	switch v.(type) {
	case *Count:
		return obj{"anyOf": []any{obj{"type": "integer", "minimum": 0}, s}}
	case *Network:
		return obj{"anyOf": []any{s, obj{"type": "array", "items": obj{"type": "string"}}}}
	}
	return s
}

// A Key is one that the command line can set, with what it means.
type Key struct{ Path, Doc string }

// Settable are the keys that --set takes, in the order of the schema: not those within lists and
// maps. Options are those of the given benchmark and agent; either may be nil.
func Settable(benchmark, agent *Kind) []Key {
	return keysOf(reflect.TypeFor[File](), "", map[string]*Kind{"benchmark.options": benchmark, "agent.options": agent})
}

// OptionKeys are the keys of a kind's own options.
func OptionKeys(k *Kind) []Key {
	if k.Options == nil {
		return nil
	}
	return keysOf(k.Options, "", nil)
}

// keysOf are the keys of a struct; kinds have options of their own at some of them.
func keysOf(t reflect.Type, at string, kinds map[string]*Kind) (out []Key) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(scalarType) || t == nodeAxis || t == nodeRaw || strings.Count(at, ".") > 7 {
		return nil
	}
	for _, f := range fieldsOf(t) {
		p := join(at, f.name)
		out = append(append(out, Key{p, f.doc}), keysOf(f.typ, p, kinds)...)
		if k := kinds[p]; k != nil && k.Options != nil {
			out = append(out, keysOf(k.Options, p, nil)...)
		}
	}
	return out
}
