package docker

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest"
	"github.com/moby/moby/client"
)

// useExecutor makes a driver's executors those of sandboxtest.HungExecutor.
func useExecutor(d *Driver, data []byte) {
	d.tool.mu.Lock()
	defer d.tool.mu.Unlock()
	d.tool.byArch, d.tool.copied = map[string]*program{runtime.GOARCH: {data: data}}, true
}

func TestHung(t *testing.T) {
	first := require(t)
	suite := func(change func(d *Driver)) sandboxtest.Suite {
		return sandboxtest.Suite{
			Driver: func(t *testing.T) sandbox.Driver {
				d := requireWith(t, Options{State: first.state})
				d.grace = 500 * time.Millisecond
				change(d)
				return d
			},
			Spec: sandbox.Spec{Image: sandbox.Image{Ref: emptyImage}, Memory: 512 << 20, Pids: 256},
			Left: func(t *testing.T) []string { return mine(t, first) },
		}
	}
	t.Run("stopped", func(t *testing.T) {
		sandboxtest.Hang(t, suite(func(*Driver) {}), func(t *testing.T, sb sandbox.Sandbox) {
			if _, err := api(t, first).ContainerKill(t.Context(), sb.ID(),
				client.ContainerKillOptions{Signal: "STOP"}); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("busy", func(t *testing.T) {
		if testing.Short() { // package local tests the same with less
			t.Skip("makes a core busy for a minute; scripts/test long runs it")
		}
		program := sandboxtest.HungExecutor(t, false)
		sandboxtest.Hang(t, suite(func(d *Driver) { useExecutor(d, program) }), sandboxtest.HangByFile)
	})
}

// An executor that never begins ends Create, with its stacks.
func TestHungAtStart(t *testing.T) {
	d := require(t)
	d.grace, d.first = 500*time.Millisecond, time.Millisecond
	spec := helped(t, d)
	useExecutor(d, sandboxtest.HungExecutor(t, true))
	_, err := d.Create(context.Background(), spec)
	var e *sandbox.Error
	if !errors.As(err, &e) || errors.Is(err, sandbox.ErrGone) ||
		!strings.Contains(err.Error(), "its executor does not answer") || !strings.Contains(e.Detail, "goroutine ") {
		t.Errorf("error %v: %+v", err, e)
	}
	if got := mine(t, d); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}
