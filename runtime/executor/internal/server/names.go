package server

import (
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// Names are the names that were looked up, with what happened to them.
type names struct {
	all   map[string]uint8
	bytes int
	why   string // why names lack: the first reason
}

func (n *names) lack(why string) {
	if n.why == "" {
		n.why = why
	}
}

// add adds a name, unless it belongs to the kernel, and reports whether it is news.
func (n *names) add(name string, what uint8) bool {
	if kernels(name) {
		return false
	}
	old, known := n.all[name]
	if old&what == what {
		return false
	}
	if !known {
		if len(n.all) == execproto.MaxLookups || n.bytes+len(name) > execproto.MaxLookupBytes {
			n.lack("too many names")
			return false
		}
		n.bytes += len(name)
	}
	if n.all == nil {
		n.all = map[string]uint8{}
	}
	n.all[name] = old | what
	return true
}

// kernels reports whether a name is below a directory of the kernel.
func kernels(name string) bool {
	return strings.HasPrefix(name, "/proc/") || strings.HasPrefix(name, "/sys/") || strings.HasPrefix(name, "/dev/")
}

// write writes all names as the host expects them, until put fails.
func (n *names) write(put func([]byte) bool) {
	var e execproto.Enc
	for name, what := range n.all {
		l := execproto.Lookup{Name: name, What: uint64(what)}
		l.Encode(&e)
		if len(e) > chunk {
			if !put(e) {
				return
			}
			e = e[:0]
		}
	}
	end := execproto.Lookup{Name: n.why}
	end.Encode(&e)
	put(e)
}

// A wanted name is one that a system call is about to look up.
type wanted struct {
	name   string // absolute, not cleaned
	root   string // of the process, if it is not that of the sandbox
	follow bool   // a link at its end
	fresh  bool   // nothing stands there yet, and the system call may change that
}

// clean returns the name without . and .. (which lead out of no root), and its links as they are.
func (l *wanted) clean() string {
	if rest, ok := strings.CutPrefix(l.name, l.root); ok && l.root != "" {
		return path.Join(l.root, path.Clean("/"+rest))
	}
	return path.Clean(l.name)
}

// looked records what the kernel has found.
func (t *tracer) looked(tid int, p *task, l *wanted, result int64) {
	c := p.call
	what := uint8(execproto.Found)
	switch unix.Errno(-result) {
	case unix.ENOENT, unix.ENOTDIR:
		what = execproto.Missing
	}
	switch {
	case result >= 0 && l.fresh:
		what |= execproto.Missing
	case result >= 0 && c.exec:
		what |= execproto.Executed
	case result < 0 && (what == execproto.Found || c.exec || unix.Errno(-result) == unix.ENOTDIR):
		// Another error says nothing about the name, and these also have other reasons: a program
		// whose interpreter is missing, a file where a directory is expected.
		if what = execproto.Missing; exists(t.resolve(tid, l, l.name)) {
			what = execproto.Found
		}
	}
	name := l.clean()
	if !t.names.add(name, what) && !kernels(name) && !c.exec && what&execproto.Found == 0 {
		return
	}
	real := t.resolve(tid, l, l.name)
	t.names.add(real, what)
	if what&execproto.Found != 0 && !l.fresh {
		t.use(p, real)
	}
	if c.exec && what&execproto.Found != 0 {
		t.interpreters(tid, l, real, what&^execproto.Missing)
	}
	if c.exec && result >= 0 { // what the kernel has chosen by itself (binfmt_misc)
		if name := t.link(tid, "/exe"); name != "" {
			t.names.add(name, execproto.Found|execproto.Executed)
		}
	}
}

// resolve returns the name of the same file without links, as the process finds them. A part that
// does not exist stays as it is.
func (t *tracer) resolve(tid int, l *wanted, name string) string {
	root := l.root
	rest, ok := strings.CutPrefix(name, root)
	if !ok {
		root, rest = "", name
	}
	at := root
	for links := 0; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		switch part {
		case "", ".":
			continue
		case "..":
			if at != root {
				at = at[:strings.LastIndexByte(at, '/')]
			}
			continue
		}
		at += "/" + part
		if rest == "" && !l.follow {
			break
		}
		if at == "/proc/self" || at == "/proc/thread-self" {
			at = "/proc/" + strconv.Itoa(tid)
			continue
		}
		n, err := unix.Readlink(at, t.buf[:])
		if err != nil || n == 0 {
			continue
		}
		if links++; links > 40 {
			return path.Clean(at + "/" + rest)
		}
		to := string(t.buf[:n])
		if to[0] == '/' {
			at = root
		} else {
			at = at[:strings.LastIndexByte(at, '/')]
		}
		rest = to + "/" + rest
		if strings.HasSuffix(rest, "/") && !strings.HasSuffix(name, "/") {
			rest = rest[:len(rest)-1]
		}
	}
	if at == "" {
		return "/"
	}
	return at
}

func exists(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(name, &st) == nil
}

// interpreters records the programs that the kernel itself loads for a program: the interpreters of
// scripts, and the loader of shared libraries.
func (t *tracer) interpreters(tid int, l *wanted, program string, what uint8) {
	for range 6 {
		name := interpreter(program)
		if name == "" {
			return
		}
		next := wanted{name: l.root + name, root: l.root, follow: true}
		if name[0] != '/' {
			base := t.base(tid, unix.AT_FDCWD)
			if base == "" {
				return
			}
			next.name = base + "/" + name
		}
		program = t.resolve(tid, &next, next.name)
		is := what
		if !exists(program) {
			is = execproto.Missing
		}
		t.names.add(next.clean(), is)
		t.names.add(program, is)
	}
}

// interpreter returns the name of the program that the kernel loads for this one.
func interpreter(program string) string {
	fd, err := unix.Open(program, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	f := os.NewFile(uintptr(fd), program)
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	head := make([]byte, 256)
	n, _ := f.ReadAt(head, 0)
	head = head[:n]
	if line, ok := strings.CutPrefix(string(head), "#!"); ok {
		line, _, _ = strings.Cut(line, "\n")
		line, _, _ = strings.Cut(strings.Trim(line, " \t"), " ")
		line, _, _ = strings.Cut(line, "\t")
		return line
	}
	return loader(f)
}
