package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/datasets/near"
)

// unmet tells of what the selections name and no task of any benchmark has, where tasks are left: a word that was mistyped would else be missed only by
// the number of tasks, and one that is to leave some out not even by that. read are the tasks of each benchmark.
func (s Spec) unmet(read [][]task) {
	if s.Note == nil {
		return
	}
	var ids, tags []string
	values := map[string][]string{} // of the fields
	partly := false                 // some tasks could not be read, and may have any tag and field
	for _, t := range slices.Concat(read...) {
		ids, tags, partly = append(ids, t.ID), append(tags, t.Tags...), partly || t.Bad != ""
		for k, v := range t.fields {
			values[k] = append(values[k], v)
		}
	}
	told := map[string]bool{}
	note := func(what, word string, known []string) {
		text := fmt.Sprintf("%s %q", what, word)
		if meant := near.Names(word, distinct(known)); meant != nil {
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
			if g = strings.TrimPrefix(g, "!"); !slices.Contains(tags, g) {
				note("no task has the tag", g, tags)
			}
		}
		for _, f := range b.Select.Filter {
			k, want, _ := strings.Cut(f, "=")
			k = strings.TrimSuffix(k, "!")
			if have, ok := values[k]; !ok {
				note("no task has the field", k, keys(values))
			} else if !slices.Contains(have, want) {
				note("no task has the "+k, want, have)
			}
		}
	}
}

// distinct are the words, each once.
func distinct(words []string) []string {
	words = slices.Clone(words)
	slices.Sort(words)
	return slices.Compact(words)
}

func keys(m map[string][]string) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}
