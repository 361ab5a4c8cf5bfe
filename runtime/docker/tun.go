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

// A machine's network interface is opened by its own process 1, whose packets then go through the
// engine's streams. Root of the engine's machine opens it from outside, several times as fast; and
// the container needs neither the device nor a capability for it.

// tuns is what is known of ways to a network interface.
type tuns struct {
	far  atomic.Bool // not from here
	none atomic.Bool // nor from inside: the engine has no such device
	pid  int         // for tests: what the engine says of every container
}

// here reports whether it is worth trying from this side.
func (d *Driver) here() bool {
	return !d.tuns.far.Load() && os.Geteuid() == 0 && strings.HasPrefix(d.engine.name(), "unix://") && noTun() == nil
}

// noTun says why this process cannot open the device.
var noTun = sync.OnceValue(func() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
})

// proxyOnly says why machines have a network through the proxy only; "": they have all of it, as
// far as is known.
func (d *Driver) proxyOnly() string {
	if d.tuns.none.Load() {
		return "the engine has no /dev/net/tun"
	}
	if err := noTun(); os.IsNotExist(err) && strings.HasPrefix(d.engine.name(), "unix://") {
		return err.Error()
	}
	return ""
}

// retakeTun opens the interface of a machine that was found again. Who had it before lets go when
// it sees that its executor has a new owner. Where it cannot be had the proxy is left, and the gate
// says so.
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

// openTun opens a running container's network interface from here, for the gate.
func (m *machine) openTun(ctx context.Context, cli *client.Client) error {
	c, err := inspect(ctx, cli, m.name)
	if err != nil {
		return m.engineError(ctx, "looking at the container", err)
	}
	if c.State != nil && !c.State.Running {
		return nil // its executor will not answer, and that is what is told
	}
	if c.State == nil || c.State.Pid <= 0 || len(c.ID) < 32 {
		return fmt.Errorf("the engine does not say which process container %s is", m.name)
	}
	f, err := isolate.OpenTunIn(cmp.Or(m.b.d.tuns.pid, c.State.Pid), c.ID)
	if err != nil {
		return err
	}
	if old := m.b.gate.swap(egress.FileLink(f)); old != nil { // of a start that had to be begun again
		old.Close()
	}
	if m.b.isClosed() {
		m.b.closeGate()
	}
	return nil
}
