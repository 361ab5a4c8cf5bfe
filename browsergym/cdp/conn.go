package cdp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// maxMessage is the maximum size of a message from the browser. Longer messages are skipped; a call
// that they answer fails with [ErrLarge].
var maxMessage = 128 << 20

var (
	// ErrClosed reports that the browser or the connection to it has ended.
	ErrClosed = errors.New("the browser is gone")
	// ErrLarge reports that the result of a call is longer than accepted.
	ErrLarge = errors.New("the answer is too long")
	// ErrGone reports that the page or frame of a call is closed.
	ErrGone = errors.New("the page is gone")
)

// An Error is the browser's error response to a call.
type Error struct {
	Method  string `json:"-"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    string `json:"data"`
}

func (e *Error) Error() string {
	if e.Data != "" {
		return fmt.Sprintf("%s: %s (%s)", e.Method, e.Message, e.Data)
	}
	return e.Method + ": " + e.Message
}

// A Handler receives the events of one session in order. The reading goroutine calls it, so it must
// not block or wait for a result; it may call Start and Send. params is valid during the call only.
type Handler func(method string, params []byte)

// A Conn speaks the DevTools protocol over a pipe: JSON messages, each terminated by a zero byte.
// It is safe for concurrent use.
//
// Events are not queued, so no queue can overflow: handlers update their own state.
type Conn struct {
	w    io.WriteCloser
	wake chan struct{} // capacity 1: out has data

	mu         sync.Mutex
	out        []byte // not yet written
	id         int64
	pending    map[int64]*call
	handlers   map[string]Handler     // by session; "" is the browser itself
	ended      map[string]error       // sessions whose calls fail with this error
	unanswered map[string]*unanswered // sessions that have not answered since the last check
	expected   map[string]int         // by session: waits for events
	trace      func(Traced)
	err        error
	done       chan struct{}
}

type call struct {
	session string
	method  string
	sent    time.Time
	done    chan answer // capacity 1
	trace   *Traced     // nil if calls are not traced
}

// A Traced is one call, for measuring.
type Traced struct {
	Method         string
	Sent, Answered time.Time
	Bytes          int // of its result
}

type answer struct {
	result []byte
	err    error
}

// NewConn starts a connection. It owns r and w from now on.
func NewConn(r io.ReadCloser, w io.WriteCloser) *Conn {
	c := &Conn{w: w, wake: make(chan struct{}, 1), pending: map[int64]*call{}, handlers: map[string]Handler{},
		done: make(chan struct{})}
	go c.read(r)
	go c.write()
	return c
}

// Trace sets a function that is called for each answered call, by the reading goroutine. It may be
// nil.
func (c *Conn) Trace(f func(Traced)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trace = f
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close closes the connection, which ends the browser.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	return nil
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	c.w.Close()
	for _, p := range pending {
		p.done <- answer{err: err}
	}
	close(c.done)
}

// Handle sets the handler of a session's events. nil removes the session: its pending calls fail
// with [ErrGone].
func (c *Conn) Handle(session string, h Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h != nil {
		c.handlers[session] = h
		return
	}
	delete(c.handlers, session)
	delete(c.ended, session)
	c.failPending(session, ErrGone)
}

// End makes all pending and later calls of a session fail with err.
func (c *Conn) End(session string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handlers[session] == nil || session == "" {
		return
	}
	if c.ended == nil {
		c.ended = map[string]error{}
	}
	c.ended[session] = err
	c.failPending(session, err)
}

// failPending makes the pending calls of a session fail with err. c.mu is held.
func (c *Conn) failPending(session string, err error) {
	for id, p := range c.pending {
		if session != "" && p.session == session {
			delete(c.pending, id)
			p.done <- answer{err: err}
		}
	}
}

// Call makes one call and waits for its result, which the caller owns.
func (c *Conn) Call(ctx context.Context, session, method string, params any) ([]byte, error) {
	p, err := c.Start(session, method, params)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// A Pending is a call that was sent.
type Pending struct {
	c      *Conn
	id     int64
	method string
	done   chan answer
}

// Start sends a call without waiting for its result, so that calls can be pipelined. It never
// blocks, even if the browser does not read. The caller must call Wait.
func (c *Conn) Start(session, method string, params any) (*Pending, error) {
	p := &Pending{c: c, method: method, done: make(chan answer, 1)}
	var err error
	p.id, err = c.send(session, method, params, p.done)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Send sends a call and ignores its result.
func (c *Conn) Send(session, method string, params any) { c.send(session, method, params, nil) }

func (c *Conn) send(session, method string, params any, done chan answer) (int64, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", method, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if session != "" && c.handlers[session] == nil {
		return 0, ErrGone
	}
	if err := c.ended[session]; err != nil {
		return 0, err
	}
	if len(c.out) > maxMessage {
		return 0, fmt.Errorf("%s: %w: it has long stopped to read", method, ErrClosed)
	}
	c.id++
	if done != nil {
		k := &call{session: session, method: method, sent: time.Now(), done: done}
		if c.trace != nil {
			k.trace = &Traced{Method: method, Sent: k.sent}
		}
		c.pending[c.id] = k
	}
	b := append(c.out, `{"id":`...)
	b = strconv.AppendInt(b, c.id, 10)
	b = append(b, `,"method":`...)
	b = strconv.AppendQuote(b, method)
	if session != "" {
		b = append(b, `,"sessionId":`...)
		b = strconv.AppendQuote(b, session)
	}
	if len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
		b = append(b, `,"params":`...)
		b = append(b, raw...)
	}
	c.out = append(b, '}', 0)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return c.id, nil
}

// write writes queued messages to the browser. It has its own goroutine, since the pipe to a
// browser that hangs fills up.
func (c *Conn) write() {
	var spare []byte
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		c.mu.Lock()
		b := c.out
		c.out = spare[:0]
		c.mu.Unlock()
		if len(b) > 0 {
			if _, err := c.w.Write(b); err != nil {
				c.fail(ErrClosed)
				return
			}
		}
		spare = b
		if cap(spare) > 1<<20 {
			spare = nil
		}
	}
}

// Wait waits for the result. If ctx ends first, the result is dropped.
func (p *Pending) Wait(ctx context.Context) ([]byte, error) {
	select {
	case a := <-p.done:
		if e, ok := a.err.(*Error); ok {
			e.Method = p.method
		}
		return a.result, a.err
	case <-ctx.Done():
		p.c.mu.Lock()
		delete(p.c.pending, p.id)
		p.c.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", p.method, context.Cause(ctx))
	}
}

// message has the fields of all messages of a browser.
type message struct {
	ID      int64           `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *Error          `json:"error"`
}

func (c *Conn) read(r io.ReadCloser) {
	defer r.Close()
	br := bufio.NewReaderSize(r, 64<<10)
	var buf []byte
	for {
		part, err := br.ReadSlice(0)
		buf = append(buf, part...)
		if err == bufio.ErrBufferFull {
			if len(buf) > maxMessage { // only the call that asked for it fails
				id, _, _ := answered(buf)
				if buf = nil; !skip(br) {
					c.fail(ErrClosed)
					return
				}
				c.finish(id, answer{err: ErrLarge})
			}
			continue
		}
		if err != nil {
			c.fail(ErrClosed)
			return
		}
		c.take(buf[:len(buf)-1])
		if cap(buf) > 1<<20 { // a large result may still use this buffer
			buf = nil
		}
		buf = buf[:0]
	}
}

// take dispatches one message. Results are copied, except large ones, which keep their buffer.
func (c *Conn) take(b []byte) {
	if id, result, ok := plainResult(b); ok {
		c.finish(id, answer{result: copyResult(result)})
		return
	}
	var m message
	if json.Unmarshal(b, &m) != nil {
		return
	}
	switch {
	case m.ID != 0 && m.Error != nil:
		c.finish(m.ID, answer{err: m.Error})
	case m.ID != 0:
		c.finish(m.ID, answer{result: m.Result})
	case m.Method != "":
		c.mu.Lock()
		h := c.handlers[m.Session]
		c.mu.Unlock()
		if h != nil {
			h(m.Method, m.Params)
		}
	}
}

// copyResult copies a result out of the read buffer. Large results keep the buffer.
func copyResult(b []byte) []byte {
	if len(b) > 1<<20 {
		return b
	}
	return bytes.Clone(b)
}

func (c *Conn) finish(id int64, a answer) {
	c.mu.Lock()
	p := c.pending[id]
	delete(c.pending, id)
	trace := c.trace
	if p != nil && len(c.unanswered) > 0 {
		delete(c.unanswered, p.session)
	}
	c.mu.Unlock()
	if p == nil {
		return
	}
	if trace != nil && p.trace != nil {
		p.trace.Answered, p.trace.Bytes = time.Now(), len(a.result)
		trace(*p.trace)
	}
	p.done <- a
}

// plainResult extracts the result of {"id":7,"result":{…},"sessionId":"…"} without decoding it.
// Snapshots have megabytes and are decoded only once, by the caller.
func plainResult(b []byte) (id int64, result []byte, ok bool) {
	id, rest, ok := answered(b)
	if !ok {
		return 0, nil, false
	}
	end := len(rest) - 1
	if end < 0 || rest[end] != '}' {
		return 0, nil, false
	}
	rest = rest[:end]
	if k := bytes.LastIndex(rest, []byte(`,"sessionId":"`)); k >= 0 &&
		bytes.IndexByte(rest[k+14:], '"') == len(rest)-k-15 && rest[k-1] == '}' {
		rest = rest[:k]
	}
	return id, rest, len(rest) > 1 && rest[0] == '{' && rest[len(rest)-1] == '}'
}

// answered reads the beginning of an answer, {"id":7,"result":, and returns what follows.
func answered(b []byte) (id int64, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(b, []byte(`{"id":`))
	if !ok {
		return 0, nil, false
	}
	i := 0
	for i < len(rest) && i <= 18 && rest[i] >= '0' && rest[i] <= '9' {
		id = id*10 + int64(rest[i]-'0')
		i++
	}
	rest, ok = bytes.CutPrefix(rest[i:], []byte(`,"result":`))
	return id, rest, ok && i > 0 && i <= 18
}

// skip reads on to the end of a message.
func skip(r *bufio.Reader) bool {
	for {
		_, err := r.ReadSlice(0)
		if err != bufio.ErrBufferFull {
			return err == nil
		}
	}
}
