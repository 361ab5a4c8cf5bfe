package local

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest"
)

// sick makes drivers whose executors are those of sandboxtest.Sick.
func sick(t *testing.T, atStart bool) {
	f, err := inMemory(sandboxtest.Sick(t, atStart))
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
		sick(t, false)
		sandboxtest.Hang(t, s, sandboxtest.HangSick)
	})
}

// An executor that never begins ends Create, with its stacks.
func TestHungAtStart(t *testing.T) {
	require(t)
	sick(t, true)
	before := left(t)
	d := impatient(t)
	d.first = time.Millisecond
	_, err := d.Create(t.Context(), sandbox.Spec{Owner: sandbox.Self()})
	var e *sandbox.Error
	if !errors.As(err, &e) || errors.Is(err, sandbox.ErrGone) || !strings.Contains(err.Error(), "its executor does not answer") || !strings.Contains(e.Detail, "goroutine ") {
		t.Errorf("error %v: %+v", err, e)
	}
	d.Close()
	if got := more(t, before); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}
