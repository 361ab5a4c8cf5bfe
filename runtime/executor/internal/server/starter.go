package server

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
)

// start becomes a command that is traced: it does for it what fork does for others. It returns only
// if that fails.
func start() int {
	runtime.LockOSThread()
	unix.CloseOnExec(starterSocket)
	unix.CloseOnExec(starterLaunch)
	fail := func(step int32, errno syscall.Errno) int {
		rec := record{failed: int32(errno), step: step}
		unix.Write(starterSocket, rec.bytes())
		return 127
	}
	b, err := io.ReadAll(os.NewFile(starterLaunch, "launch"))
	if err != nil {
		return fail(stepTrace, errnoOf(err))
	}
	l, rules, err := decodeLaunch(b)
	if err != nil {
		return fail(stepTrace, syscall.EINVAL)
	}
	setVictims()
	if fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		unix.Write(fd, oomHigh)
		unix.Close(fd)
	}
	if unix.CloseRange(3, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC) != nil {
		for fd := 3; fd < 4096; fd++ {
			unix.CloseOnExec(fd)
		}
	}
	// Only this thread is traced, and only this one becomes the command.
	tid := int32(unix.Gettid())
	unix.Write(starterSocket, (*[4]byte)(unsafe.Pointer(&tid))[:])
	if n, err := unix.Read(starterSocket, make([]byte, 1)); n != 1 || err != nil {
		return 127 // the tracer has ended
	}
	if err := isolate.Drop(rules); err != nil {
		return fail(stepTrace, syscall.EPERM)
	}
	step, errno := l.become()
	return fail(step, errno)
}

// become executes the command on this thread, which is all that is left of this process then. It
// returns what failed.
func (l *launch) become() (step int32, errno syscall.Errno) {
	var (
		argv, env = uintptr(unsafe.Pointer(&l.argv[0])), uintptr(unsafe.Pointer(&l.env[0]))
		groups    uintptr
	)
	if len(l.groups) > 0 {
		groups = uintptr(unsafe.Pointer(&l.groups[0]))
	}
	defer runtime.KeepAlive(l)
	syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	for i := range l.rlimits {
		if _, _, errno = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, l.rlimits[i].resource,
			uintptr(unsafe.Pointer(&l.rlimits[i].value)), 0, 0, 0); errno != 0 {
			return stepLimit, errno
		}
	}
	if l.setUser {
		_, _, errno = syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(l.groups)), groups, 0)
		if errno == 0 {
			_, _, errno = syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(l.gid), uintptr(l.gid), uintptr(l.gid))
		}
		if errno == 0 {
			_, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(l.uid), uintptr(l.uid), uintptr(l.uid))
		}
		if errno != 0 {
			return stepUser, errno
		}
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0, 0)
	if _, _, errno = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(l.dir)), 0, 0); errno != 0 {
		return stepDir, errno
	}
	syscall.RawSyscall(syscall.SYS_UMASK, 0o022, 0, 0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 2 /* SIG_SETMASK */, uintptr(unsafe.Pointer(&allSigs)), 0, 8, 0, 0)
	for i := uintptr(1); i <= 64; i++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, i, uintptr(unsafe.Pointer(&sigDfl)), 0, 8, 0, 0)
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 2, uintptr(unsafe.Pointer(&noSignals)), 0, 8, 0, 0)
	errno = syscall.ENOENT
	for _, p := range l.argv0 {
		_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(p)), argv, env)
		if e != syscall.ENOENT && e != syscall.ENOTDIR {
			errno = e // like a shell: the most specific of several failures
		}
	}
	return stepExec, errno
}

func (r *record) bytes() []byte { return (*[unsafe.Sizeof(*r)]byte)(unsafe.Pointer(r))[:] }
