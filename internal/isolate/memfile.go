package isolate

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MemoryFile returns an executable file in memory (memfd) with the content of a program. The file
// is sealed, so nobody can change it.
func MemoryFile(program []byte) (*os.File, error) {
	const mfdExec = 0x10 // Linux 6.3: executable unless vm.memfd_noexec forbids it entirely
	fd, err := unix.MemfdCreate(Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|mfdExec)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("making a file in memory for the executor: %w", err)
	}
	// A child opens it by its number between fork and exec, so the number must be higher than those
	// of the descriptors given to the child.
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 64)
	unix.Close(fd)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(high), Name)
	if _, err := f.Write(program); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing the executor: %w", err)
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("sealing the executor: %w", err)
	}
	return f, nil
}
