package docker

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/egress"
)

// A container's network interface is opened by its process 1, whose packets then go through the
// engine's streams. If this process is root on the engine's machine, it opens the interface from
// outside, which is several times as fast and needs neither the device nor a capability in the
// container.

// tuns caches which ways to open a network interface work.
type tuns struct {
	far  atomic.Bool // not from this process
	none atomic.Bool // nor from inside: the engine has no such device
	pid  int         // for tests: PID of every container, according to the engine
}

// here reports whether to try it from this process.
func (d *Driver) here() bool {
	return !d.tuns.far.Load() && os.Geteuid() == 0 && strings.HasPrefix(d.engine.name(), "unix://") && noTun() == nil
}

// noTun is why this process cannot open the device.
var noTun = sync.OnceValue(func() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
})

// proxyOnly returns why sandboxes have network access through the proxy only, or "" if they have
// all of it, as far as is known.
func (d *Driver) proxyOnly() string {
	if d.tuns.none.Load() {
		return "the engine has no /dev/net/tun"
	}
	if err := noTun(); os.IsNotExist(err) && strings.HasPrefix(d.engine.name(), "unix://") {
		return err.Error()
	}
	return ""
}

// retakeTun opens the interface of a sandbox that was reattached. The previous process closes it
// when it notices that its executor has a new owner. If that fails the proxy still works, and the
// gate reports it.
func (b *box) retakeTun(ctx context.Context, cli *client.Client) {
	for begun := time.Now(); b.main.openTun(ctx, cli) != nil && time.Since(begun) < retakeLimit; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

const retakeLimit = 3 * time.Second

// openTun opens a running container's network interface from this process, for the gate.
func (m *machine) openTun(ctx context.Context, cli *client.Client) error {
	c, err := inspect(ctx, cli, m.name)
	if err != nil {
		return m.engineError(ctx, "looking at the container", err)
	}
	if c.State != nil && !c.State.Running {
		return nil // its executor will not respond, and that is reported
	}
	if c.State == nil || c.State.Pid <= 0 || len(c.ID) < 32 {
		return fmt.Errorf("the engine does not say which process container %s is", m.name)
	}
	f, err := isolate.OpenTunIn(cmp.Or(m.b.d.tuns.pid, c.State.Pid), c.ID)
	if err != nil {
		return err
	}
	if old := m.b.gate.swap(egress.FileLink(f)); old != nil { // of a start that was repeated
		old.Close()
	}
	if m.b.isClosed() {
		m.b.closeGate()
	}
	return nil
}
