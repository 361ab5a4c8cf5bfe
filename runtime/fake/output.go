package fake

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An output passes the output of the processes of one Exec to the caller's writers, of which it
// calls one at a time. After close, when Exec has returned, it drops everything.
type output struct {
	mu      sync.Mutex
	closed  bool
	streams [2]stream
	one     bool   // stdout and stderr share streams[0]
	keep    int64  // maximum length of full; 0 keeps nothing
	full    []byte // both streams in order, for Exit.Full
}

type stream struct {
	o   *output
	cut sandbox.Cut
}

func newOutput(c sandbox.Command) *output {
	o := &output{one: c.Stderr == nil}
	for i, w := range []io.Writer{c.Stdout, c.Stderr} {
		if w == nil {
			w = io.Discard
		}
		o.streams[i] = stream{o, *sandbox.NewCut(w, c.Limit)}
	}
	if c.Limit > 0 {
		switch o.keep = c.FullLimit; {
		case o.keep == 0:
			o.keep = 64 << 20
		case o.keep < 0:
			o.keep = 0
		}
	}
	return o
}

func (o *output) out() io.Writer { return &o.streams[0] }

func (o *output) err() io.Writer {
	if o.one {
		return &o.streams[0]
	}
	return &o.streams[1]
}

func (s *stream) Write(p []byte) (int, error) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if s.o.closed {
		return len(p), nil
	}
	if room := s.o.keep - int64(len(s.o.full)); room > 0 {
		s.o.full = append(s.o.full, p[:min(room, int64(len(p)))]...)
	}
	return s.cut.Write(p)
}

// close flushes the streams. If they left something out, it returns the full output.
func (o *output) close() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.streams[0].cut.Flush()
	o.streams[1].cut.Flush()
	if o.keep == 0 || o.streams[0].cut.Dropped()+o.streams[1].cut.Dropped() == 0 {
		return nil
	}
	return o.full
}

// input returns a reader of r whose Read fails when ctx ends, even if r blocks.
func input(ctx context.Context, r io.Reader) io.Reader {
	switch r.(type) {
	case nil:
		return strings.NewReader("")
	case *strings.Reader, *bytes.Reader, *bytes.Buffer:
		return r
	}
	return &killable{ctx: ctx, r: r}
}

type killable struct {
	ctx context.Context
	r   io.Reader
	buf []byte
}

func (k *killable) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if k.buf == nil {
		k.buf = make([]byte, 32<<10)
	}
	type result struct {
		n   int
		err error
	}
	c := make(chan result, 1)
	b := k.buf[:min(len(k.buf), len(p))]
	go func() {
		n, err := k.r.Read(b)
		c <- result{n, err}
	}()
	select {
	case r := <-c:
		return copy(p, b[:r.n]), r.err
	case <-k.ctx.Done():
		return 0, context.Cause(k.ctx)
	}
}
