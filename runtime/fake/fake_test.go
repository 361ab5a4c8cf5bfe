package fake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"testing/fstest"
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
	boom := errors.New("boom")
	d := fake.New(fake.Options{FailCreate: 1, FailExec: 2, FailClose: 1, OOM: 1,
		OnCreate: func(s sandbox.Spec) error {
			if s.Memory == 13 {
				return boom
			}
			return nil
		}})
	var infra *sandbox.Error
	if _, err := d.Create(t.Context(), sandbox.Spec{}); !errors.As(err, &infra) || !errors.Is(err, fake.ErrInjected) {
		t.Errorf("Create: %v", err)
	}
	if _, err := d.Create(t.Context(), sandbox.Spec{Memory: 13}); !errors.Is(err, boom) {
		t.Errorf("Create: %v", err)
	}
	sb, err := d.Create(t.Context(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	c := sandbox.Command{Args: []string{"true"}}
	for range 2 {
		if _, err := sb.Exec(t.Context(), c); !errors.As(err, &infra) || !errors.Is(err, fake.ErrInjected) {
			t.Errorf("Exec: %v", err)
		}
	}
	if e, err := sb.Exec(t.Context(), c); err != nil || !e.OOM || e.Code != -1 {
		t.Errorf("Exec: %+v, %v", e, err)
	}
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

// recorder takes what CheckAllClosed says.
type recorder []string

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

func TestSlowAndDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		d := fake.New(fake.Options{SlowCreate: time.Second, SlowExec: time.Minute, SlowClose: time.Hour,
			Commands: map[string]fake.Func{"deaf": func(context.Context, *fake.Proc) int { <-wake; return 0 }}})
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
		e, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"deaf"}, Timeout: time.Second})
		if err != nil || !e.TimedOut || e.Code != -1 {
			t.Errorf("Exec: %+v, %v", e, err)
		}
		took("a command that does not hear", time.Minute+2*time.Second)
		go sb.Close()
		synctest.Wait()
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
		took("Close", time.Hour)
		var deaf recorder
		d.CheckAllClosed(&deaf)
		if len(deaf) != 1 {
			t.Errorf("%q", deaf)
		}
		close(wake)
	})
}

func TestImagesAndScripts(t *testing.T) {
	d := fake.New(fake.Options{Networks: true, Images: map[string]fs.FS{"tools": fstest.MapFS{
		"usr/local/share/x": {Data: []byte("from the image"), Mode: 0o644},
		"opt/hello":         {Data: []byte("#!/usr/bin/env bash\necho hello $1 from $0\n"), Mode: 0o755},
		"opt/odd":           {Data: []byte("#!/opt/unknown\n"), Mode: 0o755},
	}}})
	one, err := d.Prepare(t.Context(), sandbox.Image{Ref: "tools"})
	two, _ := d.Prepare(t.Context(), sandbox.Image{Ref: "other"})
	if err != nil || one == two || one == "" {
		t.Errorf("digests %q, %q, %v", one, two, err)
	}
	sb, err := d.Create(t.Context(), sandbox.Spec{Image: sandbox.Image{Ref: "tools"},
		Network: sandbox.Network{Mode: "public"}})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	if b, err := sandbox.ReadFile(t.Context(), sb, "/usr/local/share/x", 100); string(b) != "from the image" ||
		err != nil {
		t.Errorf("%q, %v", b, err)
	}
	var out bytes.Buffer
	if e, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"/opt/hello", "you"}, Stdout: &out}); err != nil ||
		e.Code != 0 || out.String() != "hello you from /opt/hello\n" {
		t.Errorf("%q, %+v, %v", out.String(), e, err)
	}
	if e, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"/opt/odd"}}); err != nil || e.Code != 127 {
		t.Errorf("%+v, %v", e, err)
	}
}

// Thousands at once are what the fake is for.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{})
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
					sandbox.Command{Args: []string{"sh", "-c", "sleep 60; exit 9"}}); err != nil || e.Code != 9 {
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

// A session's share: create, one command, close.
func BenchmarkSession(b *testing.B) {
	d := fake.New(fake.Options{})
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

func BenchmarkShell(b *testing.B) {
	sb, err := fake.New(fake.Options{}).Create(b.Context(), sandbox.Spec{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if e, err := sb.Exec(b.Context(),
			sandbox.Command{Args: []string{"bash", "-c", "echo hello > f && cat f"}}); err != nil || e.Code != 0 {
			b.Fatal(e, err)
		}
	}
}
