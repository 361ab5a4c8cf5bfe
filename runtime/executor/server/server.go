// Package server is the executor inside a sandbox: it starts commands, carries their streams, moves files, dials and
// listens on ports, and kills. It speaks the protocol of package wire on one channel that it inherits, and
// ends when the channel does.
//
// In a sandbox with a process namespace it is process 1. Elsewhere (no isolation) it is a subreaper, so that what it
// started cannot run away from it.
//
// The package is part of a small program that starts for every sandbox, so it imports little: no net, no fmt, no
// context.
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

	"github.com/evalrun/evalrun/runtime/executor/isolate"
	"github.com/evalrun/evalrun/runtime/executor/wire"
)

type server struct {
	s    *wire.Session
	cfg  wire.Config
	init bool // we are process 1
	fork *forker
	born chan struct{}

	heard atomic.Int64 // when the host last spoke, in unix nanoseconds

	mu     sync.Mutex
	ready  bool
	trees  map[int]*tree // by the supervisor's pid
	byID   map[string]*remembered
	order  []string // of byID, oldest first
	exited map[int]bool
	spools int
}

// A tree is one command with all that came of it.
type tree struct {
	pid  int
	gone chan struct{} // closed when the supervisor has been reaped
}

type remembered struct {
	done chan struct{}
	exit wire.Exit
	err  error
	tree *tree
}

// maxRemembered exits are kept for callers that ask again.
const maxRemembered = 4096

// Serve speaks on ch until it ends. extra are descriptors of control files which the thread that starts commands
// writes "0" to, and so enters these control groups.
func Serve(ch *os.File, extra []int) int {
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	sv := &server{
		init:  os.Getpid() == 1,
		born:  make(chan struct{}, 1),
		trees: map[int]*tree{}, byID: map[string]*remembered{}, exited: map[int]bool{},
	}
	if sv.init {
		ignoreSignals()
	}
	sv.heard.Store(time.Now().UnixNano())
	sv.s = wire.NewSession(ch, wire.Options{MaxFrame: wire.MaxOpen, MaxStreams: 1 << 20, Accept: func(st *wire.Stream, kind byte, body []byte) {
		sv.accept(st, kind, body, extra)
	}, Heard: func() { sv.heard.Store(time.Now().UnixNano()) }})
	sv.s.Serve()
	sv.end()
	return 0
}

// ignoreSignals makes process 1 deaf to what is inside: whoever is root there may send it any signal, and Go's runtime would
// end us on most of them. Ignored, not default: the kernel drops a signal to process 1 that has no handler, but not while one of
// several threads has it blocked, as Go's do for moments. fork gives commands the defaults back. SIGURG stays, by which the
// runtime interrupts its own threads.
func ignoreSignals() {
	act := [4]uint64{1 /* SIG_IGN */}
	for n := uintptr(1); n <= 64; n++ {
		if n != uintptr(syscall.SIGURG) && n != uintptr(syscall.SIGCHLD) {
			syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
		}
	}
}

// end leaves nothing behind. The end of process 1 is the end of its namespace.
func (sv *server) end() {
	if sv.init {
		os.Exit(0)
	}
	sv.killAll()
}

func (sv *server) accept(st *wire.Stream, kind byte, body []byte, extra []int) {
	if kind == wire.KindHello {
		if err := sv.hello(body, extra); err != nil {
			st.Send(wire.KindResult, wire.Fail(err))
		} else {
			st.Send(wire.KindResult, wire.OK())
		}
		st.Finish()
		return
	}
	if !sv.ready {
		sv.s.Close()
		return
	}
	b := append([]byte(nil), body...)
	switch kind {
	case wire.KindExec:
		sv.exec(st, b)
	case wire.KindPut:
		go sv.answer(st, func() (wire.Enc, error) { return wire.OK(), sv.put(st, wire.NewDec(b).String()) })
	case wire.KindGet:
		go sv.answer(st, func() (wire.Enc, error) { return wire.OK(), sv.get(st, wire.NewDec(b).String()) })
	case wire.KindDial:
		go sv.dial(st, int(wire.NewDec(b).Uint()))
	case wire.KindListen:
		go sv.listen(st, int(wire.NewDec(b).Uint()))
	case wire.KindStats:
		go sv.answer(st, sv.stats)
	case wire.KindKillAll:
		go sv.answer(st, func() (wire.Enc, error) { return wire.OK(), sv.killAll() })
	case wire.KindRemember:
		go sv.answer(st, func() (wire.Enc, error) { return sv.remember(wire.NewDec(b).String()) })
	default:
		st.Send(wire.KindResult, wire.Fail(errors.New("the executor knows no such request")))
		st.Finish()
	}
}

func (sv *server) answer(st *wire.Stream, f func() (wire.Enc, error)) {
	e, err := f()
	if err != nil {
		e = wire.Fail(err)
	}
	st.Send(wire.KindResult, e)
	st.Finish()
}

// hello sets the machine up as the host says.
func (sv *server) hello(body []byte, extra []int) error {
	if sv.ready {
		return errors.New("a second hello")
	}
	cfg, err := wire.DecodeConfig(body)
	if err != nil {
		return err
	}
	sv.cfg = cfg
	if len(cfg.Setup) > 0 {
		if err := isolate.Setup(cfg.Setup); err != nil {
			return err
		}
	}
	if sv.cfg.Root == "/" {
		sv.cfg.Root = ""
	}
	if !sv.init {
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	sv.fork, err = newForker(func() error {
		for _, fd := range extra {
			if _, err := unix.Write(fd, []byte{'0'}); err != nil {
				return errors.New("entering a control group: " + err.Error())
			}
			unix.Close(fd)
		}
		if cfg.Drop {
			_, perProcess := cfg.Limits["as"]
			return isolate.Drop(perProcess)
		}
		if !sv.init {
			return isolate.Guard()
		}
		return nil
	})
	if err != nil {
		return err
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
	sv.ready = true
	return nil
}

// path is where an absolute path of the sandbox lies in our own view.
func (sv *server) path(p string) string {
	if sv.cfg.Root == "" || p == sv.cfg.Root || (len(p) > len(sv.cfg.Root) && p[:len(sv.cfg.Root)+1] == sv.cfg.Root+"/") {
		return p
	}
	return sv.cfg.Root + clean(p)
}

// watch ends a machine whose owner has fallen silent.
func (sv *server) watch() {
	for {
		left := sv.cfg.Orphan - time.Since(time.Unix(0, sv.heard.Load()))
		if left <= 0 {
			sv.s.Close()
			return
		}
		time.Sleep(left)
	}
}

// start forks a supervisor with its command.
func (sv *server) start(l *launch) (*tree, error) {
	// The lock is held over the fork, so that the reaper knows every supervisor before it meets a dead one.
	sv.mu.Lock()
	defer sv.mu.Unlock()
	pid, err := sv.fork.fork(l)
	if err != nil {
		return nil, err
	}
	t := &tree{pid: pid, gone: make(chan struct{})}
	sv.trees[pid] = t
	select {
	case sv.born <- struct{}{}:
	default:
	}
	return t, nil
}

// reap waits for children. All of ours are supervisors; any other has lost its own, which only somebody inside can have
// killed, so it is killed as well.
func (sv *server) reap() {
	for {
		var ws syscall.WaitStatus
		// WNOWAIT first: the pid stays taken until the tree is out of the table.
		var info [128]byte
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, 0 /* P_ALL */, 0, uintptr(ptr(&info[0])), unix.WEXITED|unix.WNOWAIT, 0, 0)
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
				sv.killStrays()
			}
			close(t.gone)
			select { // a stray that we adopted wakes us by its own end; one that lives is killed here
			case <-sv.born:
			default:
			}
		}
	}
}

// killStrays kills what fell to us because its supervisor was killed.
func (sv *server) killStrays() {
	self := os.Getpid()
	for range 1000 {
		sv.mu.Lock()
		var strays []int
		ps := procs()
		for _, p := range ps {
			if p.ppid == self && !p.zombie && sv.trees[p.pid] == nil {
				strays = append(strays, p.pid)
				strays = append(strays, below(ps, p.pid)...)
			}
		}
		sv.mu.Unlock()
		if len(strays) == 0 {
			return
		}
		for _, pid := range strays {
			signalBelow(pid, self, syscall.SIGKILL)
		}
		for { // reap what is dead of them, so that the next look is not of zombies
			sv.mu.Lock()
			n := 0
			for _, pid := range strays {
				if sv.trees[pid] == nil {
					if got, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got > 0 {
						n++
					}
				}
			}
			sv.mu.Unlock()
			if n == 0 {
				break
			}
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// killTree ends one command with all that came of it.
func (sv *server) killTree(t *tree, limit time.Duration) bool {
	if sv.init {
		sv.mu.Lock()
		alone := len(sv.trees) == 1 && sv.trees[t.pid] != nil
		if alone {
			// Nothing else runs here: one call, which no fork can outrun, ends it all.
			syscall.Kill(-1, syscall.SIGKILL)
		}
		sv.mu.Unlock()
	}
	return killTree(t.pid, t.gone, limit)
}

var errAlive = errors.New("some processes do not die")

// killAll ends everything that was ever started, and returns when nothing of it is left.
func (sv *server) killAll() error {
	end := time.Now().Add(10 * time.Second)
	if !sv.init {
		for {
			sv.mu.Lock()
			var ts []*tree
			for _, t := range sv.trees {
				ts = append(ts, t)
			}
			sv.mu.Unlock()
			if len(ts) == 0 {
				sv.killStrays()
				return nil
			}
			for _, t := range ts {
				if !killTree(t.pid, t.gone, time.Until(end)) {
					return errAlive
				}
			}
		}
	}
	for time.Now().Before(end) {
		syscall.Kill(-1, syscall.SIGKILL)
		sv.mu.Lock()
		n := len(sv.trees)
		sv.mu.Unlock()
		if n == 0 {
			if ps := below(procs(), 1); len(ps) == 0 {
				return nil
			}
		}
		time.Sleep(200 * time.Microsecond)
	}
	return errAlive
}

func (sv *server) stats() (wire.Enc, error) {
	sv.mu.Lock()
	roots := make([]int, 0, len(sv.trees))
	for pid := range sv.trees {
		roots = append(roots, pid)
	}
	sv.mu.Unlock()
	st := wire.Stats{Disk: -1}
	ps := procs()
	for _, r := range roots {
		st.Pids += len(below(ps, r))
	}
	var fs unix.Statfs_t
	if sv.init && unix.Statfs("/", &fs) == nil {
		st.Disk = int64(fs.Blocks-fs.Bfree) * int64(fs.Bsize)
	}
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) == nil {
		st.CPU = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
	e := wire.OK()
	e.Int(int64(st.Pids))
	e.Int(st.Disk)
	e.Int(int64(st.CPU))
	return e, nil
}

// remember answers a host that asks again for a command's end. It waits for one that still runs.
func (sv *server) remember(id string) (wire.Enc, error) {
	sv.mu.Lock()
	r := sv.byID[id]
	sv.mu.Unlock()
	e := wire.OK()
	if r == nil {
		e.Bool(false)
		return e, nil
	}
	<-r.done
	if r.err != nil {
		return nil, r.err
	}
	e.Bool(true)
	r.exit.Encode(&e)
	return e, nil
}
