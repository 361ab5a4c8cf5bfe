package server

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A launch is all that a supervisor and its command need, in the form of system calls. It is made
// before the fork, because nothing can be allocated after it.
type launch struct {
	argv0   []*byte // the program; several when PATH is searched
	argv    []*byte // ends with nil
	env     []*byte // ends with nil
	dir     *byte
	stdin   int
	stdout  int
	stderr  int
	status  int // the pipe on which the supervisor reports; see record
	setUser bool
	uid     int
	gid     int
	groups  []uint32
	rlimits []rlimit
	oom     bool // the kernel's OOM killer should prefer the command to us
	ctl     int  // if not 0, becomes the command's descriptor shellFD
	tty     bool // stdin becomes the command's controlling terminal
}

type rlimit struct {
	resource uintptr
	value    unix.Rlimit
}

// A record is what a supervisor writes to its status pipe, once: the command could not be started,
// or it has ended. When the pipe is closed, the supervisor and all its descendants are gone.
type record struct {
	failed int32 // errno, or 0
	step   int32 // what failed
	status uint32
	pid    int32
	cpu    int64 // µs, of all processes that the supervisor has reaped
	maxRSS int64 // KiB
}

const (
	stepFork = iota + 1
	stepLimit
	stepUser
	stepDir
	stepExec
	stepTrace // only with a tracer; a failure of ours, not the command's
)

// These are used in the forked process only, which has its own copy of them.
var (
	supRecord record
	supStatus uint32
	supUsage  unix.Rusage
	supOOM    bool
	oomPath   = [...]byte{'/', 'p', 'r', 'o', 'c', '/', 's', 'e', 'l', 'f', '/', 'o', 'o', 'm', '_', 's', 'c', 'o', 'r',
		'e', '_', 'a', 'd', 'j', 0}
	oomHigh   = []byte("500") // oom_score_adj of commands: see setVictims
	supOwn    = [5]byte{'0'}  // oom_score_adj of supervisors: that of this process
	supOwnLen = uintptr(1)
	noSignals uint64
	allSigs   = ^uint64(0)
	sigDfl    [4]uint64 // struct sigaction of the kernel: handler, flags, restorer, mask; all zero is SIG_DFL
)

// A forker is a thread from which all supervisors are forked. Its capabilities, system call filter
// and control groups hold for all of them. It never ends, so that it can be their parent for
// PR_SET_PDEATHSIG.
type forker struct {
	in chan forkRequest
}

type forkRequest struct {
	l    *launch
	done chan<- forkResult
}

type forkResult struct {
	pid int
	err error
}

// setVictims makes the kernel's OOM killer prefer commands to us.
func setVictims() {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return
	}
	supOwnLen = uintptr(copy(supOwn[:], strconv.Itoa(own)))
	oomHigh = []byte(strconv.Itoa(min(own+500, 1000)))
}

// newForker starts a thread, on which it runs prepare and then start for each supervisor.
func newForker(prepare func() error, start func(*launch) (int, error)) (*forker, error) {
	f := &forker{in: make(chan forkRequest)}
	ready := make(chan error, 1)
	onThread(func() {
		err := prepare()
		ready <- err
		if err != nil {
			return
		}
		for r := range f.in {
			pid, err := start(r.l)
			r.done <- forkResult{pid, err}
		}
	})
	return f, <-ready
}

// startSupervisor is fork with an error as others have it.
func startSupervisor(l *launch) (int, error) {
	pid, errno := fork(l)
	if errno != 0 {
		return 0, errno
	}
	return int(pid), nil
}

// onThread runs f on a new thread that runs nothing else, and that is not the first thread of the
// process. A control group that the first thread enters holds the whole process: its memory would
// be counted in the commands' group, and the kernel would kill process 1 when commands have filled
// that group with what outlives them (inodes, for example).
func onThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		apart := make(chan struct{})
		go func() {
			runtime.LockOSThread() // another thread, since this one is locked until then
			close(apart)
			f()
		}()
		<-apart
		runtime.UnlockOSThread()
	}()
}

func (f *forker) fork(l *launch) (int, error) {
	done := make(chan forkResult, 1)
	f.in <- forkRequest{l, done}
	r := <-done
	return r.pid, r.err
}

// rawVfork is clone for a child that shares our memory and stack. An ordinary function cannot
// return from it twice.
func rawVfork(flags uintptr) (pid, errno uintptr)

// fork makes a supervisor, which makes the command.
//
// The supervisor is a copy of this process with the calling thread only, and it never executes
// another program: an exec of ours would cost about 1 ms and 2 MB for each command. As in the
// standard library's own fork, no Go may run there that allocates, grows the stack, writes pointers
// to the heap or takes a signal: this function is one body, calls nothing but raw system calls, and
// has all signals blocked. Being a fork, the supervisor is as little dumpable as its parent.
//
// The supervisor is the subreaper of its command: whatever is orphaned below it becomes its child,
// also after setsid or a double fork. It ends when it has no child left.
//
//go:norace
//go:noinline
func fork(l *launch) (pid uintptr, errno syscall.Errno) {
	var (
		oldMask        uint64
		child, w, fd   uintptr
		i              int
		argv, env      = unsafe.Pointer(&l.argv[0]), unsafe.Pointer(&l.env[0])
		dir            = unsafe.Pointer(l.dir)
		stdin, stdout  = uintptr(l.stdin), uintptr(l.stdout)
		stderr, status = uintptr(l.stderr), uintptr(l.status)
		ctl, tty       = uintptr(l.ctl), l.tty
		first          = uintptr(4)
		groups         unsafe.Pointer
		nGroups        = uintptr(len(l.groups))
		argv0          = l.argv0
		rlimits        = l.rlimits
		high, nHigh    = uintptr(unsafe.Pointer(&oomHigh[0])), uintptr(len(oomHigh))
		failed         syscall.Errno
	)
	if len(l.groups) > 0 {
		groups = unsafe.Pointer(&l.groups[0])
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 2 /* SIG_SETMASK */, uintptr(unsafe.Pointer(&allSigs)),
		uintptr(unsafe.Pointer(&oldMask)), 8, 0, 0)
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if pid != 0 || errno != 0 {
		syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 2, uintptr(unsafe.Pointer(&oldMask)), 0, 8, 0, 0)
		runtime.KeepAlive(l)
		return pid, errno
	}

	// This is the supervisor. All descriptors of l are above 3, so none is overwritten before it is
	// used.
	syscall.RawSyscall(syscall.SYS_DUP3, stdin, 0, 0)
	syscall.RawSyscall(syscall.SYS_DUP3, stdout, 1, 0)
	syscall.RawSyscall(syscall.SYS_DUP3, stderr, 2, 0)
	syscall.RawSyscall(syscall.SYS_DUP3, status, 3, syscall.O_CLOEXEC)
	if ctl != 0 {
		syscall.RawSyscall(syscall.SYS_DUP3, ctl, first, syscall.O_CLOEXEC)
		first++
	}
	_, _, failed = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, first, uintptr(^uint32(0)), 0)
	if failed != 0 {
		for fd = first; fd < 4096; fd++ {
			syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
		}
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, 0)
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0, 0)
	if l.oom {
		fd, _, failed = syscall.RawSyscall6(syscall.SYS_OPENAT, ^uintptr(99), /* AT_FDCWD */
			uintptr(unsafe.Pointer(&oomPath)), syscall.O_WRONLY|syscall.O_CLOEXEC, 0, 0, 0)
		if failed == 0 {
			syscall.RawSyscall(syscall.SYS_WRITE, fd, high, nHigh)
			syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
		}
	}

	supOOM = l.oom
	// The command shares our memory and stack until it executes its program, while we wait. So what
	// it does to variables happens to ours, and after this call we use none that was set before it,
	// except globals that it does not change.
	child, w = rawVfork(syscall.CLONE_VM | syscall.CLONE_VFORK | uintptr(syscall.SIGCHLD))
	if w != 0 {
		supRecord.failed, supRecord.step = int32(w), stepFork
		goto report
	}
	if child == 0 {
		goto command
	}

	// A command that changes its user does so in our memory, and the kernel may then have made it
	// dumpable again.
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_CLOSE, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_CLOSE, 1, 0, 0)
	syscall.RawSyscall(syscall.SYS_CLOSE, 2, 0, 0)
	syscall.RawSyscall(syscall.SYS_CLOSE, 4, 0, 0)
	if supOOM {
		fd, _, failed = syscall.RawSyscall6(syscall.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(&oomPath)),
			syscall.O_WRONLY|syscall.O_CLOEXEC, 0, 0, 0)
		if failed == 0 {
			syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&supOwn)), supOwnLen)
			syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
		}
	}
	for {
		w, _, failed = syscall.RawSyscall6(syscall.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&supStatus)),
			unix.WALL, 0, 0, 0)
		if failed == syscall.EINTR {
			continue
		}
		if failed != 0 { // ECHILD: no descendants are left
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
		if w != child {
			continue
		}
		syscall.RawSyscall(syscall.SYS_GETRUSAGE, ^uintptr(0) /* RUSAGE_CHILDREN */, uintptr(unsafe.Pointer(&supUsage)),
			0)
		supRecord.failed, supRecord.step = 0, 0
		supRecord.status = supStatus
		supRecord.pid = int32(child)
		supRecord.cpu = (supUsage.Utime.Sec+supUsage.Stime.Sec)*1e6 + supUsage.Utime.Usec + supUsage.Stime.Usec
		supRecord.maxRSS = supUsage.Maxrss
		syscall.RawSyscall(syscall.SYS_WRITE, 3, uintptr(unsafe.Pointer(&supRecord)), unsafe.Sizeof(supRecord))
	}

command:
	syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	if ctl != 0 {
		syscall.RawSyscall(syscall.SYS_DUP3, 4, shellFD, 0)
	}
	if tty {
		syscall.RawSyscall(syscall.SYS_IOCTL, 0, unix.TIOCSCTTY, 0)
	}
	for i = 0; i < len(rlimits); i++ {
		_, _, failed = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, rlimits[i].resource,
			uintptr(unsafe.Pointer(&rlimits[i].value)), 0, 0, 0)
		if failed != 0 {
			supRecord.failed, supRecord.step = int32(failed), stepLimit
			goto report
		}
	}
	if l.setUser {
		_, _, failed = syscall.RawSyscall(syscall.SYS_SETGROUPS, nGroups, uintptr(groups), 0)
		if failed == 0 {
			_, _, failed = syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(l.gid), uintptr(l.gid), uintptr(l.gid))
		}
		if failed == 0 {
			_, _, failed = syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(l.uid), uintptr(l.uid), uintptr(l.uid))
		}
		if failed != 0 {
			supRecord.failed, supRecord.step = int32(failed), stepUser
			goto report
		}
	}
	// If the supervisor is killed, the command is killed with it. A change of user clears this
	// setting, so it comes last.
	syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0, 0)
	_, _, failed = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(dir), 0, 0)
	if failed != 0 {
		supRecord.failed, supRecord.step = int32(failed), stepDir
		goto report
	}
	syscall.RawSyscall(syscall.SYS_UMASK, 0o022, 0, 0)
	for i = 1; i <= 64; i++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(i), uintptr(unsafe.Pointer(&sigDfl)), 0, 8, 0, 0)
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 2, uintptr(unsafe.Pointer(&noSignals)), 0, 8, 0, 0)
	supRecord.failed = int32(syscall.ENOENT)
	supRecord.step = stepExec
	for i = 0; i < len(argv0); i++ {
		_, _, failed = syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(argv0[i])), uintptr(argv),
			uintptr(env))
		if failed != syscall.ENOENT && failed != syscall.ENOTDIR {
			supRecord.failed = int32(failed) // like a shell: the most specific of several failures
		}
	}

report:
	syscall.RawSyscall(syscall.SYS_WRITE, 3, uintptr(unsafe.Pointer(&supRecord)), unsafe.Sizeof(supRecord))
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 127, 0, 0)
	}
}
