package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/executor/wire"
)

// A vigil sees what is written into a folder; the kernel keeps the events until it ends.
var vigil struct {
	sync.Mutex
	fd int // of inotify; 0: there is none
}

// vigil begins to see what is written into a folder. With "" it ends: the names are returned that were written again after somebody had finished
// writing them, and "" first when there was more than could be kept.
func (sv *server) vigil(dir string) (wire.Enc, error) {
	vigil.Lock()
	defer vigil.Unlock()
	if dir != "" {
		if vigil.fd > 0 {
			unix.Close(vigil.fd)
			vigil.fd = 0
		}
		fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			return nil, errors.New("inotify: " + err.Error())
		}
		if _, err := unix.InotifyAddWatch(fd, sv.path(dir), unix.IN_CLOSE_WRITE|unix.IN_MODIFY|unix.IN_MOVED_TO|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW); err != nil {
			unix.Close(fd)
			return nil, errors.New("inotify: " + err.Error())
		}
		vigil.fd = fd
		return wire.OK(), nil
	}
	if vigil.fd == 0 {
		return nil, errors.New("there is no vigil to end")
	}
	defer func() { unix.Close(vigil.fd); vigil.fd = 0 }()
	var again []string
	done := map[string]bool{}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(vigil.fd, buf)
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
				s = ""
			case mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0 && !done[s]:
				done[s] = true
				continue
			case !done[s]:
				continue
			}
			if !slices.Contains(again, s) && len(again) < 100 {
				again = append(again, s)
			}
		}
	}
	slices.Sort(again)
	e := wire.OK()
	e.Strings(again)
	return e, nil
}
