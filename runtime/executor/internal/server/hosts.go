package server

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// maxHosts limits how often a host can reattach to the sandbox.
const maxHosts = 4096

// helloLimit is how long a container waits for its first host. Nothing closes its streams when that
// host has died, and no Orphan time is known yet.
const helloLimit = time.Minute

// serve serves hosts on c until it is closed. extra are descriptors of control group files: the
// thread that starts commands writes "0" to them to enter these groups.
func serve(c *channel, container bool, extra []int) int {
	guardSelf()
	sv := &server{
		c: c, init: os.Getpid() == 1, container: container,
		born: make(chan struct{}, 1), started: time.Now(),
		trees: map[int]*tree{}, byID: map[string]*exitRecord{}, running: map[*running]struct{}{},
		nonces: map[string]bool{}, shells: map[string]*shellSlot{},
	}
	if sv.init {
		ignoreSignals()
	}
	if sv.init && len(extra) == 0 {
		spareThreads()
	}
	hear := func() { sv.heard.Store(int64(time.Since(sv.started))) }
	hear()
	if container {
		sv.orphanTimer = time.AfterFunc(helloLimit, c.close)
	}
	var h host
	for {
		l := c.hostConn(h.welcome)
		s := execproto.NewSession(l, execproto.Options{
			MaxFrame: execproto.MaxOpen, MaxStreams: 1 << 20, Heard: hear, End: h.end,
			Accept: func(st *execproto.Stream, kind byte, body []byte) { sv.accept(st, kind, body, extra) },
		})
		s.Serve()
		l.Close()
		var ok bool
		if h, ok = c.next(); !ok {
			break
		}
		sv.dropHost(s)
		hear()
	}
	sv.end()
	return 0
}

// dropHost ends the session of a host that another one has replaced. Its commands with an ID go on,
// since their results can be asked for; all others are killed (those with incomplete input already
// are, see feed). The ENTRYPOINT goes on.
func (sv *server) dropHost(s *execproto.Session) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for r := range sv.running {
		if r.st.Session() == s && !r.req.Entry && r.req.ID == "" {
			r.end()
		}
	}
}

// A host is one that has reattached. The first host is the zero value.
type host struct {
	welcome []byte   // the token that answers its own
	end     byte     // that its frames end in
	conn    *os.File // its own connection; nil: it uses the channel
}

// admit reports whether a token is one of a new host. It is called by one goroutine: the one that
// reads the channel, or the one that accepts connections.
func (sv *server) admit(token []byte) (h host, ok bool) {
	nonce, ok := execproto.CheckToken(sv.cfg.Key, execproto.HostSpeaks, token)
	if !ok || sv.nonces[string(nonce)] || len(sv.nonces) >= maxHosts {
		return host{}, false
	}
	sv.nonces[string(nonce)] = true
	return host{welcome: execproto.Token(sv.cfg.Key, execproto.ExecutorSpeaks, nonce),
		end: execproto.SessionEnd(nonce)}, true
}

// tokenLimit is how long a new connection may take to send its token.
const tokenLimit = 5 * time.Second

// acceptHosts accepts the connections of other hosts on a listening socket, whose path no process
// inside can reach. A connection that does not begin with a valid token is closed.
func (sv *server) acceptHosts(fd int) error {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return errors.New("the socket for other hosts: " + err.Error())
	}
	l := os.NewFile(uintptr(fd), "hosts")
	raw, err := l.SyscallConn()
	if err != nil {
		return errors.New("the socket for other hosts: " + err.Error())
	}
	sv.c.come = make(chan struct{}, 1)
	go func() {
		token := make([]byte, execproto.TokenLen)
		for {
			conn, err := -1, error(nil)
			if raw.Read(func(fd uintptr) bool {
				conn, _, err = unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
				return err != unix.EAGAIN
			}) != nil {
				return
			}
			if err != nil {
				time.Sleep(time.Millisecond) // no descriptors, for example
				continue
			}
			f := os.NewFile(uintptr(conn), "channel")
			f.SetReadDeadline(time.Now().Add(tokenLimit))
			_, err = io.ReadFull(f, token)
			h, ok := sv.admit(token)
			if err != nil || !ok {
				f.Close()
				continue
			}
			h.conn = f
			sv.c.arrive(h)
		}
	}()
	return nil
}
