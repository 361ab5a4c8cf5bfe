package journal

import (
	"os"
	"runtime"
	"syscall"
)

func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

func diskSpace(dir string) (free, total uint64, ok bool) {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0, 0, false
	}
	size := uint64(st.Bsize)
	if os.Geteuid() == 0 {
		return st.Bfree * size, st.Blocks * size, true
	}
	return st.Bavail * size, st.Blocks * size, true
}

func allocate(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if err == syscall.EOPNOTSUPP || err == syscall.ENOSYS {
		return fill(f, size)
	}
	return err
}

// background gives the calling goroutine its own thread with the lowest priority. The thread ends
// with the goroutine.
func background() {
	runtime.LockOSThread()
	const prioProcess, idle = 0, 3 << 13
	_ = syscall.Setpriority(prioProcess, syscall.Gettid(), 19)
	_, _, _ = syscall.Syscall(syscall.SYS_IOPRIO_SET, 1, 0, idle)
}
