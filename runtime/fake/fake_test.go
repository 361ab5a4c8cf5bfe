package fake_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Suite{
		Driver: func(t *testing.T) sandbox.Driver {
			d := fake.New(helper())
			t.Cleanup(func() { d.CheckAllClosed(t) })
			return d
		},
		Helper: "helper",
		Claims: sandboxtest.Claims{Memory: true, Disk: true, Pids: true, Users: true, Find: true, NoNet: true},
	})
}

func TestFailures(t *testing.T) {
	d := fake.New(fake.Options{FailCreate: 1, FailClose: 1, Commands: commands})
	var infra *sandbox.Error
	if _, err := d.Create(t.Context(), sandbox.Spec{}); !errors.As(err, &infra) || !errors.Is(err, fake.ErrInjected) {
		t.Errorf("Create: %v", err)
	}
	sb, err := d.Create(t.Context(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	c := sandbox.Command{Args: []string{"true"}}
	if e, err := sb.Exec(t.Context(), c); err != nil || e.Code != 0 || e.OOM {
		t.Errorf("Exec: %+v, %v", e, err)
	}
	for range 2 {
		if err := sb.Close(); !errors.Is(err, fake.ErrInjected) {
			t.Errorf("Close: %v", err)
		}
	}
	d.CheckAllClosed(t) // gone, though Close said otherwise
	if d.Created() != 1 || d.Peak() != 1 || d.Live() != 0 {
		t.Errorf("created %d, peak %d, live %d", d.Created(), d.Peak(), d.Live())
	}
}

// commands are the programs of the tests' sandboxes.
var commands = map[string]fake.Func{
	"true": func(context.Context, *fake.Proc) int { return 0 },
	"sleep": func(_ context.Context, p *fake.Proc) int {
		d, err := time.ParseDuration(p.Args[1])
		if err != nil {
			return 1
		}
		p.Sleep(d)
		return 9
	},
}

// recorder records the reports of CheckAllClosed.
type recorder []string

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

func TestSlowAndStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		d := fake.New(fake.Options{SlowCreate: time.Second, SlowClose: time.Hour,
			Commands: map[string]fake.Func{"stuck": func(context.Context, *fake.Proc) int { <-wake; return 0 }}})
		begin := time.Now()
		took := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(begin); got != want {
				t.Errorf("%s took %v, want %v", what, got, want)
			}
			begin = time.Now()
		}
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, why)
		defer cancel()
		if _, err := d.Create(ctx, sandbox.Spec{}); !errors.Is(err, why) {
			t.Errorf("Create: %v", err)
		}
		took("a Create that was canceled", time.Millisecond)
		sb, err := d.Create(t.Context(), sandbox.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		took("Create", time.Second)
		var open recorder
		d.CheckAllClosed(&open)
		if len(open) != 1 {
			t.Errorf("%q", open)
		}
		e, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"stuck"}, Timeout: time.Second})
		if err != nil || !e.TimedOut || e.Code != -1 {
			t.Errorf("Exec: %+v, %v", e, err)
		}
		took("a command that cannot be killed", 2*time.Second)
		go sb.Close()
		synctest.Wait()
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
		took("Close", time.Hour)
		var stuck recorder
		d.CheckAllClosed(&stuck)
		if len(stuck) != 1 {
			t.Errorf("%q", stuck)
		}
		close(wake)
	})
}

func TestPrepare(t *testing.T) {
	d := fake.New(fake.Options{})
	one, err := d.Prepare(t.Context(), sandbox.Image{Ref: "tools"})
	two, _ := d.Prepare(t.Context(), sandbox.Image{Ref: "other"})
	if err != nil || one == two || one == "" {
		t.Errorf("digests %q, %q, %v", one, two, err)
	}
}

func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{Commands: commands})
		var wg sync.WaitGroup
		begin := time.Now()
		for range 5000 {
			wg.Go(func() {
				sb, err := d.Create(t.Context(), sandbox.Spec{})
				if err != nil {
					t.Error(err)
					return
				}
				defer sb.Close()
				if e, err := sb.Exec(t.Context(),
					sandbox.Command{Args: []string{"sleep", "1m"}}); err != nil || e.Code != 9 {
					t.Errorf("%+v, %v", e, err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("took %v", took)
		}
		if d.Peak() != 5000 {
			t.Errorf("peak %d", d.Peak())
		}
		d.CheckAllClosed(t)
	})
}

func BenchmarkSession(b *testing.B) {
	d := fake.New(fake.Options{Commands: commands})
	b.ReportAllocs()
	for b.Loop() {
		sb, err := d.Create(b.Context(), sandbox.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		if e, err := sb.Exec(b.Context(), sandbox.Command{Args: []string{"true"}}); err != nil || e.Code != 0 {
			b.Fatal(e, err)
		}
		sb.Close()
	}
}
