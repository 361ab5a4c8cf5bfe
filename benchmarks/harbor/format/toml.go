package format

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

const (
	maxTOML  = 1 << 20
	maxDepth = 64 // of tables within tables
)

// A tomlFile is a parsed file whose values are taken out by type. All that does not fit is noted
// with its place, so that one look shows everything; keys that nobody asked for become warnings.
type tomlFile struct {
	name  string
	lines []int          // offsets of line ends
	at    map[string]int // offset of each key, by its path: "steps[0].agent.timeout_sec"
	errs  []error
	warns []string
}

// A table of a tomlFile. The nil table has no keys.
type table struct {
	f    *tomlFile
	path string
	m    map[string]any
	seen map[string]bool
}

// parseTOML parses text. The error is of its syntax and has its place.
func parseTOML(name string, text []byte) (*table, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	switch {
	case len(text) > maxTOML:
		return nil, fmt.Errorf("%s: larger than %d KiB", name, maxTOML>>10)
	case !utf8.Valid(text):
		return nil, fmt.Errorf("%s: not UTF-8; convert the file, with iconv say", name)
	}
	f := &tomlFile{name: name, at: map[string]int{}}
	for i, c := range text {
		if c == '\n' {
			f.lines = append(f.lines, i)
		}
	}
	if err := f.index(text); err != nil {
		return nil, err
	}
	m := map[string]any{}
	if err := toml.Unmarshal(text, &m); err != nil {
		if d := (*toml.DecodeError)(nil); errors.As(err, &d) {
			line, column := d.Position()
			return nil, fmt.Errorf("%s:%d:%d: %s", name, line, column, strings.TrimPrefix(d.Error(), "toml: "))
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &table{f: f, m: m, seen: map[string]bool{}}, nil
}

// index notes where keys are, and refuses a file that is nested too deep. Syntax errors are left to
// the decoder.
func (f *tomlFile) index(text []byte) error {
	var p unstable.Parser
	p.Reset(text)
	counts := map[string]int{}
	prefix, depth := "", 0
	var value func(n *unstable.Node, path string, offset, depth int) error
	pair := func(n *unstable.Node, prefix string, depth int) error {
		offset := 0
		for it := n.Key(); it.Next(); depth++ {
			offset = int(it.Node().Raw.Offset)
			if depth < maxDepth {
				prefix = join(prefix, string(it.Node().Data))
				if _, ok := f.at[prefix]; !ok {
					f.at[prefix] = offset
				}
			}
		}
		return value(n.Value(), prefix, offset, depth)
	}
	value = func(n *unstable.Node, path string, offset, depth int) error {
		if depth > maxDepth {
			return fmt.Errorf("%s: nested deeper than %d", f.place(offset), maxDepth)
		}
		switch n.Kind {
		case unstable.InlineTable:
			for it := n.Children(); it.Next(); {
				if err := pair(it.Node(), path, depth); err != nil {
					return err
				}
			}
		case unstable.Array:
			i := 0
			for it := n.Children(); it.Next(); i++ {
				at := offset
				if r := it.Node().Raw; r.Length > 0 {
					at = int(r.Offset)
				}
				elem := fmt.Sprintf("%s[%d]", path, i)
				f.at[elem] = at
				if err := value(it.Node(), elem, at, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.KeyValue {
			if err := pair(e, prefix, depth); err != nil {
				return err
			}
			continue
		}
		prefix, depth = "", 0
		offset := 0
		for it := e.Key(); it.Next(); depth++ {
			offset = int(it.Node().Raw.Offset)
			if depth >= maxDepth {
				return fmt.Errorf("%s: nested deeper than %d", f.place(offset), maxDepth)
			}
			prefix = join(prefix, string(it.Node().Data))
			if e.Kind == unstable.ArrayTable && it.IsLast() {
				counts[prefix]++
			}
			if _, ok := f.at[prefix]; !ok {
				f.at[prefix] = offset
			}
			if n := counts[prefix]; n > 0 {
				prefix = fmt.Sprintf("%s[%d]", prefix, n-1)
				if _, ok := f.at[prefix]; !ok {
					f.at[prefix] = offset
				}
			}
		}
	}
	return nil
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

func (f *tomlFile) place(offset int) string {
	line := sort.SearchInts(f.lines, offset)
	start := 0
	if line > 0 {
		start = f.lines[line-1] + 1
	}
	return fmt.Sprintf("%s:%d:%d", f.name, line+1, offset-start+1)
}

// placeOf is the place of a path, for people.
func (f *tomlFile) placeOf(path string) string {
	if at, ok := f.at[path]; ok {
		return f.place(at)
	}
	return f.name
}

// bad notes an error at a key of t; "" is t itself.
func (t *table) bad(key, format string, args ...any) {
	path := t.path
	if key != "" {
		path = join(t.path, key)
	}
	what := fmt.Sprintf(format, args...)
	if path != "" {
		what = path + ": " + what
	}
	t.f.errs = append(t.f.errs, fmt.Errorf("%s: %s", t.f.placeOf(path), what))
}

func (t *table) warn(key, format string, args ...any) {
	path := join(t.path, key)
	t.f.warns = append(t.f.warns, fmt.Sprintf("%s: %s: %s", t.f.placeOf(path), path, fmt.Sprintf(format, args...)))
}

// get is a key's value; asking makes the key a known one.
func (t *table) get(key string) (any, bool) {
	if t == nil {
		return nil, false
	}
	t.seen[key] = true
	v, ok := t.m[key]
	return v, ok
}

// end warns of the keys that were not asked for.
func (t *table) end() {
	if t == nil {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(t.m)) {
		if !t.seen[k] {
			t.warn(k, "unknown key, ignored%s", didYouMean(k, slices.Sorted(maps.Keys(t.seen))))
		}
	}
}
