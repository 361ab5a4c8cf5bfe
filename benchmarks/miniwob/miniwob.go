// Package miniwob implements MiniWoB++ as BrowserGym plays it: 125 small web pages that generate a
// problem from a seed and compute the reward themselves. The pages cannot be distributed with
// evalrun; they are read from a directory of the user, see [Fetch].
package miniwob

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// BrowserGym's settings.
const (
	// the subset of actions; one call per step, retried once with force after a timeout
	Actions  = "miniwob_all"
	Repeats  = 5
	MaxSteps = 10

	tinyRepeats, tinySteps = 2, 5 // of miniwob_tiny_test
)

// A Task is one page.
type Task struct {
	Index    int    // position in the list, which is alphabetical
	Name     string // of the page, without ".html"
	Category string // original, additional, hidden test, debug, nodelay
	Split    string // train, test
	Group    int    // tasks so similar that they must be in the same split
	WebGUM   bool   // one of the 56 tasks on which WebGUM was evaluated
	Delay    bool   // has animations, so that an action may come too early
	Random   bool   // the outcome is not determined by the seed
}

// tasks.txt has one line per group: its split, and its tasks, each with the first letter of its
// category, w for WebGUM and ! for a delay.
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

// Tasks returns all tasks in order. A task's position determines its default seeds; see
// [web.Seeds].
func Tasks() []Task { return slices.Clone(all()) }

// TinyTest returns the tasks of BrowserGym's miniwob_tiny_test (2 repeats, 5 steps), in the order
// that determines their seeds.
func TinyTest() []Task {
	var out []Task
	for _, name := range []string{"click-dialog", "click-checkboxes"} {
		out = append(out, all()[slices.IndexFunc(all(), func(t Task) bool { return t.Name == name })])
	}
	return out
}
