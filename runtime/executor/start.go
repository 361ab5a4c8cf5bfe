package executor

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/executor/embed"
	"github.com/evalrun/evalrun/runtime/executor/internal/server"
)

// Command is the command line of the first process of a sandbox: the executor's program, under this
// name, with these arguments, and one end of a [Channel] as descriptor 3. The executor ends with
// its channel, and so with the driver's process. See also [Container].
var Command = server.Command

// Program returns the executor's program for an architecture (a GOARCH). It is static: the slim
// build if there is one, else, for the architecture of this process, [Self].
func Program(arch string) ([]byte, error) {
	switch b := embed.Init(arch); {
	case b != nil:
		return b, nil
	case arch == runtime.GOARCH:
		return Self()
	}
	return nil, fmt.Errorf("this evalrun has no executor for linux/%s: build it with make", arch)
}

// Self returns the program of this process, whose main has to begin with [Main] (cli.Run does).
func Self() ([]byte, error) {
	if !isolate.Ready {
		return nil, errors.New("this program cannot start itself as the executor of a sandbox: call " +
			"launch.Init (or cli.Run, which calls it) first in main")
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("reading our own program: %w", err)
	}
	return b, nil
}

// Channel returns the two ends of a channel: ours for [New], theirs for the executor.
func Channel() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "executor"), os.NewFile(uintptr(fds[1]), "executor"), nil
}
