package isolate

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keptCapabilities are the capabilities that root inside may have, over what belongs to its own namespaces
// only.
var keptCapabilities = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID,
	unix.CAP_SETUID,
	unix.CAP_SETFCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT,
}

// Rules say what commands may do beside the usual.
type Rules struct {
	// PerProcess: memory is limited for each process alone, so that all memory has to belong to
	// one.
	PerProcess bool
	// Setuid: programs of other users give their privileges, up to the kept capabilities. The
	// kernel takes no filter then.
	Setuid bool
	// Container: an engine has made the machine. It filters calls as well, those of other
	// architectures too, which ours lets pass.
	Container bool
}

// Drop takes from the calling thread, and from all that will be started from it, every capability
// that commands do not need, the way to gain others, and the system calls that reach beyond a
// sandbox. The caller has locked the thread.
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
		// What an engine has taken away already need not be dropped, and to drop it is a privilege
		// that it may not have left us.
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			break // the kernel knows no more
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

// Guard keeps a thread without any isolation, and what will be started from it, from killing
// everything on the machine at once. It also forbids new privileges: a filter needs that.
func Guard() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return failed("forbidding new privileges", err)
	}
	return filter(guard())
}

// DenyRouteNetlink keeps the calling thread, and what will be started from it, from opening route
// netlink sockets, which tell of interfaces and addresses that come and go. It also forbids new
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
