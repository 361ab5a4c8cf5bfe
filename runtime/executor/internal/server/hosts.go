package server

import (
	"os"
	"time"

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
		born:  make(chan struct{}, 1),
		trees: map[int]*tree{}, byID: map[string]*exitRecord{}, running: map[*running]struct{}{},
		nonces: map[string]bool{}, shells: map[string]*shellSlot{},
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
		sv.orphanTimer = time.AfterFunc(helloLimit, c.close)
	}
	for {
		l := c.hostConn(sv.welcomeToken)
		s := execproto.NewSession(l, execproto.Options{
			MaxFrame: execproto.MaxOpen, MaxStreams: 1 << 20, Heard: hear, End: sv.last,
			Accept: func(st *execproto.Stream, kind byte, body []byte) { sv.accept(st, kind, body, extra) },
		})
		s.Serve()
		l.Close()
		if !c.found && !c.await() {
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

// acceptHost reports whether a token is one of a new host, and stores the answer to it.
func (sv *server) acceptHost(token []byte) bool {
	nonce, ok := execproto.CheckToken(sv.cfg.Key, execproto.HostSpeaks, token)
	if !ok || sv.nonces[string(nonce)] || len(sv.nonces) >= maxHosts {
		return false
	}
	sv.nonces[string(nonce)] = true
	sv.last = execproto.SessionEnd(nonce)
	sv.welcomeToken = execproto.Token(sv.cfg.Key, execproto.ExecutorSpeaks, nonce)
	return true
}
