package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// The baseline is the state of all files that processes inside can change, in the memory of process
// 1, which none of them can reach. A file is the same as then if its type, mode, owner, size, inode
// and times are. No program can set the time of a file's last change of any kind (ctime). The times
// of devices and pipes do not count, since they change by their use.
//
// A file is compared with what was at its path. So of a directory that was replaced by another each
// entry is added or altered, and only type, mode and owner count of itself: its times change with
// its entries, and where an overlay joins several file systems, its inode number may be another one
// at each look.

// maxBaseline limits the memory of a baseline: about 45 bytes for each file.
const maxBaseline = 64 << 20

// maxChangeBytes limits the paths of all changes together.
const maxChangeBytes = 128 << 20

// baseline is the recorded state. There is one sandbox in a process.
var baseline struct {
	sync.Mutex
	taken  bool
	mounts []mountState
	blocks [][]byte // for each directory that was walked: its entries by name, encoded
	chunk  []byte   // has room for further blocks
	size   int
	files  int
	gap    string

	settings map[setting]string
}

type mountState struct {
	mount
	root entryState
	dir  int32 // of baseline.blocks, if it was walked
}

// An entryState is what is compared of a file. Its mode is 0 if another mount is in its place,
// whose state counts.
type entryState struct {
	mode, uid, gid      uint32
	dev, ino, size      uint64
	modified, changedAt int64 // nanoseconds
}

func stateOf(s *unix.Statx_t) entryState {
	if isMount(s) {
		return entryState{}
	}
	return rootStateOf(s)
}

// rootStateOf is stateOf for the root of a mount.
func rootStateOf(s *unix.Statx_t) entryState {
	e := entryState{mode: uint32(s.Mode), uid: s.Uid, gid: s.Gid}
	if e.isDir() {
		return e
	}
	e.dev, e.ino = unix.Mkdev(s.Dev_major, s.Dev_minor), s.Ino
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFCHR, unix.S_IFBLK:
		e.size = unix.Mkdev(s.Rdev_major, s.Rdev_minor)
	case unix.S_IFREG, unix.S_IFLNK:
		e.size = s.Size
		e.modified = s.Mtime.Sec*1e9 + int64(s.Mtime.Nsec)
		e.changedAt = s.Ctime.Sec*1e9 + int64(s.Ctime.Nsec)
	}
	return e
}

func (e *entryState) isDir() bool  { return e.mode&unix.S_IFMT == unix.S_IFDIR }
func (e *entryState) isLink() bool { return e.mode&unix.S_IFMT == unix.S_IFLNK }

// onlyMeta reports whether nothing but mode and owner seem to differ.
func (e *entryState) onlyMeta(old *entryState) bool {
	return e.mode&unix.S_IFMT == old.mode&unix.S_IFMT && e.dev == old.dev && e.ino == old.ino && e.size == old.size &&
		e.modified == old.modified && (e.mode != old.mode || e.uid != old.uid || e.gid != old.gid)
}

// turned reports whether one is a directory and the other is something else, but for links.
func (e *entryState) turned(old *entryState) bool {
	return e.isDir() != old.isDir() && !e.isLink() && !old.isLink()
}

// appendEntry encodes an entry of a directory.
func appendEntry(b, name []byte, s *entryState, dir int32) []byte {
	b = binary.AppendUvarint(b, uint64(len(name)))
	b = append(b, name...)
	b = binary.AppendUvarint(b, uint64(s.mode))
	b = binary.AppendUvarint(b, uint64(s.uid))
	b = binary.AppendUvarint(b, uint64(s.gid))
	if s.isDir() {
		return binary.AppendUvarint(b, uint64(dir))
	}
	b = binary.AppendUvarint(b, s.dev)
	b = binary.AppendUvarint(b, s.ino)
	b = binary.AppendUvarint(b, s.size)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.modified))
	return binary.LittleEndian.AppendUint64(b, uint64(s.changedAt))
}

// A blockReader reads the entries of a block.
type blockReader struct {
	rest  []byte
	ok    bool // there is an entry:
	name  []byte
	state entryState
	dir   int32
}

func (r *blockReader) next() {
	if r.ok = len(r.rest) > 0; !r.ok {
		return
	}
	n := r.uint()
	r.name, r.rest = r.rest[:n], r.rest[n:]
	r.state = entryState{mode: uint32(r.uint()), uid: uint32(r.uint()), gid: uint32(r.uint())}
	if r.dir = noDir; r.state.isDir() {
		r.dir = int32(r.uint())
		return
	}
	r.state.dev, r.state.ino, r.state.size = r.uint(), r.uint(), r.uint()
	r.state.modified = int64(binary.LittleEndian.Uint64(r.rest))
	r.state.changedAt = int64(binary.LittleEndian.Uint64(r.rest[8:]))
	r.rest = r.rest[16:]
}

func (r *blockReader) uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.rest = r.rest[n:]
	return v
}

// noDir is the number of a directory that is not in the baseline.
const noDir = -1

func init() {
	handlers[execproto.KindBaseline] = func(sv *server, st *execproto.Stream, _ []byte) {
		go sv.answer(st, func() (execproto.Enc, error) { return execproto.OK(), sv.takeBaseline(st) })
	}
	handlers[execproto.KindChanged] = func(sv *server, st *execproto.Stream, _ []byte) {
		go sv.answer(st, func() (execproto.Enc, error) { return execproto.OK(), sv.changed(st) })
	}
}

// mountsToWalk returns the mounts of the sandbox. Without isolation there are only our own files.
func (sv *server) mountsToWalk() (list []mount, gap string, err error) {
	if sv.cfg.Root != "" {
		return []mount{{point: sv.cfg.Root, walk: true}},
			"without isolation, only the sandbox's own folder is compared", nil
	}
	list, err = visibleMounts()
	return list, "", err
}

func newWalker(st *execproto.Stream, to lister, left int) *walker {
	return &walker{to: to, left: left, stop: func() bool { return st.Err() != nil }}
}

// takeBaseline replaces the baseline by the state now.
func (sv *server) takeBaseline(st *execproto.Stream) error {
	baseline.Lock()
	defer baseline.Unlock()
	mounts, gap, err := sv.mountsToWalk()
	if err != nil {
		return err
	}
	baseline.taken, baseline.mounts, baseline.blocks, baseline.chunk, baseline.size = false, nil, nil, nil, 0
	w := newWalker(st, &recorder{}, maxEntries)
	// What vanishes now is not in the baseline, so it counts as added if it comes back.
	w.gap, w.vanish = gap, true
	for _, m := range mounts {
		b := mountState{mount: m, dir: noDir}
		var s unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, m.path(), statxFlags, statxMask, &s); err != nil {
			return errors.New("looking at the mount " + m.path() + ": " + err.Error())
		}
		b.root = rootStateOf(&s)
		if m.walk && b.root.isDir() {
			b.dir = int32(len(baseline.blocks))
			baseline.blocks = append(baseline.blocks, nil)
			if err := w.tree(m.point, b.dir); err != nil {
				return err
			}
		}
		baseline.mounts = append(baseline.mounts, b)
	}
	if baseline.settings = nil; sv.cfg.Root == "" {
		baseline.settings = settings(mounts)
	}
	baseline.blocks = slices.Clip(baseline.blocks)
	baseline.taken, baseline.files, baseline.gap = true, maxEntries-max(w.left, 0), w.gap
	return nil
}

// A recorder adds to the baseline what a walk finds.
type recorder struct{ buf []byte }

func (r *recorder) list(w *walker, dir int32, entries []dirEntry, _ bool) error {
	r.buf = r.buf[:0]
	var s unix.Statx_t
	for i := range entries {
		e := &entries[i]
		if !w.stat(e, &s) {
			continue
		}
		state := stateOf(&s)
		if state.isDir() {
			e.enter, e.dir = true, int32(len(baseline.blocks))
			baseline.blocks = append(baseline.blocks, nil)
		}
		r.buf = appendEntry(r.buf, w.name(e), &state, e.dir)
	}
	if baseline.size += len(r.buf); baseline.size > maxBaseline {
		w.missed("recording", errMany)
		w.left = 0
		return nil
	}
	const chunk = 256 << 10
	if len(r.buf) > cap(baseline.chunk)-len(baseline.chunk) {
		if len(r.buf) > chunk/4 {
			baseline.blocks[dir] = bytes.Clone(r.buf)
			return nil
		}
		baseline.chunk = make([]byte, 0, chunk)
	}
	at := len(baseline.chunk)
	baseline.chunk = append(baseline.chunk, r.buf...)
	baseline.blocks[dir] = baseline.chunk[at:len(baseline.chunk):len(baseline.chunk)]
	return nil
}

// changed sends the differences between the baseline and the files now.
func (sv *server) changed(st *execproto.Stream) error {
	baseline.Lock()
	defer baseline.Unlock()
	if !baseline.taken {
		return errors.New("there is no baseline")
	}
	mounts, _, err := sv.mountsToWalk()
	if err != nil {
		return err
	}
	c := &comparer{out: bufio.NewWriterSize(st, execproto.MaxData), cut: len(sv.cfg.Root)}
	w := newWalker(st, c, baseline.files+maxEntries)
	w.gap = baseline.gap
	err = c.mounts(w, mounts)
	if err == errEnough {
		err = nil
	}
	if err == nil && baseline.settings != nil {
		err = c.settings(mounts)
	}
	if err == nil {
		err = execproto.WriteRecord(c.out, execproto.EncodeGap(w.gap))
	}
	if err == nil {
		err = c.out.Flush()
	}
	return err
}

// A comparer compares what a walk finds with the baseline.
type comparer struct {
	out   *bufio.Writer
	cut   int // length of the path of the sandbox's root
	sent  int
	bytes int
	enc   execproto.Enc
	path  []byte
}

// mounts compares all mounts.
func (c *comparer) mounts(w *walker, now []mount) error {
	for i := range now {
		m := &now[i]
		w.path = append(w.path[:0], m.point...)
		var s unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, m.path(), statxFlags, statxMask, &s); err != nil {
			w.missed("looking at the mount", err)
			continue
		}
		state := rootStateOf(&s)
		dir := int32(noDir)
		j, known := slices.BinarySearchFunc(baseline.mounts, m.point,
			func(b mountState, p string) int { return strings.Compare(b.point, p) })
		if known && baseline.mounts[j].id == m.id && baseline.mounts[j].walk == m.walk {
			old := &baseline.mounts[j]
			dir = old.dir
			if m.walk && old.root != state {
				if err := c.altered(w, nil, &s, &state, &old.root); err != nil {
					return err
				}
			}
		} else if err := c.send(w, nil, execproto.FileChange{What: execproto.Mounted}, &s); err != nil {
			return err
		}
		if m.walk && state.isDir() {
			if err := w.tree(m.point, dir); err != nil {
				return err
			}
		}
	}
	for _, b := range baseline.mounts {
		if !slices.ContainsFunc(now, func(m mount) bool { return m.point == b.point }) {
			w.path = append(w.path[:0], b.point...)
			if err := c.send(w, nil, execproto.FileChange{What: execproto.Mounted}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *comparer) list(w *walker, dir int32, entries []dirEntry, whole bool) error {
	var old blockReader
	if dir != noDir {
		old.rest = baseline.blocks[dir]
	}
	old.next()
	gone := func() (err error) {
		if whole && old.state.mode != 0 {
			err = c.send(w, old.name, execproto.FileChange{What: execproto.Gone}, nil)
		}
		old.next()
		return err
	}
	var s unix.Statx_t
	for i := range entries {
		e := &entries[i]
		name := w.name(e)
		for old.ok && bytes.Compare(old.name, name) < 0 {
			if err := gone(); err != nil {
				return err
			}
		}
		known := old.ok && bytes.Equal(old.name, name)
		if w.stat(e, &s) {
			state := stateOf(&s)
			var err error
			switch {
			case state.mode == 0: // a mount
			case !known || old.state.mode == 0:
				err = c.send(w, name, execproto.FileChange{What: execproto.Added}, &s)
			case old.state != state:
				err = c.altered(w, name, &s, &state, &old.state)
			}
			if err != nil {
				return err
			}
			if e.enter, e.dir = state.isDir(), noDir; known {
				e.dir = old.dir
			}
		}
		if known {
			old.next()
		}
	}
	for old.ok {
		if err := gone(); err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends a walk that has found too many changes.
var errEnough = errors.New("too many changes")

// altered sends what differs of a file.
func (c *comparer) altered(w *walker, name []byte, s *unix.Statx_t, now, old *entryState) error {
	return c.send(w, name, execproto.FileChange{What: execproto.Altered, Meta: now.onlyMeta(old),
		Turned: now.turned(old)}, s)
}

// send sends one change: of name in the directory of the walk, or of the directory itself. It adds
// the path and what s says.
func (c *comparer) send(w *walker, name []byte, f execproto.FileChange, s *unix.Statx_t) error {
	c.path = append(c.path[:0], w.path[c.cut:]...)
	if name != nil || len(c.path) == 0 {
		c.path = append(append(c.path, '/'), name...)
	}
	c.sent++
	c.bytes += len(c.path)
	if c.sent > maxEntries || c.bytes > maxChangeBytes {
		w.missed("comparing", errEnough)
		return errEnough
	}
	f.Path = string(c.path)
	if s != nil {
		f.Mode, f.UID, f.GID, f.Links, f.Size = uint32(s.Mode), s.Uid, s.Gid, s.Nlink, int64(s.Size)
		if s.Mode&unix.S_IFMT == unix.S_IFLNK && name != nil {
			f.Target = w.readlink(name)
		}
	}
	c.enc = c.enc[:0]
	f.Encode(&c.enc)
	return execproto.WriteRecord(c.out, string(c.enc))
}
