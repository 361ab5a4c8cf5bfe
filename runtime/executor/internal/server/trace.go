package server

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/internal/isolate"
)

// A traced command has a supervisor that also is its tracer: this program, started anew (a fork of
// this process could not run Go). Unlike other supervisors, the tracer keeps the capabilities of
// process 1, since without CAP_SYS_PTRACE a traced setuid program would not get its privileges, nor
// could the names in its memory be read. So it starts this program once more, as the starter, which
// gives up what commands must not have and becomes the command. The starter is traced from its last
// steps on.
//
// Tracer and starter share these descriptors, after the standard streams of the command.
const (
	tracerStatus  = 3 // of the tracer: a record, then the lookups; see launch.status
	tracerLaunch  = 4 // of the tracer, inherited by the starter: the launch
	starterSocket = 3 // of the starter, closed by its exec
	starterLaunch = 4
)

// Arguments of the two.
const (
	tracerRole  = "trace"
	starterRole = "start"
)

// mayTrace reports whether this process has CAP_SYS_PTRACE.
func mayTrace() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&hdr, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

// startTracer starts a tracer, which starts the command.
func (sv *server) startTracer(l *launch) (int, error) {
	p, err := newPipe()
	if err != nil {
		return 0, err
	}
	r, w := os.NewFile(uintptr(p[0]), "launch"), os.NewFile(uintptr(p[1]), "launch")
	defer r.Close()
	b := l.encode(sv.rules())
	go func() { // a pipe does not hold a long environment
		w.Write(b)
		w.Close()
	}()
	return syscall.ForkExec("/proc/self/exe", []string{isolate.Name, tracerRole}, &syscall.ProcAttr{
		Env: []string{"GOMAXPROCS=1", "GOTRACEBACK=crash"},
		Files: []uintptr{uintptr(l.stdin), uintptr(l.stdout), uintptr(l.stderr), uintptr(l.status),
			uintptr(p[0])},
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
}

// rules returns the restrictions of commands.
func (sv *server) rules() isolate.Rules {
	_, perProcess := sv.cfg.Limits["as"]
	return isolate.Rules{PerProcess: perProcess, Setuid: sv.cfg.Setuid, Container: sv.container}
}

// encode returns a launch for a starter, which inherits the descriptors.
func (l *launch) encode(r isolate.Rules) []byte {
	texts := func(ps []*byte) (ss []string) {
		for _, p := range ps {
			if p != nil {
				ss = append(ss, unix.BytePtrToString(p))
			}
		}
		return ss
	}
	var e execproto.Enc
	e.Bool(r.PerProcess)
	e.Bool(r.Setuid)
	e.Bool(r.Container)
	e.Strings(texts(l.argv0))
	e.Strings(texts(l.argv))
	e.Strings(texts(l.env))
	e.String(unix.BytePtrToString(l.dir))
	e.Bool(l.setUser)
	e.Int(int64(l.uid))
	e.Int(int64(l.gid))
	e.Uint(uint64(len(l.groups)))
	for _, g := range l.groups {
		e.Uint(uint64(g))
	}
	e.Uint(uint64(len(l.rlimits)))
	for _, r := range l.rlimits {
		e.Uint(uint64(r.resource))
		e.Uint(r.value.Cur)
		e.Uint(r.value.Max)
	}
	return e
}

func decodeLaunch(b []byte) (l *launch, r isolate.Rules, err error) {
	l = &launch{}
	d := execproto.NewDec(b)
	r.PerProcess, r.Setuid, r.Container = d.Bool(), d.Bool(), d.Bool()
	for _, to := range []*[]*byte{&l.argv0, &l.argv, &l.env} {
		if *to, err = cStrings(d.Strings()); err != nil {
			return nil, r, err
		}
	}
	l.argv0 = l.argv0[:len(l.argv0)-1] // without the nil at its end
	if l.dir, err = unix.BytePtrFromString(d.String()); err != nil {
		return nil, r, err
	}
	l.setUser, l.uid, l.gid = d.Bool(), int(d.Int()), int(d.Int())
	for n := d.Uint(); n > 0 && d.More(); n-- {
		l.groups = append(l.groups, uint32(d.Uint()))
	}
	for n := d.Uint(); n > 0 && d.More(); n-- {
		l.rlimits = append(l.rlimits, rlimit{uintptr(d.Uint()), unix.Rlimit{Cur: d.Uint(), Max: d.Uint()}})
	}
	return l, r, d.Err()
}

// forwardLookups sends the host what the tracer has written after its record. If the host is gone,
// it goes on reading, so that the tracer can end.
func (r *running) forwardLookups(from io.Reader) {
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	gone := false
	for {
		n, err := from.Read(*b)
		if n > 0 && !gone {
			gone = r.st.Send(execproto.KindLookups, (*b)[:n]) != nil
		}
		if err != nil {
			return
		}
	}
}
