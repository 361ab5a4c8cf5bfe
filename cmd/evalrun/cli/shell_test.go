package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
)

// What is typed passes, but ~. after Enter, however it is read.
func TestKeys(t *testing.T) {
	for _, c := range []struct {
		in, out string
		left    bool
	}{
		{"ls\r", "ls\r", false},
		{"~.", "", true},
		{"ls\r~.more", "ls\r", true},
		{"a~.b\r", "a~.b\r", false},
		{"\r~~.\r", "\r~.\r", false},
		{"\r~x\r", "\r~x\r", false},
		{"\r~\r~.", "\r~\r", true},
		{"\r\n~", "\r\n", false},
	} {
		for _, parts := range [][]string{{c.in}, strings.Split(c.in, "")} {
			var out bytes.Buffer
			left := false
			k := &keys{w: &out, line: true, leave: func() { left = true }}
			for _, p := range parts {
				if _, err := k.Write([]byte(p)); err != nil {
					break
				}
			}
			if left != c.left || parts[0] != c.in && out.String() != c.out || parts[0] == c.in && !left && out.String() != c.out {
				t.Errorf("%q: %q, left %v", parts, out.String(), left)
			}
		}
	}
}

// A running trial is meant rather than another one.
func TestWhichTrial(t *testing.T) {
	plan := &record.Plan{Repeats: 2, Arms: []record.Arm{{ID: "a1", Name: "x"}, {ID: "a2", Name: "y"}},
		Tasks: []record.Task{{Benchmark: "b", ID: "t1", Digest: "d1"}, {Benchmark: "b", ID: "t2", Digest: "d2"}}}
	first, second := record.TrialID("a1", "d1", 1), record.TrialID("a2", "d1", 2)
	live := []harness.LiveTrial{{Trial: second, Task: "b/t1", Arm: "y", Repeat: 2}}
	for _, c := range []struct {
		live    []harness.LiveTrial
		word    string
		want    string
		running bool
		err     string
	}{
		{live, "t1", second, true, ""},
		{live, "b/t1", second, true, ""},
		{live, second[:8], second, true, ""},
		{live, first, first, false, ""},
		{nil, "t1", first, false, ""}, // of the first arm
		{live, "t2", record.TrialID("a1", "d2", 1), false, ""},
		{live, "t3", "", false, `no trial "t3"`},
		{append(live, harness.LiveTrial{Trial: first, Task: "b/t1"}), "t1", "", false, "means 2 running trials"},
	} {
		id, running, err := whichTrial(plan, c.live, c.word)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", c.word, err)
			}
			continue
		}
		if err != nil || id != c.want || (running != nil) != c.running {
			t.Errorf("%s: %s, %v, %v; want %s", c.word, id, running, err, c.want)
		}
	}
}
