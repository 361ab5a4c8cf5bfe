//go:build linux

// Helper is the program that the suite puts into a sandbox: every verb of package verb, done with
// Linux. It is built static, needs no file of the sandbox but itself, and starts itself again for
// children.
package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest/verb"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "-orphan" { // the middle one of a double fork
		if err := start(true, args[1] == "keep", args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(verb.Failed)
		}
		return
	}
	if !headless() {
		os.Exit(verb.Run(linux{}, args))
	}
	code := make(chan int)
	go func() { code <- verb.Run(linux{}, args) }()
	select {
	case c := <-code:
		os.Exit(c)
	case <-exitMainThread:
		syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // this thread alone
	}
}

// headless reports whether this process is going to end its first thread. Then the main goroutine
// has to be that thread, which costs others.
func headless() bool {
	return slices.Contains(os.Args, "exit-main-thread") && !slices.Contains(os.Args, "start")
}

func init() {
	if headless() {
		runtime.LockOSThread()
	}
}

var exitMainThread = make(chan struct{})

func (linux) ExitMainThread() {
	close(exitMainThread)
	for {
		b, err := os.ReadFile("/proc/self/stat")
		if err != nil || bytes.Contains(b, []byte(") Z ")) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

type linux struct{}

func (linux) Stdin() io.Reader       { return os.Stdin }
func (linux) Stdout() io.Writer      { return os.Stdout }
func (linux) Stderr() io.Writer      { return os.Stderr }
func (linux) Environ() []string      { return os.Environ() }
func (linux) Getwd() (string, error) { return syscall.Getwd() } // os.Getwd would believe $PWD
func (linux) ID() (int, int)         { return os.Getuid(), os.Getgid() }

func (linux) Fds() []string {
	var fds []string
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		// The runtime's own poller and the folder that is being read are not ours to complain
		// about.
		if n <= 2 || err != nil || to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]" ||
			filepath.Base(to) == "fd" {
			continue
		}
		// The runtime's files are close-on-exec; what came in from outside is not.
		if flags, _, e := syscall.Syscall(syscall.SYS_FCNTL, uintptr(n), syscall.F_GETFD, 0); e != 0 ||
			flags&syscall.FD_CLOEXEC != 0 {
			continue
		}
		fds = append(fds, fmt.Sprintf("%d %s", n, to))
	}
	return fds
}

func (linux) Interfaces() []string {
	var names []string
	is, _ := net.Interfaces()
	for _, i := range is {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			names = append(names, i.Name)
		}
	}
	return names
}

func (linux) PidNamespace() string {
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return ns
}

func (linux) Open(name string) (io.ReadCloser, error) { return os.Open(name) }
func (linux) Create(name string, flag int, perm fs.FileMode) (io.WriteCloser, error) {
	return os.OpenFile(name, flag, perm)
}
func (linux) Lstat(name string) (fs.FileInfo, error)    { return os.Lstat(name) }
func (linux) Readlink(name string) (string, error)      { return os.Readlink(name) }
func (linux) Symlink(target, name string) error         { return os.Symlink(target, name) }
func (linux) Link(old, name string) error               { return os.Link(old, name) }
func (linux) Chmod(name string, perm fs.FileMode) error { return os.Chmod(name, perm) }
func (linux) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }
func (linux) Mkfifo(name string) error                  { return syscall.Mkfifo(name, 0o644) }

var held []*os.File // never closed: the lock ends with the process, which is the point

func (linux) Hold(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	held = append(held, f)
	for { // somebody who asks Held has the lock for a moment
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			return err
		}
	}
}

func (linux) Held(name string) (bool, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == syscall.EWOULDBLOCK, nil
}

func (linux) Start(how string, keep bool, args ...string) error {
	switch how {
	case "child":
		return start(false, keep, args)
	case "setsid":
		return start(true, keep, args)
	case "double":
		kept := "drop"
		if keep {
			kept = "keep"
		}
		c := command(keep, append([]string{"-orphan", kept}, args...))
		return c.Run()
	}
	return fmt.Errorf("no way to start called %q", how)
}

func command(keep bool, args []string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	if keep {
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
	}
	return c
}

func start(setsid, keep bool, args []string) error {
	c := command(keep, args)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
	return c.Start()
}

func (linux) Ignore() {
	for s := syscall.Signal(1); s < 32; s++ {
		if s != syscall.SIGCHLD && s != syscall.SIGURG {
			signal.Ignore(s)
		}
	}
}

func (linux) Kill(pid, sig int) error {
	if pid == 0 {
		pid = os.Getpid()
	}
	return syscall.Kill(pid, syscall.Signal(sig))
}

var memory [][]byte

func (linux) Alloc(n int64) error {
	const step = 1 << 20
	for ; n > 0; n -= step {
		b, err := syscall.Mmap(-1, 0, step, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		memory = append(memory, b)
	}
	return nil
}

func (linux) Sleep(d time.Duration) bool { time.Sleep(d); return true }

func (linux) Spin(d time.Duration) {
	var ru syscall.Rusage
	for {
		syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
		if time.Duration(ru.Utime.Nano()+ru.Stime.Nano()) >= d {
			return
		}
		for range 100000 {
		}
	}
}

func (linux) Listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

func (linux) Dial(port int) (net.Conn, error) {
	return net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), 30*time.Second)
}

func (linux) DialUnix(name string) (net.Conn, error) { return net.Dial("unix", name) }

func (linux) CloseOutput() {
	os.Stdout.Close()
	os.Stderr.Close()
}
