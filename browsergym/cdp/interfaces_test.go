package cdp_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A browser that notices that an interface of its machine comes or goes drops all its connections
// (net::ERR_NETWORK_CHANGED). Containers, which have interfaces, are started and removed all the
// time beside browsers, and that must not show in an episode.
func TestInterfacesThatComeAndGo(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") == "" {
		t.Skip("needs a browser; set EVALRUN_TEST_BROWSER=1")
	}
	const inside = "EVALRUN_TEST_INSIDE"
	if os.Getenv(inside) == "" { // in a network of its own, so that nobody else sees what it does to it
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	interfaceUp(t, "lo", "127.0.0.1")
	url := pages(t, map[string]string{"": "<title>here</title>", "slow": "<title>slow</title>"})
	b, err := cdp.Launch(t.Context(), cdp.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, p := open(t, b, cdp.ContextOptions{}, url)
	changes := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(changes)
		for n := 0; ctx.Err() == nil; n++ {
			interfaceUp(t, "lo:1", net.IPv4(10, 9, 8, byte(1+n%200)).String())
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for range 100 {
		if err := p.Goto(t.Context(), url+"slow"); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	<-changes
}

// interfaceUp gives an interface an address.
func interfaceUp(t *testing.T, name, addr string) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(s)
	var req struct {
		name [unix.IFNAMSIZ]byte
		addr unix.RawSockaddrInet4
		_    [8]byte
	}
	copy(req.name[:], name)
	req.addr.Family = unix.AF_INET
	copy(req.addr.Addr[:], net.ParseIP(addr).To4())
	ask := func(what uintptr) {
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s), what, uintptr(unsafe.Pointer(&req))); e != 0 {
			t.Errorf("giving %s the address %s: %v", name, addr, e)
		}
	}
	ask(unix.SIOCSIFADDR)
	req.addr = unix.RawSockaddrInet4{Family: unix.IFF_UP} // the flags are in its place
	ask(unix.SIOCSIFFLAGS)
}
