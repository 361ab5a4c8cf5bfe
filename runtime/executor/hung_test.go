package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// calls are all that a host asks of an executor, each with a context that ends soon or with a limit
// of its own.
var calls = map[string]func(ctx context.Context, c *Client) error{
	"exec, canceled": func(ctx context.Context, c *Client) error {
		_, err := c.Exec(ctx, sandbox.Command{Args: []string{"/bin/true"}})
		return err
	},
	"exec, timeout": func(_ context.Context, c *Client) error {
		_, err := c.Exec(context.Background(), sandbox.Command{Args: []string{"/bin/true"}, Timeout: time.Millisecond})
		return err
	},
	"exec, input": func(ctx context.Context, c *Client) error { // more than the channel takes while nobody reads
		_, err := c.Exec(ctx, sandbox.Command{Args: []string{"/bin/cat"},
			Stdin: strings.NewReader(strings.Repeat("x", 1<<20))})
		return err
	},
	"put": func(ctx context.Context, c *Client) error {
		return c.Put(ctx, "/tmp", fstest.MapFS{"f": {Data: make([]byte, 1<<20)}})
	},
	"get": func(ctx context.Context, c *Client) error {
		r, err := c.Get(ctx, "/etc")
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			r.Close()
		}
		return err
	},
	"kill all": func(ctx context.Context, c *Client) error { return c.KillAll(ctx) },
	"stats":    func(ctx context.Context, c *Client) error { _, err := c.Stats(ctx); return err },
	"exit":     func(ctx context.Context, c *Client) error { _, _, err := c.Exit(ctx, "x"); return err },
	"dial":     func(ctx context.Context, c *Client) error { _, err := c.Dial(ctx, 1); return err },
	"listen":   func(ctx context.Context, c *Client) error { _, err := c.Listen(ctx, 0); return err },
	"snapshot": func(ctx context.Context, c *Client) error { return c.Snapshot(ctx, nil) },
	"clear":    func(ctx context.Context, c *Client) error { _, err := c.Clear(ctx, "", "/tmp/x"); return err },
}

// Every call on an executor that is stopped ends, soon after its limit, with the machine.
func TestHung(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := boot(t)
			ended := 0
			h := &hostEnd{m: m}
			c, err := New(m.ctx(), h, Options{Driver: "test", ID: "machine", Grace: 100 * time.Millisecond,
				Config: Config{Key: m.key}, Hung: func(context.Context) string {
					ended++
					m.cmd.Process.Kill()
					<-m.ended
					return "its stacks"
				}})
			if err != nil {
				t.Fatalf("%v\n%s", err, &m.errs)
			}
			defer c.Close()
			m.stop()
			for range 2 {
				var err error
				// not over before the call begins
				for limit := 10 * time.Millisecond; limit < patience && !errors.Is(err, sandbox.ErrHung); limit *= 2 {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					err = returns(t, "the call", func() error { return call(ctx, c) })
					cancel()
				}
				var e *sandbox.Error
				if !errors.As(err, &e) || !errors.Is(err, sandbox.ErrHung) || !errors.Is(err, sandbox.ErrGone) ||
					e.Detail != "its stacks" {
					t.Errorf("%v (%+v)", err, e)
				}
			}
			if ended != 1 {
				t.Errorf("the machine was ended %d times", ended)
			}
		})
	}
}

// stop returns when all threads of the executor are stopped.
func (m *machine) stop() {
	m.t.Helper()
	pid := m.cmd.Process.Pid
	m.cmd.Process.Signal(syscall.SIGSTOP)
	eventually(m.t, "stopping it", func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, f := range tasks {
			b, _ := os.ReadFile(f)
			if _, rest, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(rest, "T") {
				return false
			}
		}
		return true
	})
}

// returns fails the test if a call does not return.
func returns(t *testing.T, what string, call func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatalf("%s: the call does not return", what)
		return nil
	}
}

// A fresh executor that reads nothing, or reads and does not answer, is given up too. It never was
// a sandbox, so the error is not ErrGone.
func TestHungAtStart(t *testing.T) {
	for name, reads := range map[string]bool{"deaf": false, "mute": true} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			if reads {
				go io.Copy(io.Discard, theirs)
			}
			o := Options{Driver: "test", ID: "machine", Start: time.Millisecond, Grace: time.Millisecond,
				Hung: func(context.Context) string { return "its stacks" }}
			err := returns(t, "New", func() error {
				_, err := New(t.Context(), ours, o)
				return err
			})
			var e *sandbox.Error
			if !errors.As(err, &e) || errors.Is(err, sandbox.ErrGone) || !errors.Is(err, errNoAnswer) ||
				e.Detail != "its stacks" {
				t.Errorf("%v (%+v)", err, e)
			}
		})
	}
}

// An executor that lives, but does not do what it is asked for in time, is not given up: the call
// ends with its context.
func TestSlowIsNotHung(t *testing.T) {
	ours, theirs := net.Pipe()
	asked := make(chan struct{}, 1)
	s := execproto.NewSession(theirs, execproto.Options{MaxFrame: execproto.MaxOpen,
		Accept: func(st *execproto.Stream, kind byte, _ []byte) {
			if kind == execproto.KindHello {
				go func() { st.Send(execproto.KindResult, execproto.OK()); st.Finish() }()
				return
			}
			asked <- struct{}{}
		}})
	go s.Serve()
	defer s.Close()
	c, err := New(t.Context(), ours, Options{Driver: "test", ID: "machine", Hung: func(context.Context) string {
		t.Error("it was given up")
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"kill all", "get", "put", "stats", "dial", "snapshot"} {
		cause := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-asked; cancel(cause) }()
		if err := returns(t, name, func() error { return calls[name](ctx, c) }); !errors.Is(err, cause) ||
			errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s: %v, want %v", name, err, cause)
		}
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// A machine that ends while a file is read is an error, not the file's end.
func TestGetIsCutOff(t *testing.T) {
	ours, theirs := net.Pipe()
	var s *execproto.Session
	s = execproto.NewSession(theirs, execproto.Options{MaxFrame: execproto.MaxOpen,
		Accept: func(st *execproto.Stream, kind byte, _ []byte) {
			go func() {
				if kind == execproto.KindHello {
					st.Send(execproto.KindResult, execproto.OK())
					return
				}
				st.Write(make([]byte, 1024)) // a tar archive's end, as it happens
				s.Close()
			}()
		}})
	go s.Serve()
	c, err := New(t.Context(), ours, Options{Driver: "test", ID: "machine"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Get(t.Context(), "/f")
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	if !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("%v, want %v", err, sandbox.ErrGone)
	}
}

// SIGQUIT makes process 1 print its stacks and end, when it comes from outside.
func TestStacks(t *testing.T) {
	m := boot(t)
	c, _ := m.first(Config{})
	// Not from inside, whoever sends it. (The shell's own kill, which needs no program.)
	sh(t, c, "kill -QUIT 1; kill -3 1; kill -QUIT -1; kill -CONT 1")
	if out, _ := sh(t, c, "echo fine"); out != "fine\n" {
		t.Errorf("after SIGQUIT from inside: %q", out)
	}
	m.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-m.ended:
	case <-time.After(patience):
		t.Fatal("it did not end")
	}
	said := m.errs.String()
	m.errs.Reset()
	for _, want := range []string{"SIGQUIT", "goroutine ", "server.(*server).reap"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in what it printed:\n%s", want, said)
		}
	}
}
