// Package execproto is the protocol between evalrun and its executor inside a sandbox: frames over
// one byte channel, many streams in it, with credit.
//
// A frame is
//
//	length of the body  uint32, big endian
//	stream              uint32  host's are odd, executor's even, 0 is the session itself
//	kind                uint8
//	body
//	end                 uint8, the session's own
//
// The last byte makes a frame whole: what a host began and never finished, followed by the token of
// the next host, in which there is no such byte, is never taken for a frame (see [Token]). Nor is a
// frame of the host before that comes late.
//
// Either side opens streams ([Session.Open]; the other side's [Options].Accept sees them). Data
// kinds take credit: a sender has [Window] bytes in flight for a stream and waits until the
// receiver has consumed some. So a slow reader slows the producer, memory is bounded for each
// stream, and one stream never blocks another. All other kinds are small and sent at once.
//
// Either side may be hostile: a frame that is too long, data beyond the credit, or a flood of small
// frames ends the session. The package imports little, because it is part of a program that starts
// for every sandbox.
package execproto

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// Kinds of frames. Those below KindData open streams and belong to the messages of the executor.
const (
	KindData   = 0x40 + iota // bytes; of an exec: stdin to the executor, stdout from it
	KindErr                  // bytes of stderr
	KindEOF                  // no more KindData from this side
	KindResult               // the stream's last frame from the executor: see Result
	KindSignal               // Int: a signal for the command's process group; -1: kill the whole tree
	KindQuiet                // the host wants no more output; the executor reads and drops it
	KindCredit               // Uint: so many bytes were consumed
	KindReset                // the sender has forgotten the stream
	KindPing                 // stream 0; answered by KindPong with the same body
	KindPong
)

const (
	// Window is how many bytes of data may be in flight on a stream.
	Window = 256 << 10
	// MaxData is the longest body of a data frame.
	MaxData = 32 << 10
	// MaxOpen is the longest body of any frame: a command line with its environment fits.
	MaxOpen = 4 << 20
	// MaxReply is the longest body that a host takes from an executor.
	MaxReply = 64 << 10

	headerLen  = 9
	trailerLen = 1
	overhead   = 64      // what a queued message counts besides its bytes
	maxQueue   = 4 << 10 // small messages that may wait on a stream
)

var (
	// ErrClosed: the session has ended.
	ErrClosed = errors.New("channel closed")
	// ErrReset: the other side has forgotten the stream.
	ErrReset = errors.New("stream was reset by the other side")
	// ErrProtocol: the other side broke the rules; nothing it says is used any more.
	ErrProtocol = errors.New("protocol violation by the other side")
)

// Options of a session.
type Options struct {
	Host     bool // the side that owns odd streams
	MaxFrame int  // longest body taken from the other side
	End      byte // what frames end in; see SessionEnd
	// Accept sees a stream that the other side opened. It is called by the reading goroutine and
	// must not block; it may set st.Control. A nil Accept refuses all streams.
	Accept func(st *Stream, kind byte, body []byte)
	// Heard is called for every frame that arrives, by the reading goroutine.
	Heard func()
	// MaxStreams that the other side may have open; 0: 1024.
	MaxStreams int
}

// A Session is one channel with its streams.
type Session struct {
	rw  io.ReadWriteCloser
	opt Options

	wmu  sync.Mutex
	wbuf []byte

	mu      sync.Mutex
	streams map[uint32]*Stream
	next    uint32
	theirs  int
	err     error
	done    chan struct{}
	pings   map[uint64]chan struct{}
	pingN   uint64
	pongs   int
}

// NewSession makes a session over rw. The caller runs Serve.
func NewSession(rw io.ReadWriteCloser, opt Options) *Session {
	s := &Session{rw: rw, opt: opt, streams: map[uint32]*Stream{}, done: make(chan struct{}), next: 2}
	if opt.Host {
		s.next = 1
	}
	if s.opt.MaxStreams == 0 {
		s.opt.MaxStreams = 1024
	}
	return s
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is why the session ended, or nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and all its streams.
func (s *Session) Close() error {
	s.fail(ErrClosed)
	return nil
}

// Abort ends the session and all its streams with err. It also wakes who is blocked in a write
// because the other side does not read.
func (s *Session) Abort(err error) { s.fail(err) }

func (s *Session) fail(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	streams := s.streams
	s.streams = nil
	close(s.done)
	s.mu.Unlock()
	s.rw.Close()
	for _, st := range streams {
		st.end(err)
	}
}

// Open starts a stream with a first message.
func (s *Session) Open(kind byte, body []byte) (*Stream, error) {
	if len(body) > MaxOpen {
		return nil, errors.New("message of more than 4 MiB")
	}
	s.mu.Lock()
	if s.err != nil {
		err := s.err
		s.mu.Unlock()
		return nil, err
	}
	st := newStream(s, s.next)
	s.next += 2
	s.streams[st.id] = st
	s.mu.Unlock()
	if err := s.write(st.id, kind, body); err != nil {
		return nil, err
	}
	return st, nil
}

// Ping asks the other side for a sign of life and waits for it until stop is closed.
func (s *Session) Ping(stop <-chan struct{}) error {
	ch := make(chan struct{})
	s.mu.Lock()
	if s.pings == nil {
		s.pings = map[uint64]chan struct{}{}
	}
	s.pingN++
	n := s.pingN
	s.pings[n] = ch
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.pings, n)
		s.mu.Unlock()
	}()
	var e Enc
	e.Uint(n)
	if err := s.write(0, KindPing, e); err != nil {
		return err
	}
	select {
	case <-ch:
		return nil
	case <-s.done:
		return s.Err()
	case <-stop:
		return errors.New("no answer to a ping")
	}
}

// write sends one frame. A failure ends the session.
func (s *Session) write(id uint32, kind byte, body []byte) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	b := s.wbuf[:0]
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, id)
	b = append(b, kind)
	b = append(b, body...)
	b = append(b, s.opt.End)
	if cap(b) <= MaxData+1024 {
		s.wbuf = b
	}
	if _, err := s.rw.Write(b); err != nil {
		if e := s.Err(); e != nil {
			return e
		}
		s.fail(ErrClosed)
		return ErrClosed
	}
	return nil
}

// Serve reads frames until the channel ends, and returns why it did. The end of the input is
// io.EOF.
func (s *Session) Serve() error {
	err := s.serve()
	s.fail(err)
	return err
}

func (s *Session) serve() error {
	r := &frameReader{r: s.rw, max: s.opt.MaxFrame, last: s.opt.End}
	for {
		id, kind, body, err := r.next()
		if err != nil {
			return err
		}
		if s.opt.Heard != nil {
			s.opt.Heard()
		}
		if id == 0 {
			if err := s.control(kind, body); err != nil {
				return err
			}
			continue
		}
		s.mu.Lock()
		st := s.streams[id]
		s.mu.Unlock()
		if kind < KindData {
			if st != nil {
				return ErrProtocol
			}
			if err := s.accept(id, kind, body); err != nil {
				return err
			}
			continue
		}
		if st == nil {
			continue // closed by us a moment ago
		}
		if err := st.take(kind, body); err != nil {
			return err
		}
	}
}

func (s *Session) control(kind byte, body []byte) error {
	switch kind {
	case KindPing:
		if len(body) > 16 {
			return ErrProtocol
		}
		s.pong(append([]byte(nil), body...))
		return nil
	case KindPong:
		d := NewDec(body)
		n := d.Uint()
		s.mu.Lock()
		if ch := s.pings[n]; ch != nil {
			delete(s.pings, n)
			close(ch)
		}
		s.mu.Unlock()
		return nil
	}
	return ErrProtocol
}

// maxPongs wait to be written at most; further pings get no answer, as nobody reads.
const maxPongs = 64

// pong answers in a goroutine of its own. The reader never writes: where nobody reads what we
// write, it would not hear the next host.
func (s *Session) pong(body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pongs == maxPongs {
		return
	}
	s.pongs++
	go func() {
		s.write(0, KindPong, body)
		s.mu.Lock()
		s.pongs--
		s.mu.Unlock()
	}()
}

func (s *Session) accept(id uint32, kind byte, body []byte) error {
	if s.opt.Accept == nil || (id%2 == 1) == s.opt.Host {
		return ErrProtocol
	}
	st := newStream(s, id)
	st.theirs = true
	s.mu.Lock()
	if s.err != nil || s.theirs >= s.opt.MaxStreams {
		s.mu.Unlock()
		return ErrProtocol
	}
	s.theirs++
	s.streams[id] = st
	s.mu.Unlock()
	s.opt.Accept(st, kind, body)
	return nil
}

// forget reports whether the stream was known until now: neither side had ended it, nor had the
// session ended.
func (s *Session) forget(st *Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.id] != st {
		return false
	}
	delete(s.streams, st.id)
	if st.theirs {
		s.theirs--
	}
	return true
}

// frameReader reads frames through one buffer. A body is valid until the next call.
type frameReader struct {
	r          io.Reader
	max        int
	last       byte
	buf        []byte
	start, end int
}

func (f *frameReader) next() (id uint32, kind byte, body []byte, err error) {
	if err := f.fill(headerLen); err != nil {
		if err == io.EOF && f.end > f.start {
			err = io.ErrUnexpectedEOF
		}
		return 0, 0, nil, err
	}
	h := f.buf[f.start:]
	n := binary.BigEndian.Uint32(h)
	id, kind = binary.BigEndian.Uint32(h[4:]), h[8]
	if uint64(n) > uint64(f.max) {
		return 0, 0, nil, ErrProtocol
	}
	all := headerLen + int(n) + trailerLen
	if err := f.fill(all); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, 0, nil, err
	}
	body = f.buf[f.start+headerLen : f.start+headerLen+int(n)]
	if f.buf[f.start+all-1] != f.last {
		return 0, 0, nil, ErrProtocol
	}
	f.start += all
	return id, kind, body, nil
}

// fill makes at least n bytes available from start on.
func (f *frameReader) fill(n int) error {
	if f.end-f.start >= n {
		return nil
	}
	if f.start > 0 {
		copy(f.buf, f.buf[f.start:f.end])
		f.end -= f.start
		f.start = 0
	}
	const (
		small = 4 << 10
		most  = headerLen + MaxData + trailerLen
	)
	if len(f.buf) > most && n <= MaxData { // a long frame has passed: give its buffer back
		f.buf = append(make([]byte, 0, most), f.buf[:f.end]...)[:f.end]
		f.buf = f.buf[:cap(f.buf)]
	}
	if len(f.buf) < n {
		size := max(n, small, min(2*len(f.buf), most))
		b := make([]byte, size)
		copy(b, f.buf[:f.end])
		f.buf = b
	}
	for f.end < n {
		m, err := f.r.Read(f.buf[f.end:])
		f.end += m
		if err != nil && f.end < n {
			return err
		}
	}
	return nil
}
