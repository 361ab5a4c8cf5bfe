package server

import (
	"syscall"
	"unsafe"
)

// The host asks an executor that does not respond for its stacks by SIGQUIT. The Go runtime prints
// them in its signal handler, without its scheduler. No process inside may end process 1 in this
// way, so our own handler runs first: it drops a signal whose sender has a PID here. The kernel
// reports PID 0 for senders outside of the PID namespace, and no process can forge that. PID 1 is
// the runtime itself, which passes the signal on from thread to thread.

// quit is the handler; quitPC returns its address.
func quit()
func quitPC() uintptr

// quitNext is the handler of the runtime.
var quitNext uintptr

// guardQuit installs quit before the runtime's handler.
func guardQuit() {
	var act struct { // struct sigaction of the kernel
		handler, flags, restorer uintptr
		mask                     uint64
	}
	_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGQUIT), 0, uintptr(unsafe.Pointer(&act)),
		8, 0, 0)
	if e != 0 || act.handler <= 1 { // SIG_DFL or SIG_IGN
		return
	}
	quitNext = act.handler
	act.handler = quitPC()
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGQUIT), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
}
