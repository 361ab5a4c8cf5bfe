package server

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// The snapshot of the sandbox's files is kept in the memory of process 1, which no process inside
// can reach. It includes the time of a file's last change of any kind (ctime), which no program can
// set, so a file that was replaced or restored is detected. Of a directory only type and owner
// count, since its times change with its entries.

// maxFiles limits the files in the snapshot, and the files visited to compare one.
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

// snapshot is the snapshot that was taken last. There is one sandbox in a process.
var snapshot struct {
	sync.Mutex
	watches []execproto.Watch
	files   map[string]fileState // nil: none was taken
}

func init() {
	answer := func(f func(sv *server, st *execproto.Stream, d *execproto.Dec,
		body []byte) (execproto.Enc, error)) func(*server, *execproto.Stream, []byte) {
		return func(sv *server, st *execproto.Stream, body []byte) {
			go sv.answer(st, func() (execproto.Enc, error) { return f(sv, st, execproto.NewDec(body), body) })
		}
	}
	handlers[execproto.KindSnapshot] = answer(func(sv *server, _ *execproto.Stream, _ *execproto.Dec,
		body []byte) (execproto.Enc, error) {
		return execproto.OK(), sv.snapshot(body)
	})
	handlers[execproto.KindChanges] = answer(
		func(sv *server, st *execproto.Stream, _ *execproto.Dec, _ []byte) (execproto.Enc, error) {
			return sv.changes(st)
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
func (sv *server) snapshot(body []byte) error {
	ws, err := execproto.DecodeWatches(body)
	if err != nil {
		return err
	}
	snapshot.Lock()
	defer snapshot.Unlock()
	snapshot.watches, snapshot.files = ws, map[string]fileState{}
	l := fileVisitor{sv: sv, left: maxFiles,
		see: func(name string, s *unix.Stat_t) { snapshot.files[name] = fileStateOf(s) }}
	for _, w := range ws {
		l.watch(w)
	}
	return nil
}

// name returns the sandbox's path of the file at p in our own view.
func (sv *server) name(p string) string { return clean(strings.TrimPrefix(p, sv.cfg.Root)) }

// changes returns the differences between the snapshot and the files now.
func (sv *server) changes(st *execproto.Stream) (execproto.Enc, error) {
	snapshot.Lock()
	defer snapshot.Unlock()
	if snapshot.files == nil {
		return nil, errors.New("there is no snapshot")
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
	seen := make(map[string]bool, len(snapshot.files))
	l := fileVisitor{sv: sv, left: maxFiles}
	l.see = func(name string, s *unix.Stat_t) {
		if seen[name] {
			return
		}
		seen[name] = true
		old, known := snapshot.files[name]
		now := fileStateOf(s)
		switch {
		case !known:
			send(change(name, execproto.Added, s))
		case old != now:
			send(change(name, execproto.Altered, s))
		}
	}
	for _, w := range snapshot.watches {
		l.watch(w)
	}
	for name := range snapshot.files {
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

// A fileVisitor visits the files of watches. It reports names as the host knows them.
type fileVisitor struct {
	sv   *server
	left int
	see  func(name string, s *unix.Stat_t)
}

func (l *fileVisitor) watch(w execproto.Watch) {
	// Use one name for files with several, such as /lib/x and /usr/lib/x where /lib is a link.
	name := clean(w.Path)
	dir, base := path.Split(name)
	if real, err := filepath.EvalSymlinks(l.sv.path(dir)); err == nil {
		name = path.Join(l.sv.name(real), base)
	}
	l.enter(name, w.Depth)
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
			if s.Mode&unix.S_IFMT == unix.S_IFDIR && (depth > 1 || depth < 0 && depth > -200) {
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
