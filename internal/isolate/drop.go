package isolate

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keptCapabilities are the capabilities that root inside a sandbox may have. They apply only to its
// own namespaces.
var keptCapabilities = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID,
	unix.CAP_SETUID,
	unix.CAP_SETFCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT,
}

// Rules adjust the restrictions of commands.
type Rules struct {
	// PerProcess is set if memory is limited per process, so that all memory must belong to a
	// process.
	PerProcess bool
	// Setuid programs give the privileges of their user, up to the kept capabilities. The kernel
	// does not accept a filter in this case.
	Setuid bool
	// Container is set if a container engine made the machine. Its own filter also covers the
	// system calls of other architectures, which ours then allows.
	Container bool
}

// Drop removes every capability that commands do not need, the ways to gain others, and the system
// calls that reach beyond a sandbox. It applies to the calling thread, which the caller has locked,
// and to all processes started from it.
func Drop(r Rules) error {
	var keep uint64
	for _, c := range keptCapabilities {
		keep |= 1 << c
	}
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	for c := 0; c <= 63; c++ {
		if keep&(1<<c) != 0 {
			continue
		}
		// Skip what an engine has already dropped: dropping needs a privilege that it may have
		// removed too.
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			break // the kernel knows no higher numbers
		}
		if has == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return failed("dropping capabilities", err)
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{}
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return failed("reading capabilities", err)
	}
	for i := range data {
		k := uint32(keep>>(32*i)) & data[i].Permitted
		data[i] = unix.CapUserData{Effective: k, Permitted: k}
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return failed("dropping capabilities", err)
	}
	if r.Setuid {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return failed("forbidding new privileges", err)
	}
	return filter(program(r))
}

// Guard prevents a thread without isolation, and the processes started from it, from killing all
// processes of its user at once. It also forbids new privileges, which a filter requires.
func Guard() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return failed("forbidding new privileges", err)
	}
	return filter(guard())
}

// DenyRouteNetlink prevents the calling thread, and the processes started from it, from opening
// route netlink sockets, which report changes of interfaces and addresses. It also forbids new
// privileges. The caller has locked the thread.
func DenyRouteNetlink() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return failed("forbidding new privileges", err)
	}
	return filter(noRouteNetlink())
}

func filter(prog []unix.SockFilter) error {
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)), 0, 0); err != nil {
		if err == unix.EINVAL {
			return errors.New("this kernel cannot filter system calls (CONFIG_SECCOMP_FILTER)")
		}
		return failed("filtering system calls", err)
	}
	return nil
}
