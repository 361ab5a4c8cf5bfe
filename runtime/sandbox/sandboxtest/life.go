package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// lasting gives a sandbox time to be found.
func lasting(s *sandbox.Spec) { s.Orphan = time.Hour }

var lifeTests = []test{
	{name: "life/probe", run: func(t *testing.T, b *box) {
		if b.driver.Name() == "" {
			t.Error("the driver has no name")
		}
		for range 2 {
			if err := b.driver.Probe(b.ctx()); err != nil {
				t.Errorf("Probe: %v", err)
			}
		}
		if d, err := b.driver.Prepare(b.ctx(), sandbox.Image{}); d != "" || err != nil {
			t.Errorf("Prepare of the zero image: %q, %v", d, err)
		}
		one, err := b.driver.Prepare(b.ctx(), b.spec.Image)
		if err != nil {
			t.Errorf("Prepare: %v", err)
		}
		if two, err := b.driver.Prepare(b.ctx(), b.spec.Image); two != one || err != nil {
			t.Errorf("Prepare again: %q, %v; want %q", two, err, one)
		}
	}},
	{name: "life/close", run: func(t *testing.T, b *box) {
		// Close works however it is called: twice, by many, after the context of Create, during an
		// Exec.
		ctx, cancel := context.WithCancel(b.ctx())
		sb, err := b.driver.Create(ctx, b.spec)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if r, err := sb.Exec(b.ctx(), sandbox.Command{Args: []string{"/no/such"}}); err != nil || r.Code != 127 {
			t.Errorf("after the context of Create has ended: %+v, %v", r, err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := sb.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		wg.Wait()
		if err := sb.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}

		m := b.open()
		m.start("double", "keep", "/tmp/service", "ignore")
		done := make(chan error, 1)
		go func() {
			_, err := m.try(b.ctx(), m.command("ignore", ",", "hold", "/tmp/main"))
			done <- err
		}()
		m.waitHeld("/tmp/main")
		if err := m.Close(); err != nil {
			t.Errorf("Close during an Exec: %v", err)
		}
		select {
		case err := <-done: // killed, or gone: both are true
			if err != nil {
				wantIs(t, "Exec during Close", err, sandbox.ErrGone)
			}
		case <-time.After(patience):
			t.Error("Exec did not return when its sandbox was closed")
		}
	}},
	{name: "life/gone", run: func(t *testing.T, b *box) {
		m := b.open()
		if m.ID() == "" {
			t.Error("the sandbox has no ID")
		}
		id := m.ID()
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if m.ID() != id {
			t.Errorf("ID changed from %q to %q", id, m.ID())
		}
		_, err := m.try(b.ctx(), m.command("echo"))
		wantIs(t, "Exec", err, sandbox.ErrGone)
		if err != nil && !errors.As(err, new(*sandbox.Error)) {
			t.Errorf("Exec: error %T, want a *sandbox.Error", err)
		}
		wantIs(t, "Put", m.Put(b.ctx(), "/x", fstest.MapFS{}), sandbox.ErrGone)
		r, err := m.Get(b.ctx(), "/tmp")
		if err == nil {
			r.Close()
		}
		wantIs(t, "Get", err, sandbox.ErrGone)
		wantIs(t, "KillAll", m.KillAll(b.ctx()), sandbox.ErrGone)
		_, err = b.another().Find(b.ctx(), id)
		wantIs(t, "Find", err, sandbox.ErrGone)
		_, err = b.another().Find(b.ctx(), "no-such-sandbox")
		wantIs(t, "Find of a made-up ID", err, sandbox.ErrGone)
	}},
	{name: "life/create-canceled", run: func(t *testing.T, b *box) {
		// Canceled before or at any moment during Create: an error or a sandbox, and nothing beside
		// it.
		cause := errors.New("no longer wanted")
		for _, after := range []time.Duration{-1, 0, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond,
			20 * time.Millisecond} {
			ctx, cancel := context.WithCancelCause(b.ctx())
			if after < 0 {
				cancel(cause)
			} else {
				time.AfterFunc(after, func() { cancel(cause) })
			}
			sb, err := b.driver.Create(ctx, b.spec)
			if err == nil {
				b.made = append(b.made, sb)
				if err := sb.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			} else {
				wantIs(t, fmt.Sprintf("Create, canceled after %v", after), err, cause)
			}
			if after < 0 && err == nil {
				t.Error("Create with an ended context made a sandbox")
			}
			cancel(nil)
		}
	}},
	{name: "life/alone", run: func(t *testing.T, b *box) {
		// Two sandboxes share neither files nor processes, and have different IDs.
		one, two := b.open(), b.open()
		if one.ID() == two.ID() {
			t.Errorf("both are called %q", one.ID())
		}
		one.ok("write", "/tmp/mine", "one")
		if r := two.run("stat", "/tmp/mine"); r.Code == 0 {
			t.Error("a file of one is seen in the other")
		}
		two.start("double", "drop", "/tmp/held")
		if err := one.KillAll(b.ctx()); err != nil {
			t.Error(err)
		}
		if !two.alive("/tmp/held") {
			t.Error("KillAll of one killed in the other")
		}
		if err := one.Close(); err != nil {
			t.Error(err)
		}
		if got := two.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("after the other was closed: %q", got)
		}
		// A new one has nothing of the old.
		if r := b.open().run("stat", "/tmp/mine"); r.Code == 0 {
			t.Error("a file of a closed sandbox is seen in a new one")
		}
	}},
	{name: "life/many", run: func(t *testing.T, b *box) {
		var wg sync.WaitGroup
		ids := make([]string, 12)
		for i := range ids {
			wg.Go(func() {
				sb, err := b.driver.Create(b.ctx(), b.spec)
				if err != nil {
					t.Errorf("Create: %v", err)
					return
				}
				defer sb.Close()
				ids[i] = sb.ID()
				if r, err := sb.Exec(b.ctx(), sandbox.Command{Args: []string{"/no/such"}}); err != nil ||
					r.Code != 127 {
					t.Errorf("Exec: %+v, %v", r, err)
				}
				if err := sb.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		wg.Wait()
		seen := map[string]bool{}
		for _, id := range ids {
			if seen[id] {
				t.Errorf("two sandboxes are called %q", id)
			}
			seen[id] = true
		}
	}},
	{name: "life/find", need: func(c Claims) bool { return c.Find }, spec: lasting, run: func(t *testing.T, b *box) {
		m := b.open()
		m.ok("write", "/tmp/a", "found")
		m.start("double", "drop", "/tmp/service")
		c := m.command("append", "/tmp/count", "x")
		c.ID = "before"
		m.exec(c)
		sb, err := b.another().Find(b.ctx(), m.ID())
		if err != nil {
			t.Fatalf("Find: %v", err)
		}
		again := m
		again.Sandbox = sb
		if sb.ID() != m.ID() {
			t.Errorf("found %q, asked for %q", sb.ID(), m.ID())
		}
		if got := again.ok("cat", "/tmp/a"); got != "found" {
			t.Errorf("a file from before: %q", got)
		}
		if !again.alive("/tmp/service") {
			t.Error("a service from before is dead")
		}
		again.exec(c)
		if got := again.ok("cat", "/tmp/count"); got != "x" {
			t.Errorf("a command from before was executed %d times", len(got))
		}
		if err := sb.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		_, err = m.try(b.ctx(), m.command("echo"))
		wantIs(t, "Exec after it was closed by its finder", err, sandbox.ErrGone)
	}},
	{name: "life/reap", run: func(t *testing.T, b *box) {
		dead, live := b.spec, b.spec
		dead.Owner.Run, live.Owner.Run = b.spec.Owner.Run+"-dead", b.spec.Owner.Run+"-live"
		gone, stays := b.openSpec(dead), b.openSpec(live)
		var asked []sandbox.Owner
		alive := func(o sandbox.Owner) bool {
			if strings.HasPrefix(o.Run, b.spec.Owner.Run) {
				asked = append(asked, o)
			}
			return o.Run != dead.Owner.Run
		}
		n, err := b.another().Reap(b.ctx(), alive)
		if n != 1 || err != nil {
			t.Errorf("Reap: %d, %v; want 1", n, err)
		}
		for _, o := range asked {
			want := live.Owner
			want.Run = o.Run
			if o != want {
				t.Errorf("asked for %+v, want %+v", o, want)
			}
		}
		_, err = gone.try(b.ctx(), gone.command("echo"))
		wantIs(t, "Exec in a reaped sandbox", err, sandbox.ErrGone)
		if got := stays.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("the other one: %q", got)
		}
		if n, err := b.another().Reap(b.ctx(), alive); n != 0 || err != nil {
			t.Errorf("Reap again: %d, %v; want 0", n, err)
		}
	}},
	{name: "life/adopt", run: func(t *testing.T, b *box) {
		m := b.open()
		a, ok := sandbox.As[sandbox.Adopter](m.Sandbox)
		if !ok {
			t.Skip("no Adopter")
		}
		first, next := b.spec.Owner, b.spec.Owner
		next.Trial, next.Attempt, next.Role = "its-trial", 2, "agent"
		if err := a.Adopt(next); err != nil {
			t.Fatalf("Adopt: %v", err)
		}
		var asked []sandbox.Owner
		n, err := b.another().Reap(b.ctx(), func(o sandbox.Owner) bool {
			if o.Run == first.Run {
				asked = append(asked, o)
			}
			return true
		})
		if n != 0 || err != nil || len(asked) == 0 || slices.ContainsFunc(asked,
			func(o sandbox.Owner) bool { return o != next }) {
			t.Errorf("Reap: %d, %v; asked for %+v, want %+v", n, err, asked, next)
		}
		if got := m.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("after it was adopted: %q", got)
		}
		n, err = b.another().Reap(b.ctx(), func(o sandbox.Owner) bool { return o.Run != next.Run || o.Trial != next.Trial })
		if n != 1 || err != nil {
			t.Errorf("Reap of its new owner: %d, %v; want 1", n, err)
		}
		_, err = m.try(b.ctx(), m.command("echo"))
		wantIs(t, "Exec in a reaped sandbox", err, sandbox.ErrGone)
		if err := a.Adopt(first); err == nil {
			t.Error("Adopt of a sandbox that is gone: no error")
		}
	}},
	{name: "life/unsupported", run: func(t *testing.T, b *box) {
		// What a driver cannot do is said so, with its name.
		spec := b.spec
		spec.Platform = "plan9/mips"
		_, err := b.driver.Create(b.ctx(), spec)
		var u *sandbox.Unsupported
		if !errors.As(err, &u) {
			t.Errorf("Create for plan9/mips: error %v, want a *sandbox.Unsupported", err)
		} else if u.Driver != b.driver.Name() || u.What == "" {
			t.Errorf("it says %+v", u)
		}
		spec = b.spec
		spec.Network.Mode = "no-such-mode"
		if sb, err := b.driver.Create(b.ctx(), spec); err == nil {
			b.made = append(b.made, sb)
			sb.Close()
			t.Error("Create with an unknown network mode: no error")
		}
		if err != nil && strings.Contains(err.Error(), os.Getenv("HOME")+"/") {
			t.Errorf("the message shows a path of the host: %v", err)
		}
	}},
}
