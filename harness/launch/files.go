package launch

import (
	"fmt"
	"syscall"
)

// leastFiles is how many files must be allowed to be open at once: a journal, its segments, tables,
// and a session with a machine. Go itself has raised the soft limit to the hard one.
const leastFiles = 256

// openFiles refuses a limit under which nothing works: what fails then says anything but that.
func openFiles() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur >= leastFiles {
		return nil
	}
	return fmt.Errorf("only %d files may be open at once, and a run needs at least %d; raise the limit: ulimit -n "+
		"%d, or LimitNOFILE of the service", l.Cur, leastFiles, 16*leastFiles)
}
