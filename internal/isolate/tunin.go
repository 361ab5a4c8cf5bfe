package isolate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// OpenTunIn creates a network interface like OpenTun, but in the network namespace of another
// process. It is for root on this machine. It returns an error if the process does not have its own
// network namespace. group, if not "", must be part of the name of the process's control group,
// which rejects a PID that now belongs to another process.
func OpenTunIn(pid int, group string) (*os.File, error) {
	there, err := netOf(pid, group)
	if err != nil {
		return nil, fmt.Errorf("looking at the network of process %d: %w", pid, err)
	}
	defer unix.Close(there)
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("looking at our own network: %w", err)
	}
	defer unix.Close(home)
	var a, b unix.Stat_t
	err = errors.Join(unix.Fstat(there, &a), unix.Fstat(home, &b))
	if err == nil && a.Ino == b.Ino && a.Dev == b.Dev {
		err = errors.New("it has no network of its own")
	}
	if err == nil {
		err = unix.Setns(there, unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("entering the network of process %d: %w", pid, err)
	}
	f, err := OpenTun()
	if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
		// The thread stays locked and ends with this goroutine, because nothing else may run on it.
		if f != nil {
			f.Close()
		}
		return nil, fmt.Errorf("coming back from the network of process %d: %w", pid, back)
	}
	runtime.UnlockOSThread()
	return f, err
}

// netOf opens a process's network namespace. All lookups are relative to one open folder, which
// stays that process's even if its PID is reused.
func netOf(pid int, group string) (int, error) {
	dir, err := unix.Open(fmt.Sprintf("/proc/%d", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	if group != "" {
		fd, err := unix.Openat(dir, "cgroup", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(fd)
		text := make([]byte, 16<<10)
		n, err := unix.Read(fd, text)
		if err != nil {
			return -1, err
		}
		if !bytes.Contains(text[:n], []byte(group)) {
			return -1, errors.New("it is another process, seen from here")
		}
	}
	return unix.Openat(dir, "ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}
