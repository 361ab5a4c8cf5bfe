// Package verb is what the suite's helper can do inside a sandbox. The verbs are written against a
// [World]: the static program in ../helper gives them Linux, a fake driver gives them its memory.
// So the suite needs no shell, and runs the same in both.
package verb

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A World is what a verb sees of the machine that it runs in.
type World interface {
	Stdin() io.Reader
	Stdout() io.Writer
	Stderr() io.Writer
	Environ() []string
	Getwd() (string, error)
	ID() (uid, gid int)
	Fds() []string        // open files beside the three standard ones
	Interfaces() []string // network interfaces that are up, loopback left out
	PidNamespace() string // which processes it can see; "": there is no such thing

	Open(name string) (io.ReadCloser, error)
	Create(name string, flag int, perm fs.FileMode) (io.WriteCloser, error)
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	Symlink(target, name string) error
	Link(old, name string) error
	Mkdir(name string, perm fs.FileMode) error
	Mkfifo(name string) error
	Chmod(name string, perm fs.FileMode) error

	// Hold locks a file until this process ends, whatever way; Held reports whether somebody does.
	Hold(name string) error
	Held(name string) (bool, error)

	// Start runs the helper again, with args, and does not wait. How: "child", "setsid" (a session
	// of its own), "double" (an orphan in a session of its own). Keep says that it has our stdout,
	// else it has none.
	Start(how string, keep bool, args ...string) error
	Ignore()                        // every signal that can be ignored
	ExitMainThread()                // ends the process's first thread, so that it looks dead and runs on
	Kill(pid int, signal int) error // pid 0: this process; -1: all that it may
	Alloc(n int64) error            // memory, used for good
	Sleep(d time.Duration) bool     // false: cut short by death, where that does not end the program by itself
	Spin(d time.Duration)           // uses that much processor time
	Listen(port int) (net.Listener, error)
	Dial(port int) (net.Conn, error)
	DialUnix(name string) (net.Conn, error) // "@" begins an abstract name
	CloseOutput()                           // closes stdout and stderr
}

// Forever is how long a verb sleeps that waits to be killed.
const Forever = 1000 * time.Hour

// Codes that tell the suite why a verb failed.
const (
	Failed   = 97
	Usage    = 98
	NotHeld  = 1
	NoFile   = 2
	NoSpace  = 28
	NoFork   = 11
	NoDialed = 61
)

// Run runs the verbs in args, one after the other; a "," stands between two. It ends with the first
// code that is not 0.
func Run(w World, args []string) int {
	for len(args) > 0 {
		one := args
		if i := slices.Index(args, ","); i >= 0 {
			one, args = args[:i], args[i+1:]
		} else {
			args = nil
		}
		if code, ended := run(w, one); code != 0 || ended {
			return code
		}
	}
	return 0
}

func run(w World, args []string) (code int, ended bool) {
	if len(args) == 0 {
		return Usage, true
	}
	name, args := args[0], args[1:]
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	num := func(i int) int64 { n, _ := strconv.ParseInt(arg(i), 10, 64); return n }
	var err error
	out := w.Stdout()
	if arg(0) == "-err" {
		out, args = w.Stderr(), args[1:]
	}

	switch name {
	// Output and input.
	case "echo": // [-err] WORD…
		_, err = fmt.Fprintln(out, strings.Join(args, " "))
	case "spam": // [-err] N: see Pattern
		_, err = io.Copy(out, Pattern(num(0)))
	case "bytes": // [-err] N: every byte value, N times over
		_, err = out.Write(AllBytes(int(num(0))))
	case "turns": // N: lines that go to stdout and stderr in turns
		for i := range num(0) {
			fmt.Fprintf(w.Stdout(), "out %d\n", i)
			fmt.Fprintf(w.Stderr(), "err %d\n", i)
		}
	case "cat": // [FILE…]: nothing named is stdin
		if len(args) == 0 {
			_, err = io.Copy(out, w.Stdin())
		}
		for _, name := range args {
			var f io.ReadCloser
			if f, err = w.Open(name); err != nil {
				break
			}
			_, err = io.Copy(out, f)
			f.Close()
		}

	// What the process is.
	case "exit":
		return int(num(0)), true
	case "env":
		for _, e := range w.Environ() {
			fmt.Fprintln(out, e)
		}
	case "cwd":
		var dir string
		if dir, err = w.Getwd(); err == nil {
			fmt.Fprintln(out, dir)
		}
	case "id":
		uid, gid := w.ID()
		fmt.Fprintf(out, "%d:%d\n", uid, gid)
	case "fds":
		for _, f := range w.Fds() {
			fmt.Fprintln(out, f)
		}
	case "pidns":
		fmt.Fprintln(out, w.PidNamespace())
	case "interfaces":
		for _, i := range w.Interfaces() {
			fmt.Fprintln(out, i)
		}

	// Files.
	case "write", "append": // FILE TEXT
		flag := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
		if name == "append" {
			flag = os.O_CREATE | os.O_WRONLY | os.O_APPEND
		}
		err = write(w, arg(0), flag, strings.NewReader(arg(1)))
	case "pattern": // FILE N
		err = write(w, arg(0), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, Pattern(num(1)))
	case "fill": // FILE N: like pattern; a full disk is told by the code
		if err = write(w, arg(0), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, Pattern(num(1))); err != nil {
			fmt.Fprintln(w.Stderr(), err)
			return NoSpace, true
		}
	case "stat": // FILE…: mode, size, target of a link
		for _, name := range args {
			var fi fs.FileInfo
			if fi, err = w.Lstat(name); err != nil {
				break
			}
			target := ""
			if fi.Mode()&fs.ModeSymlink != 0 {
				target, _ = w.Readlink(name)
			}
			size := fi.Size()
			if !fi.Mode().IsRegular() {
				size = 0
			}
			fmt.Fprintf(out, "%v %d %s\n", fi.Mode(), size, target)
		}
	case "mkdir":
		err = w.Mkdir(arg(0), 0o755)
	case "chmod": // NAME MODE, in decimal
		err = w.Chmod(arg(0), fs.FileMode(num(1)))
	case "symlink": // TARGET NAME
		err = w.Symlink(arg(0), arg(1))
	case "link": // OLD NAME
		err = w.Link(arg(0), arg(1))
	case "close-output":
		w.CloseOutput()
	case "mkfifo":
		err = w.Mkfifo(arg(0))

	// Processes.
	case "sleep": // DURATION
		var d time.Duration
		if d, err = time.ParseDuration(arg(0)); err == nil {
			w.Sleep(d)
		}
	case "spin":
		var d time.Duration
		if d, err = time.ParseDuration(arg(0)); err == nil {
			w.Spin(d)
		}
	case "ignore":
		w.Ignore()
	case "exit-main-thread":
		w.ExitMainThread()
	case "hold": // FILE: until it is killed
		if err = w.Hold(arg(0)); err == nil {
			w.Sleep(Forever)
		}
	case "lock": // FILE: and on to the next verb
		err = w.Hold(arg(0))
	case "held": // FILE
		held, e := w.Held(arg(0))
		switch {
		case e != nil:
			return NoFile, true
		case !held:
			return NotHeld, true
		}
		// HOW keep|drop FILE [VERB…]: a process that holds FILE, then does the verbs (";" between
		// them), then stays;
	case "start":
		// returns when FILE is held
		child := []string{"lock", arg(2), ","}
		for _, a := range args[min(3, len(args)):] {
			if a == ";" {
				a = ","
			}
			child = append(child, a)
		}
		if len(args) > 3 {
			child = append(child, ",")
		}
		child = append(child, "sleep", Forever.String())
		if err = w.Start(arg(0), arg(1) == "keep", child...); err != nil {
			break
		}
		for {
			if held, e := w.Held(arg(2)); e == nil && held {
				break
			}
			if !w.Sleep(5 * time.Millisecond) {
				break
			}
		}
	case "bomb": // N: so many children, all of them left behind; prints how many there were
		n := int64(0)
		for ; n < num(0) && err == nil; n++ {
			err = w.Start("child", false, "sleep", "1000h")
		}
		if err != nil {
			n--
		}
		fmt.Fprintln(out, n)
		if err != nil {
			fmt.Fprintln(w.Stderr(), err)
			return NoFork, true
		}
	case "kill": // PID SIGNAL
		err = w.Kill(int(num(0)), int(num(1)))
		w.Sleep(Forever)
	case "alloc": // N
		err = w.Alloc(num(0))

	// Network.
	case "listen": // PORT: answers every connection with what it says, in capitals, to its end
		var l net.Listener
		if l, err = w.Listen(int(num(0))); err != nil {
			break
		}
		fmt.Fprintln(out, "listening")
		for {
			c, err := l.Accept()
			if err != nil {
				return Failed, true
			}
			go shout(c)
		}
	case "dialunix": // NAME
		var c net.Conn
		if c, err = w.DialUnix(arg(0)); err != nil {
			fmt.Fprintln(w.Stderr(), err)
			return NoDialed, true
		}
		c.Close()
	case "dial": // PORT TEXT: says TEXT, prints the answer
		var c net.Conn
		if c, err = w.Dial(int(num(0))); err != nil {
			fmt.Fprintln(w.Stderr(), err)
			return NoDialed, true
		}
		fmt.Fprintln(c, arg(1))
		answer := make([]byte, len(arg(1))+1)
		if _, err = io.ReadFull(c, answer); err == nil {
			out.Write(answer)
		}
		c.Close()

	default:
		fmt.Fprintf(w.Stderr(), "helper: no verb %q\n", name)
		return Usage, true
	}
	if err != nil {
		fmt.Fprintf(w.Stderr(), "helper: %s: %v\n", name, err)
		return Failed, true
	}
	return 0, false
}

func write(w World, name string, flag int, r io.Reader) error {
	f, err := w.Create(name, flag, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func shout(c net.Conn) {
	defer c.Close()
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		if _, werr := c.Write(bytes.ToUpper(b[:n])); err != nil || werr != nil {
			return
		}
	}
}

// Pattern is n bytes in which each place can be told from every other: lines of 16 bytes that count
// up.
func Pattern(n int64) io.Reader { return &pattern{n: n} }

type pattern struct {
	at, n int64
	line  [16]byte // the one that at is in
}

func (p *pattern) Read(b []byte) (int, error) {
	if p.at >= p.n {
		return 0, io.EOF
	}
	n := 0
	for n < len(b) && p.at < p.n {
		if p.at%16 == 0 || n == 0 {
			for i, v := 14, p.at/16; i >= 0; i, v = i-1, v/10 {
				p.line[i] = byte('0' + v%10)
			}
			p.line[15] = '\n'
		}
		m := copy(b[n:], p.line[p.at%16:])
		m = int(min(int64(m), p.n-p.at))
		n += m
		p.at += int64(m)
	}
	return n, nil
}

// AllBytes is every byte value in order, n times over.
func AllBytes(n int) []byte {
	b := make([]byte, 256*n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}
