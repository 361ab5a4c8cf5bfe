package launch

import (
	"fmt"
	"syscall"
)

// leastFiles is the smallest usable limit on open files: a journal, its segments, tables, and a
// session with a sandbox. The Go runtime has already raised the soft limit to the hard limit.
const leastFiles = 256

// openFiles returns an error if the limit on open files is too low. Without this check, other
// operations would fail with misleading errors.
func openFiles() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur >= leastFiles {
		return nil
	}
	return fmt.Errorf("only %d files may be open at once, and a run needs at least %d; raise the limit: ulimit -n "+
		"%d, or LimitNOFILE of the service", l.Cur, leastFiles, 16*leastFiles)
}
