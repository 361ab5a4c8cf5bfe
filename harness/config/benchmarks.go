package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/internal/yamldoc"
)

func (l *layout) benchmarks(tree *node) {
	f := &l.out.File
	nodes, keys := []*node{}, []string{}
	if b := tree.Get("benchmarks"); b != nil && b.Kind == yamldoc.List {
		nodes = b.Items
	} else if b != nil {
		nodes = []*node{b}
	}
	for i := range nodes {
		keys = append(keys, fmt.Sprintf("benchmarks[%d]", i))
	}
	if f.Benchmark != nil {
		keys = append([]string{"benchmark"}, keys...)
		f.Benchmarks = append([]Benchmark{*f.Benchmark}, f.Benchmarks...)
		nodes = append([]*node{tree.Get("benchmark")}, nodes...)
	}
	if len(f.Benchmarks) == 0 {
		if len(l.errs.list) > 0 { // probably caused by a mistyped key
			return
		}
		l.errs.add(pos{File: tree.Pos.File}, "benchmark", "no benchmark is named",
			"add a line such as: benchmark: quickstart")
		return
	}
	seen := map[string]bool{}
	for i := range f.Benchmarks {
		b := &f.Benchmarks[i]
		if i >= len(nodes) || b.Name == "" {
			if i < len(nodes) && len(l.errs.list) == 0 { // else decoding failed
				l.fail(nodes[i], keys[i], "the benchmark has no name", "write a name such as quickstart")
			}
			continue
		}
		n := nodes[i]
		at := cmpNode(n.Get("name"), n)
		k, msg, hint := l.reg.name("benchmark", l.reg.Benchmarks, b.Name, &b.Path, l.dir)
		if msg != "" {
			l.fail(at, keys[i], msg, hint)
			continue
		}
		l.options(k, "benchmark "+b.Name, b.Path, &b.Options, n, keys[i]+".options")
		key := b.Name + ":" + b.Path
		if seen[key] {
			l.fail(at, keys[i], fmt.Sprintf("benchmark %s is listed twice; repeat its tasks with repeats", key), "")
		}
		seen[key] = true
		b.Select = b.Select.over(f.Select)
		l.selects(b.Select, cmpNode(n.Get("select"), tree.Get("select"), n))
	}
	f.Benchmark, f.Select = nil, nil
}

func cmpNode(nodes ...*node) *node {
	for _, n := range nodes {
		if n != nil {
			return n
		}
	}
	return nil
}

// Selection converts s to the form a plan uses.
func (s *Select) Selection() plan.Selection {
	if s == nil {
		return plan.Selection{}
	}
	return plan.Selection{IDs: s.IDs, Tags: s.Tags, Filter: s.Filter, Sample: s.Sample, Limit: s.Limit}
}

// over returns s with its unset fields taken from base.
func (s *Select) over(base *Select) *Select {
	if s == nil {
		return base
	}
	if base == nil {
		return s
	}
	c := *s
	if c.IDs == nil {
		c.IDs = base.IDs
	}
	if c.Tags == nil {
		c.Tags = base.Tags
	}
	if c.Filter == nil {
		c.Filter = base.Filter
	}
	if c.Sample == 0 {
		c.Sample = base.Sample
	}
	if c.Limit == 0 {
		c.Limit = base.Limit
	}
	return &c
}

func (l *layout) selects(s *Select, n *node) {
	if s == nil || s.Sample < 0 || s.Limit < 0 { // the decoder has reported these
		return
	}
	if err := s.Selection().Check(); err != nil {
		l.fail(cmpNode(n.Get("filter"), n.Get("ids"), n), "select", err.Error(), "")
	}
}

// options decodes a kind's own options strictly.
func (l *layout) options(k *Kind, what, arg string, rawOpts *json.RawMessage, n *node, path string) {
	on := n.Get("options")
	if on != nil {
		if k.Options == nil {
			l.fail(on, path, what+" has no options", "")
			return
		}
		before := len(l.errs.list)
		v := reflect.New(k.Options)
		d := l.decoder(path)
		d.Rewrite = true
		d.Decode(on, v.Interface())
		if len(l.errs.list) > before {
			return
		}
		b, err := on.JSON()
		if *rawOpts = b; err == nil {
			err = absolutePaths(rawOpts, k.Paths, l.dir)
		}
		if err != nil {
			l.fail(on, path, what+": "+err.Error(), "")
			return
		}
	} else {
		*rawOpts = nil
	}
	if k.Check == nil {
		return
	}
	err := k.Check(arg, *rawOpts)
	each := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		each = joined.Unwrap()
	}
	for _, err := range each {
		if err == nil {
			continue
		}
		// An error about a single option begins with the option's name.
		if key, msg, _ := strings.Cut(err.Error(), ": "); on.Get(key) != nil {
			l.fail(on.Get(key), yamldoc.Join(path, key), msg, "")
		} else {
			l.fail(cmpNode(on, n), path, what+": "+err.Error(), "")
		}
	}
}

// absolutePaths makes options that are paths absolute: a key, a nested key (outer.key), or the
// program of a command line (key[0]).
func absolutePaths(opts *json.RawMessage, keys []string, dir string) error {
	if len(keys) == 0 {
		return nil
	}
	var m map[string]any
	if err := json.Unmarshal(*opts, &m); err != nil {
		return err
	}
	for _, k := range keys {
		m := m
		for outer, rest, more := strings.Cut(k, "."); more; outer, rest, more = strings.Cut(k, ".") {
			m, _ = m[outer].(map[string]any)
			k = rest
		}
		k, program := strings.CutSuffix(k, "[0]")
		switch v := m[k].(type) {
		case string:
			if v != "" {
				m[k] = abs(dir, v)
			}
		case []any:
			if program { // a name without a slash is looked up in PATH
				if s, ok := append(v, "")[0].(string); ok && strings.Contains(s, "/") {
					v[0] = abs(dir, s)
				}
				continue
			}
			for i, x := range v {
				if s, ok := x.(string); ok && s != "" {
					v[i] = abs(dir, s)
				}
			}
		}
	}
	b, err := json.Marshal(m)
	*opts = b
	return err
}
