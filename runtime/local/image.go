package local

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
)

// Root inside is not root outside, so the files of an unpacked image that belong to root would
// belong to an unknown user inside. An ID-mapped mount changes the owners. Only root outside can
// create one, so it is created here and passed to the sandbox.

// idMappedMount opens a detached mount of dir in which the owners 0 … Count-1 are mapped to those
// of a sandbox.
func idMappedMount(dir string, base int) (*os.File, error) {
	ns, err := mappedNamespace(base)
	if err != nil {
		return nil, err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("opening the image: %w", err)
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(ns.Fd()),
	})
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("shifting the image's owners (its file system has to allow that): %w", err)
	}
	return os.NewFile(uintptr(fd), "image"), nil
}

// mapped caches empty user namespaces with the mapping of a sandbox, by their first outer user.
// Ranges are reused, so it has at most one for each sandbox that was open at the same time.
var mapped = struct {
	sync.Mutex
	files map[int]*os.File
}{files: map[int]*os.File{}}

func mappedNamespace(base int) (*os.File, error) {
	mapped.Lock()
	defer mapped.Unlock()
	if f := mapped.files[base]; f != nil {
		return f, nil
	}
	f, err := newMapped(base)
	if err == nil {
		mapped.files[base] = f
	}
	return f, err
}

func newMapped(base int) (*os.File, error) {
	bin, err := initBinary()
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "")
	m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: Count}}
	cmd := &exec.Cmd{
		Path: fmt.Sprintf("/proc/self/fd/%d", bin.Fd()), Args: []string{isolate.Name, "serve", "0"},
		ExtraFiles: []*os.File{theirs}, Dir: "/",
		Env:         []string{"GOMAXPROCS=1"},
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: m, GidMappings: m},
	}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		unix.Close(fds[0])
		return nil, fmt.Errorf("making a user namespace: %w", err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	unix.Close(fds[0]) // ends the child
	cmd.Wait()
	return f, err
}
