package action_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/action"
)

// Which calls stand as the example is part of published prompts; places in the lists of examples
// are given, as the calls are our own.
func TestExample(t *testing.T) {
	nth := func(s *action.Set, name string, n int) string {
		for _, x := range s.Specs() {
			if x.Name == name {
				return x.Examples[n-1]
			}
		}
		t.Fatalf("no action %s", name)
		return ""
	}
	type call struct {
		name string
		n    int
	}
	for _, tt := range []struct {
		subsets string
		want    []call
	}{
		{"bid nav tab", []call{{"fill", 3}, {"click", 1}, {"click", 3}}},
		{"miniwob_all", []call{{"click", 3}, {"mouse_click", 1}, {"mouse_click", 2}}},
		{"coord", []call{{"mouse_click", 2}, {"keyboard_type", 1}, {"mouse_click", 1}}},
		{"miniwob_shi17", []call{{"mouse_click", 2}, {"mouse_click", 1}}},
		{"chat", []call{{"noop", 2}, {"send_msg_to_user", 1}, {"noop", 1}}},
	} {
		for _, single := range []bool{false, true} {
			s, err := action.New(action.Options{Subsets: strings.Fields(tt.subsets), Single: single})
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, c := range tt.want {
				want = append(want, nth(s, c.name, c.n))
			}
			if single {
				want = want[:1]
			}
			got := s.Example()
			if got != strings.Join(want, "\n") {
				t.Errorf("%s, single %v: %q, not %q", tt.subsets, single, got, want)
			}
			if calls, err := s.Parse(got); err != nil || len(calls) != len(want) {
				t.Errorf("%s: the example itself: %v, %v", tt.subsets, calls, err)
			}
			if !strings.HasSuffix(s.Describe(false, false), "\n Example:\n"+got+"\n") {
				t.Errorf("%s: the description ends otherwise:\n%s", tt.subsets, s.Describe(false, false))
			}
		}
	}
}
