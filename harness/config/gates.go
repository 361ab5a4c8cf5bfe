package config

import (
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/internal/yamldoc"
)

// gates checks the gates. It checks the arm names only if all arms are valid.
func (l *layout) gates(tree *node, all bool) {
	f := &l.out.File
	var names []string
	for _, a := range f.Arms {
		names = append(names, a.Name)
	}
	known := func(name string, n *node, key string) {
		if all && name != "" && !slices.Contains(names, name) && len(names) > 0 {
			l.fail(n, key, fmt.Sprintf("no arm is called %q", name), yamldoc.OrKnown(name, names))
		}
	}
	list := tree.Get("gates")
	for i := range f.Gates {
		g := &f.Gates[i]
		n := tree
		if list != nil && i < len(list.Items) {
			n = list.Items[i]
		}
		key := fmt.Sprintf("gates[%d]", i)
		known(g.Arm, cmpNode(n.Get("arm"), n), key+".arm")
		known(g.Than, cmpNode(n.Get("than"), n), key+".than")
		if g.Metric == "" {
			g.Metric = "mean"
		}
		switch {
		case g.Min == nil && g.Max == nil:
			l.fail(n, key, "a gate needs min or max", "")
		case g.Min != nil && g.Max != nil && *g.Min > *g.Max:
			l.fail(n, key, "a gate whose min is above its max can never pass", "")
		case g.Metric == "difference" && (g.Arm == "" || g.Than == ""):
			l.fail(n, key, "a gate on a difference needs arm and than", "")
		case g.Metric != "difference" && g.Than != "":
			l.fail(n, key, "than is for the metric difference", "")
		}
	}
}

// bounds checks settings against each other.
func (l *layout) bounds(tree *node) {
	f := &l.out.File
	if b := f.Browser; b != nil && b.SOM && b.Screenshots != nil && !*b.Screenshots {
		l.fail(tree.Get("browser").Get("som"), "browser.som",
			"it keeps a second screenshot of each step, but browser.screenshots is false", "set one of them otherwise")
	}
	if f.Pools == nil || f.Pools.Memory == 0 {
		return
	}
	for _, a := range f.Arms {
		if a.Sandbox != nil && a.Sandbox.Memory > f.Pools.Memory {
			n := tree.Get("pools").Get("memory")
			l.fail(n, "pools.memory", fmt.Sprintf("%s is less than one machine of arm %q, %s: no trial could start",
				f.Pools.Memory, a.Name, a.Sandbox.Memory), "raise pools.memory or lower sandbox.memory")
			return
		}
	}
}
