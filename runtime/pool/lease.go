package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A lease is room for some sandboxes, with a slot for each.
type lease struct {
	pool   *Pool
	driver sandbox.Driver
	ctx    context.Context // ends with the lease
	cancel context.CancelCauseFunc
	guess  int64 // memory counted for a sandbox whose spec does not say what it needs

	starting sync.WaitGroup // calls of Sandbox in progress

	mu     sync.Mutex
	closed bool
	slots  []slot
	out    []*leasedSandbox
	done   chan struct{} // closed when the first Close has returned
	err    error
}

// A slot is room for one sandbox at a time.
type slot struct {
	size  size
	key   string
	ready *warmSandbox // made ahead
	taken bool
}

// errReturned is the cause of canceled calls when the lease is closed.
var errReturned = errors.New("the lease is closed")

// Sandbox creates one sandbox. A slot whose sandbox was closed may be used again.
func (l *lease) Sandbox(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	return l.fill(ctx, spec, func(key string, ready *warmSandbox) (sandbox.Sandbox, error) {
		return l.create(ctx, key, ready, spec)
	})
}

// Find implements [sandbox.Finder].
func (l *lease) Find(ctx context.Context, spec sandbox.Spec, id string) (sandbox.Sandbox, error) {
	return l.fill(ctx, spec, func(_ string, ready *warmSandbox) (sandbox.Sandbox, error) {
		if ready != nil {
			l.pool.countLost(ready.sb.Close()) // its room is needed
		}
		return l.driver.Find(ctx, id)
	})
}

// fill puts the sandbox that get returns into a slot. A ready sandbox of the slot is passed to get.
func (l *lease) fill(ctx context.Context, spec sandbox.Spec,
	get func(key string, ready *warmSandbox) (sandbox.Sandbox, error)) (sandbox.Sandbox, error) {
	fail := func(err error) (sandbox.Sandbox, error) {
		return nil, &sandbox.Error{Op: "create", Err: err}
	}
	if ctx.Err() != nil {
		return fail(context.Cause(ctx))
	}
	key := l.pool.key(l.driver, spec)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return fail(errReturned)
	}
	need := l.pool.size(spec, l.guess)
	i := l.choose(key, need)
	if i < 0 {
		l.mu.Unlock()
		return fail(fmt.Errorf("the lease has no room left for %v; ask for it when the lease is acquired", need))
	}
	ready := l.slots[i].ready
	l.slots[i].taken, l.slots[i].ready = true, nil
	l.starting.Add(1)
	l.mu.Unlock()
	defer l.starting.Done()

	sb, err := get(key, ready)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.slots[i].taken = false
		return nil, err // the driver's own error, with its type
	}
	// If the lease is being closed, Close waits for this call and finds the sandbox in out.
	s := &leasedSandbox{Sandbox: sb, lease: l, slot: i, done: make(chan struct{})}
	l.out = append(l.out, s)
	return s, nil
}

// choose returns the slot for a sandbox: one with a matching sandbox made ahead, else the smallest
// that is large enough and empty, else any that is large enough. The caller holds mu.
func (l *lease) choose(key string, need size) int {
	best, bestRank := -1, 0
	for i, s := range l.slots {
		if s.taken || need.cpu > s.size.cpu || need.mem > s.size.mem {
			continue
		}
		rank := 1
		switch {
		case s.ready != nil && s.key == key && key != "":
			rank = 4
		case s.size == need && s.ready == nil:
			rank = 3
		case s.ready == nil:
			rank = 2
		}
		smaller := best >= 0 && rank == bestRank && s.size.mem < l.slots[best].size.mem
		if rank > bestRank || smaller {
			best, bestRank = i, rank
		}
	}
	return best
}

func (l *lease) create(ctx context.Context, key string, ready *warmSandbox,
	spec sandbox.Spec) (sandbox.Sandbox, error) {
	defer l.pool.refill(l.driver, key, spec)
	if ready != nil {
		if ready.key == key {
			l.pool.mu.Lock()
			l.pool.stats.WarmHits++
			l.pool.mu.Unlock()
			return ready.sb, nil
		}
		l.pool.countLost(ready.sb.Close()) // its room is needed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	sb, err := l.pool.start(ctx, l.driver, spec)
	var known *sandbox.Error
	var cannot *sandbox.Unsupported
	if err != nil && !errors.As(err, &known) && !errors.As(err, &cannot) {
		err = &sandbox.Error{Op: "create", Err: err}
	}
	return sb, err
}

// Close closes the sandboxes of the lease and then releases its room.
func (l *lease) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		<-l.done
		return l.err
	}
	l.closed, l.done = true, make(chan struct{})
	l.mu.Unlock()
	l.cancel(errReturned)
	l.starting.Wait()

	l.mu.Lock()
	out := l.out
	var total size
	var ready []*warmSandbox
	for _, s := range l.slots {
		total = total.plus(s.size)
		if s.ready != nil {
			ready = append(ready, s.ready)
		}
	}
	l.mu.Unlock()

	errs := make([]error, len(out)+len(ready))
	if len(errs) == 1 && len(out) == 1 { // the usual case
		errs[0] = out[0].Close()
	} else {
		var wg sync.WaitGroup
		for i, s := range out {
			wg.Go(func() { errs[i] = s.Close() })
		}
		for i, f := range ready {
			wg.Go(func() { errs[len(out)+i] = l.pool.countLost(f.sb.Close()) })
		}
		wg.Wait()
	}
	l.err = errors.Join(errs...)
	l.pool.mu.Lock()
	delete(l.pool.leases, l)
	l.pool.mu.Unlock()
	l.pool.release(total)
	close(l.done)
	return l.err
}

// A leasedSandbox is a sandbox whose Close empties its slot.
type leasedSandbox struct {
	sandbox.Sandbox
	lease   *lease
	slot    int
	closing atomic.Bool
	done    chan struct{} // not a sync.Once, since synctest's clock stops while a goroutine waits for a mutex
	err     error
}

func (s *leasedSandbox) Unwrap() sandbox.Sandbox { return s.Sandbox }

func (s *leasedSandbox) Close() error {
	if s.closing.Swap(true) {
		<-s.done
		return s.err
	}
	defer close(s.done)
	l := s.lease
	s.err = l.pool.countLost(s.Sandbox.Close())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots[s.slot].taken = false
	if !l.closed { // otherwise the lease's Close closes it
		l.out = slices.DeleteFunc(l.out, func(o *leasedSandbox) bool { return o == s })
	}
	return s.err
}
