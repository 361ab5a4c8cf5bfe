package harbor

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
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

// A tomlFile is a parsed file whose values are taken out by type. All that does not fit is noted with its place, so that one look shows
// everything; keys that nobody asked for become warnings.
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

// index notes where keys are, and refuses a file that is nested too deep. Syntax errors are left to the decoder.
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

// where is the place of a path, for people.
func (f *tomlFile) where(path string) string {
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
	t.f.errs = append(t.f.errs, fmt.Errorf("%s: %s", t.f.where(path), what))
}

func (t *table) warn(key, format string, args ...any) {
	path := join(t.path, key)
	t.f.warns = append(t.f.warns, fmt.Sprintf("%s: %s: %s", t.f.where(path), path, fmt.Sprintf(format, args...)))
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
			t.warn(k, "unknown key, ignored%s", nearest(k, slices.Sorted(maps.Keys(t.seen))))
		}
	}
}

func (t *table) text(key string) string {
	v, ok := t.get(key)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	switch {
	case !ok:
		t.bad(key, "want text%s", quoted(v))
	case strings.ContainsRune(s, 0):
		t.bad(key, "text with a NUL")
	default:
		return s
	}
	return ""
}

// quoted says how a number or truth value is written as text.
func quoted(v any) string {
	switch v.(type) {
	case int64, float64, bool:
		return fmt.Sprintf("; write \"%v\"", v)
	}
	return ""
}

// number is a key's value; nil when it is not there.
func (t *table) number(key string) *float64 {
	v, ok := t.get(key)
	if !ok {
		return nil
	}
	return t.float(key, v)
}

func (t *table) float(key string, v any) *float64 {
	var n float64
	switch x := v.(type) {
	case int64:
		n = float64(x)
	case float64:
		n = x
	default:
		t.bad(key, "want a number")
		return nil
	}
	if math.IsNaN(n) {
		t.bad(key, "want a number, not nan")
		return nil
	}
	return &n
}

// integer is a whole number of at least least; nil when it is not there.
func (t *table) integer(key string, least int64) *int64 {
	n := t.number(key)
	switch {
	case n == nil:
		return nil
	case *n != math.Trunc(*n) || math.Abs(*n) > 1<<40:
		t.bad(key, "%v; want a whole number", *n)
		return nil
	case *n < float64(least):
		t.bad(key, "%v; want at least %d", *n, least)
		return nil
	}
	i := int64(*n)
	return &i
}

func (t *table) boolean(key string) *bool {
	v, ok := t.get(key)
	if !ok {
		return nil
	}
	b, ok := v.(bool)
	if !ok {
		t.bad(key, "want true or false")
		return nil
	}
	return &b
}

// list is a list of texts, and whether it is there.
func (t *table) list(key string) ([]string, bool) {
	v, ok := t.get(key)
	if !ok {
		return nil, false
	}
	values, ok := v.([]any)
	if !ok {
		t.bad(key, "want a list of texts")
		return nil, true
	}
	out := []string{}
	for i, v := range values {
		s, ok := v.(string)
		if !ok {
			t.bad(fmt.Sprintf("%s[%d]", key, i), "want text%s", quoted(v))
			continue
		}
		out = append(out, s)
	}
	return out, true
}

// texts is a table of texts, such as env.
func (t *table) texts(key string) map[string]string {
	sub := t.table(key)
	if sub == nil {
		return nil
	}
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(sub.m)) {
		out[k] = sub.text(k)
	}
	return out
}

// table is a table within t, nil when it is not there.
func (t *table) table(key string) *table {
	v, ok := t.get(key)
	if !ok {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		t.bad(key, "want a table, as [%s]", join(t.path, key))
		return nil
	}
	return t.sub(key, m)
}

func (t *table) sub(key string, m map[string]any) *table {
	return &table{t.f, join(t.path, key), m, map[string]bool{}}
}

// tables is an array of tables, and whether it is there.
func (t *table) tables(key string) ([]*table, bool) {
	v, ok := t.get(key)
	if !ok {
		return nil, false
	}
	values, ok := v.([]any)
	if !ok {
		t.bad(key, "want tables, as [[%s]]", join(t.path, key))
		return nil, true
	}
	var out []*table
	for i, v := range values {
		k := fmt.Sprintf("%s[%d]", key, i)
		if m, ok := v.(map[string]any); ok {
			out = append(out, t.sub(k, m))
		} else {
			t.bad(k, "want a table")
		}
	}
	return out, true
}

// nearest suggests the known key that is meant, if one is near.
func nearest(key string, known []string) string {
	best, at := 3, ""
	for _, k := range known {
		if d := distance(strings.ToLower(key), k); d < best {
			best, at = d, k
		}
	}
	if at == "" {
		return ""
	}
	return fmt.Sprintf("; is it %q?", at)
}

// distance is Levenshtein's.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j]+cost, prev[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
