package controller

import (
	"errors"
	"fmt"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
)

type deaf struct{ Stepper }

func (deaf) Add(event.Event) {}

// feed folds actions and observations, and messages, given as short words: "a:x" is the action a
// answered with x, "a!x" answered with an error, ":x" an empty command, "say x" a reply without a
// call, "user" a user's message.
func feed(stuck Stuck, words ...string) error {
	s := &State{stuck: stuck.withDefaults(), stepper: deaf{}}
	id := int64(0)
	for _, w := range words {
		var say string
		if w == "user" {
			s.add(event.New(event.FromUser, event.Message{Parts: event.Text("go")}))
			continue
		}
		if n, _ := fmt.Sscanf(w, "say %s", &say); n == 1 {
			s.add(event.New(event.FromAgent, event.Reply{Role: "main", Parts: event.Text(say)}))
			continue
		}
		for i, c := range w {
			if c != ':' && c != '!' {
				continue
			}
			a := event.New(event.FromAgent, event.Run{Command: w[:i]})
			a.ID = id
			s.add(a)
			obs := event.New(event.FromEnvironment, event.RunResult{Output: w[i+1:], WallMS: id})
			if c == '!' {
				obs.Body = event.Error{Text: w[i+1:]}
			}
			obs.ID, obs.Cause = id+1, id
			s.add(obs)
			id += 2
			break
		}
	}
	return s.loop()
}

// A cell repeats itself whatever time it takes, and an exception is an error.
func TestStuckCells(t *testing.T) {
	for want, res := range map[string]event.CellResult{"repeat": {Parts: event.Text("x")}, "errors": {Error: true}} {
		s := &State{stuck: Stuck{}.withDefaults(), stepper: deaf{}}
		times := map[string]int64{"repeat": 4, "errors": 3}[want]
		for id := int64(0); id < 2*times; id += 2 {
			a := event.New(event.FromAgent, event.Cell{Code: "f()"})
			a.ID = id
			s.add(a)
			res.WallMS = id
			obs := event.New(event.FromEnvironment, res)
			obs.ID, obs.Cause = id+1, id
			s.add(obs)
		}
		var e *StuckError
		if errors.As(s.loop(), &e); e == nil || e.Pattern != want {
			t.Errorf("%s: %v", want, e)
		}
	}
}

func TestStuck(t *testing.T) {
	ten := []string{":x", ":x", ":x", ":x", ":x", ":x", ":x", ":x", ":x", ":x"}
	tests := []struct {
		words   []string
		stuck   Stuck
		pattern string
	}{
		{[]string{"a:x", "a:x", "a:x"}, Stuck{}, ""},
		{[]string{"a:x", "a:x", "a:x", "a:x"}, Stuck{}, "repeat"},
		{[]string{"a:1", "a:2", "a:3", "a:4", "a:5"}, Stuck{}, ""}, // polling
		{[]string{"a:x", "a:x", "user", "a:x", "a:x"}, Stuck{}, ""},
		{[]string{"a:x", "a:x"}, Stuck{Repeat: 2}, "repeat"},
		{[]string{"a:x", "a:x", "a:x", "a:x"}, Stuck{Repeat: -1}, ""},
		{[]string{"a!x", "a!y", "a!z"}, Stuck{}, "errors"},
		{[]string{"a!x", "b!y", "a!z"}, Stuck{}, ""},
		{[]string{"a!x", "a:y", "a!z"}, Stuck{}, ""},
		{[]string{"a:x", "b:y", "a:x", "b:y", "a:x"}, Stuck{}, ""},
		{[]string{"a:x", "b:y", "a:x", "b:y", "a:x", "b:y"}, Stuck{}, "alternate"},
		{[]string{"a:x", "b:1", "a:x", "b:2", "a:x", "b:3"}, Stuck{}, ""},
		{[]string{"c:z", "a:x", "b:y", "a:x", "b:y", "a:x", "b:y"}, Stuck{}, "alternate"},
		{ten[:9], Stuck{}, ""},
		{ten, Stuck{}, "repeat"},
		{[]string{"say hi", "say hi"}, Stuck{}, ""},
		{[]string{"say hi", "say hi", "say hi"}, Stuck{}, "monologue"},
		{[]string{"say hi", "say ho", "say hi"}, Stuck{}, ""},
		{[]string{"say hi", "say hi", "a:x", "say hi"}, Stuck{}, ""},
	}
	for _, tt := range tests {
		err := feed(tt.stuck, tt.words...)
		var e *StuckError
		got := ""
		if errors.As(err, &e) {
			got = e.Pattern
		}
		if got != tt.pattern {
			t.Errorf("%v: %q, want %q", tt.words, got, tt.pattern)
		}
	}
}
