package server

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A call says where the arguments of a system call are that name a file. What only removes a name, or
// gives one to a file or a link (unlink, symlink, the target of link and rename), is not listed: it
// uses no file.
type call struct {
	path   int    // index of the argument; negative: it names none
	dir    int    // of the directory's descriptor that the name is relative to; negative: none
	flags  int    // of the flags; negative: none
	never  bool   // a link at the end of the name is not followed,
	stay   uint64 // nor with one of these flags,
	follow uint64 // nor without these
	list   bool   // reads the directory of the first argument
	exec   bool
	root   bool // changes the root
	how    bool // the flags are in a struct open_how
	opens  bool // the flags are those of open
	creat  bool // makes the file if there is none
	socket bool // the argument is the address of a socket
	// why returns why names may lack if the call succeeds; "": none does.
	why func(t *tracer, tid int, args []uint64) string
}

// lastCall is the highest number of a system call that is known here. Those above may name files.
const lastCall = unix.SYS_RSEQ_SLICE_YIELD

// newCalls returns the system calls by their numbers.
func newCalls() *[lastCall + 1]*call {
	var calls [lastCall + 1]*call
	add := func(c call, nrs ...int) {
		for _, nr := range nrs {
			calls[nr] = &c
		}
	}
	because := func(why string) func(*tracer, int, []uint64) string {
		return func(*tracer, int, []uint64) string { return why }
	}
	plain := call{dir: -1, flags: -1}
	link := call{dir: -1, flags: -1, never: true} // of the link itself
	at := call{path: 1, flags: -1}
	flagged := func(i int) call { return call{path: 1, flags: i, stay: unix.AT_SYMLINK_NOFOLLOW} }

	add(plain, unix.SYS_CHDIR, unix.SYS_TRUNCATE, unix.SYS_STATFS, unix.SYS_GETXATTR, unix.SYS_LISTXATTR,
		unix.SYS_SETXATTR, unix.SYS_REMOVEXATTR)
	add(link, unix.SYS_LGETXATTR, unix.SYS_LLISTXATTR, unix.SYS_LSETXATTR, unix.SYS_LREMOVEXATTR)
	add(at, unix.SYS_FACCESSAT, unix.SYS_FCHMODAT)
	add(call{path: 1, flags: -1, never: true}, unix.SYS_READLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2)
	add(call{path: 1, flags: -1, never: true, creat: true}, unix.SYS_MKDIRAT, unix.SYS_MKNODAT)
	add(flagged(2), unix.SYS_STATX, unix.SYS_GETXATTRAT, unix.SYS_SETXATTRAT, unix.SYS_LISTXATTRAT,
		unix.SYS_REMOVEXATTRAT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR)
	add(flagged(3), unix.SYS_NEWFSTATAT, unix.SYS_FACCESSAT2, unix.SYS_FCHMODAT2, unix.SYS_UTIMENSAT)
	add(flagged(4), unix.SYS_FCHOWNAT, unix.SYS_FILE_GETATTR, unix.SYS_FILE_SETATTR)
	add(call{path: 1, flags: 4, follow: unix.AT_SYMLINK_FOLLOW}, unix.SYS_LINKAT, unix.SYS_NAME_TO_HANDLE_AT)
	add(call{path: 1, flags: 2, stay: unix.O_NOFOLLOW, opens: true}, unix.SYS_OPENAT)
	add(call{path: 1, flags: 2, stay: unix.O_NOFOLLOW, opens: true, how: true}, unix.SYS_OPENAT2)
	add(call{path: 1, dir: -1, flags: 2, stay: unix.IN_DONT_FOLLOW}, unix.SYS_INOTIFY_ADD_WATCH)
	add(call{path: 4, dir: 3, flags: 1, stay: unix.FAN_MARK_DONT_FOLLOW}, unix.SYS_FANOTIFY_MARK)
	add(call{path: 1, dir: -1, flags: -1, socket: true}, unix.SYS_CONNECT)
	add(call{dir: -1, flags: -1, exec: true}, unix.SYS_EXECVE)
	add(call{path: 1, flags: 4, stay: unix.AT_SYMLINK_NOFOLLOW, exec: true}, unix.SYS_EXECVEAT)
	add(call{dir: -1, flags: -1, root: true}, unix.SYS_CHROOT)
	add(call{path: -1, list: true}, unix.SYS_GETDENTS64)

	add(call{path: -1, why: because("files opened through io_uring")}, unix.SYS_IO_URING_SETUP)
	add(call{path: -1, why: because("files opened by their handles")}, unix.SYS_OPEN_BY_HANDLE_AT)
	add(call{path: -1, why: because("another mount namespace"), root: true}, unix.SYS_SETNS, unix.SYS_PIVOT_ROOT)
	const nothingTraced = "processes that are not to be traced"
	newMounts := func(flags uint64) string {
		if flags&unix.CLONE_NEWNS != 0 {
			return "another mount namespace"
		}
		return ""
	}
	clone := func(flags uint64) string {
		if flags&unix.CLONE_UNTRACED != 0 {
			return nothingTraced
		}
		return newMounts(flags)
	}
	add(call{path: -1, why: func(_ *tracer, _ int, args []uint64) string { return newMounts(args[0]) }},
		unix.SYS_UNSHARE)
	add(call{path: -1, why: func(_ *tracer, _ int, args []uint64) string { return clone(args[0]) }}, unix.SYS_CLONE)
	add(call{path: -1, why: func(t *tracer, tid int, args []uint64) string { return clone(t.word(tid, args[0])) }},
		unix.SYS_CLONE3)
	// A task that is traced cannot be traced by another, so this fails where it would succeed.
	add(call{path: -1, why: func(t *tracer, _ int, args []uint64) string {
		switch args[0] {
		case unix.PTRACE_TRACEME, unix.PTRACE_ATTACH, unix.PTRACE_SEIZE:
			t.names.lack("a program that traces others")
		}
		return ""
	}}, unix.SYS_PTRACE)
	addOld(add, plain, link)
	return &calls
}

// name reads the name of a system call's file, which is a C string or in the address of a socket.
func (t *tracer) name(tid int, c *call, args []uint64) (s string, ok bool) {
	at := args[c.path]
	if !c.socket {
		return t.text(tid, at, len(t.buf))
	}
	size := int(min(args[2], unix.SizeofSockaddrUnix))
	if size < 3 || uint16(t.word(tid, at)) != unix.AF_UNIX {
		return "", true
	}
	b := t.buf[:size-2]
	ok = t.read(tid, at+2, b) == len(b)
	s, _, _ = strings.Cut(string(b), "\x00") // an abstract one begins with NUL
	return s, ok
}

// wants returns the name that a system call is about to look up.
func (t *tracer) wants(tid int, p *task, args []uint64) (l wanted, ok bool) {
	c := p.call
	name, ok := t.name(tid, c, args)
	if !ok && args[c.path] != 0 { // the kernel cannot read it either, and fails
		p.why = "a name that cannot be read"
	}
	if name == "" { // it has a descriptor instead, or fails
		return l, false
	}
	var flags uint64
	if c.flags >= 0 {
		flags = args[c.flags]
		if c.how {
			flags = t.word(tid, flags)
		}
	}
	l.follow = !c.never && flags&c.stay == 0 && flags&c.follow == c.follow
	if t.rooted {
		if l.root = t.link(tid, "/root"); l.root == "/" {
			l.root = ""
		}
	}
	switch {
	case c.how && t.word(tid, args[2]+16)&unix.RESOLVE_IN_ROOT != 0:
		if l.root = t.base(tid, int32(args[c.dir])); l.root == "" {
			return l, false
		}
		l.name = l.root + "/" + name
	case name[0] == '/':
		l.name = l.root + name
	default:
		dir := int32(unix.AT_FDCWD)
		if c.dir >= 0 {
			dir = int32(args[c.dir])
		}
		base := t.base(tid, dir)
		if base == "" {
			return l, false
		}
		l.name = base + "/" + name
	}
	if c.creat || c.opens && flags&unix.O_CREAT != 0 {
		l.fresh = !exists(t.resolve(tid, &l, l.name))
	}
	return l, true
}

// base returns the name of the directory to which names are relative.
func (t *tracer) base(tid int, dir int32) string {
	if dir == unix.AT_FDCWD {
		return t.link(tid, "/cwd")
	}
	return t.link(tid, "/fd/"+strconv.Itoa(int(dir)))
}
