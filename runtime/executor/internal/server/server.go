// Package server is the executor inside a sandbox. It starts commands, carries their streams, moves
// files, connects to ports, listens on ports and kills processes. It speaks the protocol of package
// execproto on one channel that it inherits, and ends with that channel.
//
// In a sandbox with a PID namespace it is process 1. Without isolation it is a subreaper, so that
// no process that it started can escape it.
//
// The package is part of a small program that starts for every sandbox, so it imports little: no
// net, no fmt, no context.
package server

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/internal/isolate"
)

type server struct {
	c           *channel
	cfg         execproto.Config
	init        bool // we are process 1
	container   bool // an engine has created the container around us
	fork        *forker
	tracers     *forker // as fork, for traced commands; nil if they cannot be traced
	born        chan struct{}
	usage       *usage
	mounted     map[string]string // mounts at the start, see mounts
	orphanTimer *time.Timer       // ends a container without a host

	started time.Time
	heard   atomic.Int64 // when a host last sent something, in nanoseconds after the start

	ready  bool            // used by the reading goroutine only
	nonces map[string]bool // of hosts that have connected; none may be used again. Used by admit only

	mu      sync.Mutex
	trees   map[int]*tree // by the supervisor's pid
	byID    map[string]*exitRecord
	order   []string // of byID, oldest first
	running map[*running]struct{}
	spools  int
	shells  map[string]*shellSlot // by name
}

// A tree is the processes of one command: its supervisor and all their descendants.
type tree struct {
	pid   int
	entry bool          // it is the sandbox's ENTRYPOINT
	gone  chan struct{} // closed when the supervisor has been reaped
}

type exitRecord struct {
	done chan struct{}
	run  *running
	exit execproto.Exit
	err  error
}

// maxExits limits the results that are kept for callers that ask again.
const maxExits = 4096

// ignoreSignals makes process 1 ignore signals from inside: root may send it any signal, and Go's
// runtime would end the process for most of them. They are ignored instead of set to default: the
// kernel drops a signal to process 1 that has no handler, but not while one of several threads has
// it blocked, as Go's threads do at times. fork restores the defaults for commands. SIGURG stays,
// by which the runtime interrupts its own threads, and SIGQUIT for the host; see guardQuit.
func ignoreSignals() {
	guardQuit()
	act := [4]uint64{1 /* SIG_IGN */}
	for n := uintptr(1); n <= 64; n++ {
		if n != uintptr(syscall.SIGURG) && n != uintptr(syscall.SIGCHLD) && n != uintptr(syscall.SIGQUIT) {
			syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
		}
	}
}

// end kills all processes. The end of process 1 is the end of its namespace.
func (sv *server) end() {
	if sv.init {
		os.Exit(0)
	}
	sv.killProcesses(false)
}

// handlers are the handlers of requests that other files implement; their init functions add them.
// A handler is called by the session's reader with a body of its own. It must not block, nor write
// to the stream.
var handlers = map[byte]func(sv *server, st *execproto.Stream, body []byte){}

func (sv *server) accept(st *execproto.Stream, kind byte, body []byte, extra []int) {
	if kind == execproto.KindHello {
		err := sv.hello(body, extra)
		go sv.answer(st, func() (execproto.Enc, error) { return execproto.OK(), err })
		return
	}
	if !sv.ready {
		st.Session().Close()
		return
	}
	b := append([]byte(nil), body...)
	switch kind {
	case execproto.KindExec:
		sv.exec(st, b)
	case execproto.KindPut:
		go sv.answer(st, func() (execproto.Enc, error) {
			return execproto.OK(), sv.put(st, execproto.NewDec(b).String())
		})
	case execproto.KindGet:
		go sv.answer(st, func() (execproto.Enc, error) {
			return execproto.OK(), sv.get(st, execproto.NewDec(b).String())
		})
	case execproto.KindDial:
		go sv.dial(st, int(execproto.NewDec(b).Uint()))
	case execproto.KindListen:
		go sv.listen(st, int(execproto.NewDec(b).Uint()))
	case execproto.KindStats:
		go sv.answer(st, sv.stats)
	case execproto.KindKillAll:
		entry := len(b) > 0 && b[0] != 0 // with the ENTRYPOINT
		go sv.answer(st, func() (execproto.Enc, error) { return execproto.OK(), sv.killProcesses(!entry) })
	case execproto.KindRemember:
		go sv.answer(st, func() (execproto.Enc, error) { return sv.remember(st, execproto.NewDec(b).String()) })
	case execproto.KindResume:
		go sv.answer(st, func() (execproto.Enc, error) {
			e := execproto.OK()
			e.Int(int64(sv.cfg.Orphan))
			return e, execproto.CheckVersion(execproto.NewDec(b).Uint())
		})
	default:
		if f := handlers[kind]; f != nil {
			f(sv, st, b)
			return
		}
		go sv.answer(st, func() (execproto.Enc, error) { return nil, errors.New("the executor knows no such request") })
	}
}

func (sv *server) answer(st *execproto.Stream, f func() (execproto.Enc, error)) {
	e, err := f()
	if err != nil {
		e = execproto.Fail(err)
	}
	st.Send(execproto.KindResult, e)
	st.Finish()
}

// hello sets up the sandbox as the host has configured it.
func (sv *server) hello(body []byte, extra []int) error {
	if sv.ready {
		return errors.New("a second hello")
	}
	cfg, err := execproto.DecodeConfig(body)
	if err != nil {
		return err
	}
	sv.cfg = cfg
	switch {
	case cfg.Hosts != 0:
		if err := sv.acceptHosts(int(cfg.Hosts)); err != nil {
			return err
		}
	case cfg.Key != nil:
		sv.c.admit = sv.admit
	}
	if sv.container {
		sv.usage = findUsage()
	}
	if cfg.Tun {
		sv.openTun()
	}
	if len(cfg.Setup) > 0 {
		if err := isolate.Setup(cfg.Setup); err != nil {
			return err
		}
	}
	if cfg.Tun {
		sv.nameServer()
	}
	if sv.cfg.Root == "/" {
		sv.cfg.Root = ""
	}
	sv.mounted = mounts()
	if !sv.init {
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	setVictims()
	enter := func() error {
		for _, fd := range extra {
			_, err := unix.Write(fd, []byte{'0'})
			for err == unix.EINTR {
				_, err = unix.Write(fd, []byte{'0'})
			}
			if err != nil {
				return errors.New("entering a control group: " + err.Error())
			}
		}
		return nil
	}
	sv.fork, err = newForker(func() error {
		if err := enter(); err != nil {
			return err
		}
		if cfg.Drop {
			return isolate.Drop(sv.rules())
		}
		if !sv.init {
			return isolate.Guard()
		}
		return nil
	}, startSupervisor)
	if err == nil && cfg.Trace && cfg.Drop && sv.init {
		if !mayTrace() {
			return errors.New("tracing commands: process 1 has no CAP_SYS_PTRACE")
		}
		sv.tracers, err = newForker(enter, sv.startTracer)
	}
	for _, fd := range extra {
		unix.Close(fd)
	}
	if err != nil {
		return err
	}
	if sv.container {
		// Every sandbox has /tmp, even if its image has not.
		if os.Mkdir("/tmp", 0o777) == nil {
			os.Chmod("/tmp", 0o777|os.ModeSticky)
		}
	}
	if d := sv.cfg.Dir; d != "" {
		if err := os.MkdirAll(sv.path(d), 0o755); err != nil {
			return err
		}
	}
	go sv.reap()
	if cfg.Orphan > 0 {
		go sv.watch()
	}
	if sv.orphanTimer != nil {
		sv.orphanTimer.Stop()
	}
	sv.ready = true
	return nil
}

// path returns where an absolute path of the sandbox is in our own view.
func (sv *server) path(p string) string {
	if sv.cfg.Root == "" || p == sv.cfg.Root ||
		(len(p) > len(sv.cfg.Root) && p[:len(sv.cfg.Root)+1] == sv.cfg.Root+"/") {
		return p
	}
	return sv.cfg.Root + clean(p)
}

// watch ends a sandbox whose owner has sent nothing for its Orphan time.
func (sv *server) watch() {
	for {
		left := sv.cfg.Orphan - (time.Since(sv.started) - time.Duration(sv.heard.Load()))
		if left <= 0 {
			sv.c.close()
			return
		}
		time.Sleep(left)
	}
}

// start starts a supervisor with its command.
func (sv *server) start(l *launch, entry, traced bool) (*tree, error) {
	// The lock is held over the fork, so that the reaper knows each supervisor before it can end.
	sv.mu.Lock()
	defer sv.mu.Unlock()
	f := sv.fork
	if traced {
		f = sv.tracers
	}
	pid, err := f.fork(l)
	if err != nil {
		return nil, err
	}
	t := &tree{pid: pid, entry: entry, gone: make(chan struct{})}
	sv.trees[pid] = t
	select {
	case sv.born <- struct{}{}:
	default:
	}
	return t, nil
}

// exists reports whether a tree's supervisor has not been reaped. After KillAll it is false for all
// that ran before.
func (sv *server) exists(t *tree) bool {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.trees[t.pid] == t
}

// reap waits for children. All our children are supervisors. Any other child has lost its
// supervisor, which only a process inside can have killed, so it is killed as well.
func (sv *server) reap() {
	for {
		var ws syscall.WaitStatus
		// With WNOWAIT first, the PID is not reused before the tree is removed from the table.
		var info [128]byte
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, 0 /* P_ALL */, 0, uintptr(ptr(&info[0])),
			unix.WEXITED|unix.WNOWAIT, 0, 0)
		if errno == syscall.ECHILD {
			<-sv.born
			continue
		}
		if errno != 0 {
			continue
		}
		pid := int(*(*int32)(ptr(&info[16])))
		sv.mu.Lock()
		t := sv.trees[pid]
		delete(sv.trees, pid)
		syscall.Wait4(pid, &ws, 0, nil)
		sv.mu.Unlock()
		if t != nil {
			if ws.Signaled() {
				sv.killOrphans()
			}
			close(t.gone)
			select { // an orphan that has ended wakes us by itself; one that is alive is killed here
			case <-sv.born:
			default:
			}
		}
	}
}

// remember answers a host that asks again for a command's result. It waits for one that is running.
func (sv *server) remember(st *execproto.Stream, id string) (execproto.Enc, error) {
	sv.mu.Lock()
	r := sv.byID[id]
	sv.mu.Unlock()
	e := execproto.OK()
	if r == nil {
		e.Bool(false)
		return e, nil
	}
	gone := make(chan struct{})
	go func() {
		for { // nothing else arrives on this stream
			if _, err := st.Recv(); err != nil {
				close(gone)
				return
			}
		}
	}()
	select {
	case <-r.done:
	case <-gone:
		return nil, execproto.ErrClosed
	}
	if r.err != nil {
		return nil, r.err
	}
	e.Bool(true)
	r.exit.Encode(&e)
	return e, nil
}
