// Package execproto is the protocol between evalrun and its executor inside a sandbox. It
// multiplexes streams with flow control over one byte channel, in frames:
//
//	length of the body  uint32, big endian
//	stream              uint32  odd for the host's, even for the executor's, 0 for the session
//	kind                uint8
//	body
//	end                 uint8, specific to the session
//
// The last byte completes a frame. If a host dies within a frame, the token of the next host
// follows, which does not contain that byte, so the rest is never taken for a frame (see [Token]).
// The same holds for late frames of the previous host.
//
// Either side opens streams ([Session.Open]; the other side's [Options].Accept is called). Data
// kinds need credit: a sender may have [Window] bytes in flight per stream and waits until the
// receiver has consumed some. A slow reader thus slows the sender, memory is bounded per stream,
// and no stream blocks another. All other kinds are small and sent at once.
//
// Either side may be hostile: a frame that is too long, data beyond the credit, or a flood of small
// frames ends the session. The package has few imports, because it is part of a program that starts
// in every sandbox.
package execproto

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// Kinds of frames. Kinds below KindData open streams and are the executor's messages.
const (
	KindData   = 0x40 + iota // bytes; of an exec: stdin to the executor, stdout from it
	KindErr                  // bytes of stderr
	KindEOF                  // end of this side's KindData
	KindResult               // last frame of a stream from the executor, see Result
	KindSignal               // Int: a signal for the command's process group; -1 kills the whole process tree
	KindQuiet                // the host wants no more output; the executor discards it
	KindCredit               // Uint: number of bytes consumed
	KindReset                // the sender has closed the stream
	KindPing                 // stream 0; answered by KindPong with the same body
	KindPong
	KindLookups // bytes: what a traced command has looked up, see Lookups
)

const (
	// Window is the maximum number of bytes in flight on a stream.
	Window = 256 << 10
	// MaxData is the maximum length of the body of a data frame.
	MaxData = 32 << 10
	// MaxOpen is the maximum length of any frame's body. A command line with its environment fits.
	MaxOpen = 4 << 20
	// MaxReply is the maximum length of a body that a host accepts from an executor.
	MaxReply = 64 << 10

	headerLen  = 9
	trailerLen = 1
	overhead   = 64      // what a queued message counts in addition to its bytes
	maxQueue   = 4 << 10 // maximum number of small messages queued on a stream
)

var (
	// ErrClosed reports that the session has ended.
	ErrClosed = errors.New("channel closed")
	// ErrReset reports that the other side has closed the stream.
	ErrReset = errors.New("stream was reset by the other side")
	// ErrProtocol reports that the other side violated the protocol. Nothing more is read from it.
	ErrProtocol = errors.New("protocol violation by the other side")
)

// Options configures a session.
type Options struct {
	Host     bool // this side opens the odd streams
	MaxFrame int  // longest body accepted from the other side
	End      byte // last byte of each frame; see SessionEnd
	// Accept is called for each stream that the other side opens, by the reading goroutine. It must
	// not block. It may set st.Control. If nil, all streams are refused.
	Accept func(st *Stream, kind byte, body []byte)
	// Heard is called for every received frame, by the reading goroutine.
	Heard func()
	// MaxStreams is how many streams the other side may have open; 0 means 1024.
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

// NewSession returns a session over rw. The caller must run Serve.
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

// Err returns the reason why the session ended, or nil.
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

// Abort ends the session and all its streams with err. It also unblocks writers that are waiting
// for the other side to read.
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

// Open opens a stream with its first message.
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

// Ping waits for a response of the other side, until stop is closed.
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

// write sends one frame. An error ends the session.
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

// Serve reads frames until the channel ends, and returns the reason. It returns io.EOF at the end
// of the input.
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
			continue // this side has just closed the stream
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

// maxPongs is how many pongs may wait to be written. Further pings are ignored, because nobody
// reads the responses.
const maxPongs = 64

// pong responds in a new goroutine. The reading goroutine never writes: if nobody read the output,
// it would block and could not receive the messages of the next host.
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

// forget removes a stream and reports whether it was still open: neither side nor the end of the
// session had closed it.
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

// fill makes at least n bytes available from start.
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
	if len(f.buf) > most && n <= MaxData { // shrink the buffer after a long frame
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
