package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// lives counts processes of these arguments.
func lives(t *testing.T, c *Client, arg string) string {
	out, _ := sh(t, c, "ps -eo args | grep -c '^"+arg+"'")
	return strings.TrimSpace(out)
}

// A host dies; what its commands do goes on or ends as Reattach says.
func TestReattach(t *testing.T) {
	m := boot(t)
	one, end := m.first(Config{})
	e := one.Start(entry("echo first; while ! [ -e /tmp/go ]; do sleep 0.01; done; echo second; sleep 1001"))
	eventually(t, "the entry prints", func() bool { return string(e.Logs()) == "first\n" })
	lost := make(chan error, 3)
	start := func(cmd sandbox.Command) {
		go func() {
			_, err := one.Exec(context.Background(), cmd)
			lost <- err
		}()
	}
	start(sandbox.Command{ID: "a", Args: []string{"sh", "-c", "sleep 1002; seq 100; exit 7"}, Stdout: io.Discard,
		Limit: 1000})
	start(sandbox.Command{Args: []string{"sleep", "1003"}})
	half, feed := io.Pipe()
	start(sandbox.Command{ID: "b", Args: []string{"sh", "-c", "cat >/tmp/half; echo whole >/tmp/whole; sleep 1004"},
		Stdin: half})
	feed.Write([]byte("a part"))
	eventually(t, "all run", func() bool {
		out, _ := sh(t, one, "cat /tmp/half")
		return lives(t, one, "sleep 100[23]") == "2" && out == "a part"
	})
	if x, err := one.Exec(t.Context(), sandbox.Command{ID: "done", Args: []string{"sh", "-c", "exit 5"}}); err != nil ||
		x.Code != 5 {
		t.Fatal(x, err)
	}
	end.Close()
	for range 3 {
		if err := <-lost; !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("a call of the dead host: %v", err)
		}
	}
	feed.Close()

	two, end := m.next()
	if x, known, err := two.Exit(t.Context(), "done"); x.Code != 5 || !known || err != nil {
		t.Errorf("a command that had ended: %+v, %v, %v", x, known, err)
	}
	if x, err := two.Exec(t.Context(), sandbox.Command{ID: "done",
		Args: []string{"touch", "/tmp/twice"}}); x.Code != 5 || err != nil {
		t.Errorf("asked for once more: %+v, %v", x, err)
	}
	eventually(t, "a command without an ID dies", func() bool { return lives(t, two, "sleep 1003") == "0" })
	if x, known, err := two.Exit(t.Context(), "b"); x.Signal != "SIGKILL" || !known || err != nil {
		t.Errorf("a command with half of its input: %+v, %v, %v", x, known, err)
	}
	if out, _ := sh(t, two, "ls /tmp/twice /tmp/whole 2>/dev/null; true"); out != "" {
		t.Errorf("there are %s", out)
	}
	// The one with an ID runs on, and tells its end to who waits.
	ended := make(chan sandbox.Exit, 1)
	go func() {
		x, known, err := two.Exit(t.Context(), "a")
		if !known || err != nil {
			t.Errorf("%v, %v", known, err)
		}
		ended <- x
	}()
	if lives(t, two, "sleep 1002") != "1" {
		t.Error("a command with an ID died with its host")
	}
	sh(t, two, "pkill -x -f 'sleep 1002'")
	x := <-ended
	if x.Code != 7 || x.Full != "" {
		t.Errorf("a command with an ID: %+v", x)
	}
	var again strings.Builder
	if x, err := two.Exec(t.Context(), sandbox.Command{ID: "a", Args: []string{"touch", "/tmp/twice"},
		Stdout: &again}); x.Code != 7 || err != nil {
		t.Errorf("asked for once more: %+v, %v", x, err)
	}
	if out := again.String(); !strings.Contains(out, "1\n2\n") || !strings.HasSuffix(out, "\n100\n") {
		t.Errorf("its output: %q", out)
	}
	// So does the entry.
	if st, err := two.Stats(t.Context()); err != nil || *st.Pids != 0 {
		t.Errorf("%d processes, %v", *st.Pids, err)
	}
	e = two.Start(entry("echo never"))
	sh(t, two, "sleep 0.05; touch /tmp/go")
	eventually(t, "the entry prints", func() bool { return strings.Contains(string(e.Logs()), "second\n") })
	eventually(t, "the entry goes on", func() bool { return lives(t, two, "sleep 1001") == "1" })
	if err := two.KillAll(t.Context()); err != nil || lives(t, two, "sleep 1001") != "1" {
		t.Errorf("KillAll of the next host: %v", err)
	}
	e.Kill()
	if n := lives(t, two, "sleep 1001"); n != "0" {
		t.Errorf("the next host cannot kill the entry: %q live", n)
	}
	// One that still lives loses the machine.
	end.deafen() // of two that attach to a container, both hear all; of two that read from one pipe, one
	three, _ := m.next()
	if out, _ := sh(t, three, "echo fine"); out != "fine\n" {
		t.Errorf("got %q", out)
	}
}

// Hosts die in the middle of whatever they write and read, many times.
func TestTornFrames(t *testing.T) {
	m := boot(t)
	c, end := m.first(Config{})
	sh(t, c, "echo 0 >/tmp/n")
	for round := range 30 {
		go c.Exec(context.Background(), sandbox.Command{Args: []string{"cat", "/dev/zero"}, Stdout: io.Discard})
		go c.Put(context.Background(), "/tmp/put", fstest.MapFS{"f": {Data: make([]byte, 1<<20)}})
		id := fmt.Sprint("n", round)
		if x, err := c.Exec(t.Context(),
			sandbox.Command{ID: id, Args: []string{"sh", "-c",
				"expr $(cat /tmp/n) + 1 >/tmp/m; mv /tmp/m /tmp/n"}}); err != nil || x.Code != 0 {
			t.Fatal(x, err)
		}
		// What a host that is killed leaves: a part of a frame that would do harm, were it ever
		// taken for a whole one.
		if round%3 == 0 {
			end.deafen() // and much that nobody has read
			time.Sleep(time.Millisecond)
		}
		end.Close()
		harm := execproto.Exec{ID: "harm",
			Args: []string{"sh", "-c", "echo harm >/tmp/harm #" + strings.Repeat("x", rand.IntN(200))}}
		body := harm.Encode()
		torn := append([]byte{0, 0, byte(len(body) >> 8), byte(len(body)), 0, 0, 255, 1, execproto.KindExec}, body...)
		m.in.Write(torn[:rand.IntN(len(torn)+1)])
		c, end = m.next()
		if x, known, err := c.Exit(t.Context(), id); err != nil || !known || x.Code != 0 {
			t.Fatal(x, known, err)
		}
	}
	if out, _ := sh(t, c, "cat /tmp/n /tmp/harm 2>/dev/null"); out != "30\n" {
		t.Errorf("got %q", out)
	}
	eventually(t, "nothing of the dead hosts runs", func() bool {
		st, err := c.Stats(t.Context())
		return err == nil && *st.Pids == 0
	})
}

// Who lacks the key, or repeats what another has said, is no host.
func TestImpostors(t *testing.T) {
	m := boot(t)
	_, end := m.first(Config{})
	end.Close()
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	for _, key := range [][]byte{NewKey(), nil, m.key[:31]} {
		if _, err := Reattach(short(), &hostEnd{m: m}, Options{Config: Config{Key: key}}); err == nil {
			t.Error("a host with another key was let in")
		}
	}
	// An old token, word for word.
	nonce := make([]byte, execproto.NonceLen)
	token := execproto.Token(m.key, execproto.HostSpeaks, nonce)
	want := execproto.Token(m.key, execproto.ExecutorSpeaks, nonce)
	m.in.Write(token)
	got := make([]byte, 0, 4096)
	for !bytes.Contains(got, want) {
		m.out.SetReadDeadline(time.Now().Add(patience))
		n, err := m.out.Read(got[len(got):cap(got)])
		if err != nil {
			t.Fatal(err)
		}
		got = got[:len(got)+n]
	}
	m.in.Write(token)
	m.in.Write(execproto.Token(m.key, execproto.ExecutorSpeaks, make([]byte, execproto.NonceLen)))
	m.out.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := m.out.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an old token is answered: %q, %v", got[:n], err)
	}
	// An executor without the key is none.
	a, b := io.Pipe()
	go func() {
		b.Write(execproto.Token(NewKey(), execproto.ExecutorSpeaks, nonce))
		b.Close()
	}()
	if _, err := Reattach(short(), struct {
		io.Reader
		io.WriteCloser
	}{a, &hostEnd{m: m}}, Options{Config: Config{Key: m.key}}); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("an executor with another key: %v", err)
	}
	c, _ := m.next()
	if out, _ := sh(t, c, "echo fine"); out != "fine\n" {
		t.Errorf("got %q", out)
	}
}

// A machine of which nobody hears or reads anything ends itself; each host's word counts.
func TestOrphan(t *testing.T) {
	m := boot(t)
	const orphan = 2 * time.Second // a busy machine lets its host speak late
	c, end := m.first(Config{Orphan: orphan})
	sh(t, c, "sleep 2.5") // its host tells that it lives
	end.Close()
	time.Sleep(orphan / 4)
	c, end = m.next()
	sh(t, c, "sleep 2.5")
	go c.Exec(context.Background(), sandbox.Command{ID: "spam", Args: []string{"cat", "/dev/zero"}, Stdout: io.Discard})
	last := time.Now()
	sh(t, c, "sleep 0.1") // the last word that it hears, unless its host lives a little longer
	end.deafen()          // nobody reads, and the pipe fills
	end.Close()
	select {
	case <-m.ended:
		if d := time.Since(last); d < orphan {
			t.Errorf("ended after %v already", d)
		}
	case <-time.After(patience):
		t.Error("a machine without a host lives on")
	}
}

// The end of the input is the end of the machine: nobody can ever speak to it again.
func TestInputEnds(t *testing.T) {
	m := boot(t)
	c, _ := m.first(Config{})
	go c.Exec(context.Background(), sandbox.Command{ID: "a", Args: []string{"cat", "/dev/zero"}, Stdout: io.Discard})
	m.in.Close()
	select {
	case <-m.ended:
	case <-time.After(patience):
		t.Error("a machine without an input lives on")
	}
}
