package attach

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// credentials asks the kernel for the other end of a unix socket.
func credentials(raw syscall.RawConn) (uid, pid int, err error) {
	var cred *syscall.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, 0, err
	}
	if cerr != nil {
		return 0, 0, cerr
	}
	return int(cred.Uid), int(cred.Pid), nil
}

// parent returns the parent of a process; 0: it has none here, -1: that is not known.
func parent(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return -1
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name may contain anything
	if len(f) < 2 {
		return -1
	}
	n, _ := strconv.Atoi(string(f[1]))
	return n
}

// below reports whether a process descends from another one, or whether that cannot be known.
func below(pid, ancestor int) bool {
	for range 1000 {
		switch pid = parent(pid); pid {
		case ancestor, -1:
			return true
		case 0, 1:
			return false
		}
	}
	return true
}
