package server

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

const chunk = 32 << 10

var chunks = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// An output sends the output of a command to the host. Of each stream the first half of the limit
// is sent as it comes, and the last half at the end. The complete output is kept as well, first in
// memory and then in a file, until it is known whether something was left out.
type output struct {
	r    *running
	mu   sync.Mutex // guards what both streams share
	full spool
	outs map[byte]*limited
	lost atomic.Bool // the host was gone before everything was sent
	kept transcript
}

// A spool keeps the complete output, first in memory and then in a file.
type spool struct {
	sv   *server
	keep []byte // the output, while it is short
	file *os.File
	name string
	n    int64 // bytes kept
	max  int64 // maximum of n; ≤ 0: keep nothing
}

// A limited stream sends its head and holds its tail.
type limited struct {
	count int64
	head  int64  // bytes still to be sent as they come; negative: no limit
	tail  []byte // a ring buffer, once it is full
	size  int
	at    int // index of the next byte in a full ring
	cut   int64
}

const (
	keepInMemory = 64 << 10
	defaultFull  = 64 << 20
)

func newOutput(r *running) *output {
	o := &output{r: r, outs: map[byte]*limited{}, full: spool{sv: r.sv}}
	if r.req.ID != "" && !r.req.Entry && r.req.Limit > 0 && r.req.Limit <= maxKept {
		o.kept.on = true
	}
	r.kept = &o.kept
	if r.req.Limit > 0 {
		o.full.setMax(r.req.FullLimit)
	}
	for _, kind := range []byte{execproto.KindData, execproto.KindErr} {
		l := &limited{head: -1}
		if n := r.req.Limit; n > 0 {
			l.head, l.size = n/2, int(n-n/2)
		}
		o.outs[kind] = l
	}
	return o
}

// A pump reads one pipe of a command.
type pump struct {
	o    *output
	kind byte
	f    *os.File
	done chan struct{}
}

func (o *output) pump(f *os.File, kind byte) *pump {
	return &pump{o: o, kind: kind, f: f, done: make(chan struct{})}
}

// run reads until the pipe ends, or until drain has set a deadline.
func (p *pump) run() {
	defer close(p.done)
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	for {
		n, err := p.f.Read(*b)
		if n > 0 {
			p.o.take(p.kind, (*b)[:n])
		}
		if err != nil {
			return
		}
	}
}

// drain is called when the command's own process has ended. Data in the pipe now is still sent.
// What other processes write later is read and dropped, so that they neither block nor get SIGPIPE.
func (p *pump) drain() {
	p.f.SetReadDeadline(time.Unix(1, 0))
	<-p.done
	p.f.SetReadDeadline(time.Time{})
	raw, err := p.f.SyscallConn()
	if err != nil {
		p.f.Close()
		return
	}
	b := chunks.Get().(*[]byte)
	eof := false
	raw.Control(func(fd uintptr) {
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		for err == nil {
			// Read once more when nothing is left: usually this finds the end of the pipe and saves
			// a goroutine.
			n, e := syscall.Read(int(fd), (*b)[:min(chunk, max(left, 1))])
			if n > 0 && left > 0 {
				p.o.take(p.kind, (*b)[:n])
				left -= n
				continue
			}
			eof = e == nil && n == 0
			if e == syscall.EINTR {
				continue
			}
			break
		}
	})
	chunks.Put(b)
	if eof {
		p.f.Close()
		return
	}
	p.abandon()
}

// abandon reads and drops data until the last writer has closed the pipe.
func (p *pump) abandon() {
	go func() {
		b := make([]byte, 4<<10)
		for {
			if _, err := p.f.Read(b); err != nil {
				p.f.Close()
				return
			}
		}
	}()
}

// take sends what a stream has delivered.
func (o *output) take(kind byte, b []byte) {
	l := o.outs[kind]
	l.count += int64(len(b))
	o.mu.Lock()
	o.full.save(b)
	o.mu.Unlock()
	if l.head < 0 {
		o.send(kind, b)
		return
	}
	if n := min(l.head, int64(len(b))); n > 0 {
		l.head -= n
		o.send(kind, b[:n])
		b = b[n:]
	}
	l.hold(b)
}

// hold keeps the last bytes of a stream.
func (l *limited) hold(b []byte) {
	if n := min(l.size-len(l.tail), len(b)); n > 0 {
		l.tail = append(l.tail, b[:n]...)
		b = b[n:]
	}
	l.cut += int64(len(b))
	if len(b) > l.size {
		b = b[len(b)-l.size:]
	}
	for len(b) > 0 {
		n := copy(l.tail[l.at:], b)
		l.at = (l.at + n) % l.size
		b = b[n:]
	}
}

func (o *output) send(kind byte, b []byte) {
	if o.r.quiet.Load() || (o.r.req.Discard && (kind == execproto.KindData)) {
		return
	}
	kept := o.kept.add(kind, b)
	if o.r.to.Load().Send(kind, b) != nil && !o.r.quiet.Load() && !kept {
		o.lost.Store(true)
	}
}

// A transcript keeps what was sent of a command's output, for a host that asks for it by its ID after
// the one that started it has died. It is kept for commands with an ID and a limit.
type transcript struct {
	mu    sync.Mutex
	on    bool
	parts []part
}

type part struct {
	kind byte
	text []byte
}

const (
	maxKept   = 256 << 10 // highest Limit of a command whose output is kept
	keptExits = 16        // number of newest commands whose output is kept
)

// add keeps b, and reports whether it did.
func (t *transcript) add(kind byte, b []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.on || len(b) == 0 {
		return t.on
	}
	if n := len(t.parts); n > 0 && t.parts[n-1].kind == kind {
		t.parts[n-1].text = append(t.parts[n-1].text, b...)
	} else {
		t.parts = append(t.parts, part{kind, append([]byte(nil), b...)})
	}
	return true
}

// drop forgets what was kept.
func (t *transcript) drop() {
	t.mu.Lock()
	t.on, t.parts = false, nil
	t.mu.Unlock()
}

// repeat sends what was kept.
func (t *transcript) repeat(st *execproto.Stream) {
	t.mu.Lock()
	parts := t.parts
	t.mu.Unlock()
	for _, p := range parts {
		st.Send(p.kind, p.text)
	}
}

// say adds a message of ours to the output.
func (o *output) say(kind byte, b []byte) { o.take(kind, b) }

// setMax sets the maximum from a request's FullLimit.
func (s *spool) setMax(limit int64) {
	if s.max = limit; limit == 0 {
		s.max = defaultFull
	}
}

// save keeps b, as far as there is room.
func (s *spool) save(b []byte) {
	if s.max <= 0 {
		return
	}
	if n := s.max - s.n; int64(len(b)) > n {
		b = b[:n]
	}
	s.n += int64(len(b))
	if s.file == nil && len(s.keep)+len(b) <= keepInMemory {
		s.keep = append(s.keep, b...)
		return
	}
	if s.file == nil && !s.spill() {
		return
	}
	if _, err := s.file.Write(b); err != nil {
		s.max = 0 // the disk is full: keep what was written
	}
}

// spill creates the file. The directory is ours, so no other process can have created a file there.
func (s *spool) spill() bool {
	dir := s.sv.path("/run/evalrun")
	os.MkdirAll(dir, 0o755)
	s.sv.mu.Lock()
	s.sv.spools++
	n := s.sv.spools
	s.sv.mu.Unlock()
	s.name = "/run/evalrun/output-" + itoa(n)
	f, err := os.OpenFile(s.sv.path(s.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		s.max, s.name = 0, ""
		return false
	}
	s.file = f
	_, err = f.Write(s.keep)
	s.keep = nil
	return err == nil
}

// end returns the path of the file if something was cut from the output, and else removes it.
func (s *spool) end(cut bool) (path string) {
	if cut && s.file == nil && s.max > 0 {
		s.spill()
	}
	if s.file == nil {
		return ""
	}
	s.file.Close()
	if !cut {
		os.Remove(s.sv.path(s.name))
		return ""
	}
	return s.sv.path(s.name)
}

// finish sends the tails and fills in the counts of x.
func (o *output) finish(x *execproto.Exit) {
	cut := false
	for _, kind := range []byte{execproto.KindData, execproto.KindErr} {
		l := o.outs[kind]
		if l.cut > 0 {
			cut = true
			o.send(kind, []byte(LeftOut(l.cut)))
		}
		o.send(kind, l.tail[l.at:])
		o.send(kind, l.tail[:l.at])
	}
	x.Out, x.Err = o.outs[execproto.KindData].count, o.outs[execproto.KindErr].count
	o.mu.Lock()
	defer o.mu.Unlock()
	x.Full = o.full.end(cut || o.lost.Load())
}

// LeftOut is the line between head and tail, the same as that of sandbox.Cut.
func LeftOut(n int64) string { return "\n[... " + itoa(int(n)) + " bytes left out ...]\n" }
