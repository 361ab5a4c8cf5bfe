package docker

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// gateOptions is for tests, which have no internet.
var gateOptions egress.Options

// A gate is the network access of a sandbox with its services: they share its network namespace, or
// are on a bridge without other connections.
type gate struct {
	mu     sync.Mutex
	link   egress.Link // opened by this process, until the gate owns it
	g      *egress.Gate
	policy sandbox.Network // in force
}

// gated reports whether a sandbox may have network access, now or in a later phase.
func (b *box) gated() bool { return !b.spec.Network.None() || b.spec.Rewire }

// gateEnv returns the environment variables of the proxy.
func (b *box) gateEnv() map[string]string {
	if !b.gated() {
		return nil
	}
	direct := b.mainNames()
	for _, name := range slices.Sorted(maps.Keys(b.spec.Services)) {
		direct = append(append(direct, name), b.spec.Services[name].Aliases...)
	}
	return egress.Env(direct...)
}

// openGate attaches a gate to the main container, if the sandbox may have network access. A sandbox
// that was reattached gets a new one.
func (b *box) openGate(ctx context.Context) error {
	if !b.gated() {
		return nil
	}
	o := gateOptions
	o.Link = b.gate.swap(nil)
	b.here = b.here || o.Link != nil
	g, err := egress.Attach(ctx, b.main.c, b.spec.Network, o)
	if err != nil {
		return err
	}
	b.gate.mu.Lock()
	b.gate.g, b.gate.policy = g, b.spec.Network
	b.gate.mu.Unlock()
	if b.isClosed() { // while it was opened
		g.Close()
	}
	return nil
}

// swap sets the link and returns the previous one.
func (g *gate) swap(l egress.Link) egress.Link {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.link
	g.link = l
	return old
}

func (b *box) closeGate() {
	if l := b.gate.swap(nil); l != nil { // never used
		l.Close()
	}
	if g := b.openedGate(); g != nil {
		g.Close()
	}
}

func (b *box) openedGate() *egress.Gate {
	b.gate.mu.Lock()
	defer b.gate.mu.Unlock()
	return b.gate.g
}

// Transparent reports whether programs that know no proxy reach the network too, and if not, why.
func (b *box) Transparent() (bool, string) {
	g := b.openedGate()
	if g == nil {
		return false, "no network"
	}
	return g.Transparent()
}

// Rewire changes the network policy, for the services too.
func (b *box) Rewire(ctx context.Context, n sandbox.Network) error {
	g := b.openedGate()
	if g == nil {
		return b.d.no("another network: the machine was started without one, and without Rewire in its spec")
	}
	b.gate.mu.Lock()
	defer b.gate.mu.Unlock()
	if err := g.Rewire(ctx, n); err != nil {
		return err
	}
	b.gate.policy = n
	if b.isClosed() {
		return nil
	}
	return b.saveState(n) // a process that reattaches continues with it
}

// Refused returns what the network policies have refused.
func (b *box) Refused() []sandbox.Refusal {
	if g := b.openedGate(); g != nil {
		return g.Refused()
	}
	return nil
}
