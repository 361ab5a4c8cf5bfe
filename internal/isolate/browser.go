package isolate

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// BrowserCommand is the argument of the executor as the beginning of a browser.
const BrowserCommand = "cage"

// Ready reports that this program can be started as an executor: its main begins with package
// server's Main.
var Ready bool

// ProxyPort is the port, on all addresses of a browser's own loopback, where its ways out are.
const ProxyPort = 61081

// StartBrowser makes a process that was started in fresh namespaces, as an ordinary user with all
// capabilities in them, into a browser that sees nothing of this machine but what its layout shows,
// and has no network but a loopback of its own. It returns only when that fails.
//
// The socket fd brings the layout in one packet and takes the answer: a byte, and with it the
// socket that listens at CagePort. With no program to become, the answer says whether a user
// namespace can be made in there (byte 1), which the sandbox of Chromium needs, or not (byte 0).
func StartBrowser(fd int, argv []string) int {
	runtime.LockOSThread()
	unix.CloseOnExec(fd)
	if err := startBrowser(fd, argv); err != nil {
		os.Stderr.WriteString("making a browser's namespaces: " + err.Error() + "\n")
	}
	return 3
}

func startBrowser(fd int, argv []string) error {
	b := make([]byte, 128<<10)
	n, err := unix.Read(fd, b)
	if err != nil {
		return failed("reading the layout", err)
	}
	if err := Setup(b[:n]); err != nil {
		return err
	}
	if len(argv) == 0 {
		answer := []byte{0}
		if canNestUserNamespace() {
			answer[0] = 1
		}
		_, err := unix.Write(fd, answer)
		if err != nil {
			return failed("answering", err)
		}
		os.Exit(0)
	}
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return failed("opening a socket", err)
	}
	if err := unix.Bind(l, &unix.SockaddrInet4{Port: ProxyPort}); err != nil {
		return failed("binding the port", err)
	}
	if err := unix.Listen(l, 512); err != nil {
		return failed("listening", err)
	}
	if err := unix.Sendmsg(fd, []byte{1}, unix.UnixRights(l), nil, unix.MSG_NOSIGNAL); err != nil {
		return failed("answering", err)
	}
	unix.Close(l)
	home := os.Getenv("HOME")
	if err := unix.Chdir(home); err != nil {
		return failed("entering "+home, err)
	}
	// What follows has no capability: it is no root, and may not become one.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return failed("dropping capabilities", err)
	}
	// A browser that finds a loopback and nothing else tells its pages that they are offline.
	if err := DenyRouteNetlink(); err != nil {
		return err
	}
	return failed("starting "+argv[0], syscall.Exec(argv[0], argv, os.Environ()))
}

// canNestUserNamespace tries whether a process of ours, without privileges, could have a user namespace of its
// own.
func canNestUserNamespace() bool {
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if unix.Capset(&hdr, &none[0]) != nil {
		return false
	}
	pid, _, err := syscall.StartProcess("/proc/self/exe", []string{Name}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET},
	})
	if err != nil {
		return false
	}
	var ws syscall.WaitStatus
	syscall.Wait4(pid, &ws, 0, nil)
	return true
}
