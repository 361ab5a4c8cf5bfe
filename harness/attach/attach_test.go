package attach

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// As a child, the test program asks the server of its parent.
func TestMain(m *testing.M) {
	if dir := os.Getenv("ATTACH_TEST_DIR"); dir != "" {
		c, err := Dial(dir, 0)
		if err == nil {
			var r Reply
			r, err = c.Do(Request{Op: "list"}, nil, nil, nil)
			fmt.Printf("%+v\n", r)
		}
		if err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func listen(t *testing.T, dir string, serve func(ctx context.Context, c *Conn) Reply) *Server {
	t.Helper()
	s, err := Listen(dir, serve)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 50), strings.Repeat("long", 50)) // longer than a socket's name
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, SocketName)
	if _, err := Dial(dir, 0); !errors.Is(err, ErrNoSocket) {
		t.Errorf("without a socket: %v", err)
	}
	serve := func(context.Context, *Conn) Reply { return Reply{Code: 7} }
	ask := func() (Reply, error) {
		c, err := Dial(dir, os.Getpid())
		if err != nil {
			return Reply{}, err
		}
		defer c.Close()
		return c.Do(Request{Op: "list"}, nil, nil, nil)
	}
	s := listen(t, dir, serve)
	if fi, err := os.Lstat(path); err != nil || fi.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if r, err := ask(); r.Code != 7 || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Dial(dir, os.Getpid()+1); err == nil || !strings.Contains(err.Error(), "does not play this run") {
		t.Errorf("another process: %v", err)
	}
	s.l.Close() // as if it had died: the file is left
	if _, err := ask(); !errors.Is(err, ErrNoSocket) {
		t.Errorf("a dead process's socket: %v", err)
	}
	s = listen(t, dir, serve)
	if r, err := ask(); r.Code != 7 || err != nil {
		t.Errorf("after the next process has come: %+v, %v", r, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left")
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(dir, serve); err == nil {
		t.Error("a file was replaced")
	}
	if _, err := Dial(dir, 0); err == nil || errors.Is(err, ErrNoSocket) {
		t.Errorf("a file: %v", err)
	}
	if _, err := Listen("/proc/self", serve); err == nil { // a file system without sockets
		t.Error("a socket in /proc")
	} else {
		t.Log(err)
	}
}

// What the process has started gets nowhere.
func TestDescendant(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir, func(context.Context, *Conn) Reply { t.Error("it is served"); return Reply{} })
	for _, args := range [][]string{{os.Args[0]}, {"sh", "-c", os.Args[0] + " & wait"}, {"sh", "-c", "exec setsid " + os.Args[0]}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "ATTACH_TEST_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "Refused:true") {
			t.Errorf("%q: %s, %v", args, out, err)
		}
	}
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir, func(ctx context.Context, c *Conn) Reply {
		if c.Request.Trial != "x" || !c.Terminal || c.UID != os.Getuid() || c.PID != os.Getpid() {
			return Reply{Error: fmt.Sprintf("%+v", c.Request), Refused: true}
		}
		c.Begun()
		size := <-c.Resize()
		fmt.Fprintf(c.Stderr(), "%dx%d", size.Rows, size.Cols)
		n, err := io.Copy(c.Stdout(), c.Stdin())
		return Reply{Code: 3, Error: fmt.Sprint(n, err)}
	})
	c, err := Dial(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text := strings.Repeat("some text, more than any buffer holds\n", 100_000)
	var out, errs bytes.Buffer
	r, err := c.Do(Request{Op: "enter", Trial: "x", Terminal: true}, &out, &errs, func() {
		go func() {
			for i := range 1000 {
				c.Resize(sandbox.TerminalSize{Rows: 24, Cols: uint16(i)})
			}
			c.Resize(sandbox.TerminalSize{Rows: 25, Cols: 80})
			io.Copy(c, strings.NewReader(text))
			c.CloseInput()
		}()
	})
	if err != nil || r.Code != 3 || r.Error != fmt.Sprint(len(text), nil) || out.String() != text {
		t.Errorf("%+v, %v, %d bytes", r, err, out.Len())
	}
	if !strings.HasPrefix(errs.String(), "2") {
		t.Errorf("size %q", &errs)
	}
}

// The server notices a person who has left while nothing is read, and one who does not read does not
// keep what has ended.
func TestStuck(t *testing.T) {
	dir := t.TempDir()
	before := runtime.NumGoroutine()
	causes := make(chan error, 1)
	s, err := Listen(dir, func(ctx context.Context, c *Conn) Reply {
		c.Begun()
		if c.Trial == "writes" {
			for {
				if _, err := c.Stdout().Write(make([]byte, chunk)); err != nil {
					causes <- context.Cause(ctx)
					return Reply{}
				}
			}
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return Reply{}
	})
	if err != nil {
		t.Fatal(err)
	}
	open := func(trial string, out io.Writer) (c *Client, begun chan struct{}) {
		c, err := Dial(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		begun = make(chan struct{})
		go c.Do(Request{Op: "enter", Trial: trial}, out, io.Discard, func() { close(begun) })
		<-begun
		return c, begun
	}
	c, _ := open("reads nothing", io.Discard)
	pasted := make(chan error)
	go func() {
		_, err := c.Write(make([]byte, 5<<20))
		pasted <- err
	}()
	for {
		c.mu.Lock()
		credit := c.credit
		c.mu.Unlock()
		if credit == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	c.Close()
	if err := <-causes; !errors.Is(err, ErrLeft) {
		t.Errorf("cause %v", err)
	}
	if err := <-pasted; err == nil {
		t.Error("5 MB were taken")
	}
	look := make(chan struct{})
	c, _ = open("writes", writer(func(p []byte) (int, error) { <-look; return len(p), nil }))
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	if err := <-causes; !errors.Is(err, ErrClosing) {
		t.Errorf("cause %v", err)
	}
	<-closed
	close(look)
	c.Close()
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 1000 {
			t.Fatalf("%d goroutines before, %d now", before, runtime.NumGoroutine())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Whatever a peer sends, it loses its own connection only.
func TestHostile(t *testing.T) {
	dir := t.TempDir()
	ended := make(chan error, 1)
	listen(t, dir, func(ctx context.Context, c *Conn) Reply {
		if c.Op == "list" {
			return Reply{Code: 1}
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return Reply{}
	})
	frame := func(kind byte, body string) string {
		b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)))
		return string(b) + body
	}
	enter := frame(kindRequest, `{"version":1,"op":"enter"}`)
	for _, c := range []struct {
		name, send string
		served     bool
	}{
		{"nothing", "", false},
		{"half a head", "q\x00", false},
		{"a huge frame", "q\xff\xff\xff\xff", false},
		{"no request first", frame(kindInput, "x"), false},
		{"no JSON", frame(kindRequest, "{"), false},
		{"another version", frame(kindRequest, `{"version":99,"op":"enter"}`), false},
		{"a second request", enter + enter, true},
		{"a bad size", enter + frame(kindSize, "x"), true},
		{"a huge frame later", enter + "i\x7f\xff\xff\xff", true},
		{"more than the credit", enter + strings.Repeat(frame(kindInput, strings.Repeat("x", chunk)), 5), true},
		{"leaves", enter, true},
	} {
		conn, err := net.Dial("unix", filepath.Join(dir, SocketName))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, c.send); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.name == "leaves" || !c.served {
			conn.(*net.UnixConn).CloseWrite()
		}
		io.Copy(io.Discard, conn)
		conn.Close()
		if c.served {
			if err := <-ended; err == nil {
				t.Errorf("%s: no cause", c.name)
			}
		}
	}
	x, err := Dial(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if r, err := x.Do(Request{Op: "list"}, nil, nil, nil); err != nil || r.Code != 1 {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}
