package server

import (
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/fileop"
	"github.com/evalrun/evalrun/internal/isolate"
)

// Container is the argument of the executor as process 1 of a container.
const Container = "container"

// Command is the command line of the executor as the first process of a sandbox. Its channel is
// descriptor 3.
var Command = []string{isolate.Name, "serve", "0"}

// filesRole is the argument of this program as a command that carries out one file operation.
const filesRole = "files"

// Main runs the executor or a spawner and does not return, if this process was started as one.
// Every program that may be its own executor calls it first.
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
	case tracerRole:
		os.Exit(trace())
	case starterRole:
		os.Exit(start())
	case filesRole:
		debug.SetGCPercent(400) // one operation rarely makes garbage worth a collection
		if err := fileop.Serve(os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	case "spawn": // the socket is descriptor 3
		runtime.LockOSThread()
		unix.CloseOnExec(3)
		os.Exit(isolate.Spawn(3))
	}
	os.Exit(2)
}

// guardSelf protects this process and its copies, the supervisors, from processes inside. Not being
// dumpable, it cannot be traced, and its memory and descriptors cannot be read. With a saved group
// of its own it also differs from processes that have all the same user IDs, where the kernel
// compares groups: it does so before a process may set another's limits, and a limit of CPU time
// would end process 1.
func guardSelf() {
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if os.Getpid() == 1 {
		syscall.Setresgid(-1, -1, ownGroup) // fails where only one group is mapped: there a filter forbids it
	}
}

const ownGroup = 65533

// Number of spare threads for the Go runtime.
const spare = 12

// spareThreads creates threads ahead. When commands have used up the sandbox's limit of processes,
// no thread can be created, which is fatal to the Go runtime; it uses an idle thread if there is
// one. (Where only commands are in the control group, this is not needed.)
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
