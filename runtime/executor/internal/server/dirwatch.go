package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// dirWatch is the inotify watch of a directory. The kernel keeps the events until it ends.
var dirWatch struct {
	sync.Mutex
	fd       int // of inotify; 0: there is none
	dir      string
	dev, ino uint64
}

const dirWatchMask = unix.IN_CREATE | unix.IN_OPEN | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO |
	unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW

// watchDir starts to record what is written into a directory. With "" it ends the watch and returns
// the [execproto.DirEvents].
func (sv *server) watchDir(dir string) (execproto.Enc, error) {
	dirWatch.Lock()
	defer dirWatch.Unlock()
	if dir != "" {
		if dirWatch.fd > 0 {
			unix.Close(dirWatch.fd)
			dirWatch.fd = 0
		}
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			return nil, errors.New("inotify: " + err.Error())
		}
		dirWatch.dir = sv.path(dir)
		var s unix.Stat_t
		err = unix.Lstat(dirWatch.dir, &s)
		if err == nil {
			_, err = unix.InotifyAddWatch(fd, dirWatch.dir, dirWatchMask)
		}
		if err != nil {
			unix.Close(fd)
			return nil, errors.New("inotify: " + err.Error())
		}
		dirWatch.fd, dirWatch.dev, dirWatch.ino = fd, uint64(s.Dev), s.Ino
		e := execproto.OK()
		e.Bool(len(sv.commands(false)) > len(sv.commands(true)))
		return e, nil
	}
	if dirWatch.fd == 0 {
		return nil, errors.New("no directory is watched")
	}
	defer func() { unix.Close(dirWatch.fd); dirWatch.fd = 0 }()
	v := readDirEvents(dirWatch.fd)
	var s unix.Stat_t
	v.Replaced = unix.Lstat(dirWatch.dir, &s) != nil || uint64(s.Dev) != dirWatch.dev || s.Ino != dirWatch.ino
	e := execproto.OK()
	v.Encode(&e)
	return e, nil
}

// readDirEvents interprets the events. A file is complete when it was created, written and closed,
// or moved here. What is created without being closed is a hard link to a file elsewhere.
//
// A file that is opened again between its first write and its close counts as written again: the
// kernel merges equal events that follow each other, so two writers that close one after the other
// leave a single close event.
func readDirEvents(fd int) (v execproto.DirEvents) {
	made, begun, done, again := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	note := func(m map[string]bool, s string) {
		if len(m) < 100 {
			m[s] = true
		}
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			mask, size := binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
			name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], []byte{0})
			b = b[unix.SizeofInotifyEvent+size:]
			s := string(name)
			switch {
			case mask&unix.IN_Q_OVERFLOW != 0:
				v.Cut = true
			case mask&unix.IN_ISDIR != 0:
			case mask&unix.IN_OPEN != 0:
				if begun[s] && !done[s] { // after the close it may be a reader
					note(again, s)
				}
			case done[s]: // whatever it is
				note(again, s)
				if mask&unix.IN_CREATE != 0 {
					note(made, s)
				} else if mask&unix.IN_CLOSE_WRITE != 0 {
					delete(made, s)
				}
			case mask&unix.IN_CREATE != 0:
				note(made, s)
			case mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0:
				note(done, s)
				delete(made, s)
			case mask&unix.IN_MODIFY != 0:
				note(begun, s)
			}
		}
	}
	v.Cut = v.Cut || len(done) == 100 || len(made) == 100
	v.Written, v.Again, v.Linked = slices.Sorted(maps.Keys(done)), slices.Sorted(maps.Keys(again)),
		slices.Sorted(maps.Keys(made))
	return v
}
