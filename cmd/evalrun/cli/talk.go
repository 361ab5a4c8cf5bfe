package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	talkPatience = time.Second // how long a write waits for a reader
	talkLimit    = 1 << 20     // bytes kept for one that does not read
)

// Talk writes to a terminal or a pipe that may have stopped reading (a pager, Ctrl-S, a log
// collector that hangs). A write waits for at most a second; after that, until all is written,
// writes return at once, and what exceeds 1 MiB is dropped and counted.
type Talk struct {
	w io.Writer

	mu    sync.Mutex
	buf   []byte        // not written yet
	idle  chan struct{} // closed when all is written; nil: all is
	stuck bool          // a write has waited in vain
	lost  int           // bytes
	wake  chan struct{}
}

// NewTalk returns a Talk that writes to w from a goroutine of its own, which is never ended.
func NewTalk(w io.Writer) *Talk {
	t := &Talk{w: w, wake: make(chan struct{}, 1)}
	go t.run()
	return t
}

// Write never fails.
func (t *Talk) Write(p []byte) (int, error) {
	t.mu.Lock()
	if len(t.buf)+len(p) > talkLimit {
		t.lost += len(p)
	} else {
		t.buf = append(t.buf, p...)
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
		t.wake <- struct{}{} // has room: it was read when the channel before was made
	}
	t.mu.Unlock()
	t.Flush()
	return len(p), nil
}

// Flush waits until all is written, or a reader has been waited for in vain.
func (t *Talk) Flush() {
	t.mu.Lock()
	idle, stuck := t.idle, t.stuck
	t.mu.Unlock()
	if idle == nil || stuck {
		return
	}
	select {
	case <-idle:
	case <-time.After(talkPatience):
		t.mu.Lock()
		t.stuck = t.idle != nil
		t.mu.Unlock()
	}
}

func (t *Talk) run() {
	for range t.wake {
		for {
			t.mu.Lock()
			p := t.buf
			t.buf = nil
			if len(p) == 0 && t.lost > 0 {
				p = fmt.Appendf(nil, "evalrun: %d bytes are missing here: nobody read them\n", t.lost)
				t.lost = 0
			}
			if len(p) == 0 {
				close(t.idle)
				t.idle, t.stuck = nil, false
				t.mu.Unlock()
				break
			}
			t.mu.Unlock()
			t.w.Write(p) // nobody could be told of an error
		}
	}
}
