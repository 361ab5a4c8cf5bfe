package isolate

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// BrowserCommand is the executor's argument that makes it call [StartBrowser].
const BrowserCommand = "browser"

// Ready reports that this program can be started as an executor: its main begins with package
// server's Main.
var Ready bool

// ProxyPort is the port on a browser's loopback interface, on all of its addresses, at which the
// proxies listen.
const ProxyPort = 61081

// StartBrowser sets up the namespaces of a browser and executes it. The process must have been
// started in new namespaces, as an ordinary user with all capabilities in them. The browser sees
// only the files of its layout, and no network but its own loopback interface. StartBrowser
// returns only if it fails.
//
// The layout is read from the socket fd as one packet. The reply is a byte, and with it the socket
// that listens at ProxyPort. Without argv nothing is executed, and the byte says whether a user
// namespace can be created inside (1), which Chromium's sandbox needs, or not (0).
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
	// The browser gets no capabilities.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return failed("dropping capabilities", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return failed("forbidding new privileges", err)
	}
	// A browser that sees no interface but the loopback reports to its pages that they are offline.
	// It starts all the same on a kernel without filters.
	_ = DenyRouteNetlink()
	return failed("starting "+argv[0], syscall.Exec(argv[0], argv, os.Environ()))
}

// canNestUserNamespace reports whether an unprivileged child process can create a user namespace.
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
