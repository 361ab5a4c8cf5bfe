package config

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/evalrun/evalrun/internal/yamldoc"
)

// From file to arm, all steps work on a tree, so that a value keeps its position through matrix,
// defaults and overrides.
type (
	node  = yamldoc.Node
	entry = yamldoc.Entry
	pos   = yamldoc.Pos
)

// parse parses a configuration. It returns nil if nothing usable is left.
func parse(name string, data []byte, errs *errorList) *node {
	n, err := yamldoc.Parse(name, data, yamldoc.Bounds{})
	if err != nil {
		for _, e := range err.(yamldoc.Errors) {
			errs.Add(e)
		}
	}
	return n
}

// put returns n with the value at a dotted path set to v. It first expands a short form on the way
// ("model: openai/x").
func put(n *node, path string, v *node) *node {
	key, rest, more := strings.Cut(path, ".")
	if !more {
		return n.With(key, v)
	}
	child := n.Get(key)
	if child != nil && (child.Kind == yamldoc.String || child.Kind == yamldoc.Int) {
		child = open(key, child)
		child.Pos = v.Pos // that it has to be a mapping comes from v
	}
	return n.With(key, put(child, rest, v))
}

// open expands the short form of a value.
func open(key string, v *node) *node {
	m := &node{Kind: yamldoc.Map, Pos: v.Pos}
	part := func(s string) *node { return &node{Kind: yamldoc.String, Text: s, Pos: v.Pos} }
	name, rest, more := strings.Cut(v.Text, ":")
	switch {
	case key == "prompt" || key == "tape":
		return m.With("file", v)
	case key == "benchmark" && more:
		return m.With("name", part(name)).With("path", part(rest))
	case key == "agent" && more:
		return m.With("name", part(name)).With("arg", part(rest))
	}
	return m.With("name", v)
}

// verbatim is YAML that is written unchanged.
type verbatim string

func (v verbatim) MarshalYAML() ([]byte, error) { return []byte(v), nil }

// written returns a value for the YAML writer, which would write the text "1e-7" without quotes.
func written(n *node) any {
	switch n.Kind {
	case yamldoc.Map:
		m := yaml.MapSlice{}
		for _, e := range n.Entries {
			m = append(m, yaml.MapItem{Key: e.Key, Value: written(e.Value)})
		}
		return m
	case yamldoc.List:
		l := []any{}
		for _, v := range n.Items {
			l = append(l, written(v))
		}
		return l
	case yamldoc.Null:
		return nil
	case yamldoc.String:
		if yamldoc.PlainKind(n.Text) != yamldoc.String {
			return verbatim(strconv.Quote(n.Text))
		}
		return n.Text
	}
	return verbatim(n.Text)
}
