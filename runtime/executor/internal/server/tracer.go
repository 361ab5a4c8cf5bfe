package server

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
)

// A tracer runs one command and records the names that it and its descendants look up, until the
// command has ended. What is left of it then goes on, traced but not recorded.
type tracer struct {
	child  int // the starter, then the command
	socket int // to the starter
	tasks  map[int]*task
	names  names
	calls  *[lastCall + 1]*call
	begun  bool // the starter has executed the command
	over   bool // the command has ended
	rooted bool // some process has changed its root
	buf    [4096]byte
}

// A task is a thread that is traced.
type task struct {
	starting bool // the starter's thread, before it executes the command
	call     *call
	wanted   []wanted // of the system call that it is in
	dir      string   // the directory that it reads
	why      string   // why names may lack if the system call succeeds
	known    *listing // what its process has listed
}

// trace is the supervisor of a traced command. See fork for what a supervisor is.
func trace() int {
	runtime.LockOSThread()
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	syscall.Setresgid(-1, -1, ownGroup)
	ignore := [4]uint64{1 /* SIG_IGN */}
	for n := uintptr(1); n <= 64; n++ {
		switch syscall.Signal(n) {
		case syscall.SIGURG: // Go's own
		case syscall.SIGCHLD: // for each stop of a task there is one
			syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&sigDfl)), 0, 8, 0, 0)
		default:
			syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
		}
	}
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	unix.CloseOnExec(tracerStatus)
	unix.CloseOnExec(tracerLaunch)
	t := &tracer{tasks: map[int]*task{}, calls: newCalls()}
	if err := t.begin(); err != nil {
		rec := record{failed: int32(errnoOf(err)), step: stepTrace}
		unix.Write(tracerStatus, rec.bytes())
		if t.child > 0 {
			syscall.Kill(t.child, syscall.SIGKILL)
		}
		return 127
	}
	for fd := range 3 {
		unix.Close(fd)
	}
	t.run()
	return 0
}

const traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACEFORK |
	unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC

// begin starts the starter and traces it, which no other thread of ours can do for this one.
func (t *tracer) begin() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	t.socket = fds[0]
	t.child, err = syscall.ForkExec("/proc/self/exe", []string{isolate.Name, starterRole}, &syscall.ProcAttr{
		Env:   []string{"GOMAXPROCS=1", "GOTRACEBACK=crash"},
		Files: []uintptr{0, 1, 2, uintptr(fds[1]), tracerLaunch},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	unix.Close(fds[1])
	unix.Close(tracerLaunch)
	if err != nil {
		return err
	}
	var tid int32
	if n, err := unix.Read(t.socket, (*[4]byte)(unsafe.Pointer(&tid))[:]); n != 4 {
		if err == nil {
			err = syscall.ECHILD // it has ended
		}
		return err
	}
	if err := ptrace(unix.PTRACE_SEIZE, int(tid), 0, traceOptions); err != nil {
		return err
	}
	t.tasks[int(tid)] = &task{starting: true, known: &listing{}}
	// From here on it stops at system calls.
	if err := ptrace(unix.PTRACE_INTERRUPT, int(tid), 0, 0); err != nil {
		return err
	}
	_, err = unix.Write(t.socket, []byte{1})
	return err
}

func ptrace(request, tid int, addr, data uintptr) error {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0); e != 0 {
		return e
	}
	return nil
}

// run waits for tasks until none is left.
func (t *tracer) run() {
	for {
		var ws unix.WaitStatus
		var ru unix.Rusage
		pid, err := unix.Wait4(-1, &ws, unix.WALL, &ru)
		switch {
		case err == unix.EINTR:
		case err != nil: // ECHILD: no descendants are left
			return
		case ws.Stopped():
			t.stopped(pid, uint32(ws))
		case ws.Exited() || ws.Signaled():
			delete(t.tasks, pid)
			if pid == t.child && !t.over {
				t.ended(ws, &ru)
			}
		}
	}
}

// ended reports the end of the command, and what it has looked up.
func (t *tracer) ended(ws unix.WaitStatus, ru *unix.Rusage) {
	rec := record{status: uint32(ws), pid: int32(t.child), maxRSS: ru.Maxrss,
		cpu: (ru.Utime.Sec+ru.Stime.Sec)*1e6 + ru.Utime.Usec + ru.Stime.Usec}
	if !t.begun {
		t.names.lack("the command was not executed")
		var failed record
		if n, _, _ := unix.Recvfrom(t.socket, failed.bytes(), unix.MSG_DONTWAIT); n == len(failed.bytes()) {
			rec, t.names.why = failed, ""
		}
	}
	unix.Close(t.socket)
	writeAll(tracerStatus, rec.bytes())
	t.names.write(func(b []byte) bool { return writeAll(tracerStatus, b) })
	unix.Close(tracerStatus)
	t.over, t.names = true, names{}
}

func writeAll(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && err != unix.EINTR {
			return false
		}
		b = b[max(n, 0):]
	}
	return true
}

// stopped handles a stop of a task and lets it go on.
func (t *tracer) stopped(tid int, status uint32) {
	p := t.tasks[tid]
	if p == nil { // its first stop may come before that of its parent
		p = &task{}
		t.inherit(tid, p)
		t.tasks[tid] = p
	}
	sig, event := status>>8&0xff, status>>16
	resume := unix.PTRACE_SYSCALL
	if t.over {
		resume = unix.PTRACE_CONT
	}
	switch {
	case event == unix.PTRACE_EVENT_STOP && sig != uint32(syscall.SIGTRAP): // it is to stay stopped
		resume, sig = unix.PTRACE_LISTEN, 0
	case event == unix.PTRACE_EVENT_EXEC:
		t.executed(tid)
		sig = 0
	case event != 0:
		sig = 0
	case sig == uint32(syscall.SIGTRAP)|0x80:
		if !t.over {
			t.syscall(tid, p)
		}
		sig = 0
	}
	_ = ptrace(resume, tid, 0, uintptr(sig)) // it may have been killed meanwhile
}

// executed handles an exec: the thread that has called it takes the ID of its process, and the
// others are gone.
func (t *tracer) executed(tid int) {
	var old uint
	if ptrace(unix.PTRACE_GETEVENTMSG, tid, 0, uintptr(unsafe.Pointer(&old))) == nil && int(old) != tid {
		if p := t.tasks[int(old)]; p != nil {
			t.tasks[tid] = p
			delete(t.tasks, int(old))
		}
	}
	if p := t.tasks[tid]; p != nil {
		p.known = &listing{}
	}
}

// A syscallInfo is the kernel's struct ptrace_syscall_info.
type syscallInfo struct {
	op   uint8
	_    [3]uint8
	arch uint32
	_    [2]uint64
	// At the entry: the number, and the arguments. At the exit: the result, and whether it is an error.
	data [8]uint64
}

// syscall handles the entry into a system call, or its exit.
func (t *tracer) syscall(tid int, p *task) {
	var info syscallInfo
	if err := ptrace(unix.PTRACE_GET_SYSCALL_INFO, tid, unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info))); err != nil {
		if err != unix.ESRCH { // not killed meanwhile
			t.names.lack("a kernel that does not describe system calls (Linux does since 5.3)")
		}
		return
	}
	switch info.op {
	case unix.PTRACE_SYSCALL_INFO_ENTRY:
		p.call, p.wanted, p.dir, p.why = nil, p.wanted[:0], "", ""
		t.enter(tid, p, info.arch, info.data[0], info.data[1:7])
	case unix.PTRACE_SYSCALL_INFO_EXIT:
		if p.call != nil || p.why != "" {
			t.leave(tid, p, int64(info.data[0]))
		}
		p.call = nil
	}
}

// enter looks at a system call before the kernel does.
func (t *tracer) enter(tid int, p *task, arch uint32, nr uint64, args []uint64) {
	switch {
	case arch != auditArch:
		p.why = "a program of another architecture"
		return
	case nr > lastCall:
		p.why = "an unknown system call"
		return
	}
	c := t.calls[nr]
	if c == nil || p.starting && !c.exec {
		return
	}
	p.call = c
	if c.why != nil {
		p.why = c.why(t, tid, args)
	}
	switch {
	case c.list:
		p.dir = t.link(tid, "/fd/"+strconv.Itoa(int(int32(args[0]))))
	case c.path >= 0:
		if l, ok := t.wants(tid, p, args); ok {
			p.wanted = append(p.wanted, l)
		}
	}
}

// leave looks at the result of a system call.
func (t *tracer) leave(tid int, p *task, result int64) {
	if result >= 0 && p.why != "" {
		t.names.lack(p.why)
	}
	if p.call == nil {
		return
	}
	if p.call.root && result >= 0 {
		t.rooted = true
	}
	if p.dir != "" && result >= 0 {
		t.list(p, p.dir)
	}
	for i := range p.wanted {
		t.looked(tid, p, &p.wanted[i], result)
	}
	if p.call.exec && result == 0 {
		p.starting, t.begun = false, true
	}
}

// link returns what a link below /proc/TID stands for, if that is a name in the sandbox.
func (t *tracer) link(tid int, name string) string {
	n, err := unix.Readlink("/proc/"+strconv.Itoa(tid)+name, t.buf[:])
	if err != nil || n == 0 || t.buf[0] != '/' {
		return ""
	}
	to := string(t.buf[:n])
	if len(to) > len(deleted) && to[len(to)-len(deleted):] == deleted {
		if _, err := os.Lstat(to); err != nil {
			return ""
		}
	}
	return to
}

const deleted = " (deleted)"
