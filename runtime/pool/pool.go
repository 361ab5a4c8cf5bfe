// Package pool hands out sandboxes under one budget for the whole process: it is the
// sandbox.Provider that the harness uses.
//
//	p := pool.New(pool.Options{Memory: 8 << 30, Sandboxes: 64}, driver)
//	defer p.Close()
//	lease, err := p.Acquire(ctx, specs) // waits for room, creates nothing
//	defer lease.Close()                 // closes what it created, gives the room back
//	sb, err := lease.Sandbox(ctx, specs[0])
//
// Room is given strictly in the order of asking, so that a large request is not starved by small
// ones. What is out, what is being closed and what stands ready never is more than the budget
// together. Creation is never tried again here: whose fault a failure was, and what it is worth,
// the caller knows.
package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options of a pool. A zero budget is no limit.
type Options struct {
	CPUs   float64 // budget for the sum of all sandboxes in use
	Memory int64
	// Alone is the memory that a single request may get when nothing else is in use. It is for a
	// Memory that is only an estimate and should not make a request impossible. If it is less than
	// Memory, Memory is used.
	Alone     int64
	Sandboxes int
	// Default is counted for a sandbox without Reserve and without limits of its own. Its memory is
	// an estimate that makes no request impossible: if the known needs of a request fit, the
	// estimates share what is left.
	Default sandbox.Reserve
	// Starts limits how many sandboxes start at once; 0: twice the number of cores.
	Starts int
	Warm   Warm
}

// Warm configures sandboxes that are made ahead. One is made when a similar one was handed out and
// there is room that no request waits for. Each is handed out once. They use a part of the budget,
// so the budget should be larger than what the workers use; if it is not, warm sandboxes are closed
// first. No run sets it yet: workspaces of agents will, where sandboxes start slowly.
type Warm struct {
	Each  int           // per kind (the same spec except for the owner); 0: none
	Total int           // of all kinds; 0: Each
	Idle  time.Duration // a sandbox that was not used for so long is closed; 0: 10 minutes
}

// ErrClosed is returned after the pool was closed.
var ErrClosed = errors.New("the sandbox pool is closed")

// A Pool lends sandboxes of one or more drivers. Its methods are safe for concurrent use.
type Pool struct {
	options Options
	budget  size
	alone   size // the budget of a request when nothing else is in use
	drivers []sandbox.Driver
	starts  chan struct{} // a token for each starting sandbox
	ctx     context.Context
	end     context.CancelCauseFunc
	making  sync.WaitGroup // goroutines that make warm sandboxes

	mu      sync.Mutex
	closed  bool
	used    size // leases, warm sandboxes, and those being closed
	waiting []*request
	leases  map[*lease]bool
	stock   []*warmSandbox // oldest first
	coming  map[string]int
	stats   Stats
}

// A size is an amount of the resources that admission counts.
type size struct {
	n   int
	cpu int64 // thousandths of a core
	mem int64
}

func (s size) plus(t size) size { return size{s.n + t.n, add(s.cpu, t.cpu), add(s.mem, t.mem)} }

func (s size) minus(t size) size { return size{s.n - t.n, s.cpu - t.cpu, s.mem - t.mem} }

// within reports whether s is within all limits of max.
func (s size) within(max size) bool {
	return (max.n == 0 || s.n <= max.n) && (max.cpu == 0 || s.cpu <= max.cpu) && (max.mem == 0 || s.mem <= max.mem)
}

func (s size) String() string {
	var parts []string // only what is limited and asked for
	if s.n > 0 {
		parts = append(parts, sandboxes(s.n))
	}
	if s.cpu > 0 {
		parts = append(parts, fmt.Sprintf("%g CPUs", float64(s.cpu)/1000))
	}
	switch {
	case s.mem >= 1<<30:
		parts = append(parts, fmt.Sprintf("%.1f GiB", float64(s.mem)/(1<<30)))
	case s.mem > 0:
		parts = append(parts, fmt.Sprintf("%d MiB", s.mem>>20))
	}
	return strings.Join(parts, ", ")
}

func sandboxes(n int) string {
	if n == 1 {
		return "1 sandbox"
	}
	return fmt.Sprintf("%d sandboxes", n)
}

// add saturates, so that very large requests do not overflow.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// New creates a pool over drivers. The pool itself lends sandboxes of the first; see [Pool.Of] for
// the others.
func New(o Options, drivers ...sandbox.Driver) *Pool {
	o.Default.Memory = max(o.Default.Memory, 0)
	if o.Starts <= 0 {
		o.Starts = 2 * runtime.GOMAXPROCS(0)
	}
	if o.Warm.Total <= 0 {
		o.Warm.Total = o.Warm.Each
	}
	if o.Warm.Idle <= 0 {
		o.Warm.Idle = 10 * time.Minute
	}
	p := &Pool{
		options: o,
		budget:  size{o.Sandboxes, milli(o.CPUs), o.Memory},
		drivers: drivers,
		starts:  make(chan struct{}, o.Starts),
		leases:  map[*lease]bool{},
		coming:  map[string]int{},
	}
	p.alone = p.budget
	if p.budget.mem > 0 {
		p.alone.mem = max(p.budget.mem, o.Alone)
	}
	p.ctx, p.end = context.WithCancelCause(context.Background())
	return p
}

// milli rounds up, so that a request is never counted as less than it is.
func milli(cpus float64) int64 {
	if cpus <= 0 {
		return 0
	}
	return int64(math.Min(math.Ceil(cpus*1000), 1<<60))
}

// Of returns a provider of the driver with that name, under the same budget.
func (p *Pool) Of(driver string) (sandbox.Provider, error) {
	for _, d := range p.drivers {
		if d.Name() == driver {
			return driverProvider{p, d}, nil
		}
	}
	return nil, fmt.Errorf("pool: no sandbox driver is called %q", driver)
}

type driverProvider struct {
	p *Pool
	d sandbox.Driver
}

func (p driverProvider) Acquire(ctx context.Context, specs []sandbox.Spec) (sandbox.Lease, error) {
	return p.p.acquire(ctx, p.d, specs)
}

var _ sandbox.Provider = (*Pool)(nil)

// Acquire waits for room for all of specs with the first driver. See [sandbox.Provider].
func (p *Pool) Acquire(ctx context.Context, specs []sandbox.Spec) (sandbox.Lease, error) {
	return p.acquire(ctx, p.drivers[0], specs)
}

// Fits reports whether a request could ever be granted: nil, or [sandbox.ErrNeverFits] with both
// sizes. It is for preflight checks.
func (p *Pool) Fits(specs []sandbox.Spec) error {
	if need := p.sum(specs, p.guess(specs)); !need.within(p.alone) {
		return fmt.Errorf("%w: %v; the budget is %v (the configuration's pools)", sandbox.ErrNeverFits, need, p.alone)
	}
	return nil
}

// guess returns the memory to count for a sandbox whose spec does not say what it needs.
func (p *Pool) guess(specs []sandbox.Spec) int64 {
	guess := p.options.Default.Memory
	if p.budget.mem == 0 {
		return guess
	}
	known := p.sum(specs, 0).mem
	guessed := p.sum(specs, 1).mem - known // machines
	if guessed == 0 {
		return guess
	}
	return min(guess, max(p.budget.mem-known, 0)/guessed)
}

func (p *Pool) sum(specs []sandbox.Spec, guess int64) (all size) {
	for _, s := range specs {
		all = all.plus(p.size(s, guess))
	}
	return all
}

// size returns what a spec is counted at, including its services. See guess.
func (p *Pool) size(s sandbox.Spec, guess int64) size {
	pick := func(reserve, limit, fallback int64) int64 {
		switch {
		case reserve > 0:
			return reserve
		case limit > 0:
			return limit
		}
		return fallback
	}
	z := size{
		n:   1,
		cpu: pick(milli(s.Reserve.CPUs), milli(s.CPUs), milli(p.options.Default.CPUs)),
		mem: pick(s.Reserve.Memory, s.Memory, guess),
	}
	for _, side := range s.Services {
		sz := p.size(side, guess)
		sz.n = 0 // a sidecar is part of its sandbox
		z = z.plus(sz)
	}
	return z
}

// A request is a call of Acquire that waits.
type request struct {
	lease   *lease
	need    size
	granted chan struct{} // closed, holding mu, when the room is granted
}

func (p *Pool) acquire(ctx context.Context, d sandbox.Driver, specs []sandbox.Spec) (sandbox.Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := p.Fits(specs); err != nil {
		return nil, err
	}
	l := &lease{pool: p, driver: d, slots: make([]slot, len(specs)), guess: p.guess(specs)}
	r := &request{lease: l, granted: make(chan struct{})}
	for i, s := range specs {
		l.slots[i] = slot{size: p.size(s, l.guess), key: p.key(d, s)}
		r.need = r.need.plus(l.slots[i].size)
	}
	l.ctx, l.cancel = context.WithCancelCause(p.ctx)

	begin := time.Now()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		l.cancel(nil)
		return nil, ErrClosed
	}
	if len(specs) == 0 { // a request without needs does not wait in the queue
		p.leases[l] = true
		p.mu.Unlock()
		return l, nil
	}
	p.waiting = append(p.waiting, r)
	p.stats.Queued = max(p.stats.Queued, len(p.waiting))
	p.grant()
	p.mu.Unlock()

	var err error
	select {
	case <-r.granted:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-p.ctx.Done():
		err = ErrClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.stats.QueueWait.add(time.Since(begin))
		return l, nil
	}
	if p.leases[l] { // granted at the same moment
		p.mu.Unlock()
		l.Close()
		p.mu.Lock()
	} else {
		p.withdraw(r)
	}
	l.cancel(nil)
	return nil, fmt.Errorf("waiting for room for %v: %w", r.need, err)
}

// withdraw removes a request from the queue; later requests may fit now. The caller holds mu.
func (p *Pool) withdraw(r *request) {
	for i, w := range p.waiting {
		if w == r {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			break
		}
	}
	p.grant()
}

// grant grants room to the first requests in the queue as long as they fit. The caller holds mu and
// has changed something that matters for it.
func (p *Pool) grant() {
	for len(p.waiting) > 0 && !p.closed {
		r := p.waiting[0]
		// Warm sandboxes for this request already have room: it moves from the stock to the lease.
		mine := p.match(r.lease)
		rest := r.need
		for _, f := range mine {
			rest = rest.minus(f.size)
		}
		room := p.budget
		if p.used == r.need.minus(rest) {
			room = p.alone
		}
		if !p.used.plus(rest).within(room) {
			p.makeRoom(rest, mine)
			return
		}
		for i, f := range mine {
			p.take(f)
			r.lease.slots[i].ready = f
		}
		p.used = p.used.plus(rest)
		p.stats.peak(p.used)
		p.leases[r.lease] = true
		p.stats.Acquired++
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
		close(r.granted)
	}
}

// release releases room.
func (p *Pool) release(s size) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = p.used.minus(s)
	p.grant()
}

// start creates a sandbox when it gets a turn.
func (p *Pool) start(ctx context.Context, d sandbox.Driver, spec sandbox.Spec) (sandbox.Sandbox, error) {
	begin := time.Now()
	select {
	case p.starts <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.starts }()
	if ctx.Err() != nil { // both cases of the select were ready
		return nil, context.Cause(ctx)
	}
	turn := time.Now()
	sb, err := d.Create(ctx, spec)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.StartWait.add(turn.Sub(begin))
	if err != nil {
		p.stats.Failed++
		return nil, err
	}
	p.stats.Started++
	p.stats.StartTime.add(time.Since(turn))
	return sb, nil
}

// countLost counts a sandbox that could not be closed.
func (p *Pool) countLost(err error) error {
	if err != nil {
		p.mu.Lock()
		p.stats.Lost++
		p.mu.Unlock()
	}
	return err
}

// Close fails the requests that wait, and closes all leases with their sandboxes and the warm
// sandboxes. Its error says what could not be closed. It may be called again.
func (p *Pool) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.waiting = nil // their Acquire sees the end of the context
		p.stats.Unreturned = len(p.leases)
	}
	var errs []error
	var leases []*lease
	for l := range p.leases {
		leases = append(leases, l)
	}
	p.mu.Unlock()
	p.end(ErrClosed)

	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, l := range leases {
		wg.Go(func() {
			if err := l.Close(); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	p.making.Wait()
	errs = append(errs, p.clearStock())
	return errors.Join(errs...)
}
