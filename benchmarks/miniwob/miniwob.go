// Package miniwob is MiniWoB++ as BrowserGym plays it: 125 small pages that make up a problem from
// a seed, and keep the score themselves. The pages are not ours to give away; they come from a
// folder of the user's, see [Fetch].
package miniwob

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// How BrowserGym plays them.
const (
	Actions  = "miniwob_all" // the subset of actions; one call a step, tried once more with force when it timed out
	Repeats  = 5
	MaxSteps = 10

	tinyRepeats, tinySteps = 2, 5 // of miniwob_tiny_test
)

// A Task is one page.
type Task struct {
	Index    int    // in the order of the list, which is alphabetical
	Name     string // of the page, without ".html"
	Category string // original, additional, hidden test, debug, nodelay
	Split    string // train, test
	Group    int    // of tasks so similar that no split may cut through it
	WebGUM   bool   // one of the 56 on which WebGUM was measured
	Delay    bool   // has animations, so that an action may come too early
	Random   bool   // the seed does not settle what happens
}

// tasks.txt has a line a group: its split, and its tasks with the first letter of their category, w
// for WebGUM and ! for a delay.
//
//go:embed tasks.txt
var table string

var categories = map[byte]string{'o': "original", 'a': "additional", 'h': "hidden test", 'd': "debug", 'n': "nodelay"}

var random = []string{"click-pie", "click-pie-nodelay", "terminal", "visual-addition"}

var all = sync.OnceValue(func() []Task {
	var out []Task
	for group, line := range strings.Split(strings.TrimSpace(table), "\n") {
		words := strings.Fields(line)
		for _, w := range words[1:] {
			name, flags, _ := strings.Cut(w, ":")
			out = append(out, Task{Name: name, Category: categories[flags[0]], Split: words[0], Group: group,
				WebGUM: strings.Contains(flags, "w"), Delay: strings.Contains(flags, "!"),
				Random: slices.Contains(random, name)})
		}
	}
	slices.SortFunc(out, func(a, b Task) int { return strings.Compare(a.Name, b.Name) })
	for i := range out {
		out[i].Index = i
	}
	return out
})

// Tasks are all tasks in order. The place in it decides on the default seeds: see [web.Seeds].
func Tasks() []Task { return slices.Clone(all()) }

// TinyTest are the tasks of BrowserGym's miniwob_tiny_test (2 repeats, 5 steps), in its order,
// which is that of its seeds.
func TinyTest() []Task {
	var out []Task
	for _, name := range []string{"click-dialog", "click-checkboxes"} {
		out = append(out, all()[slices.IndexFunc(all(), func(t Task) bool { return t.Name == name })])
	}
	return out
}
