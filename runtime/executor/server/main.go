package server

import (
	"os"
	"path"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
)

// Container is the argument of the executor as process 1 of a container.
const Container = "container"

// Command is the executor as the first process of a machine, its channel being descriptor 3.
var Command = []string{isolate.Name, "serve", "0"}

// Main is the whole program, when this process was started to be an executor or a spawner: then it
// does not return. Every program that may serve as its own executor calls it first of all.
func Main() {
	isolate.Ready = true
	if len(os.Args) < 2 || path.Base(os.Args[0]) != isolate.Name {
		return
	}
	switch os.Args[1] {
	case Container: // the channel is our standard input and output
		if os.Getpid() != 1 {
			break
		}
		c, err := streams()
		if err != nil {
			os.Stderr.WriteString("evalrun-init: taking the container's streams: " + err.Error() + "\n")
			os.Exit(2)
		}
		os.Exit(serve(c, true, nil))
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
		ch := os.NewFile(3, "channel")
		os.Exit(serve(&channel{in: ch, out: ch}, false, tasks))
	case isolate.BrowserCommand: // the socket is descriptor 5, after the two of the browser
		os.Exit(isolate.StartBrowser(5, os.Args[2:]))
	case "spawn": // the socket is descriptor 3
		runtime.LockOSThread()
		unix.CloseOnExec(3)
		os.Exit(isolate.Spawn(3))
	}
	os.Exit(2)
}

// guardSelf keeps what is inside from reaching into this process and its copies, the supervisors:
// from reading their memory and what they have open, and from tracing them (that is what being
// dumpable means to the kernel). A saved group unlike the others makes them strangers also to those
// who have all the same users, as far as the kernel asks for groups: it does so before one process
// may set another's limits, and a limit on processor time would be the end of process 1.
func guardSelf() {
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if os.Getpid() == 1 {
		syscall.Setresgid(-1, -1, ownGroup) // fails where only one group is mapped: there a filter forbids it
	}
}

const ownGroup = 65533

// Spare threads for the Go runtime.
const spare = 12

// spareThreads makes threads ahead. Where commands have filled the machine's limit of processes no
// other can be made, and to the runtime that is fatal; it takes one that has nothing to do before
// it makes another. (Where commands alone are in a control group, nothing of this is needed.)
func spareThreads() {
	var made, over sync.WaitGroup
	made.Add(spare)
	over.Add(1)
	for range spare {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			made.Done()
			over.Wait()
		}()
	}
	made.Wait()
	over.Done()
}
