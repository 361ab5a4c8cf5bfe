package harness

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A watched is a sandbox of an attempt. Closing it first records what its network policy refused.
type watched struct {
	sandbox.Sandbox
	a    *attempt
	role string
}

func (w *watched) Unwrap() sandbox.Sandbox { return w.Sandbox }

func (w *watched) Close() error {
	w.a.refused(w)
	w.a.mu.Lock()
	w.a.open = slices.DeleteFunc(w.a.open, func(o *watched) bool { return o == w })
	w.a.mu.Unlock()
	return w.Sandbox.Close()
}

// A rewired is a watched sandbox whose network policy can be changed. Each change is recorded.
type rewired struct {
	*watched
	r sandbox.Rewirer
}

func (w *rewired) Unwrap() sandbox.Sandbox { return w.watched }

func (w *rewired) Rewire(ctx context.Context, n sandbox.Network) error {
	if err := w.r.Rewire(ctx, n); err != nil {
		return err
	}
	w.a.policy(w.role, n)
	if w.a.isFinding() { // the policy that was in force before
		return nil
	}
	_, err := w.a.log.Append(context.WithoutCancel(ctx),
		event.New(event.FromEnvironment, event.Info{What: "network", Text: w.role + ": " + policy(n)}))
	return err
}

// watch adds a sandbox to the attempt and returns it wrapped.
func (a *attempt) watch(role string, spec sandbox.Spec, sb sandbox.Sandbox) sandbox.Sandbox {
	w := &watched{Sandbox: sb, a: a, role: role}
	a.mu.Lock()
	a.open = append(a.open, w)
	if role == "agent" {
		a.theirs = append(a.theirs, sb.ID())
		if e, ok := sandbox.As[sandbox.Early](sb); ok {
			a.ahead = max(a.ahead, e.Ahead())
		}
	}
	a.mu.Unlock()
	if t, ok := sandbox.As[sandbox.Transparent](sb); ok && (spec.Rewire || !spec.Network.None()) {
		if ok, why := t.Transparent(); !ok {
			a.byProxy(role, why)
		}
	}
	if r, ok := sandbox.As[sandbox.Rewirer](sb); ok {
		return &rewired{w, r}
	}
	return w
}

// early returns how long before it was asked for the agent's sandbox was ready.
func (a *attempt) early() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ahead
}

// machines records which drivers create the attempt's sandboxes, and the initial network policy of
// the agent's sandbox.
func (a *attempt) machines() {
	var names []string
	for _, s := range slices.Concat(a.needs.Agent, a.needs.Grader) {
		name := a.Driver
		if a.DriverOf != nil {
			name = a.DriverOf(s)
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	a.mu.Lock()
	a.driver = strings.Join(names, "+")
	a.mu.Unlock()
	if len(a.needs.Agent) > 0 {
		a.policy("agent", a.needs.Agent[0].Network)
	}
}

// policy records a network policy of the agent's sandbox.
func (a *attempt) policy(role string, n sandbox.Network) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if text := policy(n); role == "agent" && (len(a.networks) == 0 || a.networks[len(a.networks)-1] != text) {
		a.networks = append(a.networks, text)
	}
}

// byProxy records that programs in a sandbox have no network unless they use the proxy.
func (a *attempt) byProxy(role, why string) {
	a.mu.Lock()
	a.proxied = a.proxied || role == "agent"
	noted := a.finding
	a.mu.Unlock()
	if noted {
		return
	}
	note := event.New(event.FromEnvironment,
		event.Info{What: "network", Text: role + ": through the proxy only: " + why})
	if _, err := a.log.Append(context.Background(), note); err != nil {
		a.Slog.Warn("the ways of a machine's network could not be noted", "trial", a.job.Trial, "err", err)
	}
}

// network describes the network policies of the agent's sandbox, for the verdict. The caller holds
// the lock.
func (a *attempt) network() string {
	s := strings.Join(a.networks, ", then ")
	if a.proxied && s != "none" {
		s += " (through the proxy only)"
	}
	return s
}

// policy describes a network policy in words.
func policy(n sandbox.Network) string {
	switch {
	case n.None():
		return "none"
	case n.Mode == "allow" && len(n.Allow) == 0:
		return "allow nothing"
	case n.Mode == "allow":
		return "allow " + strings.Join(n.Allow, " ")
	}
	return n.Mode
}

// A refusal identifies a destination that a sandbox was not allowed to reach.
type refusal struct {
	machine, host string
	port          int
	why           string
}

// refusals records what was refused to all open sandboxes, and to the browser of an episode that
// has one. It is called at the end of a stage and of a grading.
func (a *attempt) refusals(ep benchmarks.Episode) {
	a.mu.Lock()
	open := slices.Clone(a.open)
	a.mu.Unlock()
	for _, w := range open {
		a.refused(w)
	}
	if w, ok := ep.(sandbox.RefusalLister); ok {
		a.refusedTo("browser", "browser", w)
	}
}

// refused records what a sandbox's network policy has refused since the last call.
func (a *attempt) refused(m *watched) {
	if w, ok := sandbox.As[sandbox.RefusalLister](m.Sandbox); ok {
		a.refusedTo(m.ID(), m.role, w)
	}
}

func (a *attempt) refusedTo(id, role string, w sandbox.RefusalLister) {
	for _, r := range w.Refused() {
		key := refusal{id, r.Host, r.Port, r.Why}
		a.mu.Lock()
		n := r.Count - a.reportedRefusals[key]
		if n > 0 {
			if a.reportedRefusals == nil {
				a.reportedRefusals = map[refusal]int64{}
			}
			a.reportedRefusals[key] = r.Count
			a.nrefused += n
		}
		a.mu.Unlock()
		if n <= 0 {
			continue
		}
		note := event.New(event.FromEnvironment,
			event.NetworkRefused{Role: role, Host: cut(r.Host, 1<<10), Port: r.Port, Why: r.Why, Count: n})
		if _, err := a.log.Append(context.Background(), note); err != nil {
			a.Slog.Warn("what a network policy refused could not be noted", "trial", a.job.Trial, "err", err)
			return
		}
	}
}
