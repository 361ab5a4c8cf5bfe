package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A person is somebody at a terminal.
type person struct {
	t      *testing.T
	keys   *io.PipeWriter
	resize chan sandbox.TerminalSize
	done   chan struct{} // closed when the command has ended; exit and err are set then
	exit   sandbox.Exit
	err    error

	mu   sync.Mutex
	cond sync.Cond
	seen strings.Builder // on the terminal
	end  bool
}

func (p *person) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Write(b)
	p.cond.Broadcast()
	return len(b), nil
}

// sees waits until the text is on the terminal, after what was seen before.
func (p *person) sees(text string) {
	p.t.Helper()
	timer := time.AfterFunc(time.Minute, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.end = true
		p.cond.Broadcast()
	})
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		have := p.seen.String()
		if i := strings.Index(have, text); i >= 0 {
			p.seen.Reset()
			p.seen.WriteString(have[i+len(text):])
			return
		}
		if p.end {
			p.t.Fatalf("%q is not on the terminal, but %q", text, have)
		}
		p.cond.Wait()
	}
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.keys, text); err != nil {
		p.t.Fatalf("typing %q: %v", text, err)
	}
}

// visit opens a terminal.
func visit(t *testing.T, ctx context.Context, sb sandbox.Sandbox, args ...string) *person {
	t.Helper()
	term, ok := sandbox.As[sandbox.Terminaler](sb)
	if !ok {
		t.Fatal("the sandbox has no terminals")
	}
	p := &person{t: t, resize: make(chan sandbox.TerminalSize), done: make(chan struct{})}
	p.cond.L = &p.mu
	var keys *io.PipeReader
	keys, p.keys = io.Pipe()
	go func() {
		p.exit, p.err = term.Terminal(ctx, sandbox.Terminal{Args: args, Size: sandbox.TerminalSize{Rows: 30, Cols: 100},
			Resize: p.resize, Stdin: keys, Stdout: p, Env: map[string]string{"PS1": "$ ", "TERM": "xterm"}})
		keys.Close()
		p.mu.Lock()
		p.end = true
		p.cond.Broadcast()
		p.mu.Unlock()
		close(p.done)
	}()
	return p
}

// countOf counts the processes inside whose command line has the text.
func countOf(t *testing.T, sb sandbox.Sandbox, text string) string {
	t.Helper()
	var out strings.Builder
	if _, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c",
		"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '[" + text[:1] + "]" + text[1:] + "' | wc -l"},
		Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

var errOver = errors.New("it is over")

var terminalTests = []test{
	{name: "terminal/session", need: shells, run: func(t *testing.T, b *box) {
		m, _ := b.shells(b.suite.Bash)
		p := visit(t, t.Context(), m.Sandbox, "bash", "--noprofile", "--norc")
		p.types("stty size\r")
		p.sees("30 100")
		p.types("sh -c 'trap \"echo re\"sized WINCH; echo re\"\"ady; until stty size | grep 40.120; do sleep 0.1; done'\r")
		p.sees("ready")
		p.resize <- sandbox.TerminalSize{Rows: 40, Cols: 120}
		p.sees("resized")
		p.sees("$ ")
		p.types("sh -c \"echo be''gun; exec sleep 1000\"\r")
		p.sees("begun")
		p.types("\x03") // C-c interrupts what runs
		p.sees("^C")
		p.sees("$ ")
		p.types("echo \"in$((1))terrupted\"\r")
		p.sees("in1terrupted")
		p.types("sh -c \"echo re''ads; exec cat\"\r")
		p.sees("reads")
		p.types("one\x7f\x7f\x7ftwo\r") // the terminal's own line editing
		p.sees("\ntwo\r\n")
		p.types("\x04")
		p.sees("$ ")
		p.types("(setsid sleep 100000 &) ; sleep 100000 & echo wor''ks\r")
		p.sees("works")
		p.types("exit 7\r")
		<-p.done
		if p.err != nil || p.exit.Code != 7 {
			t.Errorf("%+v, %v; want exit code 7", p.exit, p.err)
		}
		if n := countOf(t, m, "sleep 100000"); n != "0" {
			t.Errorf("%s processes are left", n)
		}
	}},
	{name: "terminal/ends", need: shells, run: func(t *testing.T, b *box) {
		m, _ := b.shells(b.suite.Bash)
		for _, c := range []struct {
			args   []string
			code   int
			signal string
			out    string
		}{
			{[]string{"sh", "-c", "tty >/dev/null && echo yes; exit 3"}, 3, "", "yes\r\n"},
			{[]string{"sh", "-c", "kill -9 $$"}, -1, "SIGKILL", ""},
			{[]string{"no-such-program"}, 127, "", "evalrun: no-such-program: command not found\r\n"},
			{[]string{"sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"}, 0, "", strings.Repeat("x", 1000000)},
		} {
			p := visit(t, t.Context(), m.Sandbox, c.args...)
			<-p.done
			if p.err != nil || p.exit.Code != c.code || p.exit.Signal != c.signal || p.seen.String() != c.out {
				t.Errorf("%q: %+v, %v, %d bytes %.100q", c.args, p.exit, p.err, p.seen.Len(), p.seen.String())
			}
		}
		// The end of the context kills everything; so does KillAll.
		ctx, cancel := context.WithCancelCause(t.Context())
		p := visit(t, ctx, m.Sandbox, "sh", "-c", "(trap '' HUP TERM INT; setsid sleep 100000 & echo begun; wait)")
		p.sees("begun")
		cancel(errOver)
		<-p.done
		wantIs(t, "a terminal whose context has ended", p.err, errOver)
		if n := countOf(t, m, "sleep 100000"); n != "0" {
			t.Errorf("%s processes are left", n)
		}
		p = visit(t, t.Context(), m.Sandbox, "sh", "-c", "echo begun; sleep 100000")
		p.sees("begun")
		if err := m.KillAll(t.Context()); err != nil {
			t.Error(err)
		}
		<-p.done
		if p.err != nil || p.exit.Signal != "SIGKILL" {
			t.Errorf("after KillAll: %+v, %v", p.exit, p.err)
		}
		p = visit(t, t.Context(), m.Sandbox, "sh", "-c", "echo begun; sleep 100000")
		p.sees("begun")
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-p.done
		wantIs(t, "a terminal of a closed sandbox", p.err, sandbox.ErrGone)
	}},
	{name: "terminal/stuck", need: shells, run: func(t *testing.T, b *box) {
		// Neither a person who does not look, nor a program that does not read, holds up others.
		m, _ := b.shells(b.suite.Bash)
		term, _ := sandbox.As[sandbox.Terminaler](m.Sandbox)
		for _, c := range []string{"yes", "stty raw -echo; echo begun; exec sleep 100000"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			begun, look := make(chan struct{}), make(chan struct{})
			var once sync.Once
			done := make(chan error, 1)
			keys, w := io.Pipe()
			go func() {
				_, err := term.Terminal(ctx, sandbox.Terminal{Args: []string{"sh", "-c", c}, Stdin: keys,
					Stdout: writerFunc(func(p []byte) (int, error) {
						once.Do(func() { close(begun) })
						<-look
						return len(p), nil
					})})
				keys.CloseWithError(errOver)
				done <- err
			}()
			<-begun
			typed := make(chan struct{})
			go func() {
				defer close(typed)
				w.Write([]byte(strings.Repeat("pasted ", 1<<20)))
			}()
			for i := range 20 {
				var out strings.Builder
				if _, err := m.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c", fmt.Sprint("echo ", i)},
					Stdout: &out}); err != nil || out.String() != fmt.Sprintln(i) {
					t.Errorf("%q beside %q: %v", out.String(), c, err)
				}
			}
			cancel(errOver)
			close(look)
			wantIs(t, c, <-done, errOver)
			<-typed
		}
	}},
}
