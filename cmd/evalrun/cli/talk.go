package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	talkPatience = time.Second // how long a write waits for the reader
	talkLimit    = 1 << 20     // maximum number of buffered bytes
)

// Talk writes to a terminal or a pipe whose reader may have stopped (a pager, Ctrl-S, a log
// collector that hangs). A write waits for at most a second. After such a timeout, writes return
// immediately until the buffer has been written; output beyond 1 MiB is dropped and counted.
type Talk struct {
	w io.Writer

	mu    sync.Mutex
	buf   []byte        // not written yet
	idle  chan struct{} // closed when the buffer is empty; nil if it is empty now
	stuck bool          // a write has timed out
	lost  int           // number of dropped bytes
	wake  chan struct{}
}

// NewTalk returns a Talk that writes to w in a separate goroutine, which never ends.
func NewTalk(w io.Writer) *Talk {
	t := &Talk{w: w, wake: make(chan struct{}, 1)}
	go t.run()
	return t
}

// Write implements io.Writer. It never returns an error.
func (t *Talk) Write(p []byte) (int, error) {
	t.mu.Lock()
	if len(t.buf)+len(p) > talkLimit {
		t.lost += len(p)
	} else {
		t.buf = append(t.buf, p...)
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
		// does not block: the previous value was received when the previous channel was created
		t.wake <- struct{}{}
	}
	t.mu.Unlock()
	t.Flush()
	return len(p), nil
}

// Flush waits until everything is written, or until a write times out.
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
			t.w.Write(p) // there is nowhere to report an error
		}
	}
}
