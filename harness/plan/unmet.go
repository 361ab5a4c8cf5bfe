package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/suggest"
)

// words holds the names in a spec's selections. They determine what is collected about tasks to
// detect names that no task has.
type words struct {
	ids, tags bool
	fields    map[string]bool // fields whose values are collected; nil if none
}

func (s Spec) words() words {
	var w words
	for _, b := range s.Benches {
		w.ids, w.tags = w.ids || len(b.Select.IDs) > 0, w.tags || len(b.Select.Tags) > 0
		for _, f := range b.Select.Filter {
			if w.fields == nil {
				w.fields = map[string]bool{}
			}
			k, _, _ := strings.Cut(f, "=")
			w.fields[strings.TrimSuffix(k, "!")] = true
		}
	}
	return w
}

// known collects what can be selected, as far as some selection asks for it.
type known struct {
	begin  []string // the first IDs
	names  []string // all IDs
	tags   map[string]bool
	fields map[string]map[string]bool // values of the fields that selections ask for
	partly bool                       // some tasks could not be read and may have any tag and field
}

func (k *known) note(w words, t record.Task, fields map[string]string) {
	if len(k.begin) < 3 {
		k.begin = append(k.begin, t.ID)
	}
	if w.ids {
		k.names = append(k.names, t.ID)
	}
	if w.tags {
		if k.tags == nil {
			k.tags = map[string]bool{}
		}
		for _, tag := range t.Tags {
			k.tags[tag] = true
		}
	}
	if w.fields != nil {
		if k.fields == nil {
			k.fields = map[string]map[string]bool{}
		}
		for name, text := range fields {
			if k.fields[name] == nil {
				k.fields[name] = map[string]bool{}
			}
			if w.fields[name] {
				k.fields[name][text] = true
			}
		}
	}
	k.partly = k.partly || t.Bad != ""
}

// unmet reports names in the selections that no task of any benchmark has, although tasks are left.
// Without it, a mistyped name would show only in the number of tasks, and a mistyped exclusion not
// at all.
func (s Spec) unmet(read []*reading) {
	if s.Note == nil {
		return
	}
	var ids []string
	tags, values := map[string]bool{}, map[string]map[string]bool{}
	partly := false
	for _, r := range read {
		ids, partly = append(ids, r.names...), partly || r.partly
		maps.Copy(tags, r.tags)
		for k, v := range r.fields {
			if values[k] == nil {
				values[k] = map[string]bool{}
			}
			maps.Copy(values[k], v)
		}
	}
	told := map[string]bool{}
	note := func(what, word string, known []string) {
		text := fmt.Sprintf("%s %q", what, word)
		if meant := suggest.Names(word, distinct(known)); meant != nil {
			text += fmt.Sprintf("; did you mean %q?", meant[0])
		}
		if !told[text] {
			told[text] = true
			s.Note(text)
		}
	}
	for _, b := range s.Benches {
		for _, g := range b.Select.IDs {
			if g = strings.TrimPrefix(g, "!"); !slices.ContainsFunc(ids, func(id string) bool { return glob(g, id) }) {
				note("there is no task", g, ids)
			}
		}
		if partly {
			continue
		}
		for _, g := range b.Select.Tags {
			if g = strings.TrimPrefix(g, "!"); !tags[g] {
				note("no task has the tag", g, keys(tags))
			}
		}
		for _, f := range b.Select.Filter {
			k, want, _ := strings.Cut(f, "=")
			k = strings.TrimSuffix(k, "!")
			if have, ok := values[k]; !ok {
				note("no task has the field", k, keys(values))
			} else if !have[want] {
				note("no task has the "+k, want, keys(have))
			}
		}
	}
}

// distinct returns the words sorted and without duplicates.
func distinct(words []string) []string {
	words = slices.Clone(words)
	slices.Sort(words)
	return slices.Compact(words)
}

func keys[T any](m map[string]T) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}
