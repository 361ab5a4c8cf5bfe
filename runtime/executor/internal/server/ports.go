package server

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// dial connects to a TCP port on our loopback interface and copies both ways. It uses system calls,
// since package net would slow down the start of every sandbox.
func (sv *server) dial(st *execproto.Stream, port int) {
	f, err := connect(port)
	if err != nil {
		st.Send(execproto.KindResult, execproto.Fail(err))
		st.Finish()
		return
	}
	st.Send(execproto.KindResult, execproto.OK())
	carry(st, f)
}

// connect tries ::1 if 127.0.0.1 refuses: some services listen on one of them only.
func connect(port int) (*os.File, error) {
	if port < 1 || port > 65535 {
		return nil, errors.New("no such port")
	}
	f, err := connectTo(unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == unix.ECONNREFUSED {
		if f6, err6 := connectTo(unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}); err6 == nil {
			return f6, nil
		}
	}
	if err != nil {
		return nil, errors.New("dial port " + itoa(port) + ": " + err.Error())
	}
	return f, nil
}

func connectTo(family int, addr unix.Sockaddr) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, addr); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "tcp")
	f.SetDeadline(time.Now().Add(10 * time.Second))
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	var cerr error
	err = raw.Write(func(fd uintptr) bool {
		// The socket is writable when it is connected or has failed: the peer's address
		// distinguishes "not yet" from "connected".
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil || n != 0 {
			cerr = unix.Errno(n)
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	if err == nil {
		err = cerr
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	f.SetDeadline(time.Time{})
	return f, nil
}

// carry copies between a stream and a socket until both directions have ended.
func carry(st *execproto.Stream, f *os.File) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := chunks.Get().(*[]byte)
		defer chunks.Put(b)
		for {
			n, err := f.Read(*b)
			if n > 0 {
				if st.Send(execproto.KindData, (*b)[:n]) != nil {
					f.Close()
					return
				}
			}
			if err != nil {
				st.Send(execproto.KindEOF, nil)
				return
			}
		}
	}()
	for {
		m, err := st.Recv()
		if err != nil { // reset, or the session has ended
			f.Close()
			break
		}
		if m.Kind == execproto.KindEOF {
			if raw, err := f.SyscallConn(); err == nil {
				raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
			}
			break
		}
		if m.Kind == execproto.KindData {
			if _, err := f.Write(m.Body); err != nil {
				break
			}
		}
	}
	for { // drop further messages, but notice the host's reset
		select {
		case <-done:
			f.Close()
			st.Finish()
			return
		default:
		}
		if _, err := st.Recv(); err != nil {
			f.Close()
			<-done
			st.Finish()
			return
		}
	}
}

// maxAccepted limits the open connections of one listener.
const maxAccepted = 256

// listen opens a TCP port on our loopback interface. Each connection becomes a stream that the host
// serves.
func (sv *server) listen(st *execproto.Stream, port int) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
		if err == nil {
			err = unix.Listen(fd, 128)
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		st.Send(execproto.KindResult, execproto.Fail(errors.New("listen on port "+itoa(port)+": "+err.Error())))
		st.Finish()
		return
	}
	if sa, err := unix.Getsockname(fd); err == nil {
		if in, ok := sa.(*unix.SockaddrInet4); ok {
			port = in.Port
		}
	}
	f := os.NewFile(uintptr(fd), "listener")
	go func() { // the host closes the listener by resetting its stream
		st.Recv()
		f.Close()
	}()
	e := execproto.OK()
	e.Uint(uint64(port))
	st.Send(execproto.KindResult, e)
	// The host accepts a limited number of streams, and more would close the whole channel: further
	// connections wait in the kernel.
	slots := make(chan struct{}, maxAccepted)
	for {
		slots <- struct{}{}
		c, err := acceptOn(f)
		if err != nil {
			st.Reset()
			return
		}
		var id execproto.Enc
		id.Uint(uint64(st.ID()))
		s, err := st.Session().Open(execproto.KindAccepted, id)
		if err != nil {
			c.Close()
			return
		}
		go func() {
			carry(s, c)
			<-slots
		}()
	}
}

func acceptOn(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var c int
	var cerr error
	err = raw.Read(func(fd uintptr) bool {
		c, _, cerr = unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if cerr == unix.EMFILE || cerr == unix.ENFILE {
			time.Sleep(10 * time.Millisecond)
			return false
		}
		return cerr != unix.EAGAIN && cerr != unix.EINTR && cerr != unix.ECONNABORTED
	})
	if err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(c), "tcp"), nil
}
