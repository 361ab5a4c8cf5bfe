package wire

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Needs is what tasks ask for, as far as they were looked at.
type Needs struct {
	Machines  bool
	Memory    int64 // of the largest session
	Roles     []string
	Drivers   map[string][]string // tasks by the driver that auto would take for their machines
	Bare      []string            // tasks with a machine that has no image of its own
	Networks  map[string]int      // tasks by the network policy of the agent's machine
	Exclusive bool                // some must not be played at once
	Browsers  bool                // some are played in a browser
}

// surveyed bounds how many tasks are looked at before the run begins: what a task needs is asked again when it is played.
const surveyed = 2000

func (r *Ready) survey(ctx context.Context) error {
	planned := map[string]map[string]bool{}
	for _, t := range r.Plan.Tasks {
		if t.Bad != "" {
			continue
		}
		if planned[t.Benchmark] == nil {
			planned[t.Benchmark] = map[string]bool{}
		}
		planned[t.Benchmark][t.ID] = true
	}
	r.Needs.Drivers, r.Needs.Networks = map[string][]string{}, map[string]int{}
	skipped := map[string]string{}
	for _, i := range r.played() {
		b := r.benches[i]
		ids := planned[b.Name()]
		n := 0
		for t, err := range b.Source().Tasks(ctx) {
			if err != nil || !ids[t.ID] {
				continue
			}
			if n++; n > min(surveyed, len(ids)) {
				break
			}
			needs, err := b.Needs(t, b.Options)
			if err != nil { // the trial itself will say so
				continue
			}
			if needs.Skip != "" {
				skipped[b.Name()+"/"+t.ID] = needs.Skip
				continue
			}
			r.wants(t.ID, needs)
			for _, role := range needs.Roles {
				if b.Roles[role] == nil {
					return fmt.Errorf("benchmark %s asks for a model in the role %q; name one in the configuration: roles: {%s: openai/NAME}", b.Name(), role, role)
				}
				if !slices.Contains(r.Needs.Roles, role) {
					r.Needs.Roles = append(r.Needs.Roles, role)
				}
			}
		}
	}
	r.noteSkipped(skipped)
	return ctx.Err()
}

// played are the places in benches that some arm plays.
func (r *Ready) played() []int {
	seen := map[int]bool{}
	for arm := range r.arms {
		for b := range r.Eff.Benchmarks {
			if v, ok := r.variant[[2]int{arm, b}]; ok {
				seen[v] = true
			} else {
				seen[b] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// wants adds what a task needs.
func (r *Ready) wants(task string, needs benchmarks.Needs) {
	n := &r.Needs
	if r.o.Grade {
		needs.Agent = nil
	}
	agent, grader := total(needs.Agent), total(needs.GraderRoom())
	session := max(agent, grader)
	if needs.GradeLive {
		session = agent + grader
	}
	n.Memory = max(n.Memory, session)
	n.Exclusive = n.Exclusive || len(needs.Exclusive) > 0
	n.Browsers = n.Browsers || needs.Browser && !r.o.Grade
	bare := false
	drivers := map[string]bool{}
	for _, s := range slices.Concat(needs.Agent, needs.Grader) {
		n.Machines = true
		drivers[driverFor(s)] = true
		bare = bare || !needsEngine(s.Image)
	}
	for name := range drivers {
		if !slices.Contains(n.Drivers[name], task) {
			n.Drivers[name] = append(n.Drivers[name], task)
		}
	}
	if bare && !slices.Contains(n.Bare, task) {
		n.Bare = append(n.Bare, task)
	}
	if len(needs.Agent) > 0 {
		n.Networks[egress.Text(needs.Agent[0].Network)]++
	}
}

// networks says which policies are in force: "none", or "none for 12 tasks, public for 3".
func (n *Needs) networks() string {
	names := slices.SortedFunc(maps.Keys(n.Networks), func(a, b string) int { return cmp.Or(cmp.Compare(n.Networks[b], n.Networks[a]), cmp.Compare(a, b)) })
	if len(names) == 1 {
		return short(names[0])
	}
	const most = 4
	rest := 0
	for i, name := range names {
		if i >= most {
			rest += n.Networks[name]
			continue
		}
		names[i] = short(name) + " for " + count(n.Networks[name], "task")
	}
	if rest > 0 {
		names = append(names[:most], fmt.Sprintf("%d others for %s", len(names)-most, count(rest, "task")))
	}
	return strings.Join(names, "; ")
}

// short cuts a list of hosts, but never what it opens that is not public.
func short(policy string) string {
	const most = 100
	if len(policy) <= most {
		return policy
	}
	list, open, ok := strings.Cut(policy, " (")
	if hosts := strings.Split(list, ", "); len(hosts) > 3 {
		list = fmt.Sprintf("%s and %d more", strings.Join(hosts[:3], ", "), len(hosts)-3)
	}
	if ok {
		list += " (" + open
	}
	return list
}

// some names the first of many: "a, b, c and 9 more".
func some(names []string) string {
	const most = 3
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// noteBad tells of tasks that cannot be read.
func (r *Ready) noteBad() {
	n, first := 0, ""
	for _, t := range r.Plan.Tasks {
		if t.Bad == "" {
			continue
		}
		if n++; first == "" {
			first = strings.ReplaceAll(t.Bad, "\n", "; ")
		}
	}
	verb := "are"
	if n == 1 {
		verb = "is"
	}
	if n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d of %d tasks cannot be read and %s skipped; the first: %s", n, len(r.Plan.Tasks), verb, first))
	}
}

// noteSkipped tells of tasks that cannot be run here.
func (r *Ready) noteSkipped(why map[string]string) {
	by := map[string][]string{}
	for task, reason := range why {
		by[reason] = append(by[reason], task)
	}
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[reason])
		r.Notes = append(r.Notes, fmt.Sprintf("%s cannot be run here and will be skipped (%s): %s", count(len(by[reason]), "task"), some(by[reason]), reason))
	}
}

// fits refuses a machine that the configuration makes larger than one may ever be: each of its trials would be skipped.
func (r *Ready) fits() error {
	memory, most, why := r.budget()
	if r.Driver == nil || r.Driver.Name() == "fake" || memory == 0 {
		return nil
	}
	bound := why // of most
	if most > memory {
		bound = "what this computer has"
	}
	for _, a := range r.Eff.Arms {
		if s := a.Sandbox; s != nil && int64(s.Memory) > most {
			return fmt.Errorf("arm %s: sandbox.memory: %s for one machine is more than there is for all of them together, %s (%s); lower it, or raise pools.memory",
				a.Name, size(int64(s.Memory)), size(most), bound)
		}
	}
	switch need := r.Needs.Memory; {
	case need > most:
		r.Notes = append(r.Notes, fmt.Sprintf("the largest task asks for %s of memory, and all machines together may have %s (%s): what does not fit is skipped; sandbox.memory sets another size, pools.memory another budget",
			size(need), size(most), bound))
	case need > memory:
		r.Notes = append(r.Notes, fmt.Sprintf("the largest task asks for %s of memory, which is more than all machines together may have (%s, %s): such a task is played while no other is",
			size(need), size(memory), why))
	}
	return nil
}

// total is the memory that specs are counted at, their services with them.
func total(specs []sandbox.Spec) (n int64) {
	for _, s := range specs {
		if s.Reserve.Memory > 0 {
			n += s.Reserve.Memory
		} else {
			n += s.Memory
		}
		for _, side := range s.Services {
			n += total([]sandbox.Spec{side})
		}
	}
	return n
}
