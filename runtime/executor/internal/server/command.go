package server

import (
	"errors"
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

func ptr(b *byte) unsafe.Pointer { return unsafe.Pointer(b) }

// killLimit limits how long the processes of a command may take to die.
const killLimit = 10 * time.Second

// A running is a command that runs, as the host's control messages see it.
type running struct {
	sv    *server
	st    *execproto.Stream
	req   execproto.Exec
	once  sync.Once
	kill  chan struct{} // closed to kill the command
	over  chan struct{} // closed when the command's result is known
	quiet atomic.Bool
	child atomic.Int32                     // pid of the supervisor
	kept  *transcript                      // nil before it starts
	to    atomic.Pointer[execproto.Stream] // where output goes: st, or for ENTRYPOINT that of the host which asked last
}

func (r *running) end() { r.once.Do(func() { close(r.kill) }) }

// exec runs on the session's reader, so it must not block.
func (sv *server) exec(st *execproto.Stream, body []byte) {
	req, err := execproto.DecodeExec(body)
	if err != nil || len(req.Args) == 0 && !req.Files {
		go sv.answer(st, func() (execproto.Enc, error) { return nil, errors.New("a command without a program") })
		return
	}
	r := &running{sv: sv, st: st, req: req, kill: make(chan struct{}), over: make(chan struct{})}
	r.to.Store(st)
	st.Control = func(kind byte, b []byte) {
		switch kind {
		case execproto.KindQuiet:
			r.quiet.Store(true)
		case execproto.KindReset:
			r.quiet.Store(true)
			r.end()
		case execproto.KindSignal:
			if sig := execproto.NewDec(b).Int(); sig < 0 {
				r.end()
			} else {
				go r.signal(syscall.Signal(sig))
			}
		}
	}
	sv.mu.Lock()
	sv.running[r] = struct{}{}
	sv.mu.Unlock()
	go func() {
		sv.answer(st, func() (execproto.Enc, error) {
			exit, err := r.runOnce()
			e := execproto.OK()
			exit.Encode(&e)
			return e, err
		})
		sv.mu.Lock()
		delete(sv.running, r)
		sv.mu.Unlock()
	}()
}

// signal sends sig to the process group of the command's first process.
func (r *running) signal(sig syscall.Signal) {
	sup := int(r.child.Load())
	if sup == 0 || sig <= 0 || sig > 64 {
		return
	}
	for _, p := range processTable() {
		if p.ppid == sup {
			syscall.Kill(-p.pid, sig)
			return
		}
	}
}

// runOnce runs the command, or returns the result of the command that was run with its ID before.
func (r *running) runOnce() (execproto.Exit, error) {
	sv := r.sv
	if r.req.ID == "" {
		return r.run()
	}
	sv.mu.Lock()
	m := sv.byID[r.req.ID]
	if m != nil {
		sv.mu.Unlock()
		if r.req.Entry && m.run.req.Entry { // the next host asks for the same ENTRYPOINT, and may kill it
			m.run.to.Store(r.st) // its output from now on
			select {
			case <-r.kill:
				m.run.end()
				<-m.done // now no process of it is left
			case <-m.done:
			}
			return m.exit, m.err
		}
		select {
		case <-m.done:
			if m.run.kept != nil && !r.req.Discard {
				m.run.kept.repeat(r.st)
			}
			return m.exit, m.err
		case <-r.kill:
			return execproto.Exit{}, errors.New("given up while waiting for the first command with this id")
		}
	}
	m = &exitRecord{done: make(chan struct{}), run: r}
	sv.byID[r.req.ID] = m
	sv.order = append(sv.order, r.req.ID)
	if i := len(sv.order) - 1 - keptExits; i >= 0 {
		old := sv.byID[sv.order[i]]
		select {
		case <-old.done:
			if old.run.kept != nil {
				old.run.kept.drop()
			}
		default: // it is still running
		}
	}
	if len(sv.order) > maxExits {
		for i, id := range sv.order {
			old := sv.byID[id]
			select {
			case <-old.done:
				delete(sv.byID, id)
				sv.order = append(sv.order[:i], sv.order[i+1:]...)
			default:
				continue
			}
			break
		}
	}
	sv.mu.Unlock()
	m.exit, m.err = r.run()
	close(m.done)
	return m.exit, m.err
}

func (r *running) run() (execproto.Exit, error) {
	defer close(r.over)
	sv, req := r.sv, &r.req
	begun := time.Now()
	if req.Trace && sv.tracers == nil {
		return execproto.Exit{}, &execproto.Unsupported{What: "trace a command: its sandbox was created " +
			"without Spec.Trace"}
	}
	l, err := sv.prepare(req)
	if err != nil {
		return execproto.Exit{}, err
	}
	var theirs, ours []*os.File // the command's ends and our ends of pipes
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	fail := func(err error) (execproto.Exit, error) {
		for _, f := range ours {
			f.Close()
		}
		return execproto.Exit{}, err
	}
	pipe := func(in bool) (*os.File, int, error) {
		p, err := newPipe()
		if err != nil {
			return nil, 0, err
		}
		their, our := p[1], p[0]
		if in {
			their, our = our, their
		}
		unix.SetNonblock(our, true)
		f, t := os.NewFile(uintptr(our), "pipe"), os.NewFile(uintptr(their), "pipe")
		theirs, ours = append(theirs, t), append(ours, f)
		return f, their, nil
	}
	var stdin *os.File
	if req.Stdin {
		if stdin, l.stdin, err = pipe(true); err != nil {
			return fail(err)
		}
	} else {
		n, err := highFD(unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0))
		if err != nil {
			return fail(err)
		}
		theirs, l.stdin = append(theirs, os.NewFile(uintptr(n), "null")), n
	}
	out := newOutput(r)
	var pumps []*pump
	f, fd, err := pipe(false)
	if err != nil {
		return fail(err)
	}
	l.stdout, l.stderr = fd, fd
	pumps = append(pumps, out.pump(f, execproto.KindData))
	if !req.Merge {
		if f, l.stderr, err = pipe(false); err != nil {
			return fail(err)
		}
		pumps = append(pumps, out.pump(f, execproto.KindErr))
	}
	status, fd, err := pipe(false)
	if err != nil {
		return fail(err)
	}
	l.status = fd
	t, err := sv.start(l, req.Entry, req.Trace)
	for _, f := range theirs {
		f.Close()
	}
	theirs = nil
	if err != nil {
		for _, f := range ours {
			f.Close()
		}
		return r.refused(out, record{failed: int32(errnoOf(err)), step: stepFork}, begun), nil
	}
	r.child.Store(int32(t.pid))
	defer r.child.Store(0)
	for _, p := range pumps {
		go p.run()
	}
	if stdin != nil {
		go r.feed(stdin)
	}

	var timeout <-chan time.Time
	if req.Timeout > 0 {
		timer := time.NewTimer(req.Timeout - time.Since(begun))
		defer timer.Stop()
		timeout = timer.C
	}
	ended := make(chan record, 1)
	go func() {
		defer status.Close()
		var rec record
		if _, err := io.ReadFull(status, (*[unsafe.Sizeof(rec)]byte)(unsafe.Pointer(&rec))[:]); err != nil {
			// Killed from inside, or by KillAll: the supervisor is gone without a report.
			<-t.gone
			rec = record{status: uint32(syscall.SIGKILL)}
		} else if req.Trace {
			r.forwardLookups(status)
		}
		ended <- rec
	}()
	var rec record
	timedOut, killed := false, false
	select {
	case rec = <-ended:
	case <-timeout:
		timedOut = true
	case <-r.kill:
		killed = true
	}
	if timedOut || killed {
		if !sv.killTree(t, killLimit) {
			for _, p := range pumps {
				p.abandon()
			}
			if stdin != nil {
				stdin.Close()
			}
			return execproto.Exit{}, errAlive
		}
		rec = <-ended
	}
	wall := time.Since(begun)
	oom := sv.usage.killed()
	if stdin != nil {
		stdin.Close()
	}
	for _, p := range pumps {
		p.drain()
	}
	if rec.step == stepTrace {
		return execproto.Exit{}, errors.New("tracing a command: " + syscall.Errno(rec.failed).Error())
	}
	if rec.failed != 0 {
		return r.refused(out, rec, begun), nil
	}
	x := execproto.Exit{TimedOut: timedOut, Wall: wall, CPU: time.Duration(rec.cpu) * time.Microsecond,
		MaxRSS: rec.maxRSS << 10}
	ws := syscall.WaitStatus(rec.status)
	if ws.Signaled() {
		x.Code, x.Signal = -1, unix.SignalName(ws.Signal())
		if x.Signal == "" {
			x.Signal = "SIG" + itoa(int(ws.Signal()))
		}
	} else {
		x.Code = ws.ExitStatus()
	}
	x.OOM = oom && (x.Code != 0 || x.Signal != "")
	out.finish(&x)
	return x, nil
}

// refused returns the result of a command that could not be started: like a shell's, with the
// reason as its output.
func (r *running) refused(out *output, rec record, begun time.Time) execproto.Exit {
	code, msg := r.sv.refusal(&r.req, rec)
	x := execproto.Exit{Code: code, Wall: time.Since(begun)}
	kind := byte(execproto.KindErr)
	if r.req.Merge {
		kind = execproto.KindData
	}
	out.say(kind, []byte(msg+"\n"))
	out.finish(&x)
	return x
}

// refusal says why a command could not be started.
func (sv *server) refusal(req *execproto.Exec, rec record) (code int, msg string) {
	errno := syscall.Errno(rec.failed)
	code, msg = 126, errno.Error()
	what := "a file operation"
	if !req.Files {
		what = req.Args[0]
	}
	switch rec.step {
	case stepDir:
		what = "working directory " + sv.dirOf(req)
	case stepUser:
		what = "becoming user " + req.User
	case stepExec:
		if errno == syscall.ENOENT || errno == syscall.ENOTDIR {
			code, msg = 127, "command not found"
		}
	}
	return code, "evalrun: " + what + ": " + msg
}

func (sv *server) dirOf(req *execproto.Exec) string {
	if req.Dir != "" {
		return req.Dir
	}
	if sv.cfg.Dir != "" {
		return sv.cfg.Dir
	}
	return "/"
}

// feed copies the host's bytes into the command's input until one of them ends. If the host is gone
// before the end of the input, the command is killed first, so that it does not take a part for the
// whole.
func (r *running) feed(w *os.File) {
	defer w.Close()
	for dry := false; ; {
		m, err := r.st.Recv()
		switch {
		case err != nil && !dry:
			r.end()
			<-r.over
			return
		case err != nil || m.Kind == execproto.KindEOF:
			return
		case m.Kind == execproto.KindData && !dry:
			if _, err := w.Write(m.Body); err != nil {
				// The command no longer reads. Drop the rest, or the host's writes would block.
				dry = true
			}
		}
	}
}

func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return syscall.EIO
}

func itoa(n int) string {
	if n < 0 {
		return "-" + itoa(-n)
	}
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}
