package cdp

import (
	"fmt"
	"slices"
	"testing"
)

func TestLayout(t *testing.T) {
	plain, shift := &input{}, &input{held: map[string]bool{"Shift": true}}
	control := &input{held: map[string]bool{"Control": true}}
	for _, c := range []struct {
		in   *input
		name string
		want key
	}{
		{plain, "a", key{code: "KeyA", key: "a", text: "a", number: 65}},
		{plain, "A", key{code: "KeyA", key: "A", text: "A", number: 65}},
		{plain, "KeyA", key{code: "KeyA", key: "a", text: "a", number: 65}},
		{shift, "KeyA", key{code: "KeyA", key: "A", text: "A", number: 65}},
		{shift, "a", key{code: "KeyA", key: "a", text: "a", number: 65}},
		{control, "a", key{code: "KeyA", key: "a", number: 65}},
		{plain, "#", key{code: "Digit3", key: "#", text: "#", number: 51}},
		{plain, "+", key{code: "Equal", key: "+", text: "+", number: 187}},
		{plain, "\n", key{code: "Enter", key: "Enter", text: "\r", number: 13}},
		{plain, "ControlOrMeta", key{code: "ControlLeft", key: "Control", number: 17, location: 1}},
		{shift, "Numpad7", key{code: "Numpad7", key: "7", text: "7", number: 36, location: 3}},
		{plain, " ", key{code: "Space", key: " ", text: " ", number: 32}},
	} {
		got, err := c.in.describe(c.name)
		got.shifted = nil
		if err != nil || got != c.want {
			t.Errorf("%q: %+v, %v", c.name, got, err)
		}
	}
	for _, name := range []string{"", "Foo", "é", "enter", "ab"} {
		if _, err := plain.describe(name); err == nil || err.Error() != fmt.Sprintf("Unknown key: \"%s\"", name) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for r := ' '; r <= '~'; r++ { // all that a keyboard has
		if k, err := plain.describe(string(r)); err != nil || k.text != string(r) {
			t.Errorf("%q: %+v, %v", r, k, err)
		}
	}
}

func TestTokens(t *testing.T) {
	for keys, want := range map[string][]string{"a": {"a"}, "Control+a": {"Control", "a"}, "+": {"+"},
		"Shift++": {"Shift", "+"}, "": {""}, "Control+": {"Control", ""}, "++a": {"+", "a"}} {
		if got := tokens(keys); !slices.Equal(got, want) {
			t.Errorf("%q: %q", keys, got)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{{"file://*", "file:///etc/passwd", true}, {"file://*", "http://x/file://", false},
		{"*://127.*", "http://127.0.0.1/", true}, {"http://a/", "http://a/", true},
		{"http://a/", "http://a/b", false}, {"*", "", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "acb", false},
		{"ab*ba", "aba", false}} {
		if got := matches(c.pattern, c.s); got != c.want {
			t.Errorf("%q of %q: %v", c.pattern, c.s, got)
		}
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		q    [8]float64
		at   point
		seen bool
	}{
		{[8]float64{10, 10, 30, 10, 30, 20, 10, 20}, point{20, 15}, true},
		{[8]float64{10, 10, 31, 10, 31, 21, 10, 21}, point{20.48, 15.48}, true}, // not between two pixels
		{[8]float64{-20, 0, 20, 0, 20, 10, -20, 10}, point{10, 5}, true},        // what is in view
		{[8]float64{-20, 0, -1, 0, -1, 10, -20, 10}, point{0, 5}, false},
		{[8]float64{0, 0, 1, 0, 1, 1, 0, 1}, point{0.48, 0.48}, true},
		{[8]float64{0, 0, 0.9, 0, 0.9, 1, 0, 1}, point{0.45, 0.48}, false},
	} {
		at, seen := quadCenter(c.q, 100, 100)
		if seen != c.seen || seen && at != c.at {
			t.Errorf("%v: %v, %v", c.q, at, seen)
		}
	}
}

func TestHeld(t *testing.T) {
	for raw, want := range map[string][2]string{
		`{"node":{"frameId":"F","localName":"iframe","attributes":["bid","a"]}}`:                                        {"a", ""},
		`{"node":{"frameId":"F","localName":"iframe","attributes":["sandbox","allow-forms","bid","a"]}}`:                {"a", sandboxed},
		`{"node":{"frameId":"F","localName":"iframe","attributes":["sandbox","allow-forms allow-scripts","bid","aB"]}}`: {"aB", ""},
		`{"node":{"frameId":"F","localName":"iframe","attributes":[]}}`:                                                 {"", ""},
		`{"node":{"frameId":"G","localName":"embed","attributes":["bid","7"]}}`:                                         {"", "Skipping frame: it is not the content of its element <embed>."},
		`{"node":{"frameId":"F","localName":"object","attributes":["bid","7"]}}`:                                        {"7", "Skipping frame: its element <object> is no iframe."},
	} {
		if bid, why := frameBid([]byte(raw), "F"); bid != want[0] || why != want[1] {
			t.Errorf("%s: %q, %q", raw, bid, why)
		}
	}
}

func TestSizeOf(t *testing.T) {
	if got := sizeOf([]string{"width=300", "height=200", "left=1"}); got != [2]int{300, 200} {
		t.Errorf("size %v", got)
	}
	if got := sizeOf([]string{"width=x", "noopener"}); got != [2]int{} {
		t.Errorf("size %v", got)
	}
}
