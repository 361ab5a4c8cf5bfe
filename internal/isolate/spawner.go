package isolate

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A spawner is a small process that starts sandboxes for a large one. A user namespace needs a real
// fork instead of a vfork, and copying the page tables of a process with hundreds of megabytes
// takes longer than everything else. The spawner also stays to clean up when its owner is killed, and
// to be the parent of the processes that are to outlive the owner (Start.Keep).
//
// It exchanges packets over a socket that it inherits:
//
//	start  id and all of Start; descriptors: the channel, then the others that Start describes
//	       → started id, pid, error
//	kill   id
//	quit   id; requests the stacks of a process that is to end, stopped or not
//	       → ended id, once the process has been reaped and the paths are removed
//
// When the socket is closed, the spawner ends everything that it has started and is not to be kept,
// waits for the rest, and ends.

// Start is a request to the spawner to start a process.
type Start struct {
	ID    uint64
	Plain bool   // without namespaces
	Base  uint64 // first outer uid and gid
	Size  uint64 // number of uids and gids; 1 means the caller's own
	Group bool   // the last descriptor is a cgroup (v2) in which the process starts
	Tasks uint64 // number of descriptors after the channel that are cgroup (v1) files to enter
	Image bool   // the descriptor of a detached mount follows them
	// Keep lets the process outlive the owner of the spawner. The descriptor of its listening socket
	// follows.
	Keep bool
	// Hold is set if the next descriptor is not for the process: the spawner holds it until the
	// process has ended.
	Hold   bool
	Name   string // shown as an argument, so that a later Reap can identify the process
	Remove []string
}

const (
	OpStart = iota + 1
	OpKill
	OpQuit
	OpStarted
	OpEnded
)

func (s *Start) Encode() []byte {
	var e execproto.Enc
	e.Uint(OpStart)
	e.Uint(s.ID)
	e.Bool(s.Plain)
	e.Uint(s.Base)
	e.Uint(s.Size)
	e.Bool(s.Group)
	e.Uint(s.Tasks)
	e.Bool(s.Image)
	e.Bool(s.Keep)
	e.Bool(s.Hold)
	e.String(s.Name)
	e.Strings(s.Remove)
	return e
}

type spawner struct {
	sock int
	wmu  sync.Mutex
	mu   sync.Mutex
	pids map[uint64]*child
	wg   sync.WaitGroup
}

type child struct {
	p      *os.Process
	plain  bool
	keep   bool
	hold   int // -1: none
	remove []string
}

// FirstTask is the descriptor of the first control group file in a process started by a spawner; 3
// is the channel.
const FirstTask = 4

// Spawn serves the socket fd until it is closed.
func Spawn(fd int) int {
	// The spawner stays dumpable. Otherwise only root could write the uid maps of its children.
	closeInherited(fd)
	s := &spawner{sock: fd, pids: map[uint64]*child{}}
	buf := make([]byte, 64<<10)
	oob := make([]byte, unix.CmsgSpace(4*32))
	for {
		n, oobn, _, _, err := unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		var fds []int
		if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
			for i := range msgs {
				if f, err := unix.ParseUnixRights(&msgs[i]); err == nil {
					fds = append(fds, f...)
				}
			}
		}
		d := execproto.NewDec(buf[:n])
		switch d.Uint() {
		case OpStart:
			st := Start{ID: d.Uint(), Plain: d.Bool(), Base: d.Uint(), Size: d.Uint(), Group: d.Bool(), Tasks: d.Uint(),
				Image: d.Bool(), Keep: d.Bool(), Hold: d.Bool(), Name: d.String(), Remove: d.Strings()}
			s.start(st, fds)
		case OpKill:
			if c := s.child(d.Uint()); c != nil {
				c.p.Kill()
			}
		case OpQuit:
			if c := s.child(d.Uint()); c != nil {
				c.p.Signal(unix.SIGQUIT)
				c.p.Signal(unix.SIGCONT)
			}
		}
	}
	// An executor without a process namespace must end its process trees itself, which it also does
	// when its channel is closed.
	s.killAll(false)
	timer := time.AfterFunc(plainLimit, func() { s.killAll(true) })
	defer timer.Stop()
	s.wg.Wait()
	return 0
}

// closeInherited closes what our owner has inherited by chance (a lock, the pipe of a shell) and we
// would hold as long as we live, which may be longer. It spares what this process has opened itself,
// all of which is closed on exec.
func closeInherited(keep int) {
	names, _ := os.ReadDir("/proc/self/fd")
	for _, n := range names {
		fd, err := strconv.Atoi(n.Name())
		if err != nil || fd <= 2 || fd == keep {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

func (s *spawner) child(id uint64) *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids[id]
}

// plainLimit is how long an executor without isolation may take to stop its processes.
const plainLimit = 15 * time.Second

func (s *spawner) killAll(plain bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.pids {
		if !c.keep && (plain || !c.plain) {
			c.p.Kill()
		}
	}
}

// start runs on the main thread, which never ends, because the children die with that thread
// (PR_SET_PDEATHSIG).
func (s *spawner) start(st Start, fds []int) {
	files := make([]uintptr, 0, len(fds)+3)
	files = append(files, 0, 1, 2)
	group, hold := -1, -1
	pass := fds
	if st.Group && len(pass) > 0 {
		group, pass = pass[len(pass)-1], pass[:len(pass)-1]
	}
	if st.Hold && len(pass) > 0 {
		hold, pass = pass[len(pass)-1], pass[:len(pass)-1]
	}
	for _, f := range pass {
		files = append(files, uintptr(f))
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if st.Plain {
		attr.Setsid = true
		attr.Pdeathsig = 0 // it must live to stop its own processes; the end of the channel tells it to
	} else {
		attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(st.Base), Size: int(st.Size)}}
		attr.GidMappings = attr.UidMappings
		if st.Size == 1 {
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		} else {
			attr.GidMappingsEnableSetgroups = true
		}
		attr.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: st.Size == 1}
	}
	if group >= 0 {
		attr.UseCgroupFD, attr.CgroupFD = true, group
	}
	argv := []string{Name, "serve", itoa(st.Tasks), st.Name}
	start := func() (pid int, err error) {
		if !st.Plain && st.Size > 1 {
			// Resources used inside also count for the owner of the namespace, which is the user
			// who creates it.
			defer func() {
				if become(0) != nil {
					os.Exit(4) // as an unprivileged user it cannot start anything more
				}
			}()
			if err := become(int(st.Base)); err != nil {
				return 0, err
			}
		}
		pid, _, err = syscall.StartProcess("/proc/self/exe", argv, &syscall.ProcAttr{
			Env:   []string{"GOMAXPROCS=1", "GOGC=50", "GOTRACEBACK=crash"},
			Files: files,
			Sys:   attr,
		})
		return pid, err
	}
	pid, err := start()
	for _, f := range fds {
		if f != hold || err != nil {
			unix.Close(f)
		}
	}
	var e execproto.Enc
	e.Uint(OpStarted)
	e.Uint(st.ID)
	if err != nil {
		remove(st.Remove)
		e.Uint(0)
		e.String(err.Error())
		s.say(e)
		return
	}
	p, _ := os.FindProcess(pid)
	c := &child{p: p, plain: st.Plain, keep: st.Keep, hold: hold, remove: st.Remove}
	s.mu.Lock()
	s.pids[st.ID] = c
	s.mu.Unlock()
	e.Uint(uint64(pid))
	e.String("")
	s.say(e) // before the message about its end
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		state, _ := c.p.Wait()
		s.mu.Lock()
		delete(s.pids, st.ID)
		s.mu.Unlock()
		remove(c.remove)
		if c.hold >= 0 {
			unix.Close(c.hold)
		}
		var e execproto.Enc
		e.Uint(OpEnded)
		e.Uint(st.ID)
		how := ""
		if state != nil {
			how = state.String()
		}
		e.String(how)
		s.say(e)
	}()
}

// become changes the effective user of this thread only and keeps all capabilities.
func become(uid int) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return failed("reading capabilities", err)
	}
	if _, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
		return failed("becoming user "+strconv.Itoa(uid), e)
	}
	for i := range data {
		data[i].Effective = data[i].Permitted
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return failed("keeping capabilities", err)
	}
	unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) // a change of user clears it
	return nil
}

func (s *spawner) say(b []byte) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	// A lost message would leave a Create or Close waiting forever.
	for unix.Sendmsg(s.sock, b, nil, nil, unix.MSG_NOSIGNAL) == unix.EINTR {
	}
}

// remove deletes what the sandbox has left outside: its control groups and its entry in the state
// folder. A path that ends with a slash is a folder, which is removed with its contents.
func remove(paths []string) {
	for _, p := range paths {
		if strings.HasSuffix(p, "/") {
			if os.RemoveAll(p) != nil { // a command has made a folder unwritable
				filepath.WalkDir(p, func(name string, d fs.DirEntry, err error) error {
					if d != nil && d.IsDir() {
						unix.Chmod(name, 0o700)
					}
					return nil
				})
				os.RemoveAll(p)
			}
			continue
		}
		for range 50 {
			err := unix.Rmdir(p)
			if err == unix.ENOTDIR {
				err = unix.Unlink(p)
			}
			if err != unix.EBUSY {
				break
			}
			// The last task has ended, but its group may notice a moment later.
			pause()
		}
	}
}

// Name is argv[0] of our own processes.
const Name = "evalrun-init"

func itoa(n uint64) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

func pause() {
	ts := unix.Timespec{Nsec: 1e6}
	unix.Nanosleep(&ts, nil)
}
