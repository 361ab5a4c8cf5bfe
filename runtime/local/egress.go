package local

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// gateOptions is for tests, which have no internet.
var gateOptions egress.Options

// hasNetwork reports whether a sandbox has network access, or may get it later.
func hasNetwork(spec *sandbox.Spec) bool { return !spec.Network.None() || spec.Rewire }

// checkNetwork refuses an invalid policy before anything is created.
func (d *Driver) checkNetwork(spec *sandbox.Spec) error {
	if _, err := egress.Parse(spec.Network); err != nil {
		return err
	}
	if !d.plain {
		return nil
	}
	if !spec.Network.None() && spec.Network.Mode != "public" {
		return &sandbox.Unsupported{Driver: d.Name(),
			What: fmt.Sprintf("network %q: it has the host's", spec.Network.Mode)}
	}
	if spec.Rewire {
		return &sandbox.Unsupported{Driver: d.Name(), What: "another network later: it has the host's"}
	}
	return nil
}

// prepareNetwork configures a sandbox's network access before it starts.
func prepareNetwork(spec *sandbox.Spec, l *isolate.Layout, cfg *executor.Config) {
	env := egress.Env()
	maps.Copy(env, spec.Env)
	cfg.Env = environ(env)
	if noTun() != nil {
		return
	}
	cfg.Tun = os.Geteuid() != 0
	entries := l.Entries[:len(l.Entries):len(l.Entries)]
	l.Entries = append(entries, isolate.Entry{Kind: isolate.File, Path: "/etc/resolv.conf", Data: egress.ResolvConf,
		Mode: 0o644})
}

// attach attaches the gate.
func (b *box) attach(ctx context.Context, n sandbox.Network) error {
	o := gateOptions
	if os.Geteuid() == 0 && noTun() == nil {
		// The device may belong to root only, who is another user inside. Outside, root can open
		// it.
		f, err := isolate.OpenTunIn(b.p.pid, "")
		if err != nil {
			return err
		}
		o.Link = egress.FileLink(f)
	}
	g, err := egress.Attach(ctx, b.c, n, o)
	b.gate = g
	return err
}

// noTun is why sandboxes have no network interface and programs can use the proxy only.
var noTun = sync.OnceValue(func() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
})

// Transparent reports whether programs that know no proxy reach the network too, and if not, why.
func (b *box) Transparent() (bool, string) {
	if b.d.plain {
		return true, "" // it uses the host's network
	}
	if b.gate == nil {
		return false, "no network"
	}
	return b.gate.Transparent()
}

// Rewire changes the network policy.
func (b *box) Rewire(ctx context.Context, n sandbox.Network) error {
	if b.gate == nil {
		return &sandbox.Unsupported{Driver: b.d.Name(),
			What: "another network: the machine was started without one, and without Rewire in its spec"}
	}
	if err := b.gate.Rewire(ctx, n); err != nil {
		return err
	}
	if b.state.Key == "" {
		return nil
	}
	b.stateMu.Lock()
	defer b.stateMu.Unlock()
	b.state.Network = n
	err := b.updateState() // a process that finds it continues with this policy
	if b.closing.Load() {
		b.d.removeState(b.id)
	}
	return err
}

// Refused returns what the network policies have refused.
func (b *box) Refused() []sandbox.Refusal {
	if b.gate == nil {
		return nil
	}
	return b.gate.Refused()
}
