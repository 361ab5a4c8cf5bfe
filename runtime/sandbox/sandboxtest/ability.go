package sandboxtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest/verb"
)

var abilityTests = []test{
	{name: "ability/copy", need: func(c Claims) bool { return c.Copies }, run: func(t *testing.T, b *box) {
		// The copy has the files and nothing else; neither changes the other.
		m := b.open()
		m.ok("write", "/tmp/a", "copied")
		m.start("double", "drop", "/tmp/service")
		d, ok := b.another().(sandbox.Copier)
		if !ok {
			t.Fatal("no Copier")
		}
		spec := b.spec
		spec.Owner.Run += "-copy"
		sb, err := d.Copy(b.ctx(), m.ID(), sandbox.Spec{Owner: spec.Owner})
		if err != nil {
			t.Fatal(err)
		}
		c := m
		c.Sandbox = sb
		if got := c.ok("cat", "/tmp/a"); got != "copied" || sb.ID() == m.ID() {
			t.Errorf("%s: %q", sb.ID(), got)
		}
		st, ok := sandbox.As[sandbox.Stater](sb)
		if !ok {
			t.Fatal("no Stater")
		}
		if s, err := st.Stats(b.ctx()); err != nil || s.Pids == nil || *s.Pids != 0 {
			t.Errorf("processes in the copy: %+v, %v", s, err)
		}
		c.ok("write", "/tmp/a", "changed")
		if got := m.ok("cat", "/tmp/a"); got != "copied" || !m.alive("/tmp/service") {
			t.Errorf("after a change of the copy: %q", got)
		}
		if err := sb.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if !m.alive("/tmp/service") {
			t.Error("the copied sandbox is gone with its copy")
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		_, err = d.Copy(b.ctx(), m.ID(), sandbox.Spec{Owner: spec.Owner})
		wantIs(t, "Copy of a closed sandbox", err, sandbox.ErrGone)
	}},
	{name: "ability/dial", run: func(t *testing.T, b *box) {
		m := b.open()
		d, ok := sandbox.As[sandbox.Dialer](m.Sandbox)
		if !ok {
			t.Skip("no Dialer")
		}
		if c, err := d.Dial(b.ctx(), 4321); err == nil {
			// A driver may learn late that nobody listens; then the connection ends at once.
			c.SetDeadline(time.Now().Add(patience))
			if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("a port without a listener: read %d bytes, %v", n, err)
			}
			c.Close()
		}
		m.start("setsid", "drop", "/tmp/service", "listen", "4321")
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				c := dial(b, d, 4321)
				if c == nil {
					return
				}
				defer c.Close()
				for line := range 50 {
					fmt.Fprintf(c, "hello %d %d\n", i, line)
				}
				r := bufio.NewReader(c)
				for line := range 50 {
					if got, err := r.ReadString('\n'); got != fmt.Sprintf("HELLO %d %d\n", i, line) {
						t.Errorf("connection %d: got %q, %v", i, got, err)
						return
					}
				}
			})
		}
		wg.Wait()
		// A connection ends with its machine.
		c := dial(b, d, 4321)
		if c == nil {
			return
		}
		defer c.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			t.Error("a connection outlived its sandbox")
		}
		if _, err := d.Dial(b.ctx(), 4321); err == nil {
			t.Error("Dial after Close: no error")
		}
	}},
	{name: "ability/listen", run: func(t *testing.T, b *box) {
		m := b.open()
		ls, ok := sandbox.As[sandbox.Listener](m.Sandbox)
		if !ok {
			t.Skip("no Listener")
		}
		l, err := ls.Listen(b.ctx(), 4322)
		if err != nil {
			t.Fatalf("Listen: %v", err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					line, _ := bufio.NewReader(c).ReadString('\n')
					fmt.Fprint(c, line)
				}()
			}
		}()
		for i := range 5 {
			text := fmt.Sprintf("from inside %d", i)
			if got := m.ok("dial", "4322", text); got != text+"\n" {
				t.Errorf("got %q", got)
			}
		}
		if err := l.Close(); err != nil {
			t.Errorf("closing the listener: %v", err)
		}
		<-served
		if r := m.run("dial", "4322", "anybody?"); r.Code == 0 {
			t.Error("dialed a listener that is closed")
		}
		// One that nobody closes ends with its machine.
		l, err = ls.Listen(b.ctx(), 4323)
		if err != nil {
			t.Fatalf("Listen: %v", err)
		}
		ended := make(chan struct{})
		go func() { l.Accept(); close(ended) }()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("a listener outlived its sandbox")
		}
		l.Close()
	}},
	{name: "ability/stats", run: func(t *testing.T, b *box) {
		m := b.open()
		s, ok := sandbox.As[sandbox.Stater](m.Sandbox)
		if !ok {
			t.Skip("no Stater")
		}
		st, err := s.Stats(b.ctx())
		if err != nil {
			t.Fatalf("Stats: %v", err)
		}
		if st.Pids != nil && *st.Pids != 0 {
			t.Errorf("%d processes before any command", *st.Pids)
		}
		m.start("double", "drop", "/tmp/a")
		m.start("setsid", "drop", "/tmp/b")
		if st, err = s.Stats(b.ctx()); err != nil {
			t.Fatalf("Stats: %v", err)
		}
		if st.Pids != nil && *st.Pids != 2 {
			t.Errorf("%d processes, want the 2 that stayed", *st.Pids)
		}
		for what, n := range map[string]*int64{"Memory": st.Memory, "MaxMemory": st.MaxMemory, "Disk": st.Disk,
			"OOMKills": st.OOMKills} {
			if n != nil && *n < 0 {
				t.Errorf("%s is %d", what, *n)
			}
		}
		if st.Memory != nil && st.MaxMemory != nil && *st.Memory > *st.MaxMemory {
			t.Errorf("uses %d, and %d at most", *st.Memory, *st.MaxMemory)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		_, err = s.Stats(b.ctx())
		wantIs(t, "Stats after Close", err, sandbox.ErrGone)
	}},
	{name: "ability/no-network", need: func(c Claims) bool { return c.NoNet }, run: func(t *testing.T, b *box) {
		m := b.open()
		if got := m.ok("interfaces"); got != "" {
			t.Errorf("network none has interfaces: %q", got)
		}
		// The host's own loopback and its abstract sockets are not reached.
		host, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		if r := m.run("dial", fmt.Sprint(host.Addr().(*net.TCPAddr).Port), "hello"); r.Code != verb.NoDialed {
			t.Errorf("dialed a port of the host: %+v, %s", r.Exit, r.Err)
		}
		abstract, err := net.Listen("unix", fmt.Sprintf("@sandboxtest-%d", os.Getpid()))
		if err == nil { // Linux only
			defer abstract.Close()
			if r := m.run("dialunix", abstract.Addr().String()); r.Code == 0 {
				t.Error("dialed an abstract socket of the host")
			}
		}
		// Loopback is there: a task may have a service of its own.
		m.start("setsid", "drop", "/tmp/service", "listen", "4324")
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if r := m.run("dial", "4324", "hello"); r.Out == "HELLO\n" {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("loopback does not work: %+v, %s", r.Exit, r.Err)
			}
		}
	}},
}

// dial tries until somebody listens.
func dial(b *box, d sandbox.Dialer, port int) net.Conn {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := d.Dial(b.ctx(), port)
		if err == nil {
			// Through a tunnel the answer may come later than the connection: ask.
			c.SetDeadline(time.Now().Add(patience))
			fmt.Fprint(c, "?\n")
			buf := make([]byte, 2)
			if _, err = io.ReadFull(c, buf); err == nil {
				return c
			}
			c.Close()
		}
		if time.Now().After(deadline) {
			b.t.Errorf("Dial: %v", err)
			return nil
		}
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// running counts what Exec started and still runs, where the driver can tell; else 0.
func running(b *box, m machine) int {
	s, ok := sandbox.As[sandbox.Stater](m.Sandbox)
	if !ok {
		return 0
	}
	st, err := s.Stats(b.ctx())
	if err != nil || st.Pids == nil {
		return 0
	}
	return *st.Pids
}
