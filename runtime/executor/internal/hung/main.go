// Command hung is an executor for tests that stops responding: at its start, or when a file is
// created. The only thread that may run Go code then loops forever with all signals blocked.
package main

import (
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/evalrun/evalrun/runtime/executor/internal/server"
)

// file makes the executor hang once it exists. The package sandboxtest creates it.
const file = "/tmp/evalrun-hang"

// start is set by the linker. If it is not empty, the executor hangs at its start.
var start string

func main() {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == server.Container) {
		runtime.GOMAXPROCS(1)
		if start != "" {
			busy()
		}
		go func() {
			for ; ; time.Sleep(time.Millisecond) {
				if _, err := os.Lstat(file); err == nil {
					busy()
				}
			}
		}()
	}
	server.Main()
}

func busy() {
	all := ^uint64(0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 2 /* SIG_SETMASK */, uintptr(unsafe.Pointer(&all)), 0, 8, 0, 0)
	for {
	}
}
