package server

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/executor/isolate"
)

// Main is the whole program, when this process was started to be an executor or a spawner: then it does not return.
// Every program that may serve as its own executor calls it first of all.
func Main() {
	if len(os.Args) < 2 || os.Args[0] != isolate.Name {
		return
	}
	switch os.Args[1] {
	case "serve": // the channel is descriptor 3
		if len(os.Args) < 3 {
			os.Exit(2)
		}
		n, err := strconv.Atoi(os.Args[2])
		if err != nil || n < 0 || n > 32 {
			os.Exit(2)
		}
		var tasks []int
		for i := range n {
			unix.CloseOnExec(isolate.FirstTask + i)
			tasks = append(tasks, isolate.FirstTask+i)
		}
		unix.CloseOnExec(3)
		unix.SetNonblock(3, true)
		os.Exit(Serve(os.NewFile(3, "channel"), tasks))
	case "spawn": // the socket is descriptor 3
		runtime.LockOSThread()
		unix.CloseOnExec(3)
		os.Exit(isolate.Spawn(3))
	}
	os.Exit(2)
}
