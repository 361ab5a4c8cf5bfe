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
	keep []byte     // the complete output, while it is short
	file *os.File
	name string
	full int64 // bytes kept
	max  int64 // maximum of full; ≤ 0: keep nothing
	outs map[byte]*limited
	lost atomic.Bool // the host was gone before everything was sent
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
	o := &output{r: r, outs: map[byte]*limited{}}
	if r.req.Limit > 0 {
		if o.max = r.req.FullLimit; o.max == 0 {
			o.max = defaultFull
		}
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
	if o.max > 0 {
		o.save(b)
	}
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
	if o.r.to.Load().Send(kind, b) != nil && !o.r.quiet.Load() {
		o.lost.Store(true)
	}
}

// say adds a message of ours to the output.
func (o *output) say(kind byte, b []byte) { o.take(kind, b) }

// save keeps the complete output of both streams in order.
func (o *output) save(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.max - o.full; int64(len(b)) > n {
		b = b[:n]
	}
	o.full += int64(len(b))
	if o.file == nil && len(o.keep)+len(b) <= keepInMemory {
		o.keep = append(o.keep, b...)
		return
	}
	if o.file == nil && !o.spill() {
		return
	}
	if _, err := o.file.Write(b); err != nil {
		o.max = 0 // the disk is full: keep what was written
	}
}

// spill creates the file. The directory is ours, so no other process can have created a file there.
func (o *output) spill() bool {
	dir := o.r.sv.path("/run/evalrun")
	os.MkdirAll(dir, 0o755)
	o.r.sv.mu.Lock()
	o.r.sv.spools++
	n := o.r.sv.spools
	o.r.sv.mu.Unlock()
	o.name = "/run/evalrun/output-" + itoa(n)
	f, err := os.OpenFile(o.r.sv.path(o.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		o.max, o.name = 0, ""
		return false
	}
	o.file = f
	_, err = f.Write(o.keep)
	o.keep = nil
	return err == nil
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
	cut = cut || o.lost.Load()
	if cut && o.file == nil && o.max > 0 {
		o.spill()
	}
	if o.file != nil {
		o.file.Close()
		if cut {
			x.Full = o.r.sv.path(o.name)
		} else {
			os.Remove(o.r.sv.path(o.name))
		}
	}
}

// LeftOut is the line between head and tail, the same as that of sandbox.Cut.
func LeftOut(n int64) string { return "\n[... " + itoa(int(n)) + " bytes left out ...]\n" }
