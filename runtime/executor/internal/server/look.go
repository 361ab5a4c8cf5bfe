package server

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// What a machine's files were is remembered here, in the memory of process 1, where nothing inside
// can reach it. What is kept of a file includes the time of its last change of any kind (ctime),
// which no program can set: whoever replaces a file, or puts an old one in its place, shows. Of a
// folder only its kind and owner count, for its times change with its entries.

// maxMarked bounds what is remembered, and what is looked through to compare.
const maxMarked = 100_000

// A stamp is what is remembered of one file.
type stamp struct {
	mode, uid    uint32
	size         int64
	mtime, ctime int64
}

func stampOf(s *unix.Stat_t) stamp {
	st := stamp{mode: s.Mode, uid: s.Uid}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		st.size, st.mtime, st.ctime = s.Size, s.Mtim.Nano(), s.Ctim.Nano()
	}
	return st
}

// marks is what was remembered under one name.
type marks struct {
	watches []execproto.Watch
	path    []string // what "$PATH" stood for
	files   map[string]stamp
}

// added says how a new file is told.
func (m *marks) added(name string) byte {
	dir, base := path.Split(name)
	if slices.Contains(m.path, clean(dir)) {
		for _, d := range m.path {
			if _, known := m.files[d+"/"+base]; known {
				return execproto.Shadows
			}
		}
	}
	return execproto.Added
}

// marked is all that was remembered. There is one machine to a process.
var marked struct {
	sync.Mutex
	sets map[string]*marks
}

// maxSets bounds the names.
const maxSets = 16

func init() {
	answer := func(f func(sv *server, st *execproto.Stream, d *execproto.Dec,
		body []byte) (execproto.Enc, error)) func(*server, *execproto.Stream, []byte) {
		return func(sv *server, st *execproto.Stream, body []byte) {
			go sv.answer(st, func() (execproto.Enc, error) { return f(sv, st, execproto.NewDec(body), body) })
		}
	}
	own[execproto.KindMark] = answer(func(sv *server, st *execproto.Stream, _ *execproto.Dec,
		body []byte) (execproto.Enc, error) {
		return execproto.OK(), sv.mark(st, body)
	})
	own[execproto.KindChanges] = answer(
		func(sv *server, st *execproto.Stream, d *execproto.Dec, _ []byte) (execproto.Enc, error) {
			return sv.changes(st, d.String())
		})
	own[execproto.KindLinks] = answer(func(sv *server, _ *execproto.Stream, d *execproto.Dec,
		_ []byte) (execproto.Enc, error) {
		e := execproto.OK()
		e.Strings(sv.links(clean(d.String()), d.Strings()))
		return e, nil
	})
	own[execproto.KindVigil] = answer(func(sv *server, _ *execproto.Stream, d *execproto.Dec,
		_ []byte) (execproto.Enc, error) {
		return sv.vigil(d.String())
	})
	own[execproto.KindClear] = answer(func(sv *server, _ *execproto.Stream, d *execproto.Dec,
		_ []byte) (execproto.Enc, error) {
		return sv.clearDirs(d.String(), d.Strings())
	})
	own[execproto.KindRemove] = answer(func(sv *server, _ *execproto.Stream, d *execproto.Dec,
		_ []byte) (execproto.Enc, error) {
		return execproto.OK(), sv.removeFiles(d.Strings())
	})
}

// mark remembers what the watches name.
func (sv *server) mark(st *execproto.Stream, body []byte) error {
	set, add, ws, err := execproto.DecodeWatches(body)
	if err != nil {
		return err
	}
	var paths []string
	var all []execproto.Watch
	for _, w := range ws {
		if w.Path != "$PATH" {
			all = append(all, w)
			continue
		}
		for _, p := range sv.search() {
			paths = append(paths, p)
			all = append(all, execproto.Watch{Path: p, Depth: w.Depth})
		}
	}
	marked.Lock()
	defer marked.Unlock()
	m := marked.sets[set]
	if m == nil || !add {
		if m == nil && len(marked.sets) == maxSets {
			return errors.New("too many sets of marks")
		}
		m = &marks{files: map[string]stamp{}}
		if marked.sets == nil {
			marked.sets = map[string]*marks{}
		}
		marked.sets[set] = m
	}
	m.watches = append(m.watches, all...)
	m.path = append(m.path, paths...)
	l := looker{sv: sv, left: maxMarked - len(m.files), known: func(string) bool { return true },
		see: func(name string, s *unix.Stat_t) { m.files[name] = stampOf(s) }}
	for _, w := range all {
		l.watch(w)
	}
	var e execproto.Enc
	e.Strings(paths)
	_, err = st.Write(e)
	return err
}

// search is where commands are looked for.
func (sv *server) search() (dirs []string) {
	list := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, v := range sv.cfg.Env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			list = p
		}
	}
	for _, d := range strings.Split(list, ":") {
		if !path.IsAbs(d) {
			continue
		}
		d = clean(d)
		if real, err := filepath.EvalSymlinks(sv.path(d)); err == nil {
			d = sv.name(real)
		}
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// name is how the host calls what lies at p in our own view.
func (sv *server) name(p string) string { return clean(strings.TrimPrefix(p, sv.cfg.Root)) }

// changes tells what is no longer as it was marked.
func (sv *server) changes(st *execproto.Stream, set string) (execproto.Enc, error) {
	marked.Lock()
	defer marked.Unlock()
	m := marked.sets[set]
	if m == nil {
		return nil, errors.New("nothing was marked")
	}
	const most = 10_000
	var frame execproto.Enc
	var sent int
	var err error
	send := func(c execproto.Change) {
		if sent++; sent > most || err != nil {
			return
		}
		c.Encode(&frame)
		if len(frame) > execproto.MaxData/2 {
			_, err = st.Write(frame)
			frame = frame[:0]
		}
	}
	seen := make(map[string]bool, len(m.files))
	l := looker{sv: sv, left: maxMarked, known: func(name string) bool { _, known := m.files[name]; return known }}
	l.see = func(name string, s *unix.Stat_t) {
		if seen[name] {
			return
		}
		seen[name] = true
		old, known := m.files[name]
		now := stampOf(s)
		switch {
		case !known:
			send(change(name, m.added(name), s))
		case old != now:
			send(change(name, execproto.Altered, s))
		}
	}
	for _, w := range m.watches {
		l.watch(w)
	}
	for name := range m.files {
		if !seen[name] && l.left > 0 { // cut short, we do not know
			send(execproto.Change{Path: name, What: execproto.Gone})
		}
	}
	if err == nil && len(frame) > 0 {
		_, err = st.Write(frame)
	}
	if err != nil {
		return nil, err
	}
	e := execproto.OK()
	e.Bool(sent > most || l.left <= 0)
	return e, nil
}

func change(name string, what byte, s *unix.Stat_t) execproto.Change {
	return execproto.Change{Path: name, What: what, Mode: s.Mode, UID: s.Uid, Links: uint32(s.Nlink), Size: s.Size}
}

// links finds the symbolic links below root that lead below one of the folders into, by what is
// written in them; at most some.
func (sv *server) links(root string, into []string) (found []string) {
	l := looker{sv: sv, left: maxMarked}
	l.see = func(name string, s *unix.Stat_t) {
		if s.Mode&unix.S_IFMT != unix.S_IFLNK || len(found) >= 20 {
			return
		}
		to, err := os.Readlink(sv.path(name))
		if err != nil {
			return
		}
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(name), to)
		}
		for _, d := range into {
			if to = clean(to); len(name) < 1000 && (to == d || strings.HasPrefix(to, d+"/")) {
				found = append(found, name)
				return
			}
		}
	}
	if root != "/" {
		l.enter(root, -1)
		return found
	}
	// A machine whose working directory is its root: what the kernel shows, and what only packages
	// write to, is left aside.
	l.enter(root, 1)
	entries, err := os.ReadDir(sv.path(root))
	if err != nil {
		return found
	}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(system, e.Name()) {
			l.enter("/"+e.Name(), -1)
		}
	}
	return found
}

// system are folders of the root in which nobody works.
var system = []string{"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr",
	"var"}

// A looker walks watches. It reports names as the host says them.
type looker struct {
	sv       *server
	left     int
	see      func(name string, s *unix.Stat_t)
	known    func(name string) bool // whether it was there before
	python   bool                   // see execproto.Watch, also of the next one
	packages map[string]bool
}

// aside are parts of Python that nothing imports but its own tests and tools.
var aside = []string{"test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "pydoc_data"}

// into reports whether the folder n in dir is entered.
func (l *looker) into(dir, n, full string) bool {
	if !l.python {
		return true
	}
	switch path.Base(dir) {
	case "site-packages", "dist-packages":
		// What describes a package matters when it is new.
		return l.packages[n] || n == "__pycache__" || strings.HasSuffix(n, "-info") && !l.known(full)
	}
	return !slices.Contains(aside, n)
}

func (l *looker) watch(w execproto.Watch) {
	l.python, l.packages = w.Python, make(map[string]bool, len(w.Packages))
	for _, n := range w.Packages {
		l.packages[n] = true
	}
	names := []string{clean(w.Path)}
	if strings.ContainsAny(w.Path, "*?[") {
		found, _ := filepath.Glob(l.sv.path(w.Path))
		names = names[:0]
		for _, f := range found {
			names = append(names, l.sv.name(f))
		}
	}
	for _, name := range names {
		// One name for what has several, as /lib/x and /usr/lib/x where the first is a link.
		dir, base := path.Split(name)
		if real, err := filepath.EvalSymlinks(l.sv.path(dir)); err == nil {
			name = path.Join(l.sv.name(real), base)
		}
		l.enter(name, w.Depth)
	}
}

// enter looks at one name, which may be a link to a folder; below it links are not followed.
func (l *looker) enter(name string, depth int) {
	p := l.sv.path(name)
	var s unix.Stat_t
	if l.left <= 0 || unix.Lstat(p, &s) != nil {
		return
	}
	l.left--
	l.see(name, &s)
	if depth == 0 {
		return
	}
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		l.walk(fd, name, depth)
	}
}

// walk looks at the entries of a folder; it closes fd.
func (l *looker) walk(fd int, name string, depth int) {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for l.left > 0 {
		names, err := f.Readdirnames(1000)
		for _, n := range names {
			var s unix.Stat_t
			if l.left <= 0 || unix.Fstatat(fd, n, &s, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			l.left--
			full := name + "/" + n
			if name == "/" {
				full = "/" + n
			}
			l.see(full, &s)
			if s.Mode&unix.S_IFMT == unix.S_IFDIR && (depth > 1 || depth < 0 && depth > -200) && l.into(name, n, full) {
				if sub, err := unix.Openat(fd, n, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC,
					0); err == nil {
					l.walk(sub, full, depth-1)
				}
			}
		}
		if err != nil || len(names) == 0 {
			return
		}
	}
}
