package plan

import (
	"slices"
	"testing"
)

// A name that no task of any benchmark has is reported, even in an exclusion.
func TestUnmet(t *testing.T) {
	s := spec(numbered("b", 12), Selection{
		IDs: []string{"b/1*", "b/13", "!z*"}, Tags: []string{"hard", "hrad", "!slow"},
		Filter: []string{"level!=medium", "lvel!=easy", "level=hard"},
	}, "a")
	second := numbered("c", 3)
	s.Benches = append(s.Benches, Bench{Benchmark: second, Spec: "c",
		Select: Selection{Tags: []string{"hard", "hrad"}}})
	var got []string
	s.Note = func(text string) { got = append(got, text) }
	if _, err := Build(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want := []string{`there is no task "b/13"; did you mean "b/1"?`, `there is no task "z*"`,
		`no task has the tag "hrad"; did you mean "hard"?`, `no task has the tag "slow"`,
		`no task has the level "medium"`, `no task has the field "lvel"; did you mean "level"?`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
