package harbor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/harbor/format"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// widen is a policy with more hosts: none becomes a list, public stays what it is.
func widen(n sandbox.Network, hosts []string) sandbox.Network {
	if len(hosts) == 0 || n.Mode == "public" {
		return n
	}
	all := slices.Clone(n.Allow)
	for _, h := range hosts {
		if !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return sandbox.Network{Mode: "allow", Allow: all}
}

// nonPublicHosts is the reason to skip a task whose own allow-lists open this host or its private
// networks, which only the run's configuration may do; "": none does.
func (b *Benchmark) nonPublicHosts(t *format.Task, o benchmarks.Options) string {
	list := func(hosts ...string) egress.Policy {
		p, _ := egress.Parse(sandbox.Network{Mode: "allow", Allow: hosts}) // its errors are reported elsewhere
		return p
	}
	all, agent := list(b.o.AllowHosts...), list(b.o.AgentAllowHosts...)
	var wrong, open []string
	check := func(n *sandbox.Network, but ...egress.Policy) {
		if n == nil {
			return
		}
		p, err := egress.Parse(*n)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		open = append(open, p.Opens(append(but, all)...)...)
	}
	ours := o.Sandbox.Network.Mode != "" // then it holds in all phases of the agent's machine
	if !ours {
		check(&t.Environment.Network)
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		if !ours {
			check(s.Network, agent)
		}
		if s.Verifier.Separate {
			check(&s.Verifier.Environment.Network, list(o.Sandbox.Network.Allow...))
		}
		if !ours || s.Verifier.Separate {
			check(s.Verifier.Network, list(o.Sandbox.Network.Allow...))
		}
	}
	slices.Sort(open)
	if open = slices.Compact(open); len(open) > 0 {
		wrong = append(wrong, fmt.Sprintf("its allow-list opens %s, not public: if that is meant, add allow_hosts: "+
			"[%[1]s] to harbor's options",
			strings.Join(open, ", ")))
	}
	return strings.Join(wrong, "; ")
}
