package server

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of a walk. They bound memory and time, whatever a process inside has made.
const (
	maxEntries = 1_000_000 // files of a baseline, and files more than in the baseline
	maxNames   = 16 << 20  // bytes of names at one time: of the directories that are being walked
	maxPath    = 16 << 10  // bytes of a path
	openLevels = 48        // directories that stay open, from the top
)

// kernelTypes are file systems that show the kernel's state and keep no files.
var kernelTypes = []string{"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
	"efivarfs", "fusectl", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs",
	"tracefs"}

// A mount is one that processes inside can see.
type mount struct {
	id    uint64
	point string // in our own view; "" is the root
	fs    string
	walk  bool // it can be written, and keeps files
}

// visibleMounts returns the mounts that are not covered by others, by mount point.
func visibleMounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var list []mount
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+4 {
			return nil, errors.New("a line of mountinfo that cannot be read: " + line)
		}
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return nil, errors.New("a line of mountinfo that cannot be read: " + line)
		}
		readOnly := slices.Contains(strings.Split(f[5], ","), "ro") ||
			slices.Contains(strings.Split(f[dash+3], ","), "ro")
		m := mount{id: id, point: octal.Replace(f[4]), fs: f[dash+1], walk: !readOnly}
		m.walk = m.walk && !slices.Contains(kernelTypes, m.fs)
		if m.point == "/" {
			m.point = ""
		}
		var s unix.Statx_t
		if unix.Statx(unix.AT_FDCWD, m.path(), statxFlags, statxMask, &s) != nil {
			continue // covered by another mount
		}
		if s.Mask&unix.STATX_MNT_ID == 0 {
			return nil, errors.New("this kernel does not tell mounts apart (it is older than Linux 5.8)")
		}
		if s.Mnt_id == id {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b mount) int { return strings.Compare(a.point, b.point) })
	return list, nil
}

func (m *mount) path() string { return cmp.Or(m.point, "/") }

const (
	statxFlags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	statxMask  = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID
)

// A lister gets what a walk finds, one directory after the other. A directory comes before those in
// it.
type lister interface {
	// list gets the entries of a directory in the order of their names. It sets the enter field of
	// the directories to walk into. whole is false if there are more entries than are listed.
	list(w *walker, dir int32, entries []dirEntry, whole bool) error
}

// A dirEntry is a name in a directory. Its state is read when the lister asks.
type dirEntry struct {
	off   uint32 // of the name in walker.names
	n     uint16
	enter bool
	dir   int32 // the number that list gets for it
}

// A walker walks one mount at a time. It needs no descriptor for each level and no path for each
// file.
type walker struct {
	to      lister
	left    int
	names   []byte // NUL-terminated, of all levels
	levels  []walkLevel
	entries []dirEntry // those to be entered, of all levels
	path    []byte     // of the directory that is being listed
	buf     []byte
	stop    func() bool
	vanish  bool   // a file may vanish while it is walked
	gap     string // why the walk is not complete: the first reason
}

type walkLevel struct {
	fd         int // -1: closed, see openLevels
	dev, ino   uint64
	next, end  int // in walker.entries
	names, len int // lengths of walker.names and path when it was entered
}

var errStopped = errors.New("the caller has gone")

// missed notes why the walk is not complete.
func (w *walker) missed(what string, err error) {
	if w.gap == "" && !(w.vanish && err == unix.ENOENT) {
		p := w.path[:min(len(w.path), 1000)]
		w.gap = what + " " + string(p) + ": " + err.Error()
	}
}

// tree walks a directory and all below it, but not into other mounts.
func (w *walker) tree(path string, number int32) error {
	path = strings.TrimSuffix(path, "/")
	w.path = append(w.path[:0], path...)
	w.names, w.entries = w.names[:0], w.entries[:0]
	fd, err := unix.Open(cmp.Or(path, "/"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		w.missed("opening", err)
		return nil
	}
	defer func() {
		for _, l := range w.levels {
			if l.fd >= 0 {
				unix.Close(l.fd)
			}
		}
		w.levels = w.levels[:0]
	}()
	if err := w.enter(fd, number, len(path)); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		l := &w.levels[len(w.levels)-1]
		if l.next == l.end || l.fd < 0 {
			w.leave()
			continue
		}
		e := w.entries[l.next]
		l.next++
		length := len(w.path)
		w.path = append(append(w.path, '/'), w.names[e.off:e.off+uint32(e.n)]...)
		fd, err := openat(l.fd, &w.names[e.off])
		if err != nil {
			w.missed("opening", err)
			w.path = w.path[:length]
			continue
		}
		if len(w.levels) > openLevels {
			unix.Close(l.fd)
			l.fd = -1
		}
		if err := w.enter(fd, e.dir, length); err != nil {
			return err
		}
	}
	return nil
}

// leave leaves the deepest directory. Its parent is opened again if it was closed; what has been
// moved elsewhere meanwhile is not found again.
func (w *walker) leave() {
	n := len(w.levels) - 1
	l := w.levels[n]
	w.levels = w.levels[:n]
	w.names, w.path = w.names[:l.names], w.path[:l.len]
	if n > 0 {
		up := &w.levels[n-1]
		w.entries = w.entries[:up.end]
		if up.fd < 0 && l.fd >= 0 {
			fd, err := unix.Openat(l.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			var s unix.Stat_t
			if err == nil {
				err = unix.Fstat(fd, &s)
			}
			if err == nil && (s.Dev != up.dev || s.Ino != up.ino) {
				err = unix.ESTALE
			}
			if err == nil {
				up.fd = fd
			} else if fd >= 0 {
				unix.Close(fd)
			}
		}
		if up.fd < 0 && up.next < up.end {
			w.missed("returning to", unix.ESTALE)
		}
	}
	if l.fd >= 0 {
		unix.Close(l.fd)
	}
}

// enter lists a directory and makes it the deepest level. It owns fd. length is that of the
// parent's path.
func (w *walker) enter(fd int, number int32, length int) error {
	l := walkLevel{fd: fd, names: len(w.names), len: length}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		w.missed("reading", err)
	}
	l.dev, l.ino = s.Dev, s.Ino
	first := len(w.entries)
	whole := w.read(fd)
	if w.stop != nil && w.stop() {
		unix.Close(fd)
		return errStopped
	}
	l.next = first
	w.levels = append(w.levels, l)
	es := w.entries[first:]
	slices.SortFunc(es, func(a, b dirEntry) int { return bytes.Compare(w.name(&a), w.name(&b)) })
	if err := w.to.list(w, number, es, whole); err != nil {
		return err
	}
	// Only the directories among the entries are kept.
	keep := w.entries[:first]
	for i := range es {
		e := &es[i]
		if !e.enter {
			continue
		}
		if len(w.path)+1+int(e.n) > maxPath {
			w.missed("entering "+string(w.name(e))+" in", errLong)
			continue
		}
		keep = append(keep, *e)
	}
	w.entries = keep
	w.levels[len(w.levels)-1].end = len(keep)
	return nil
}

func (w *walker) name(e *dirEntry) []byte { return w.names[e.off : e.off+uint32(e.n)] }

// read appends the names in a directory to w.names and w.entries. It reports whether these are all.
func (w *walker) read(fd int) bool {
	if w.buf == nil {
		w.buf = make([]byte, 64<<10)
	}
	for {
		n, err := unix.Getdents(fd, w.buf)
		if err == unix.EINTR {
			continue
		}
		if err == unix.ENOENT { // the directory has been removed
			return true
		}
		if err != nil {
			w.missed("reading", err)
			return false
		}
		if n <= 0 {
			return true
		}
		for b := w.buf[:n]; len(b) > 19; {
			// ino, off, length, type, name
			size := int(binary.NativeEndian.Uint16(b[16:]))
			name := b[19:size]
			b = b[size:]
			k := bytes.IndexByte(name, 0)
			if k <= 0 || k <= 2 && name[0] == '.' && name[k-1] == '.' {
				continue
			}
			if w.left--; w.left < 0 {
				w.missed("reading", errMany)
				return false
			}
			if len(w.names)+k+1 > maxNames {
				w.missed("reading", errNames)
				return false
			}
			w.entries = append(w.entries, dirEntry{off: uint32(len(w.names)), n: uint16(k)})
			w.names = append(w.names, name[:k+1]...)
		}
		if w.stop != nil && w.stop() {
			return false
		}
	}
}

var (
	errMany  = errors.New("too many files")
	errNames = errors.New("too many names")
)

// stat reads the state of an entry of the deepest directory. It reports false if the entry cannot
// be read, and notes that.
func (w *walker) stat(e *dirEntry, s *unix.Statx_t) bool {
	err := statxAt(w.levels[len(w.levels)-1].fd, &w.names[e.off], s)
	if err != 0 {
		w.missed("looking at "+string(w.name(e))+" in", err)
		return false
	}
	return true
}

// readlink returns the target of a link in the deepest directory, or "".
func (w *walker) readlink(name []byte) string {
	target := make([]byte, 4096)
	n, err := unix.Readlinkat(w.levels[len(w.levels)-1].fd, string(name), target)
	if err != nil {
		return ""
	}
	return string(target[:n])
}

func statxAt(dir int, name *byte, s *unix.Statx_t) syscall.Errno {
	_, _, err := syscall.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)), statxFlags,
		statxMask, uintptr(unsafe.Pointer(s)), 0)
	return err
}

func openat(dir int, name *byte) (int, error) {
	for {
		fd, _, err := syscall.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(name)),
			unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0, 0, 0)
		switch err {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		default:
			return -1, err
		}
	}
}

// isMount reports whether a mount is at the place of the entry.
func isMount(s *unix.Statx_t) bool { return s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 }
