package server

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Size of a shell's terminal. It is wide, so that programs neither break nor cut lines.
const (
	terminalRows = 1000
	terminalCols = 1000
)

// A terminal is a pseudo-terminal.
type terminal struct {
	master, slave *os.File
	modes         unix.Termios
}

func openTerminal(path string, uid, gid int, rows, cols uint16) (*terminal, error) {
	m, err := highFD(unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0))
	if err != nil {
		return nil, errors.New("opening a terminal, " + path + ": " + err.Error())
	}
	t := &terminal{master: os.NewFile(uintptr(m), "terminal")}
	fail := func(what string, err error) (*terminal, error) {
		t.close()
		return nil, errors.New(what + ": " + err.Error())
	}
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlocking a terminal", err)
	}
	// By its name the terminal is another one if /dev/pts belongs to another mount.
	s, err := highFD(ioctlFD(m, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC))
	if err != nil {
		return fail("opening the other end of a terminal", err)
	}
	t.slave = os.NewFile(uintptr(s), "terminal")
	unix.Fchown(s, uid, gid) // fails without isolation, where it is ours already
	modes, err := unix.IoctlGetTermios(s, unix.TCGETS)
	if err != nil {
		return fail("reading the modes of a terminal", err)
	}
	t.modes = *modes
	size := unix.Winsize{Row: rows, Col: cols}
	if err := unix.IoctlSetWinsize(s, unix.TIOCSWINSZ, &size); err != nil {
		return fail("setting the size of a terminal", err)
	}
	return t, nil
}

// mute sets the modes of an agent's shell: nothing is echoed, and output is not changed.
func (t *terminal) mute() error {
	t.modes.Oflag &^= unix.OPOST
	t.modes.Lflag &^= unix.ECHO | unix.ECHOE | unix.ECHOK | unix.ECHONL | unix.ECHOCTL
	t.modes.Lflag |= unix.ISIG | unix.ICANON | unix.IEXTEN
	if err := t.reset(); err != nil {
		t.close()
		return errors.New("setting the modes of a terminal: " + err.Error())
	}
	return nil
}

// resize changes the size, of which the kernel tells the programs.
func (t *terminal) resize(rows, cols uint16) {
	size := unix.Winsize{Row: rows, Col: cols}
	if raw, err := t.master.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) })
	}
}

func ioctlFD(fd int, req uint, arg int) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(arg))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// reset undoes what programs have set, and drops input that nobody has read.
func (t *terminal) reset() error {
	fd := int(t.slave.Fd())
	err := unix.IoctlSetTermios(fd, unix.TCSETS, &t.modes)
	unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH)
	return err
}

// foreground returns the process group that input belongs to. Only the master may be asked by a
// process of another session.
func (t *terminal) foreground() int {
	n := -1
	if raw, err := t.master.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if g, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err == nil {
				n = g
			}
		})
	}
	return n
}

// typeLimit limits how long typed text may wait for a program that does not read its input.
const typeLimit = 10 * time.Second

// typed types b. What a program does not take in time is lost.
func (t *terminal) typed(b []byte) {
	t.master.SetWriteDeadline(time.Now().Add(typeLimit))
	_, _ = t.master.Write(b)
}

func (t *terminal) close() {
	t.master.Close()
	if t.slave != nil {
		t.slave.Close()
	}
}
