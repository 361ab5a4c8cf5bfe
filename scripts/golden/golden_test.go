package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/recordings"
	"github.com/evalrun/evalrun/browsergym/recordings/recordingstest"
)

// golden makes one comparison, which has to have a cause for every difference.
func golden(t *testing.T, what, only string) *tally {
	t.Helper()
	dir := ""
	if what != "random" {
		dir = recordingstest.Dir(t)
	}
	if what != "offline" && os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("needs a browser; set EVALRUN_TEST_BROWSER=1")
	}
	var told strings.Builder
	o := options{dir: dir, miniwob: os.Getenv("EVALRUN_TEST_MINIWOB"), only: regexp.MustCompile(only), jobs: 4,
		steps: 3, retries: 2, out: &told}
	c, err := o.run(t.Context(), what)
	if err != nil {
		t.Fatal(err)
	}
	c.print(t.Output())
	if c.unexplained > 0 {
		t.Errorf("%d differences have no cause:\n%s", c.unexplained, told.String())
	}
	for _, field := range []string{"bids", "goal", "goal_object", "error", "reward, end"} {
		if r := c.rows[field]; r != nil && r.equal != r.n {
			t.Errorf("%s: %d of %d are equal; all have to be", field, r.equal, r.n)
		}
	}
	return c
}

// A sample, so that it does not take minutes; the whole is for `go run ./scripts/golden`.
// EVALRUN_TEST_EPISODES is another pattern.
func TestLive(t *testing.T) {
	only := os.Getenv("EVALRUN_TEST_EPISODES")
	if only == "" && testing.Short() {
		only = `^recordings/(aria|tabs)$|^miniwob/use-autocomplete.*\.1$`
	} else if only == "" {
		only = `^recordings/(aria|chat|dialogs|dnd|dynamic|editable|frames|popups|shadow|tabs|text)$|^miniwob/(a|b|use-).*\.1$`
	}
	golden(t, "fast", only)
}

func TestOffline(t *testing.T) {
	if c := golden(t, "offline", ""); c.rows["text ax"] == nil || c.rows["text prune"] == nil {
		t.Error("nothing was compared")
	}
}

// A sample of MiniWoB++'s tasks: those whose goals are published, and some others.
func TestRandom(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_MINIWOB") == "" {
		t.Skip("MiniWoB++'s pages are not there; name their folder html by EVALRUN_TEST_MINIWOB")
	}
	if testing.Short() {
		t.Skip("TestLive plays some")
	}
	c := golden(t, "random", `^miniwob/(click-(button|checkboxes|color|dialog-2|link|tab-2|test-2|pie)|choose-list|enter-text|login-user|use-slider|[dfhrt]\w+-\w+|terminal)$`)
	if r := c.rows["published goals"]; r == nil || r.n != 30 || r.equal != 30 {
		t.Errorf("published goals: %+v", r)
	}
}

func TestCauses(t *testing.T) {
	errors, term := &recordings.Header{Name: "errors"}, &recordings.Header{Task: "miniwob.terminal"}
	for _, x := range []struct {
		h    *recordings.Header
		d    difference
		want string
	}{
		{errors, difference{"boxes", "1 [0]\n27 [1]\n", "1 [0]\n27 [2]\n"}, "README: errors"},
		{errors, difference{"boxes", "1 [0]\n27 [1]\n", "1 [3]\n27 [2]\n"}, ""},
		{errors, difference{"call log", "a\n  waiting 20ms\nb\nb", "a\n  waiting 100ms\nb"}, "README: call logs"},
		{errors, difference{"call log", "a\nb", "a\nc"}, ""},
		{errors, difference{"error", "a", "b"}, ""},
		{errors, difference{"bids", "a", "b"}, ""},
		{errors, difference{"text ax", "a\n\t[27] button 'x', focused\nb", "a\n\t[27] button 'x'\nb"},
			"README: errors"},
		{term, difference{"text ax", "StaticText 'Last login: Sun Nov 22 2026'\nb",
			"StaticText 'Last login: Sat Nov 21 2026'\nb"}, "3: the day on which it is played"},
		{term, difference{"text ax", "StaticText 'Last login: Sun Nov 22 2026'\nb",
			"StaticText 'Last login: Sat Nov 21 2026'\nc"}, ""},
		{term, difference{"text dom", `<span bid="20" box="(1,2,4,4)">Last login: Sun Nov 22 2026`,
			`<span bid="20" box="(1,2,3,4)">Last login: Sat Nov 21 2026`}, "3: the day on which it is played"},
		{term, difference{"boxes", "19 [1]\n20 [2]\n", "19 [1]\n20 [3]\n"}, "3: the day on which it is played"},
		{term, difference{"boxes", "19 [1]\n20 [2]\n", "19 [2]\n20 [3]\n"}, ""},
		{errors, difference{"text ax", "Last login: Sun Nov 22 2026", "Last login: Sat Nov 21 2026"}, ""},
	} {
		if got := cause(x.h, &recordings.Observation{Index: 1}, x.d); got != x.want {
			t.Errorf("%+v: %q, want %q", x.d, got, x.want)
		}
	}
}

// A difference without a cause is counted, and shown.
func TestTally(t *testing.T) {
	var told strings.Builder
	c := newTally(false, &told)
	why := func(d difference) string { return d.want }
	c.add("here", difference{"text ax", "a", "a"}, why)
	c.add("here", difference{"text ax", "a", "README: x"}, why)
	c.add("here", difference{"bids", "a", ""}, why)
	if c.unexplained != 1 || !strings.Contains(told.String(), "here: bids") ||
		strings.Contains(told.String(), "README") {
		t.Errorf("%d, %s", c.unexplained, told.String())
	}
	told.Reset()
	c.print(&told)
	for _, want := range []string{"text ax                     2        1    50.00%", "1  README: x: text ax 1",
		"1  without a cause"} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("%q is not in\n%s", want, told.String())
		}
	}
	c.print(io.Discard)
}

// Grains are found where pictures show them or where an element has a corner, by two levels at
// most, and nothing else is taken for them.
func TestGrains(t *testing.T) {
	empty := func() *bitmap { return &bitmap{20, 20, bytes.Repeat([]byte{250}, 20*20*3)} }
	at := func(x, y int, v byte) grain { return grain{3 * (20*y + x), [3]byte{v, v, v}} }
	caret := []grain{at(10, 4, 0), at(10, 5, 0), at(10, 6, 0)}
	got := empty().with([]grain{at(4, 4, 200), at(15, 15, 100)})
	var box obs.Properties
	if err := json.Unmarshal([]byte(`{"a1": {"visibility": 1, "bbox": [4, 4, 6, 6], "clickable": false, "set_of_marks": false}}`), &box); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		seen   []*bitmap // what the page looked like at other times
		want   *bitmap
		box    bool
		ground bool
	}{
		{"seen before", []*bitmap{got.with([]grain{at(4, 4, 201)})}, got.with([]grain{at(4, 4, 201)}), false, true},
		{"both seen before", []*bitmap{got.with([]grain{at(4, 4, 201)}), got.with([]grain{at(15, 15, 99)})},
			got.with([]grain{at(4, 4, 201), at(15, 15, 99)}), false, true},
		{"never seen", nil, got.with([]grain{at(4, 4, 201)}), false, false},
		{"in a corner", nil, got.with([]grain{at(4, 4, 198)}), true, true},
		{"in no corner", nil, got.with([]grain{at(15, 15, 99)}), true, false},
		{"three levels", []*bitmap{got.with([]grain{at(4, 4, 203)})}, got.with([]grain{at(4, 4, 203)}), true, false},
		{"a caret", []*bitmap{got.with(caret)}, got.with(caret), true, false},
		{"seen, and a caret", []*bitmap{got.with([]grain{at(4, 4, 201)})}, got.with(append(caret, at(4, 4, 201))), true,
			false},
	} {
		g := &graining{values: map[int][][3]byte{}}
		for _, b := range x.seen {
			g.learn(got, b)
		}
		var fresh []grain
		if x.box {
			fresh = got.corners(&box)
		}
		if found := got.ground(x.want.sum(), g.of(got), nil) || len(fresh) > 0 &&
			got.ground(x.want.sum(), g.of(got), fresh); found != x.ground {
			t.Errorf("%s: %v", x.name, found)
		}
	}
}
