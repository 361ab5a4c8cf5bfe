package launch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/auto"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Needs is what the surveyed tasks need.
type Needs struct {
	Machines  bool
	Memory    int64   // bytes of the largest session
	CPUs      float64 // CPUs of the largest sandbox
	Roles     []string
	Drivers   map[string][]string // tasks by the driver that auto would select for their sandboxes
	Imaged    []string            // tasks with a sandbox that only a container engine can create
	Bare      []string            // tasks with a sandbox whose image does not need a container engine
	Sizes     map[string]int      // number of tasks by the resources of the agent's sandbox
	Networks  map[string]int      // number of tasks by the network policy of the agent's sandbox
	Exclusive bool                // some tasks must not run at the same time
	Browsers  bool                // some tasks use a browser
}

// surveyed limits how many tasks are asked for their needs before the run starts. Each task is
// asked again when it runs.
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
	r.Needs.Drivers, r.Needs.Networks, r.Needs.Sizes = map[string][]string{}, map[string]int{}, map[string]int{}
	skipped := map[string]string{}
	for _, i := range r.played() {
		b := r.benches[i]
		ids := planned[b.Name()]
		n := 0
		for t, err := range b.Source().Tasks(ctx) {
			if n == min(surveyed, len(ids)) {
				break
			}
			if err != nil || !ids[t.ID] {
				continue
			}
			n++
			needs, err := b.Needs(t, b.Options)
			if err != nil { // the trial itself will report the error
				continue
			}
			if needs.Skip != "" {
				skipped[b.Name()+"/"+t.ID] = needs.Skip
				continue
			}
			// Where the agent's machine is the grader's, its work is graded in a fresh one.
			if _, ok := b.Benchmark.(benchmarks.Confirmer); r.o.Grade && !(ok && needs.GradeLive) {
				needs.Agent = nil
			}
			r.wants(t.ID, needs)
			for _, role := range needs.Roles {
				if b.Roles[role] == nil {
					return fmt.Errorf("benchmark %s asks for a model in the role %q; name one in the configuration: "+
						"roles: {%s: openai/NAME}", b.Name(), role, role)
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

// played returns the indexes in benches that some arm runs.
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

// wants adds the needs of a task.
func (r *Ready) wants(task string, needs benchmarks.Needs) {
	n := &r.Needs
	agent, grader := total(needs.Agent), total(needs.GraderRoom())
	session := max(agent, grader)
	if needs.GradeLive {
		session = agent + grader
	}
	n.Memory = max(n.Memory, session)
	n.Exclusive = n.Exclusive || len(needs.Exclusive) > 0
	n.Browsers = n.Browsers || needs.Browser && !r.o.Grade
	bare, imaged := false, false
	drivers := map[string]bool{}
	for _, s := range slices.Concat(needs.Agent, needs.Grader) {
		n.Machines = true
		n.CPUs = max(n.CPUs, s.CPUs)
		drivers[r.driverFor(s)] = true
		if k := r.kindFor(s); k != nil && k.Slow {
			r.slow = true
		}
		bare = bare || !s.Image.NeedsEngine()
		imaged = imaged || s.Image.NeedsEngine() || len(s.Services) > 0
	}
	for name := range drivers {
		if !slices.Contains(n.Drivers[name], task) {
			n.Drivers[name] = append(n.Drivers[name], task)
		}
	}
	add := func(to *[]string, is bool) {
		if is && !slices.Contains(*to, task) {
			*to = append(*to, task)
		}
	}
	add(&n.Bare, bare)
	add(&n.Imaged, imaged)
	if len(needs.Agent) > 0 {
		n.Networks[egress.Text(needs.Agent[0].Network)]++
		n.Sizes[r.sizes(needs.Agent[0])]++
	}
}

// sizes describes the resources of a sandbox. What its spec leaves out is the driver's default.
func (r *Ready) sizes(s sandbox.Spec) string {
	name := r.Eff.Sandbox.Driver
	if name == auto.Name {
		name = r.driverFor(s)
	}
	if k := r.o.Kinds.Sandbox(name); k != nil && k.Defaults != nil {
		k.Defaults(&s)
	}
	var out []string
	add := func(set bool, format string, v any) {
		if set {
			out = append(out, fmt.Sprintf(format, v))
		}
	}
	add(s.Memory > 0, "memory %s", size(s.Memory))
	add(s.Memory == 0, "%s", "memory without a limit")
	add(s.CPUs > 0 && s.CPUs != 1, "%g CPUs", s.CPUs)
	add(s.CPUs == 1, "%g CPU", s.CPUs)
	add(s.CPUs == 0, "%s", "all CPUs")
	add(s.Pids > 0, "%d processes", s.Pids)
	add(s.Disk > 0, "disk %s", size(s.Disk))
	add(s.Disk == 0, "%s", "disk without a limit")
	return strings.Join(out, ", ")
}

// noteUnused returns an error for configured roles that no task of the benchmarks uses, selected or
// not.
func (r *Ready) noteUnused(ctx context.Context) error {
	left := map[string]bool{}
	for name := range r.Eff.Roles {
		left[name] = !slices.Contains(r.Needs.Roles, name)
	}
	maps.DeleteFunc(left, func(_ string, unused bool) bool { return !unused })
	if len(left) == 0 {
		return nil
	}
	for _, i := range r.played() {
		b := r.benches[i]
		for t, err := range b.Source().Tasks(ctx) {
			if err != nil {
				continue
			}
			needs, err := b.Needs(t, b.Options)
			if err != nil || needs.Skip != "" { // it might use any role
				return nil
			}
			for _, role := range needs.Roles {
				delete(left, role)
			}
			if len(left) == 0 {
				return nil
			}
		}
	}
	name := slices.Sorted(maps.Keys(left))[0]
	return r.Eff.Wrong("roles."+name, "no task asks for a model in this role",
		"leave it out; it is for benchmarks that grade or play with a model of their own")
}

// noteOdd adds notes about unusual tasks that can still run.
func (r *Ready) noteOdd() {
	var texts []string
	of := map[string][]string{}
	for _, t := range r.Plan.Tasks {
		for _, w := range t.Warnings {
			if of[w] == nil {
				texts = append(texts, w)
			}
			of[w] = append(of[w], t.ID)
		}
	}
	const most = 10
	for i, text := range texts {
		if i == most {
			r.Notes = append(r.Notes, fmt.Sprintf("%d more of this kind: see evalrun tasks check", len(texts)-most))
			break
		}
		r.Notes = append(r.Notes, some(of[text])+": "+text)
	}
}

// networks describes the policies in force: "none", or "none for 12 tasks, public for 3".
func (n *Needs) networks() string { return byTasks(n.Networks) }

// byTasks lists values by number of tasks, most frequent first.
func byTasks(of map[string]int) string {
	names := slices.SortedFunc(maps.Keys(of),
		func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	if len(names) == 1 {
		return short(names[0])
	}
	const most = 4
	rest := 0
	for i, name := range names {
		if i >= most {
			rest += of[name]
			continue
		}
		names[i] = short(name) + " for " + count(of[name], "task")
	}
	if rest > 0 {
		names = append(names[:most], fmt.Sprintf("%d others for %s", len(names)-most, count(rest, "task")))
	}
	return strings.Join(names, "; ")
}

// short shortens a list of hosts, but never what it opens beyond the public network.
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

// some lists the first of many names: "a, b, c and 9 more".
func some(names []string) string {
	const most = 3
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// noteBad adds notes about unreadable tasks.
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
	switch {
	case n == 1:
		r.Notes = append(r.Notes, fmt.Sprintf("1 of %s cannot be read and is skipped: %s",
			count(len(r.Plan.Tasks), "task"), first))
	case n > 1:
		r.Notes = append(r.Notes, fmt.Sprintf("%d of %d tasks cannot be read and are skipped (evalrun tasks list "+
			"names them); the first: %s", n, len(r.Plan.Tasks), first))
	}
}

// noteSkipped adds notes about tasks that cannot run here.
func (r *Ready) noteSkipped(why map[string]string) {
	by := map[string][]string{}
	for task, reason := range why {
		by[reason] = append(by[reason], task)
	}
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[reason])
		r.Notes = append(r.Notes, fmt.Sprintf("%s cannot be run here and will be skipped (%s): %s",
			count(len(by[reason]), "task"), some(by[reason]), reason))
	}
}

// fits returns an error if the configuration gives one sandbox more memory than all of them may use
// together, because each of its trials would be skipped. It adds notes about the largest task.
func (r *Ready) fits() error {
	memory, most, why := r.budget()
	if r.Driver == nil || r.kind().Test || memory == 0 {
		return nil
	}
	bound := why // where most comes from
	if most > memory {
		bound = "what this computer has"
	}
	for _, a := range r.Eff.Arms {
		if s := a.Sandbox; s != nil && int64(s.Memory) > most {
			return fmt.Errorf("arm %s: sandbox.memory: %s for one machine is more than there is for all of them "+
				"together, %s (%s); lower it, or raise pools.memory",
				a.Name, size(int64(s.Memory)), size(most), bound)
		}
	}
	if have := runtime.NumCPU(); r.Needs.CPUs > float64(have) {
		r.Notes = append(r.Notes, fmt.Sprintf("the largest task may use %g CPUs, and this computer has %d: it is "+
			"played with those, and may need more time", r.Needs.CPUs, have))
	}
	switch need := r.Needs.Memory; {
	case need > most:
		r.Notes = append(r.Notes, fmt.Sprintf("the largest task asks for %s of memory, and all machines together may "+
			"have %s (%s): what does not fit is skipped; sandbox.memory sets another size, pools.memory another budget",
			size(need), size(most), bound))
	case need > memory:
		r.Notes = append(r.Notes, fmt.Sprintf("the largest task asks for %s of memory, which is more than all "+
			"machines together may have (%s, %s): such a task is played while no other is",
			size(need), size(memory), why))
	}
	return nil
}

// total returns the memory reserved for specs and their services, in bytes.
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
