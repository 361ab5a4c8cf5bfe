package obs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/recordings"
	"github.com/evalrun/evalrun/browsergym/recordings/recordingstest"
)

// TestGoldenTexts renders every recorded observation again, from the browser's own answers, and
// compares with what the reference printed.
func TestGoldenTexts(t *testing.T) {
	dir := recordingstest.Dir(t)
	texts, err := recordings.ReadTexts(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := recordings.Files(dir, "miniwob", "recordings", "as-is")
	if err != nil {
		t.Fatal(err)
	}
	seen, answered := 0, 0
	equal, not := map[string]int{}, map[string]int{}
	diff := func(file string, o *recordings.Observation, name, got, want string) {
		if got == want {
			equal[name]++
			return
		}
		not[name]++
		if len(not) <= 10 && not[name] == 1 {
			t.Errorf("%s observation %d, %s:\n%s", file, o.Index, name, firstDifference(got, want))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		err := recordings.Read(files[file], func(*recordings.Header) error { return nil },
			func(o *recordings.Observation) error {
				if len(o.Texts) == 0 {
					return nil
				}
				seen++
				for name, of := range texts.Prune {
					if want, ok := o.Texts[name]; ok {
						if src, ok := o.Texts[of]; ok {
							diff(file, o, name, obs.PruneHTML(src), want)
						}
					}
				}
				if !o.Answered() {
					return nil
				}
				answered++
				v, err := o.View()
				if err != nil {
					return err
				}
				diff(file, o, "properties", listed(v.Properties), listed(&o.Properties))
				for name, want := range o.Texts {
					kind, got, err := texts.Render(name, v)
					if err != nil {
						return err
					}
					if kind != "prune" { // which were compared above
						diff(file, o, name, got, want)
					}
				}
				return nil
			})
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	total := 0
	for _, n := range equal {
		total += n
	}
	for _, name := range slices.Sorted(maps.Keys(not)) {
		t.Logf("%-32s %6d equal %6d not", name, equal[name], not[name])
	}
	t.Logf("%d observations, %d of them with the browser's answers; %d texts equal", seen, answered, total)
}

// listed are properties in their order, which the set of marks on a screenshot shows.
func listed(p *obs.Properties) string {
	var b strings.Builder
	for _, bid := range p.Bids() {
		x, _ := p.Get(bid)
		box := "none"
		if x.Box != nil {
			box = fmt.Sprint(*x.Box)
		}
		fmt.Fprintln(&b, bid, x.Visibility, box, x.Clickable, x.Marked)
	}
	return b.String()
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		a, b := "(end)", "(end)"
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			if len(a) > 300 {
				k := 0
				for k < len(a) && k < len(b) && a[k] == b[k] {
					k++
				}
				a, b = a[max(0, k-100):min(len(a), k+200)], b[min(len(b), max(0, k-100)):min(len(b), k+200)]
			}
			return fmt.Sprintf("line %d\n got  %q\n want %q", i+1, a, b)
		}
	}
	return "equal"
}
