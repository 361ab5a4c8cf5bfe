package server

import (
	"encoding/binary"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/internal/isolate"
)

// tun is the machine's network interface, if it was asked for. There is one machine to a process.
var tun struct {
	f    *os.File
	err  error
	note string // what does not work of it

	mu   sync.Mutex
	st   *execproto.Stream // who has it
	done chan struct{}     // closed when that one has let go
}

// openTun makes the interface, while we still see the host's devices and before anything else runs.
// A machine without one has the proxy's way out only, which the host is told when it asks.
func (sv *server) openTun() {
	tun.f, tun.err = isolate.OpenTun()
	if sv.container { // whose device it is; commands could do nothing with it, having no CAP_NET_ADMIN
		os.Remove("/dev/net/tun")
	}
}

// nameServer tells programs whom to ask for names. In place: an engine mounts the file.
func (sv *server) nameServer() {
	if tun.f == nil {
		return
	}
	if err := os.WriteFile(sv.path("/etc/resolv.conf"), []byte(execproto.ResolvConf), 0o644); err != nil {
		tun.note = "names are not resolved inside: " + err.Error()
	}
}

func init() {
	own[execproto.KindTun] = func(sv *server, st *execproto.Stream, _ []byte) { go carryPackets(sv, st) }
}

func carryPackets(sv *server, st *execproto.Stream) {
	if tun.f == nil {
		sv.answer(st, func() (execproto.Enc, error) {
			if tun.err != nil {
				return nil, &execproto.Unsupported{What: "a network interface: " + tun.err.Error()}
			}
			return nil, &execproto.Unsupported{What: "a network interface: the machine was started without one"}
		})
		return
	}
	done := make(chan struct{})
	tun.mu.Lock()
	old, oldDone := tun.st, tun.done
	tun.st, tun.done = st, done
	tun.mu.Unlock()
	defer close(done)
	if old != nil {
		old.Reset()
		<-oldDone
	}
	e := execproto.OK()
	e.String(tun.note)
	if st.Send(execproto.KindResult, e) != nil {
		return
	}
	tun.f.SetReadDeadline(time.Time{})
	out := make(chan struct{})
	go func() {
		defer close(out)
		packetsOut(st)
	}()
	packetsIn(st)
	tun.f.SetReadDeadline(time.Unix(1, 0))
	<-out
	st.Reset()
}

// packetsOut sends what programs send, as much at a time as is there.
func packetsOut(st *execproto.Stream) {
	raw, err := tun.f.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, 2*execproto.MaxData)
	for {
		n := 0
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			for n < execproto.MaxData {
				m, err := unix.Read(int(fd), b[n+2:])
				if err == unix.EINTR {
					continue
				}
				if err == unix.EAGAIN {
					return n > 0
				}
				if err != nil {
					rerr = err
					return true
				}
				if m > 0 && m <= execproto.TunMTU {
					binary.BigEndian.PutUint16(b[n:], uint16(m))
					n += 2 + m
				}
			}
			return true
		})
		if err == nil {
			err = rerr
		}
		if err == nil {
			err = st.Send(execproto.KindData, b[:n])
		}
		if err != nil {
			st.Interrupt(err) // packetsIn ends, too
			return
		}
	}
}

// packetsIn hands on what the host answers. What the kernel does not take is lost, as on any wire.
func packetsIn(st *execproto.Stream) {
	var rest []byte
	for {
		m, err := st.Recv()
		if err != nil {
			return
		}
		if m.Kind != execproto.KindData {
			continue
		}
		b := m.Body
		if len(rest) > 0 {
			b = append(rest, b...)
		}
		for len(b) >= 2 {
			n := int(binary.BigEndian.Uint16(b))
			if len(b) < 2+n {
				break
			}
			tun.f.Write(b[2 : 2+n])
			b = b[2+n:]
		}
		rest = append([]byte(nil), b...)
	}
}
