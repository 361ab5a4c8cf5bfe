package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

// A sessionLog implements event.Log on the journal. In memory it holds only the actions without an
// observation yet.
type sessionLog struct {
	a     *attempt
	start time.Time

	mu      sync.Mutex
	next    int64
	open    map[int64]struct{} // actions without an observation
	closed  bool
	events  barrier
	blobs   barrier
	replied int64 // value of events.written after the newest reply
	readers []*reader
}

// A barrier counts what was written and how much of it is known to be durable. Two actors may sync
// concurrently; neither continues before its own writes are durable.
type barrier struct{ written, durable int64 }

func newLog(a *attempt) *sessionLog {
	return &sessionLog{a: a, start: a.began, open: map[int64]struct{}{}}
}

func (l *sessionLog) Append(ctx context.Context, e event.Event) (event.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return e, event.ErrClosed
	}
	if e.Body == nil {
		return e, fmt.Errorf("event without a body")
	}
	class := e.Body.Class()
	if class == event.Observation {
		if _, ok := l.open[e.Cause]; !ok {
			if e.Cause >= 0 && e.Cause < l.next {
				return e, event.ErrAnswered
			}
			return e, event.ErrNoAction
		}
	}
	e.ID = l.next
	e.Time = time.Now().UTC()
	e.Mono = e.Time.Sub(l.start)
	buf := encoding.Get().(*[]byte)
	defer encoding.Put(buf)
	data, err := l.a.Codec.Append((*buf)[:0], e)
	if err != nil {
		return e, err
	}
	*buf = data
	data = bytes.Clone(data) // the journal keeps the slice, so give it one without spare capacity
	if l.a.Mask.Has(data) {
		if e, data, err = l.a.masked(e, data); err != nil {
			return e, fmt.Errorf("masking: %w", err)
		}
	}
	if len(data) > event.MaxInline+4<<10 {
		if data, err = l.store(ctx, e); err != nil {
			return e, err
		}
	}
	// Ignore cancellation while waiting for the journal: the event has happened and must be
	// recorded.
	if err := l.a.append(context.WithoutCancel(ctx), record.KindEvent, data); err != nil {
		return e, &errStorage{err}
	}
	l.next++
	l.events.written++
	if _, ok := e.Body.(event.Reply); ok {
		l.replied = l.events.written
	}
	switch class {
	case event.Action:
		l.open[e.ID] = struct{}{}
	case event.Observation:
		delete(l.open, e.Cause)
	}
	for _, r := range l.readers {
		r.offer(e)
	}
	return e, nil
}

// settled makes the newest reply durable, unless a step since then has done so. Thus each step
// costs one sync.
func (l *sessionLog) settled(ctx context.Context) error {
	l.mu.Lock()
	late := l.replied > l.events.durable
	l.mu.Unlock()
	if !late {
		return nil
	}
	return l.Sync(ctx)
}

// masked returns an event and its encoding without secrets. If the body's type cannot hold the mask
// (where a secret was a number), the body is stored under the kind "masked." plus its own, so that
// no reader mistakes it for the typed one.
func (a *attempt) masked(e event.Event, data []byte) (event.Event, []byte, error) {
	data = a.Mask.JSON(data)
	if m, err := a.Codec.Decode(data); err == nil {
		return m, data, nil
	}
	body, err := json.Marshal(e.Body)
	if err != nil {
		return e, nil, err
	}
	e.Body = event.Unknown{K: "masked." + e.Body.Kind(), C: e.Body.Class(), Raw: a.Mask.JSON(body)}
	data, err = a.Codec.Append(nil, e)
	return e, data, err
}

var encoding = sync.Pool{New: func() any { return new([]byte) }}

// store puts a body that is too large into a blob and returns the encoding of an event that points
// to it. Readers of the log get the body.
func (l *sessionLog) store(ctx context.Context, e event.Event) ([]byte, error) {
	body, err := json.Marshal(e.Body)
	if err != nil {
		return nil, err
	}
	b, err := l.putBlob(ctx, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	l.blobs.written++ // the caller, Append, holds the lock
	e.Body = event.Stored{K: e.Body.Kind(), C: e.Body.Class(), Blob: b}
	return l.a.Codec.Append(nil, e)
}

func (l *sessionLog) Sync(ctx context.Context) error {
	l.mu.Lock()
	events, blobs := l.events, l.blobs
	l.mu.Unlock()
	if events.written == events.durable && blobs.written == blobs.durable {
		return nil
	}
	defer l.a.waiting()()
	ctx = context.WithoutCancel(ctx)
	if blobs.written > blobs.durable {
		if err := l.a.Blobs.Sync(ctx); err != nil {
			return &errStorage{err}
		}
	}
	if err := l.a.journal.Sync(ctx); err != nil {
		return &errStorage{err}
	}
	l.mu.Lock()
	l.events.durable = max(l.events.durable, events.written)
	l.blobs.durable = max(l.blobs.durable, blobs.written)
	l.mu.Unlock()
	return nil
}

func (l *sessionLog) Events(from int64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if l.count() <= from {
			return // avoid reading the journal if no event matches
		}
		ctx := context.Background()
		for entry, err := range l.a.journal.Attempt(ctx, l.a.job.Trial, l.a.job.Attempt) {
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			if entry.Kind != record.KindEvent {
				continue
			}
			e, err := l.a.Codec.Decode(entry.Data)
			if err == nil && e.ID < from {
				continue
			}
			if st, ok := e.Body.(event.Stored); ok && err == nil {
				e.Body, err = l.load(ctx, st)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (l *sessionLog) load(ctx context.Context, st event.Stored) (event.Body, error) {
	r, err := l.OpenBlob(ctx, st.Blob)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return l.a.Codec.DecodeBody(st.C, st.K, raw)
}

// A reader is one active Watch call.
type reader struct {
	ch     chan event.Event
	mu     sync.Mutex
	from   int64 // ID of the first event missed
	missed int64
}

// offer sends e without blocking, or counts it as missed if the reader lags.
func (r *reader) offer(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missed == 0 {
		select {
		case r.ch <- e:
			return
		default:
			r.from = e.ID
		}
	} else if len(r.ch) < cap(r.ch)-1 { // there is room for the Lagged note and e
		r.ch <- event.New(event.FromEnvironment, event.Lagged{From: r.from, N: r.missed})
		r.missed = 0
		r.ch <- e
		return
	}
	r.missed++
}

func (l *sessionLog) Watch(ctx context.Context, from int64, buffer int) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		r := &reader{ch: make(chan event.Event, max(buffer, 2))}
		l.mu.Lock()
		live := l.next // older events come from the journal
		closed := l.closed
		if !closed {
			l.readers = append(l.readers, r)
		}
		l.mu.Unlock()
		defer l.leave(r)
		for e, err := range l.Events(from) {
			if err == nil && e.ID >= live {
				break
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if closed {
			return
		}
		for {
			select {
			case e, ok := <-r.ch:
				if !ok {
					return
				}
				if e.ID >= 0 && e.ID < from {
					continue
				}
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (l *sessionLog) leave(r *reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.readers {
		if l.readers[i] == r {
			l.readers = append(l.readers[:i], l.readers[i+1:]...)
			return
		}
	}
}

func (l *sessionLog) PutBlob(ctx context.Context, mediaType string, r io.Reader) (event.Blob, error) {
	b, err := l.putBlob(ctx, mediaType, r)
	if err != nil {
		return b, err
	}
	l.mu.Lock()
	l.blobs.written++
	l.mu.Unlock()
	return b, nil
}

func (l *sessionLog) putBlob(ctx context.Context, mediaType string, r io.Reader) (event.Blob, error) {
	if l.a.Blobs == nil {
		return event.Blob{}, fmt.Errorf("this run keeps no blobs")
	}
	src := &srcReader{r: l.a.Mask.Reader(r)}
	sum, size, err := l.a.Blobs.Put(ctx, src)
	if err != nil {
		if src.err != nil { // the source failed, not the blob store
			return event.Blob{}, src.err
		}
		if ctx.Err() != nil { // cancellation is not a blob store failure either
			return event.Blob{}, fmt.Errorf("keeping content: %w", context.Cause(ctx))
		}
		return event.Blob{}, &errStorage{err}
	}
	return event.Blob{SHA256: sum, Type: mediaType, Size: size}, nil
}

// srcReader remembers an error of the source, to distinguish it from one of the store.
type srcReader struct {
	r   io.Reader
	err error
}

func (s *srcReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (l *sessionLog) OpenBlob(ctx context.Context, b event.Blob) (io.ReadCloser, error) {
	if l.a.Blobs == nil {
		return nil, fmt.Errorf("this run keeps no blobs")
	}
	r, err := l.a.Blobs.Open(ctx, b.SHA256)
	if err != nil {
		return nil, l.a.unreadable(err)
	}
	return &blobReader{ReadCloser: r, ctx: ctx, a: l.a}, nil
}

// close closes the log to new events. It first answers open actions with a Lost observation.
func (l *sessionLog) close(why string) error {
	l.mu.Lock()
	open := make([]int64, 0, len(l.open))
	for id := range l.open {
		open = append(open, id)
	}
	l.mu.Unlock()
	var first error
	for _, id := range open {
		e := event.New(event.FromEnvironment, event.Lost{Why: why})
		e.Cause = id
		if _, err := l.Append(context.Background(), e); err != nil && first == nil {
			first = err
		}
	}
	l.mu.Lock()
	l.closed = true
	for _, r := range l.readers {
		close(r.ch)
	}
	l.readers = nil
	l.mu.Unlock()
	return first
}
