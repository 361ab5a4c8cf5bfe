package server

import (
	"errors"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/internal/isolate"
)

// prepare converts a request to the form of system calls.
func (sv *server) prepare(req *execproto.Exec) (*launch, error) {
	l := &launch{oom: true}
	env := map[string]int{}
	var list []string
	add := func(kv string) {
		k, _, ok := strings.Cut(kv, "=")
		if !ok {
			return
		}
		if i, ok := env[k]; ok {
			list[i] = kv
			return
		}
		env[k] = len(list)
		list = append(list, kv)
	}
	for _, kv := range sv.cfg.Env {
		add(kv)
	}
	user := req.User
	if user == "" {
		user = sv.cfg.User
	}
	if user != "" && user != "root" && user != "0" && user != "0:0" {
		if sv.cfg.OnlyUID {
			return nil, &execproto.Unsupported{What: "run as user " + user +
				": this machine maps only one user into the sandbox"}
		}
		a, err := lookup(user)
		if err != nil {
			return nil, err
		}
		l.setUser, l.uid, l.gid, l.groups = true, a.uid, a.gid, a.groups
		if _, ok := env["HOME"]; !ok || !sv.container {
			add("HOME=" + a.home)
		}
	} else if _, ok := env["HOME"]; !ok && sv.container { // as engines do
		if a, err := lookup("0"); err == nil {
			add("HOME=" + a.home)
		}
	}
	for _, kv := range req.Env {
		add(kv)
	}
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if i, ok := env["PATH"]; ok {
		path = list[i][len("PATH="):]
	}
	var err error
	args, programs := req.Args, []string{"/proc/self/exe"}
	switch {
	case !req.Files:
		programs = sv.candidates(args[0], path)
	default:
		args = []string{isolate.Name, filesRole}
	}
	if l.argv, err = cStrings(args); err != nil {
		return nil, err
	}
	if l.env, err = cStrings(list); err != nil {
		return nil, err
	}
	if l.argv0, err = cStrings(programs); err != nil {
		return nil, err
	}
	l.argv0 = l.argv0[:len(l.argv0)-1] // without the nil at its end
	dir := req.Dir
	if dir == "" {
		dir = sv.cfg.Dir
	}
	if dir == "" || req.Files { // its paths are absolute, and the directory may be gone
		dir = "/"
	}
	if l.dir, err = syscall.BytePtrFromString(sv.path(dir)); err != nil {
		return nil, errors.New("working directory with a NUL byte")
	}
	for k, v := range sv.cfg.Limits {
		if res, ok := resources[k]; ok {
			l.rlimits = append(l.rlimits, rlimit{res, unix.Rlimit{Cur: v, Max: v}})
		}
	}
	return l, nil
}

var resources = map[string]uintptr{
	"nproc": unix.RLIMIT_NPROC, "as": unix.RLIMIT_AS, "nofile": unix.RLIMIT_NOFILE,
	"msgqueue": unix.RLIMIT_MSGQUEUE, "sigpending": unix.RLIMIT_SIGPENDING,
	"core": unix.RLIMIT_CORE, "fsize": unix.RLIMIT_FSIZE, "data": unix.RLIMIT_DATA,
}

// candidates returns the files that a program's name may mean, in order.
func (sv *server) candidates(name, pathList string) []string {
	if strings.Contains(name, "/") {
		if sv.cfg.Root != "" && path.IsAbs(name) {
			// Without a root of its own, a program in the sandbox's directory is found by its name
			// inside.
			return []string{sv.path(name), name}
		}
		return []string{name}
	}
	var out []string
	for dir := range strings.SplitSeq(pathList, ":") {
		if dir == "" {
			dir = "."
		}
		out = append(out, dir+"/"+name)
	}
	return out
}

func cStrings(ss []string) ([]*byte, error) {
	n := 0
	for _, s := range ss {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, errors.New("a NUL byte in the command's arguments or environment")
		}
		n += len(s) + 1
	}
	buf := make([]byte, 0, n)
	ps := make([]*byte, 0, len(ss)+1)
	for _, s := range ss {
		at := len(buf)
		buf = append(append(buf, s...), 0)
		ps = append(ps, &buf[at])
	}
	return append(ps, nil), nil
}

// newPipe makes a pipe whose descriptors are above 3; see fork.
func newPipe() (p [2]int, err error) {
	var q [2]int
	if err := unix.Pipe2(q[:], unix.O_CLOEXEC); err != nil {
		return p, err
	}
	for i := range q {
		if p[i], err = highFD(q[i], nil); err != nil {
			return p, err
		}
	}
	return p, nil
}

func highFD(fd int, err error) (int, error) {
	if err != nil || fd > 3 {
		return fd, err
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 4)
	unix.Close(fd)
	return high, err
}

func clean(p string) string { return path.Clean("/" + p) }
