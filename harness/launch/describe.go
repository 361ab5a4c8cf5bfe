package launch

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/runtime/auto"
)

// A Limit is an effective limit, as printed and recorded.
type Limit struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Why   string `json:"why,omitempty"` // where the limit comes from, or its meaning here
}

// Limits returns the limits in force for this run on this machine.
func (r *Ready) Limits() []Limit {
	var out []Limit
	add := func(name, why, format string, args ...any) {
		out = append(out, Limit{name, fmt.Sprintf(format, args...), why})
	}
	eff := r.Eff
	why := "default"
	if eff.Workers > 0 {
		why = "as asked for"
		if r.Workers < eff.Workers {
			why = fmt.Sprintf("%d asked for, but there are no more trials", eff.Workers)
		}
	}
	n, each := r.calls()
	if n > 0 && n < r.Workers {
		why += fmt.Sprintf("; %d of them can call a model at a time", n)
	}
	add("workers", why, "%d", r.Workers)
	if n > 0 {
		why = "what the service allows may be less"
		if n < r.Workers {
			why = "raise connections of the model, or pools.connections, if the service allows more"
		}
		add("model calls at once", why, "%s", each)
	}
	if r.Driver == nil {
		add("sandbox", "no task needs a machine", "none needed")
	} else {
		add("sandbox", r.sandboxWhy(), "%s", r.Sandbox)
		if !r.kind().Unisolated {
			if len(r.Needs.Sizes) > 0 {
				add("a machine", "from tasks and configuration", "%s", byTasks(r.Needs.Sizes))
			}
			add("network", "from tasks and configuration", "%s", r.Needs.networks())
		}
		if !r.kind().Test {
			memory, most, why := r.budget()
			add("memory of all machines", why+"; counted by limits, and by use once it is known", "%s", size(memory))
			// A task that needs more is skipped, which a note reports.
			if r.Needs.Memory > 0 && r.Needs.Memory <= most {
				if n := max(memory/r.Needs.Memory, 1); n < int64(r.Workers) {
					add("machines at once", "by their limits, memory lets no more of the largest run", "%s",
						count(int(n), "session"))
				}
			}
		}
		starts := 2 * runtime.NumCPU()
		if eff.Pools.Starts > 0 {
			starts = eff.Pools.Starts
		}
		add("machines starting at once", "", "%d", starts)
		if r.slow {
			add("machines started ahead", "of the next trials, while there is room", "%d", r.aheadOf())
		}
		add("gradings at once", "", "%d", r.gradingsAtOnce())
		if d, ok := r.Driver.(interface{ Describe() map[string]string }); ok {
			m := d.Describe()
			for _, k := range slices.Sorted(maps.Keys(m)) {
				add(k+" limit", "", "%s", m[k])
			}
		}
	}
	if r.Needs.Browsers {
		n, why := r.browserSessions()
		add("sessions in browsers at once", why, "%d", n)
	}
	p := eff.Phases
	for _, x := range []struct {
		name string
		d    config.Duration
	}{{"image", p.Image}, {"start", p.Start}, {"command", p.Command}, {"collect", p.Collect}, {"grade", p.Grade},
		{"close", p.Close}} {
		add("phase "+x.name, "", "%s", x.d)
	}
	retry := r.retry()
	add("attempts of a trial", "", "%d", retry.Attempts)
	add("retries of the run", "", "%d", max(0, retry.Budget))
	if b := eff.Budget; b != nil {
		if b.Cost > 0 {
			add("budget", "", "$%g", b.Cost)
		}
		if b.Tokens > 0 {
			add("tokens", "", "%d", b.Tokens)
		}
		if b.Deadline != "" {
			if t, err := b.Deadline.Next(time.Now()); err == nil {
				add("deadline", "", "%s", t.Format(time.RFC3339))
			}
		}
	}
	return out
}

// gradingsAtOnce returns how many gradings may use sandboxes and browsers at once.
func (r *Ready) gradingsAtOnce() int {
	if p := r.Eff.Pools; p != nil && p.Grading > 0 {
		return p.Grading
	}
	return 2 * runtime.NumCPU()
}

// browserSessions returns how many sessions may hold a browser at once, and the reason.
func (r *Ready) browserSessions() (int, string) {
	n := max(1, r.Workers)
	if b := r.Eff.Browser; b != nil && b.Contexts > 0 {
		return min(n, b.Contexts), "as asked for"
	}
	return n, "one for each worker"
}

// sandboxWhy describes what the driver's name does not tell.
func (r *Ready) sandboxWhy() string {
	switch {
	case r.kind().Unisolated:
		return "NO ISOLATION: what runs can do all that you can do"
	case r.Driver.Name() == auto.Name && len(r.Needs.Drivers) > 1:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(r.Needs.Drivers)) {
			parts = append(parts, name+" for "+count(len(r.Needs.Drivers[name]), "task"))
		}
		return "what each task needs: " + strings.Join(parts, ", ")
	}
	return ""
}

// Trials describes the number of trials of the run: "3 arms × 24 tasks × 2 repeats = 144".
func (r *Ready) Trials() string {
	s := fmt.Sprintf("%s × %s", count(len(r.Plan.Arms), "arm"), count(len(r.Plan.Tasks), "task"))
	if r.Plan.Repeats > 1 {
		s += " × " + count(r.Plan.Repeats, "repeat")
	}
	return s + " = " + count(plan.Trials(r.Plan), "trial")
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
