package isolate

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var deniedArch = []uint32{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_NFSSERVCTL}
