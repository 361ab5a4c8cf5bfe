package server

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A visit is a command on a terminal that a person uses. It ends with everything that it has
// started.
type visit struct {
	sv   *server
	st   *execproto.Stream
	kill chan struct{} // closed to kill the command
	once sync.Once
	term atomic.Pointer[terminal] // nil before it is open
}

func init() {
	handlers[execproto.KindTerminal] = func(sv *server, st *execproto.Stream, body []byte) {
		v := &visit{sv: sv, st: st, kill: make(chan struct{})}
		st.Control = func(kind byte, b []byte) {
			switch d := execproto.NewDec(b); {
			case kind == execproto.KindReset:
				v.end()
			case kind != execproto.KindSignal:
			case d.Int() < 0:
				v.end()
			default:
				rows, cols := d.Uint(), d.Uint()
				if t := v.term.Load(); t != nil && d.Err() == nil {
					t.resize(uint16(rows), uint16(cols))
				}
			}
		}
		go sv.answer(st, func() (execproto.Enc, error) {
			e := execproto.OK()
			req, err := execproto.DecodeTerminal(body)
			if err != nil {
				return nil, err
			}
			x, err := v.run(&req)
			x.Encode(&e)
			return e, err
		})
	}
}

func (v *visit) end() { v.once.Do(func() { close(v.kill) }) }

// lastOutput limits how long the output of a command that has ended may take. Only a process
// outside of the command can hold its terminal open.
const lastOutput = 2 * time.Second

func (v *visit) run(req *execproto.Terminal) (x execproto.Exit, err error) {
	begun := time.Now()
	cmd := execproto.Exec{Args: req.Args, Dir: req.Dir, User: req.User, Env: req.Env}
	if len(cmd.Args) == 0 {
		return x, os.ErrInvalid
	}
	l, err := v.sv.prepare(&cmd)
	if err != nil {
		return x, err
	}
	uid, gid := -1, -1
	if l.setUser {
		uid, gid = l.uid, l.gid
	}
	term, err := openTerminal(v.sv.ptmx(), uid, gid, uint16(req.Rows), uint16(req.Cols))
	if err != nil {
		return x, &execproto.Unsupported{What: "a terminal: " + err.Error()}
	}
	defer term.master.Close()
	slave := int(term.slave.Fd())
	p, err := newPipe()
	if err != nil {
		term.slave.Close()
		return x, err
	}
	unix.SetNonblock(p[0], true)
	status, theirs := os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe")
	defer status.Close()
	l.stdin, l.stdout, l.stderr, l.status, l.tty = slave, slave, slave, p[1], true
	tree, err := v.sv.start(l, false, false)
	theirs.Close()
	term.slave.Close() // so that the master's end is seen when the last process has closed it
	if err != nil {
		return x, err
	}
	v.term.Store(term)
	defer v.term.Store(nil)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		v.show(term)
	}()
	go v.keys(term)

	ended := make(chan record, 1)
	go func() {
		var rec record
		if _, err := io.ReadFull(status, (*[unsafe.Sizeof(rec)]byte)(unsafe.Pointer(&rec))[:]); err != nil {
			<-tree.gone
			rec = record{status: uint32(syscall.SIGKILL)}
		}
		ended <- rec
	}()
	var rec record
	killed := false
	select {
	case rec = <-ended:
	case <-v.kill:
		killed = true
	}
	if !v.sv.killTree(tree, killLimit) {
		return x, errAlive
	}
	if killed {
		rec = <-ended
	}
	late := time.AfterFunc(lastOutput, func() { term.master.Close() })
	<-shown
	late.Stop()
	x.Wall = time.Since(begun)
	if rec.failed != 0 {
		var msg string
		x.Code, msg = v.sv.refusal(&cmd, rec)
		v.st.Send(execproto.KindData, []byte(msg+"\r\n"))
		return x, nil
	}
	x.CPU, x.MaxRSS = time.Duration(rec.cpu)*time.Microsecond, rec.maxRSS<<10
	x.Code, x.Signal = rec.result()
	return x, nil
}

// show sends what is written to the terminal. A host that does not read holds up the programs that
// write, as a terminal does.
func (v *visit) show(term *terminal) {
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	for {
		n, err := term.master.Read(*b)
		if n > 0 && v.st.Send(execproto.KindData, (*b)[:n]) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// keys types what the host sends. If the host is gone, the command is killed.
func (v *visit) keys(term *terminal) {
	for {
		m, err := v.st.Recv()
		if err != nil {
			v.end()
			return
		}
		if m.Kind == execproto.KindData {
			// It waits for a program that does not read, until the terminal is closed. The rest is
			// dropped then, so that the host's writes do not block.
			_, _ = term.master.Write(m.Body)
		}
	}
}
