package isolate

import "golang.org/x/sys/unix"

// The filter forbids what reaches beyond a sandbox, or is a common way to break out of one, and is
// not needed by any task. Everything else is allowed, because in new namespaces and without
// capabilities it is as harmless as for any user. Deny lists are short, and the kernel handles
// calls that are allowed with any arguments by a bitmap.

// denied lists the system calls that fail with EPERM.
var denied = []uint32{
	// mounts, old and new interface
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN,
	unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, sysOpenTreeAttr,
	// namespaces of other processes
	unix.SYS_SETNS,
	// keys belong to a uid, not to a namespace
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	// large or new kernel interfaces with a history of vulnerabilities
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER,
	// the machine
	unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_ACCT, unix.SYS_QUOTACTL, sysQuotactlFD, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
	unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	unix.SYS_LOOKUP_DCOOKIE,
}

const (
	sysOpenTreeAttr = 467 // newer than x/sys
	sysQuotactlFD   = 443

	nrOffset   = 0
	archOffset = 4
	argOffset  = 16 // low half of the first argument; both architectures are little endian
	x32Bit     = 0x40000000

	nsFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME
)

// forbiddenFamilies are socket families that are forbidden: vsock, which no network namespace
// confines and which reaches the hypervisor, and alg, which only gives access to the kernel's
// crypto code.
var forbiddenFamilies = []uint32{unix.AF_VSOCK, unix.AF_ALG}

// guard returns the filter for processes without isolation. It forbids kill(-1, …), which would end
// all processes of the user, including evalrun. Agents do call it.
func guard() []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: archOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 5, K: auditArch},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nrOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_KILL},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: argOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: 0xffffffff},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
}

// noRouteNetlink returns the filter that hides changes of the network from a process.
func noRouteNetlink() []unix.SockFilter {
	const protocolOffset = argOffset + 2*8
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: archOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 7, K: auditArch},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nrOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 5, K: unix.SYS_SOCKET},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: argOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.AF_NETLINK},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: protocolOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.NETLINK_ROUTE},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
}

// program returns the filter. With PerProcess it refuses memory that belongs to no process and no
// file system, because there is no control group to count it. Libraries work without it.
func program(r Rules) []unix.SockFilter {
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	const (
		load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jeq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		jge  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		jset = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret  = unix.BPF_RET | unix.BPF_K
	)
	errno := func(e unix.Errno) unix.SockFilter {
		return stmt(ret, unix.SECCOMP_RET_ERRNO|uint32(e))
	}
	allow := stmt(ret, unix.SECCOMP_RET_ALLOW)
	// if x == k, run the next statements, else skip them
	when := func(code uint16, k uint32, body ...unix.SockFilter) []unix.SockFilter {
		return append([]unix.SockFilter{{Code: code, Jt: 0, Jf: uint8(len(body)), K: k}}, body...)
	}
	p := []unix.SockFilter{stmt(load, archOffset)}
	// System calls of another architecture (32 bit) have other numbers. Allow none of them, or all
	// that an engine's own filter allows.
	other := errno(unix.ENOSYS)
	if r.Container {
		other = allow
	}
	p = append(p, unix.SockFilter{Code: jeq, Jt: 1, K: auditArch}, other)
	p = append(p, stmt(load, nrOffset))
	if auditArch == unix.AUDIT_ARCH_X86_64 {
		p = append(p, when(jge, x32Bit, errno(unix.ENOSYS))...)
	}
	for _, nr := range append(denied, deniedArch...) {
		p = append(p, when(jeq, nr, errno(unix.EPERM))...)
	}
	// The flags of clone3 are in memory, which a filter cannot read. If it returns ENOSYS,
	// libraries use clone.
	p = append(p, when(jeq, unix.SYS_CLONE3, errno(unix.ENOSYS))...)
	if r.PerProcess {
		for _, nr := range []uint32{unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET} {
			p = append(p, when(jeq, nr, errno(unix.ENOSYS))...)
		}
	}
	flags := append(append([]unix.SockFilter{stmt(load, argOffset)}, when(jset, nsFlags, errno(unix.EPERM))...), allow)
	// In clone, CLONE_NEWTIME is a bit of the exit signal.
	cflags := append(append([]unix.SockFilter{stmt(load, argOffset)},
		when(jset, nsFlags&^unix.CLONE_NEWTIME, errno(unix.EPERM))...), allow)
	p = append(p, when(jeq, unix.SYS_UNSHARE, flags...)...)
	p = append(p, when(jeq, unix.SYS_CLONE, cflags...)...)
	sock := []unix.SockFilter{stmt(load, argOffset)}
	for _, f := range forbiddenFamilies {
		sock = append(sock, when(jeq, f, errno(unix.EAFNOSUPPORT))...)
	}
	p = append(p, when(jeq, unix.SYS_SOCKET, append(sock, allow)...)...)
	// Limits of process 1. Commands that run as its user could set them, and a CPU time limit would
	// kill it.
	p = append(p, when(jeq, unix.SYS_PRLIMIT64,
		append(append([]unix.SockFilter{stmt(load, argOffset)}, when(jeq, 1, errno(unix.EPERM))...), allow)...)...)
	return append(p, allow)
}
