package sandboxtest

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

const hangFile = "/tmp/evalrun-hang" // as in runtime/executor/internal/hung

// HungExecutor returns an executor that stops responding: at its start, or when [HangByFile] is
// called.
func HungExecutor(t *testing.T, atStart bool) []byte {
	t.Helper()
	if atStart {
		return program(t, "hung-at-start")
	}
	return program(t, "hung")
}

// HangByFile makes a sandbox hang, for [Hang], if the driver's executors are those of
// [HungExecutor].
func HangByFile(t *testing.T, sb sandbox.Sandbox) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < patience; {
		// A short limit: the executor may see the file before it answers.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := sb.Put(ctx, filepath.Dir(hangFile), fstest.MapFS{filepath.Base(hangFile): {}})
		cancel()
		if err == nil || errors.Is(err, sandbox.ErrHung) {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	t.Fatal("the file is not there")
}

// Hang tests what the host does with a sandbox whose executor has stopped responding: in every
// phase of an attempt its limit is kept, the error is [sandbox.ErrHung] and has the executor's
// stacks, and nothing is left behind. hang makes a sandbox hang, at once or soon. Suite.Driver has
// to make drivers that wait for an answer for a short time only.
func Hang(t *testing.T, s Suite, hang func(t *testing.T, sb sandbox.Sandbox)) {
	t.Helper()
	phase := func(name string, call func(ctx context.Context, m machine) error) test {
		return test{name: name, run: func(t *testing.T, b *box) {
			m := b.open()
			m.start("double", "drop", "/tmp/service", "ignore") // something of the agent's is inside
			hang(t, m.Sandbox)
			err := untilHung(t, m, call)
			var e *sandbox.Error
			if !errors.As(err, &e) || !strings.Contains(e.Detail, "goroutine ") {
				t.Errorf("error %v, want one with the executor's stacks: %+v", err, e)
			}
			if _, err := m.try(b.ctx(), m.command("echo")); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("afterwards: %v, want %v", err, sandbox.ErrGone)
			}
			if err := m.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}}
	}
	run(t, s, []test{
		phase("exec", func(ctx context.Context, m machine) error {
			_, err := m.try(ctx, m.command("ignore", ",", "hold", "/tmp/held"))
			return err
		}),
		phase("timeout", func(_ context.Context, m machine) error {
			c := m.command("ignore", ",", "hold", "/tmp/held")
			c.Timeout = 100 * time.Millisecond
			_, err := m.try(context.Background(), c)
			return err
		}),
		phase("kill-all", func(ctx context.Context, m machine) error { return m.KillAll(ctx) }),
		phase("collect", func(ctx context.Context, m machine) error {
			r, err := m.Get(ctx, "/tmp")
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				r.Close()
			}
			return err
		}),
		phase("put", func(ctx context.Context, m machine) error {
			return m.Put(ctx, "/tmp", fstest.MapFS{"f": {Data: make([]byte, 1<<20)}})
		}),
		phase("stats", func(ctx context.Context, m machine) error {
			s, ok := sandbox.As[sandbox.Stater](m.Sandbox)
			if !ok {
				t.Skip("no Stater")
			}
			_, err := s.Stats(ctx)
			return err
		}),
		{name: "close", run: func(t *testing.T, b *box) {
			m := b.open()
			m.start("double", "drop", "/tmp/service", "ignore")
			hang(t, m.Sandbox)
			if err := m.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}},
	})
}

// untilHung makes a call again and again, each time with a limit, until it fails.
func untilHung(t *testing.T, m machine, call func(ctx context.Context, m machine) error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			err := call(ctx, m)
			cancel()
			if errors.Is(err, sandbox.ErrGone) {
				done <- err
				return
			}
		}
	}()
	select {
	case err := <-done:
		if !errors.Is(err, sandbox.ErrHung) {
			t.Errorf("error %v, want %v", err, sandbox.ErrHung)
		}
		return err
	case <-time.After(patience):
		t.Fatal("the call does not return, or the hang is not detected")
		return nil
	}
}
