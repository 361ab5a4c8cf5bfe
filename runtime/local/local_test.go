package local

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/scripts/leftovers"
)

func TestMain(m *testing.M) {
	Init()
	if os.Getenv("EVALRUN_TEST_OWNER") != "" {
		asOwner()
	}
	if os.Getenv("EVALRUN_TEST_HOST") != "" {
		asHost()
	}
	leftovers.OwnMounts() // other tests mount things beside us
	os.Exit(m.Run())
}

// require returns a working driver, or skips with the reason.
func require(t testing.TB) *Driver {
	t.Helper()
	d := New()
	if err := d.Probe(context.Background()); err != nil {
		if os.Getenv("EVALRUN_TEST_LOCAL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func create(t testing.TB, d *Driver, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	if spec.Owner.PID == 0 {
		spec.Owner = sandbox.Self()
	}
	sb, err := d.Create(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	})
	return sb
}

// sh runs a shell script and returns its output and exit.
func sh(t testing.TB, sb sandbox.Sandbox, script string) (string, sandbox.Exit) {
	t.Helper()
	var out bytes.Buffer
	x, err := sb.Exec(context.Background(),
		sandbox.Command{Args: []string{"/bin/sh", "-c", script}, Stdout: &out, Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out.String(), x
}

func TestFirst(t *testing.T) {
	sb := create(t, require(t), sandbox.Spec{})
	out, x := sh(t, sb, "id; pwd; ls -la / /etc /dev /tmp; cat /proc/self/mountinfo; cat /proc/self/status; ps aux; "+
		"env; exit 3")
	if x.Code != 3 || !strings.Contains(out, "uid=0") {
		t.Errorf("%+v\n%s", x, out)
	}
	t.Log(out)
}
