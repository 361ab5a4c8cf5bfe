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

// maxMessage is how long one message of a browser may be: what a page of a gigabyte would say is
// passed over, not survived by luck.
var maxMessage = 128 << 20

var (
	// ErrClosed: the browser, or our channel to it, has ended.
	ErrClosed = errors.New("the browser is gone")
	// ErrLarge: what a call would have returned is longer than is taken.
	ErrLarge = errors.New("the answer is too long")
	// ErrGone: the page or frame that a call was for has ended.
	ErrGone = errors.New("the page is gone")
)

// An Error is the browser's refusal of a call.
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

// A Handler sees the events of one session in their order. It is called by the goroutine that reads
// from the browser: it must not block, nor wait for an answer; it may Start and Send. params is
// valid during the call only.
type Handler func(method string, params []byte)

// A Conn speaks the DevTools protocol over a pipe: messages of JSON, each ended by a zero byte. Its
// methods may be called from several goroutines.
//
// There is no queue of events, so that none can overflow: a handler takes what it needs of an event
// into its own state.
type Conn struct {
	w    io.WriteCloser
	wake chan struct{} // of one: there is something to write

	mu         sync.Mutex
	out        []byte // not yet written
	id         int64
	pending    map[int64]*call
	handlers   map[string]Handler     // by session; "" is the browser itself
	ended      map[string]error       // sessions whose calls would get no answer
	unanswered map[string]*unanswered // sessions that owed an answer when it was last looked, and have given none since
	expected   map[string]int         // how many wait for something of a session that is no answer
	trace      func(Traced)
	err        error
	done       chan struct{}
}

type call struct {
	session string
	method  string
	done    chan answer // of one
	trace   *Traced     // nil: nobody measures
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

// NewConn starts to speak. It owns r and w from now on.
func NewConn(r io.ReadCloser, w io.WriteCloser) *Conn {
	c := &Conn{w: w, wake: make(chan struct{}, 1), pending: map[int64]*call{}, handlers: map[string]Handler{},
		done: make(chan struct{})}
	go c.read(r)
	go c.write()
	return c
}

// Trace sets who is told of each call that is answered from now on; nil: nobody. f is called by the
// goroutine that reads from the browser.
func (c *Conn) Trace(f func(Traced)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trace = f
}

// Done is closed when the channel has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the channel. The browser ends with it.
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

// Handle sets who sees the events of a session; nil: nobody, and calls of that session that still
// wait get [ErrGone].
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

// End ends a session whose calls would not be answered any more: those that wait, and all that
// come, get err.
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

// failPending gives err to the calls of a session that wait. c.mu is held.
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

// A Pending call was sent and not yet waited for.
type Pending struct {
	c      *Conn
	id     int64
	method string
	done   chan answer
}

// Start sends a call without waiting, so that several travel together. It never blocks, so that a
// browser that does not read stops nobody. Wait has to follow.
func (c *Conn) Start(session, method string, params any) (*Pending, error) {
	p := &Pending{c: c, method: method, done: make(chan answer, 1)}
	var err error
	p.id, err = c.send(session, method, params, p.done)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Send sends a call whose answer is of no interest.
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
		k := &call{session: session, method: method, done: done}
		if c.trace != nil {
			k.trace = &Traced{Method: method, Sent: time.Now()}
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

// write passes on what was sent. It is a goroutine of its own, since a pipe to a browser that hangs
// is soon full.
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

// Wait waits for the result. When ctx ends first, the answer is dropped once it comes.
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

// message is what any message of a browser may have.
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
			if len(buf) > maxMessage { // it hurts who has asked for it, and nobody else
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
		if cap(buf) > 1<<20 { // a large result has passed, and its owner may still hold it
			buf = nil
		}
		buf = buf[:0]
	}
}

// take hands on one message. Results are copied, but for large ones, whose buffer is theirs.
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

// plainResult takes a result out of a message without reading it:
// {"id":7,"result":{…},"sessionId":"…"}. A snapshot has megabytes, and is decoded once, by who
// asked for it.
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
