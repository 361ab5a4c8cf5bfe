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

// Snapshots of the sandbox's files are kept in the memory of process 1, which no process inside can
// reach. They include the time of a file's last change of any kind (ctime), which no program can
// set, so a file that was replaced or restored is detected. Of a directory only type and owner
// count, since its times change with its entries.

// maxFiles limits the files in a snapshot, and the files visited to compare one.
const maxFiles = 100_000

// A fileState is the recorded state of one file.
type fileState struct {
	mode, uid    uint32
	size         int64
	mtime, ctime int64
}

func fileStateOf(s *unix.Stat_t) fileState {
	st := fileState{mode: s.Mode, uid: s.Uid}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		st.size, st.mtime, st.ctime = s.Size, s.Mtim.Nano(), s.Ctim.Nano()
	}
	return st
}

// snapshot is one snapshot.
type snapshot struct {
	watches []execproto.Watch
	path    []string // the directories of $PATH
	files   map[string]fileState
}

// added returns the kind of change that a new file is.
func (m *snapshot) added(name string) byte {
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

// snapshots holds all snapshots. There is one sandbox in a process.
var snapshots struct {
	sync.Mutex
	sets map[string]*snapshot
}

// maxSnapshots limits the number of snapshots.
const maxSnapshots = 16

func init() {
	answer := func(f func(sv *server, st *execproto.Stream, d *execproto.Dec,
		body []byte) (execproto.Enc, error)) func(*server, *execproto.Stream, []byte) {
		return func(sv *server, st *execproto.Stream, body []byte) {
			go sv.answer(st, func() (execproto.Enc, error) { return f(sv, st, execproto.NewDec(body), body) })
		}
	}
	handlers[execproto.KindSnapshot] = answer(func(sv *server, st *execproto.Stream, _ *execproto.Dec,
		body []byte) (execproto.Enc, error) {
		return execproto.OK(), sv.snapshot(st, body)
	})
	handlers[execproto.KindChanges] = answer(
		func(sv *server, st *execproto.Stream, d *execproto.Dec, _ []byte) (execproto.Enc, error) {
			return sv.changes(st, d.String())
		})
	handlers[execproto.KindLinks] = answer(func(sv *server, _ *execproto.Stream, d *execproto.Dec,
		_ []byte) (execproto.Enc, error) {
		e := execproto.OK()
		e.Strings(sv.links(clean(d.String()), d.Strings()))
		return e, nil
	})
	handlers[execproto.KindDirEvents] = answer(func(sv *server, _ *execproto.Stream, d *execproto.Dec,
		_ []byte) (execproto.Enc, error) {
		return sv.watchDir(d.String())
	})
	handlers[execproto.KindClear] = answer(func(sv *server, _ *execproto.Stream, d *execproto.Dec,
		_ []byte) (execproto.Enc, error) {
		return sv.clearDirs(d.String(), d.Strings())
	})
	handlers[execproto.KindRemove] = answer(func(sv *server, _ *execproto.Stream, d *execproto.Dec,
		_ []byte) (execproto.Enc, error) {
		return execproto.OK(), sv.removeFiles(d.Strings())
	})
}

// snapshot takes a snapshot of the watched files.
func (sv *server) snapshot(st *execproto.Stream, body []byte) error {
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
		for _, p := range sv.pathDirs() {
			paths = append(paths, p)
			all = append(all, execproto.Watch{Path: p, Depth: w.Depth})
		}
	}
	snapshots.Lock()
	defer snapshots.Unlock()
	m := snapshots.sets[set]
	if m == nil || !add {
		if m == nil && len(snapshots.sets) == maxSnapshots {
			return errors.New("too many sets of marks")
		}
		m = &snapshot{files: map[string]fileState{}}
		if snapshots.sets == nil {
			snapshots.sets = map[string]*snapshot{}
		}
		snapshots.sets[set] = m
	}
	m.watches = append(m.watches, all...)
	m.path = append(m.path, paths...)
	l := fileVisitor{sv: sv, left: maxFiles - len(m.files), known: func(string) bool { return true },
		see: func(name string, s *unix.Stat_t) { m.files[name] = fileStateOf(s) }}
	for _, w := range all {
		l.watch(w)
	}
	var e execproto.Enc
	e.Strings(paths)
	_, err = st.Write(e)
	return err
}

// pathDirs returns the directories of $PATH.
func (sv *server) pathDirs() (dirs []string) {
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

// name returns the sandbox's path of the file at p in our own view.
func (sv *server) name(p string) string { return clean(strings.TrimPrefix(p, sv.cfg.Root)) }

// changes returns the differences between a snapshot and the files now.
func (sv *server) changes(st *execproto.Stream, set string) (execproto.Enc, error) {
	snapshots.Lock()
	defer snapshots.Unlock()
	m := snapshots.sets[set]
	if m == nil {
		return nil, errors.New("there is no such snapshot")
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
	l := fileVisitor{sv: sv, left: maxFiles, known: func(name string) bool { _, known := m.files[name]; return known }}
	l.see = func(name string, s *unix.Stat_t) {
		if seen[name] {
			return
		}
		seen[name] = true
		old, known := m.files[name]
		now := fileStateOf(s)
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
		if !seen[name] && l.left > 0 { // the pass was not complete, so it may still be there
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

// links returns symbolic links below root whose target, as written, lies below one of the
// directories into. It returns only some if there are many.
func (sv *server) links(root string, into []string) (found []string) {
	l := fileVisitor{sv: sv, left: maxFiles}
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
	// If the working directory is the root, skip directories of the kernel, and those that only
	// packages write to.
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

// system are directories of the root that are not used for work.
var system = []string{"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr",
	"var"}

// A fileVisitor visits the files of watches. It reports names as the host knows them.
type fileVisitor struct {
	sv       *server
	left     int
	see      func(name string, s *unix.Stat_t)
	known    func(name string) bool // whether the file was there before
	python   bool                   // see execproto.Watch; of the current watch
	packages map[string]bool
}

// skippedDirs are parts of Python that only its own tests and tools import.
var skippedDirs = []string{"test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "pydoc_data"}

// into reports whether to enter the directory n in dir.
func (l *fileVisitor) into(dir, n, full string) bool {
	if !l.python {
		return true
	}
	switch path.Base(dir) {
	case "site-packages", "dist-packages":
		// Metadata of a package matters if it is new.
		return l.packages[n] || n == "__pycache__" || strings.HasSuffix(n, "-info") && !l.known(full)
	}
	return !slices.Contains(skippedDirs, n)
}

func (l *fileVisitor) watch(w execproto.Watch) {
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
		// Use one name for files with several, such as /lib/x and /usr/lib/x where /lib is a link.
		dir, base := path.Split(name)
		if real, err := filepath.EvalSymlinks(l.sv.path(dir)); err == nil {
			name = path.Join(l.sv.name(real), base)
		}
		l.enter(name, w.Depth)
	}
}

// enter visits one name, which may be a link to a directory; below it links are not followed.
func (l *fileVisitor) enter(name string, depth int) {
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

// walk visits the entries of a directory and closes fd.
func (l *fileVisitor) walk(fd int, name string, depth int) {
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
