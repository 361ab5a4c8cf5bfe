package local

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest"
)

// useExecutor makes drivers whose executors are those of sandboxtest.HungExecutor.
func useExecutor(t *testing.T, atStart bool) {
	f, err := isolate.MemoryFile(sandboxtest.HungExecutor(t, atStart))
	if err != nil {
		t.Fatal(err)
	}
	well := initBinary
	initBinary = func() (*os.File, error) { return f, nil }
	t.Cleanup(func() {
		initBinary = well
		f.Close()
	})
}

func impatient(t *testing.T) *Driver {
	d := New()
	d.grace = 200 * time.Millisecond
	t.Cleanup(func() { d.Close() })
	return d
}

func TestHung(t *testing.T) {
	require(t)
	s := sandboxtest.Suite{Driver: func(t *testing.T) sandbox.Driver { return impatient(t) }, Left: left}
	t.Run("stopped", func(t *testing.T) {
		sandboxtest.Hang(t, s, func(t *testing.T, sb sandbox.Sandbox) {
			if err := syscall.Kill(sb.(*box).p.pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("busy", func(t *testing.T) {
		useExecutor(t, false)
		sandboxtest.Hang(t, s, sandboxtest.HangByFile)
	})
}

// An executor that never begins ends Create, with its stacks.
func TestHungAtStart(t *testing.T) {
	require(t)
	useExecutor(t, true)
	before := left(t)
	d := impatient(t)
	d.first = time.Millisecond
	_, err := d.Create(t.Context(), sandbox.Spec{Owner: sandbox.Self()})
	var e *sandbox.Error
	if !errors.As(err, &e) || errors.Is(err, sandbox.ErrGone) ||
		!strings.Contains(err.Error(), "its executor does not answer") || !strings.Contains(e.Detail, "goroutine ") {
		t.Errorf("error %v: %+v", err, e)
	}
	d.Close()
	if got := more(t, before); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// Without namespaces the end of the executor is not the end of what it has started.
func TestHungUnisolated(t *testing.T) {
	for _, how := range []string{"call", "close"} {
		t.Run(how, func(t *testing.T) {
			d := NewUnisolated()
			d.grace = 200 * time.Millisecond
			t.Cleanup(func() { d.Close() })
			sb := create(t, d, sandbox.Spec{})
			out, _ := sh(t, sb, "setsid setsid sleep 1000 >/dev/null & sleep 1000 >/dev/null & echo $!; setsid sh -c "+
				"'echo $$; exec sleep 1000 >/dev/null' & sleep 0.1")
			pids := strings.Fields(out)
			if len(pids) != 2 {
				t.Fatalf("%q", out)
			}
			if err := syscall.Kill(sb.(*box).p.pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if how == "call" {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if err := sb.KillAll(ctx); !errors.Is(err, sandbox.ErrHung) {
					t.Errorf("KillAll: %v, want %v", err, sandbox.ErrHung)
				}
			}
			if err := sb.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			for _, s := range pids {
				pid, _ := strconv.Atoi(s)
				if err := syscall.Kill(pid, 0); err == nil && executor.Threads(pid) != "" &&
					!strings.Contains(executor.Threads(pid), "state Z") {
					t.Errorf("process %d is left", pid)
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			if _, err := os.Stat(sb.(*box).tmp); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its folder is left: %v", err)
			}
		})
	}
}
