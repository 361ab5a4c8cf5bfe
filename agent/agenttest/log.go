package agenttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/event"
)

// A Log is an [event.Log] in memory. It enforces the contract: IDs without gaps, one observation
// per action, no events after the end. The zero value is ready to use.
type Log struct {
	mu     sync.Mutex
	begun  time.Time
	events []event.Event
	open   map[int64]bool // actions without an observation
	seen   map[int64]bool // all actions
	blobs  map[string][]byte
	grown  chan struct{} // closed and replaced at each change
	closed bool
	syncs  int
}

func (l *Log) init() {
	if l.open == nil {
		l.begun = time.Now()
		l.open, l.seen = map[int64]bool{}, map[int64]bool{}
		l.blobs = map[string][]byte{}
		l.grown = make(chan struct{})
	}
}

func (l *Log) Append(ctx context.Context, e event.Event) (event.Event, error) {
	if e.Body == nil {
		return e, errors.New("an event without a body")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	if l.closed {
		return e, event.ErrClosed
	}
	switch e.Body.Class() {
	case event.Observation:
		if !l.seen[e.Cause] {
			return e, event.ErrNoAction
		}
		if !l.open[e.Cause] {
			return e, event.ErrAnswered
		}
		delete(l.open, e.Cause)
	case event.Action:
		id := int64(len(l.events))
		l.seen[id], l.open[id] = true, true
	}
	e.ID = int64(len(l.events))
	e.Time = time.Now()
	e.Mono = e.Time.Sub(l.begun)
	l.events = append(l.events, e)
	close(l.grown)
	l.grown = make(chan struct{})
	return e, nil
}

func (l *Log) Sync(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncs++
	return nil
}

// All returns a copy of all events.
func (l *Log) All() []event.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]event.Event(nil), l.events...)
}

// Open returns the IDs of the actions without an observation.
func (l *Log) Open() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []int64
	for id := range l.open {
		ids = append(ids, id)
	}
	return ids
}

func (l *Log) Events(from int64) iter.Seq2[event.Event, error] {
	l.mu.Lock()
	events := l.events
	l.mu.Unlock()
	return func(yield func(event.Event, error) bool) {
		for i := max(from, 0); i < int64(len(events)); i++ {
			if !yield(events[i], nil) {
				return
			}
		}
	}
}

// Watch implements [event.Log]. It never drops events, because all of them are in memory.
func (l *Log) Watch(ctx context.Context, from int64, _ int) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for next := max(from, 0); ; {
			l.mu.Lock()
			l.init()
			events, grown, closed := l.events, l.grown, l.closed
			l.mu.Unlock()
			for ; next < int64(len(events)); next++ {
				if ctx.Err() != nil || !yield(events[next], nil) {
					return
				}
			}
			if closed {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-grown:
			}
		}
	}
}

// Close closes the log. Later appends fail.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	if !l.closed {
		l.closed = true
		close(l.grown)
		l.grown = make(chan struct{})
	}
}

func (l *Log) PutBlob(_ context.Context, mediaType string, r io.Reader) (event.Blob, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return event.Blob{}, err
	}
	sum := sha256.Sum256(b)
	name := hex.EncodeToString(sum[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	l.blobs[name] = b
	return event.Blob{SHA256: name, Type: mediaType, Size: int64(len(b))}, nil
}

func (l *Log) OpenBlob(_ context.Context, b event.Blob) (io.ReadCloser, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, ok := l.blobs[b.SHA256]
	if !ok {
		return nil, fmt.Errorf("no blob %s in this log", b.SHA256)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}
