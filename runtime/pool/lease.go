package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A lease is room for some sandboxes, with a slot for each.
type lease struct {
	pool   *Pool
	driver sandbox.Driver
	ctx    context.Context // ends with the lease
	cancel context.CancelCauseFunc
	guess  int64 // memory counted for a sandbox whose spec does not say what it needs
	ended  bool  // the room that nothing occupies was released; guarded by the pool's mu

	starting sync.WaitGroup // calls of Sandbox in progress

	mu     sync.Mutex
	closed bool
	slots  []slot
	out    []*leasedSandbox
	done   chan struct{} // closed when the first Close has returned
}

// A slot is room for one sandbox at a time.
type slot struct {
	need  size // as its spec says
	like  string
	key   string
	size  size   // what it has of the budget; guarded by the pool's mu, as now
	now   int64  // what its sandbox was last seen to use
	ready *fresh // made ahead
	taken bool
	going chan struct{} // closed when the sandbox that was in it is removed; nil: there is none
}

// errReturned is the cause of canceled calls when the lease is closed.
var errReturned = errors.New("the lease is closed")

// need returns what the lease's specs ask for.
func (l *lease) need() (all size) {
	for i := range l.slots {
		all = all.plus(l.slots[i].need)
	}
	return all
}

// Sandbox creates one sandbox, or hands out one that was made ahead. A slot whose sandbox was closed
// may be used again.
func (l *lease) Sandbox(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	return l.fill(ctx, spec, func(s *leasedSandbox, key string, ready *fresh) (err error) {
		s.Sandbox, s.ahead, err = l.create(ctx, key, ready, spec)
		return err
	})
}

// Find implements [sandbox.Finder].
func (l *lease) Find(ctx context.Context, spec sandbox.Spec, id string) (sandbox.Sandbox, error) {
	return l.fill(ctx, spec, func(s *leasedSandbox, _ string, ready *fresh) (err error) {
		if ready != nil {
			l.pool.dispose(ready) // its room is needed
		}
		s.Sandbox, err = l.driver.Find(ctx, id)
		return err
	})
}

// fill puts the sandbox that get sets into a slot. A ready sandbox of the slot is passed to get.
func (l *lease) fill(ctx context.Context, spec sandbox.Spec,
	get func(s *leasedSandbox, key string, ready *fresh) error) (sandbox.Sandbox, error) {
	fail := func(err error) (sandbox.Sandbox, error) {
		return nil, &sandbox.Error{Op: "create", Err: err}
	}
	if ctx.Err() != nil {
		return fail(context.Cause(ctx))
	}
	key := l.pool.key(ctx, l.driver, spec)
	need := l.pool.size(spec, l.guess)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return fail(errReturned)
	}
	i := l.choose(key, need)
	if i < 0 {
		l.mu.Unlock()
		return fail(fmt.Errorf("the lease has no room left for %v; ask for it when the lease is acquired", need))
	}
	ready, going := l.slots[i].ready, l.slots[i].going
	l.slots[i].taken, l.slots[i].ready, l.slots[i].going = true, nil, nil
	l.starting.Add(1)
	l.mu.Unlock()
	defer l.starting.Done()

	s := &leasedSandbox{lease: l, slot: i}
	err := l.pool.renew(ctx, l, i, going)
	if err != nil {
		_, err = fail(err)
	} else {
		err = get(s, key, ready)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.slots[i].taken = false
		if l.slots[i].going == nil {
			l.slots[i].going = going
		}
		return nil, err // the driver's own error, with its type
	}
	// If the lease is being closed, Close waits for this call and finds the sandbox in out.
	l.out = append(l.out, s)
	return s, nil
}

// renew gets room for a slot whose last sandbox is still being removed, if going is not nil: room
// that is free, else that sandbox's.
func (p *Pool) renew(ctx context.Context, l *lease, i int, going chan struct{}) error {
	if going == nil {
		return nil
	}
	p.mu.Lock()
	s := &l.slots[i]
	if s.size == (size{}) && len(p.waiting) == 0 && p.used.plus(s.need).within(p.budget) {
		s.size = s.need
		p.used = p.used.plus(s.size)
		p.stats.peak(p.used)
	}
	has := s.size != size{}
	p.mu.Unlock()
	if has {
		return nil
	}
	select {
	case <-going: // it has left its room to the slot
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// choose returns the slot for a sandbox: one with a matching sandbox made ahead, else the smallest
// that is large enough and empty, else any that is large enough. The caller holds mu.
func (l *lease) choose(key string, need size) int {
	best, bestRank := -1, 0
	for i := range l.slots {
		s := &l.slots[i]
		if s.taken || need.cpu > s.need.cpu || need.mem > s.need.mem {
			continue
		}
		rank := 1
		switch {
		case s.ready != nil && s.key == key && key != "":
			rank = 5
		case s.ready != nil:
		case s.going != nil:
			rank = 2
		case s.need == need:
			rank = 4
		default:
			rank = 3
		}
		smaller := best >= 0 && rank == bestRank && s.need.mem < l.slots[best].need.mem
		if rank > bestRank || smaller {
			best, bestRank = i, rank
		}
	}
	return best
}

// create returns a sandbox, and how long before this call it was ready.
func (l *lease) create(ctx context.Context, key string, ready *fresh, spec sandbox.Spec) (sandbox.Sandbox,
	time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	if ready != nil {
		if sb, ahead := ready.give(ctx, key, spec.Owner); sb != nil {
			l.pool.mu.Lock()
			l.pool.stats.Ahead++
			l.pool.mu.Unlock()
			return sb, ahead, nil
		}
		l.pool.dispose(ready) // its room is needed
	}
	sb, err := l.pool.start(ctx, l.driver, spec)
	var known *sandbox.Error
	var cannot *sandbox.Unsupported
	if err != nil && !errors.As(err, &known) && !errors.As(err, &cannot) {
		err = &sandbox.Error{Op: "create", Err: err}
	}
	return sb, 0, err
}

// Close closes the sandboxes of the lease, and releases its room as they are removed. It returns
// nil.
func (l *lease) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		<-l.done
		return nil
	}
	l.closed, l.done = true, make(chan struct{})
	l.mu.Unlock()
	defer close(l.done)
	l.cancel(errReturned)
	l.starting.Wait()

	l.mu.Lock()
	out := l.out
	l.out = nil
	l.mu.Unlock()
	for _, s := range out {
		s.Close()
	}
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.ended = true
	delete(p.leases, l)
	for i := range l.slots { // what nothing occupies
		s := &l.slots[i]
		room := s.size
		s.size = size{}
		if f := s.ready; f != nil {
			s.ready = nil
			p.background(func() {
				p.dispose(f)
				p.release(room)
			})
			continue
		}
		p.used = p.used.minus(room)
	}
	p.grant()
	return nil
}

// A leasedSandbox is a sandbox that is removed in the background, and then leaves its room to its
// slot.
type leasedSandbox struct {
	sandbox.Sandbox
	lease  *lease
	slot   int
	ahead  time.Duration
	once   sync.Once
	closed bool // guarded by the pool's mu
}

func (s *leasedSandbox) Unwrap() sandbox.Sandbox { return s.Sandbox }

// Ahead implements [sandbox.Early].
func (s *leasedSandbox) Ahead() time.Duration { return s.ahead }

// Close returns nil at once.
func (s *leasedSandbox) Close() error {
	s.once.Do(s.close)
	return nil
}

func (s *leasedSandbox) close() {
	l, p := s.lease, s.lease.pool
	going := make(chan struct{})
	l.mu.Lock()
	l.slots[s.slot].taken, l.slots[s.slot].going = false, going
	l.out = slices.DeleteFunc(l.out, func(o *leasedSandbox) bool { return o == s })
	l.mu.Unlock()

	p.mu.Lock()
	defer p.mu.Unlock()
	slot := &l.slots[s.slot]
	room := slot.size
	s.closed, slot.size, slot.now = true, size{}, 0
	p.removing++
	p.background(func() {
		p.learn(slot.like, s.Sandbox)
		p.remove(s.Sandbox)
		p.mu.Lock()
		p.removing--
		if !l.ended && slot.size == (size{}) {
			slot.size = room
		} else {
			p.used = p.used.minus(room)
			p.grant()
		}
		p.mu.Unlock()
		close(going)
	})
}
