package execproto

import (
	"io"
	"sync"
)

// A Msg is one received frame of a stream.
type Msg struct {
	Kind byte
	Body []byte
}

// A Stream is one conversation of a session. Recv may be called by one goroutine at a time, Send by
// several.
type Stream struct {
	s      *Session
	id     uint32
	theirs bool

	// Control, if set in Accept, receives KindSignal, KindQuiet and KindReset immediately instead
	// of through the queue, so that they overtake unread data. It must not block.
	Control func(kind byte, body []byte)

	mu     sync.Mutex
	cond   sync.Cond
	queue  []Msg
	small  int // queued messages that use no credit
	window int // bytes of data that the other side may still send
	used   int // consumed bytes not yet returned as credit
	credit int // bytes of data that this side may send
	err    error
	rest   []byte // unread data of Read
	eof    bool
}

func newStream(s *Session, id uint32) *Stream {
	st := &Stream{s: s, id: id, window: Window, credit: Window}
	st.cond.L = &st.mu
	return st
}

// ID returns the stream's number.
func (st *Stream) ID() uint32 { return st.id }

// Session returns the stream's session.
func (st *Stream) Session() *Session { return st.s }

func isData(kind byte) bool { return kind == KindData || kind == KindErr || kind == KindLookups }

// take is called by the session's reading goroutine.
func (st *Stream) take(kind byte, body []byte) error {
	switch kind {
	case KindCredit:
		n := NewDec(body).Uint()
		st.mu.Lock()
		defer st.mu.Unlock()
		if n > Window || st.credit+int(n) > Window {
			return ErrProtocol
		}
		st.credit += int(n)
		st.cond.Broadcast()
		return nil
	case KindReset:
		if st.Control != nil {
			st.Control(kind, nil)
		}
		st.s.forget(st)
		st.end(ErrReset)
		return nil
	case KindSignal, KindQuiet:
		if st.Control != nil {
			st.Control(kind, body)
			return nil
		}
	}
	m := Msg{Kind: kind}
	if len(body) > 0 {
		m.Body = append([]byte(nil), body...)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err != nil {
		return nil
	}
	if isData(kind) {
		if len(body) > st.window || len(body) > MaxData {
			return ErrProtocol
		}
		if len(body) == 0 {
			return nil
		}
		st.window -= len(body)
		// Join many tiny frames, so that the queue's memory stays close to the window.
		if n := len(st.queue); n > 0 && st.queue[n-1].Kind == kind && len(body) < overhead*4 &&
			len(st.queue[n-1].Body) < MaxData-len(body) {
			st.queue[n-1].Body = append(st.queue[n-1].Body, body...)
			return nil
		}
	} else if st.small++; st.small > maxQueue {
		return ErrProtocol
	}
	if len(st.queue) > 2*maxQueue {
		return ErrProtocol
	}
	st.queue = append(st.queue, m)
	st.cond.Broadcast()
	return nil
}

func (st *Stream) end(err error) {
	st.mu.Lock()
	if st.err == nil {
		st.err = err
	}
	st.cond.Broadcast()
	st.mu.Unlock()
}

// Recv returns the next message. Messages that were queued when the session ended are still
// returned.
func (st *Stream) Recv() (Msg, error) {
	st.mu.Lock()
	for len(st.queue) == 0 {
		if st.err != nil {
			err := st.err
			st.mu.Unlock()
			return Msg{}, err
		}
		st.cond.Wait()
	}
	m := st.queue[0]
	st.queue[0] = Msg{}
	st.queue = st.queue[1:]
	back := 0
	if isData(m.Kind) {
		st.used += len(m.Body)
		if st.used >= Window/4 {
			back, st.used = st.used, 0
			st.window += back
		}
	} else {
		st.small--
	}
	st.mu.Unlock()
	if back > 0 {
		var e Enc
		e.Uint(uint64(back))
		st.s.write(st.id, KindCredit, e) // the next Recv reports an error
	}
	return m, nil
}

// Send sends one message. Data waits for credit and may be split into several frames.
func (st *Stream) Send(kind byte, p []byte) error {
	if !isData(kind) {
		st.mu.Lock()
		err := st.err
		st.mu.Unlock()
		if err != nil {
			return err
		}
		return st.s.write(st.id, kind, p)
	}
	for len(p) > 0 {
		st.mu.Lock()
		for st.credit == 0 && st.err == nil {
			st.cond.Wait()
		}
		if st.err != nil {
			err := st.err
			st.mu.Unlock()
			return err
		}
		n := min(len(p), st.credit, MaxData)
		st.credit -= n
		st.mu.Unlock()
		if err := st.s.write(st.id, kind, p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// Finish removes a stream whose last message was sent or received.
func (st *Stream) Finish() {
	st.s.forget(st)
	st.end(ErrClosed)
}

// Reset closes the stream and tells the other side, unless the other side has closed it before.
// After Interrupt it does not wait for the other side to read, because that may be what took too
// long.
func (st *Stream) Reset() {
	open := st.s.forget(st)
	st.mu.Lock()
	interrupted := st.err != nil
	st.mu.Unlock()
	st.end(ErrClosed)
	switch {
	case !open:
	case interrupted:
		go st.s.write(st.id, KindReset, nil)
	default:
		st.s.write(st.id, KindReset, nil)
	}
}

// Err returns why the stream has ended, or nil.
func (st *Stream) Err() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.err
}

// Interrupt makes a waiting Recv or Send return err. The other side is told by Reset.
func (st *Stream) Interrupt(err error) { st.end(err) }

// Read reads KindData bytes until KindEOF. It returns ErrProtocol if a KindResult comes first.
func (st *Stream) Read(p []byte) (int, error) {
	for len(st.rest) == 0 {
		if st.eof {
			return 0, io.EOF
		}
		m, err := st.Recv()
		if err == io.EOF { // the channel ended, so the data is incomplete
			err = ErrClosed
		}
		if err != nil {
			return 0, err
		}
		switch m.Kind {
		case KindData:
			st.rest = m.Body
		case KindEOF:
			st.eof = true
		case KindResult:
			st.eof = true
			r := NewDec(m.Body)
			if err := r.Result(); err != nil {
				return 0, err
			}
		default:
			return 0, ErrProtocol
		}
	}
	n := copy(p, st.rest)
	st.rest = st.rest[n:]
	return n, nil
}

// Write sends p as KindData.
func (st *Stream) Write(p []byte) (int, error) {
	if err := st.Send(KindData, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
