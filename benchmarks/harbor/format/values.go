package format

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/suggest"
)

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

// didYouMean suggests the known key that is meant, if one is near.
func didYouMean(key string, known []string) string {
	if meant := suggest.Names(key, known); meant != nil {
		return fmt.Sprintf("; is it %q?", meant[0])
	}
	return ""
}
