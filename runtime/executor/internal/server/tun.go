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

// tun is the sandbox's network interface, if it was asked for. There is one sandbox in a process.
var tun struct {
	f    *os.File
	err  error
	note string // what does not work

	mu   sync.Mutex
	st   *execproto.Stream // the stream that carries its packets
	done chan struct{}     // closed when that stream has ended
}

// openTun creates the interface, while we still see the host's devices and before anything else
// runs. Without an interface the sandbox can use the proxy only; the host learns that when it asks.
func (sv *server) openTun() {
	tun.f, tun.err = isolate.OpenTun()
	if sv.container { // the device is the engine's; commands cannot use it, without CAP_NET_ADMIN
		os.Remove("/dev/net/tun")
	}
}

// nameServer writes resolv.conf. It writes in place, because an engine mounts the file.
func (sv *server) nameServer() {
	if tun.f == nil {
		return
	}
	if err := os.WriteFile(sv.path("/etc/resolv.conf"), []byte(execproto.ResolvConf), 0o644); err != nil {
		tun.note = "names are not resolved inside: " + err.Error()
	}
}

func init() {
	handlers[execproto.KindTun] = func(sv *server, st *execproto.Stream, _ []byte) { go carryPackets(sv, st) }
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

// packetsOut sends the packets of programs to the host, as many at a time as there are.
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
			st.Interrupt(err) // packetsIn ends too
			return
		}
	}
}

// packetsIn writes the host's packets. Those that the kernel does not take are lost, as on any
// network.
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
