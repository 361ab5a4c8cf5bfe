package server

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// addOld adds the system calls that newer architectures do not have.
func addOld(add func(c call, nrs ...int), plain, link call) {
	add(call{dir: -1, flags: 1, stay: unix.O_NOFOLLOW, opens: true}, unix.SYS_OPEN)
	add(call{dir: -1, flags: -1, creat: true}, unix.SYS_CREAT)
	add(call{dir: -1, flags: -1, never: true, creat: true}, unix.SYS_MKDIR, unix.SYS_MKNOD)
	add(plain, unix.SYS_STAT, unix.SYS_ACCESS, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_UTIME, unix.SYS_UTIMES,
		unix.SYS_USELIB)
	add(link, unix.SYS_LSTAT, unix.SYS_READLINK, unix.SYS_LCHOWN, unix.SYS_RENAME, unix.SYS_LINK)
	add(call{path: 1, flags: -1}, unix.SYS_FUTIMESAT)
	add(call{path: -1, list: true}, unix.SYS_GETDENTS)
}
