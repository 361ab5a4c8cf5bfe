package browsers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/executor"
)

// insideUID is the user ID of a browser in its own user namespace.
const insideUID = 1000

// Browsers started by root get user IDs of this range on the host, which no account has.
const (
	firstUID = 1_900_000_000
	uidCount = 50_000_000
)

// A confinement isolates a browser from the host, as far as the host permits:
//
//   - Namespaces (user, mount, PID, network, IPC, UTS, cgroup). The browser sees system programs,
//     fonts and certificates (read-only), its own folder and its own processes. Its only network is
//     a loopback interface, on which the proxies of its contexts listen.
//   - A user ID that no other process has, if evalrun runs as root.
//
// Without namespaces only the browser's flags send its traffic to the proxies.
type confinement struct {
	Isolation
	uid        int // on the host
	conn       *net.UnixConn
	childFiles []*os.File // for the browser's process: its end of conn, and mounts of folders
	proxies    proxyListener
}

func newConfinement(dir, path string, o *Options) (*confinement, error) {
	c := &confinement{Isolation: Isolated(path), uid: nextUID()}
	if o.Plain {
		c.Namespaces = false
	}
	if c.otherUser() {
		if err := os.Chmod(dir, 0o711); err != nil { // the browser must reach the folders below
			return nil, fmt.Errorf("making a browser's folder: %w", err)
		}
	}
	for _, d := range []string{"profile", "files"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("making a browser's folder: %w", err)
		}
		if err := c.chown(filepath.Join(dir, d)); err != nil {
			return nil, err
		}
	}
	if !c.Namespaces {
		return c, nil
	}
	if err := c.prepare(dir, path, o.Files); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// prepare creates the socket to the browser's process and writes the layout to it. The browser's
// folders must exist.
func (c *confinement) prepare(dir, path string, files []string) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("making a socket pair: %w", err)
	}
	c.childFiles = []*os.File{os.NewFile(uintptr(fds[1]), "browser")}
	ours := os.NewFile(uintptr(fds[0]), "browser")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err == nil {
		c.conn = conn.(*net.UnixConn)
		l, mounts := layout(dir, path, files)
		c.childFiles = append(c.childFiles, mounts...)
		_, err = c.conn.Write(l.Encode())
	}
	if err != nil {
		return fmt.Errorf("sending the browser its file layout: %w", err)
	}
	return nil
}

// closeChildFiles closes our copies of the files that the browser's process inherits.
func (c *confinement) closeChildFiles() {
	for _, f := range c.childFiles {
		f.Close()
	}
	c.childFiles = nil
}

// apply adds the confinement to the options of a browser.
func (c *confinement) apply(o *cdp.Options) {
	o.Sandbox = c.Sandbox
	if !c.Sandbox && os.Geteuid() != 0 { // Chromium would not start
		o.Args = append(o.Args, "--no-sandbox")
	}
	o.Prepare = func(cmd *exec.Cmd) error {
		if err := c.chown(cmd.Dir); err != nil {
			return err
		}
		if c.Namespaces {
			return c.command(cmd)
		}
		if c.otherUser() {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid)}
		}
		return nil
	}
}

// command makes the executor start cmd in new namespaces.
func (c *confinement) command(cmd *exec.Cmd) error {
	program, err := executorFile()
	if err != nil {
		return err
	}
	args := cmd.Args
	cmd.Path = fmt.Sprintf("/proc/self/fd/%d", program.Fd())
	cmd.Args = append([]string{isolate.Name, isolate.BrowserCommand}, args...)
	for len(cmd.ExtraFiles) < 2 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, nil)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, c.childFiles...)
	cmd.Dir = "/" // StartBrowser changes to the browser's folder
	a := cmd.SysProcAttr
	a.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	gid := os.Getegid()
	if c.otherUser() {
		gid = c.uid
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: insideUID, HostID: c.uid, Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: insideUID, HostID: gid, Size: 1}}
	a.GidMappingsEnableSetgroups = c.otherUser()
	a.Credential = &syscall.Credential{Uid: insideUID, Gid: insideUID, NoSetGroups: !c.otherUser()}
	for n := range uintptr(unix.CAP_LAST_CAP + 1) {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, n, 0, 0, 0); err == nil {
			a.AmbientCaps = append(a.AmbientCaps, n)
		}
	}
	return nil
}

// acceptProxyConns receives the listening socket from the browser's process and serves it.
func (c *confinement) acceptProxyConns() error {
	if !c.Namespaces {
		return nil
	}
	c.closeChildFiles()
	fd, _, err := c.readReply()
	if err != nil {
		return fmt.Errorf("receiving the browser's proxy socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "proxies")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("receiving the browser's proxy socket: %w", err)
	}
	c.proxies.serve(l)
	return nil
}

// readReply reads the reply of [isolate.StartBrowser]. fd is -1 if no descriptor came with it.
func (c *confinement) readReply() (fd int, first byte, err error) {
	c.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, oob := make([]byte, 16), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.conn.ReadMsgUnix(b, oob)
	if err != nil || n == 0 {
		return -1, 0, errors.Join(errors.New("no reply from the browser's process"), err)
	}
	if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) == 1 {
		if fds, err := unix.ParseUnixRights(&msgs[0]); err == nil && len(fds) == 1 {
			unix.CloseOnExec(fds[0])
			return fds[0], b[0], nil
		}
	}
	return -1, b[0], nil
}

// otherUser reports whether the browser runs as another user than this process.
func (c *confinement) otherUser() bool { return c.uid != os.Geteuid() }

// chown makes the browser's user the owner of a folder.
func (c *confinement) chown(path string) error {
	if !c.otherUser() {
		return nil
	}
	if err := os.Lchown(path, c.uid, c.uid); err != nil {
		return fmt.Errorf("giving a browser its folder: %w", err)
	}
	return nil
}

func (c *confinement) close() {
	if c == nil {
		return
	}
	c.closeChildFiles()
	if c.conn != nil {
		c.conn.Close()
	}
	c.proxies.close()
}

var uids struct {
	sync.Mutex
	next int
}

// nextUID returns the user ID for the next browser. As root each browser gets its own, if our user
// namespace maps it. The PID makes concurrent evalrun processes start at different IDs.
func nextUID() int {
	if os.Geteuid() != 0 {
		return os.Geteuid()
	}
	uids.Lock()
	defer uids.Unlock()
	uids.next++
	for _, uid := range []int{firstUID + (os.Getpid()*1009+uids.next)%uidCount, 65534} {
		if uidMapped(uid) {
			return uid
		}
	}
	return os.Geteuid() // our namespace maps no other user
}

// uidMapped reports whether our user namespace maps uid.
func uidMapped(uid int) bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		var in, out, n int
		if c, _ := fmt.Sscan(line, &in, &out, &n); c == 3 && in <= uid && uid < in+n {
			return true
		}
	}
	return false
}

// executorFile returns the executor, which starts browsers in namespaces, as a file in memory.
var executorFile = sync.OnceValues(func() (*os.File, error) {
	b, err := executor.Program(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	return isolate.MemoryFile(b)
})
