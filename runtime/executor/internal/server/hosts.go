package server

import (
	"os"
	"time"

	"github.com/evalrun/evalrun/internal/execproto"
)

// maxHosts may take a machine up again, one after the other.
const maxHosts = 4096

// helloLimit is how long a container waits for its first host: nobody closes its streams when that
// has died, and nothing else was said about how long to live.
const helloLimit = time.Minute

// serve speaks on c until it ends. extra are descriptors of control files which the thread that
// starts commands writes "0" to, and so enters these control groups.
func serve(c *channel, container bool, extra []int) int {
	guardSelf()
	sv := &server{
		c: c, init: os.Getpid() == 1, container: container,
		born:  make(chan struct{}, 1),
		trees: map[int]*tree{}, byID: map[string]*remembered{}, running: map[*running]struct{}{},
		nonces: map[string]bool{},
	}
	if sv.init {
		ignoreSignals()
	}
	if sv.init && len(extra) == 0 {
		spareThreads()
	}
	hear := func() { sv.heard.Store(time.Now().UnixNano()) }
	hear()
	if container {
		sv.alone = time.AfterFunc(helloLimit, c.close)
	}
	for {
		l := c.leg(sv.greeting)
		s := execproto.NewSession(l, execproto.Options{
			MaxFrame: execproto.MaxOpen, MaxStreams: 1 << 20, Heard: hear, End: sv.last,
			Accept: func(st *execproto.Stream, kind byte, body []byte) { sv.accept(st, kind, body, extra) },
		})
		s.Serve()
		l.Close()
		if !c.found && !c.await() {
			break
		}
		sv.drop(s)
		hear()
	}
	sv.end()
	return 0
}

// drop forgets a host that another one has followed. Its commands go on when they have an ID by
// which their end can be asked for; all others are killed (those with a part of their input are
// already, see feed). ENTRYPOINT goes on.
func (sv *server) drop(s *execproto.Session) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for r := range sv.running {
		if r.st.Session() == s && !r.req.Entry && r.req.ID == "" {
			r.end()
		}
	}
}

// welcome reports whether a token is one of a new host, and keeps the answer to it.
func (sv *server) welcome(token []byte) bool {
	nonce, ok := execproto.CheckToken(sv.cfg.Key, execproto.HostSpeaks, token)
	if !ok || sv.nonces[string(nonce)] || len(sv.nonces) >= maxHosts {
		return false
	}
	sv.nonces[string(nonce)] = true
	sv.last = execproto.SessionEnd(nonce)
	sv.greeting = execproto.Token(sv.cfg.Key, execproto.ExecutorSpeaks, nonce)
	return true
}
