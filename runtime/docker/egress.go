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

// A gate is what lets a machine out into the network, and its services with it: they share its
// network namespace, or are on a bridge that leads nowhere.
type gate struct {
	mu     sync.Mutex
	link   egress.Link // opened from here, until the gate has it
	g      *egress.Gate
	policy sandbox.Network // in force
}

// gated reports whether a machine may reach out, now or in a later phase.
func (b *box) gated() bool { return !b.spec.Network.None() || b.spec.Rewire }

// gateEnv is what tells programs of the way out.
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

// openGate attaches a gate to the main machine, if it may reach out. A machine that was found again
// gets a new one.
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

// swap puts a link in, and returns the one before.
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
	if g := b.way(); g != nil {
		g.Close()
	}
}

func (b *box) way() *egress.Gate {
	b.gate.mu.Lock()
	defer b.gate.mu.Unlock()
	return b.gate.g
}

// Transparent reports whether programs that know no proxy reach the network too, and if not, why.
func (b *box) Transparent() (bool, string) {
	g := b.way()
	if g == nil {
		return false, "no network"
	}
	return g.Transparent()
}

// Rewire puts another network policy in force, for the services too.
func (b *box) Rewire(ctx context.Context, n sandbox.Network) error {
	g := b.way()
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
	return b.remember(n) // whoever takes the machine up again goes on with it
}

// Refused is what the network policies refused.
func (b *box) Refused() []sandbox.Refusal {
	if g := b.way(); g != nil {
		return g.Refused()
	}
	return nil
}
