package launch

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// What a killed run's programs left on this host is removed, whatever the run's driver is.
func TestReapPrograms(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	d := local.NewUnisolated()
	defer d.Close()
	o := self()
	o.PID, o.Start = dead.Process.Pid, 0
	sb, err := d.Create(t.Context(), sandbox.Spec{Owner: o})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	r := &Ready{Driver: fake.New(fake.Options{})}
	defer r.Close()
	if n, err := r.reap(t.Context(), func(o sandbox.Owner) bool {
		return o.PID != dead.Process.Pid || Alive(o)
	}); n != 1 || err != nil {
		t.Errorf("%d machines were removed, %v; want 1", n, err)
	}
}

// The plan of another program may name a driver that this program does not have.
func TestUnknownDriver(t *testing.T) {
	r := &Ready{Eff: &config.Effective{}, Needs: Needs{Machines: true}}
	r.o.Kinds = new(registry.Registry)
	r.Eff.Sandbox = &config.Sandbox{Driver: "jail"}
	if err := r.openDriver(t.Context()); err == nil || !strings.Contains(err.Error(), `"jail"`) {
		t.Errorf("error %v", err)
	}
}
