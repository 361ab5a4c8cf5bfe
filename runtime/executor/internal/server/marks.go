package server

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// Limits of what is watched. The kernel's own limits are for all sandboxes of a user together.
const (
	maxMarks    = 100_000
	maxMarkDirs = 10_000  // directories below the targets of links
	maxDirBytes = 4 << 20 // and of their paths
	maxDirFiles = 200_000 // and of what is in them
)

// markMask selects an open, which execution and mapping need too, and a read through a descriptor
// that was open before. Each watch ends with its first event, so that a busy file cannot fill the
// queue.
const markMask = unix.IN_OPEN | unix.IN_ACCESS | unix.IN_ONESHOT

// marks are the files whose use is watched, by one inotify instance. There is one sandbox in a
// process.
var marks struct {
	sync.Mutex
	w *watcher
}

type watcher struct {
	f     *os.File // of inotify; nil if there is none
	fd    int      // its descriptor
	gap   string   // why nothing can be watched
	ended chan struct{}

	dangling []int32   // files that are links to nothing
	dirs     []dirMark // to be watched at the end of the request
	dirBytes int
	left     int // files that may still be visited below the targets of links

	sync.Mutex
	files    []marked
	nodes    []markNode
	byWatch  map[int32]int32 // the first node of each watch
	overflow bool
}

type marked struct {
	path string
	used bool
}

// A markNode is one of the files that an event of a watch concerns: names of the same file, and
// links to it.
type markNode struct{ file, next int32 } // next: -1 is the end

// A dirMark is a directory below the target of a link.
type dirMark struct {
	file int32
	path string
}

func init() {
	handlers[execproto.KindMark] = func(sv *server, st *execproto.Stream, _ []byte) {
		go sv.answer(st, func() (execproto.Enc, error) { return execproto.OK(), sv.mark(st) })
	}
	handlers[execproto.KindUsed] = func(sv *server, st *execproto.Stream, _ []byte) {
		go sv.answer(st, func() (execproto.Enc, error) { return execproto.OK(), sv.used(st) })
	}
}

func newWatcher() *watcher {
	w := &watcher{ended: make(chan struct{}), byWatch: map[int32]int32{}, left: maxDirFiles}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		w.gap = "inotify: " + err.Error()
		close(w.ended)
		return w
	}
	w.fd, w.f = fd, os.NewFile(uintptr(fd), "inotify")
	go func() {
		defer close(w.ended)
		buf := make([]byte, 64<<10)
		for {
			n, err := w.f.Read(buf)
			if err != nil {
				return // end set a deadline
			}
			w.take(buf[:n])
			// Without a pause each event would wake us up, at the expense of who uses the files. The
			// queue holds what happens meanwhile.
			time.Sleep(time.Millisecond)
		}
	}()
	return w
}

// take notes events.
func (w *watcher) take(b []byte) {
	w.Lock()
	defer w.Unlock()
	for len(b) >= unix.SizeofInotifyEvent {
		id, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		b = b[unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])):]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			w.overflow = true
		case mask&(unix.IN_OPEN|unix.IN_ACCESS) != 0:
			if i, ok := w.byWatch[id]; ok {
				for delete(w.byWatch, id); i >= 0; i = w.nodes[i].next {
					w.files[w.nodes[i].file].used = true
				}
			}
		case mask&unix.IN_IGNORED != 0: // the file was removed, or the event has ended the watch
			delete(w.byWatch, id)
		}
	}
}

// end stops the watches. All events of calls that have returned are known then.
func (w *watcher) end() {
	if w.f == nil {
		return
	}
	w.f.SetReadDeadline(time.Unix(1, 0))
	<-w.ended
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		w.take(buf[:n])
	}
	w.f.Close()
}

// mark adds files to the watched ones.
func (sv *server) mark(st *execproto.Stream) error {
	marks.Lock()
	defer marks.Unlock()
	if marks.w == nil {
		marks.w = newWatcher()
	}
	in, missed := bufio.NewReader(st), []string(nil)
	var buf []byte
	for {
		var err error
		if buf, err = execproto.ReadRecord(in, buf); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if p := string(buf); !marks.w.add(sv, p) {
			missed = append(missed, p)
		}
	}
	return sendPaths(st, append(missed, marks.w.watchDirs()...), marks.w.gap)
}

// used ends the watches and sends the files that were used.
func (sv *server) used(st *execproto.Stream) error {
	marks.Lock()
	defer marks.Unlock()
	w := marks.w
	if w == nil {
		return errors.New("no files are marked")
	}
	marks.w = nil
	w.end()
	for _, i := range w.dangling {
		var s unix.Stat_t
		if unix.Stat(sv.path(w.files[i].path), &s) == nil {
			w.files[i].used = true // what was written through the link
		}
	}
	var list []string
	for i := range w.files {
		if w.files[i].used {
			list = append(list, w.files[i].path)
		}
	}
	gap := w.gap
	if gap == "" && w.overflow {
		gap = "there were more events than the kernel's queue holds"
	}
	return sendPaths(st, list, gap)
}

func sendPaths(st *execproto.Stream, list []string, gap string) error {
	out := bufio.NewWriterSize(st, execproto.MaxData)
	for _, p := range list {
		if err := execproto.WriteRecord(out, p); err != nil {
			return err
		}
	}
	if err := execproto.WriteRecord(out, execproto.EncodeGap(gap)); err != nil {
		return err
	}
	return out.Flush()
}

// add watches the file at path. It reports false if its use would not be seen.
func (w *watcher) add(sv *server, path string) bool {
	if w.f == nil || len(w.files) == maxMarks {
		return false
	}
	p := sv.path(path)
	var s unix.Stat_t
	if unix.Lstat(p, &s) != nil {
		return false
	}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR: // what is in it counts
		return true
	case unix.S_IFLNK:
		return w.addLink(path, p)
	}
	return w.watch(w.file(path), p, markMask|unix.IN_DONT_FOLLOW)
}

// file appends a file.
func (w *watcher) file(path string) int32 {
	w.Lock()
	defer w.Unlock()
	w.files = append(w.files, marked{path: path})
	return int32(len(w.files) - 1)
}

// watch adds a watch for the use of files[i].
func (w *watcher) watch(i int32, at string, mask uint32) bool {
	// Under the lock, so that its first event finds the file.
	w.Lock()
	defer w.Unlock()
	id, err := unix.InotifyAddWatch(w.fd, at, mask)
	if err != nil {
		return false
	}
	n := markNode{file: i, next: -1}
	if other, ok := w.byWatch[int32(id)]; ok { // another name of the same file
		n.next = other
	}
	w.byWatch[int32(id)] = int32(len(w.nodes))
	w.nodes = append(w.nodes, n)
	return true
}

// addLink watches what a symbolic link leads to. If that is a directory, the link is used when
// anything below it is opened, through whatever path.
func (w *watcher) addLink(path, p string) bool {
	// A link of /proc would lead to something of ours instead of the reader's.
	fd, err := unix.Openat2(unix.AT_FDCWD, p,
		&unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err == unix.ENOENT || err == unix.ENOTDIR { // see used
		w.dangling = append(w.dangling, w.file(path))
		return true
	}
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	if unix.Fstat(fd, &s) != nil {
		return false
	}
	at := "/proc/self/fd/" + strconv.Itoa(fd)
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		return w.watch(w.file(path), at, markMask)
	}
	if w.left == 0 {
		return false
	}
	// The watches are added when all trees have been walked, because a walk opens directories.
	real, err := os.Readlink(at)
	if err != nil {
		return false
	}
	t := &treeMarker{w: w, file: w.file(path)}
	walk := &walker{to: t, left: w.left}
	err = walk.tree(real, 0)
	w.left = max(walk.left, 0)
	return err == nil && walk.gap == ""
}

// A treeMarker collects the directories of a tree.
type treeMarker struct {
	w    *watcher
	file int32
}

func (t *treeMarker) list(w *walker, _ int32, entries []dirEntry, _ bool) error {
	t.w.dirBytes += len(w.path)
	if len(t.w.dirs) == maxMarkDirs || t.w.dirBytes > maxDirBytes {
		return errMany
	}
	t.w.dirs = append(t.w.dirs, dirMark{t.file, string(w.path)})
	var s unix.Statx_t
	for i := range entries {
		if !w.stat(&entries[i], &s) || s.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if isMount(&s) {
			return errOtherMount
		}
		entries[i].enter = true
	}
	return nil
}

var errOtherMount = errors.New("another mount is below it")

// watchDirs watches the directories below the targets of links. It returns the links for which that
// failed.
func (w *watcher) watchDirs() (missed []string) {
	for _, d := range w.dirs {
		if !w.watch(d.file, cmp.Or(d.path, "/"), markMask|unix.IN_DONT_FOLLOW|unix.IN_ONLYDIR) {
			missed = append(missed, w.files[d.file].path)
		}
	}
	w.dirs = nil
	return slices.Compact(missed)
}
