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
// ones. What is out, what is being removed and what was made ahead never is more than the budget
// together. Creation is never tried again here: whose fault a failure was, and what it is worth,
// the caller knows.
//
// Sandboxes are removed in the background, so that no caller waits for it; [Pool.Wait] does. Those of
// sessions that [Pool.Expect] has announced are made ahead (ahead.go). A sandbox that somebody used
// is never given to anybody else. What sandboxes were seen to use lets more of them fit into the
// memory than their limits would (measure.go).
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
	// Ahead is how many sandboxes made ahead may exist at once; 0: none. See [Pool.Expect].
	Ahead int
	// Idle is how long one of them is kept if nobody takes it; 0: 10 minutes.
	Idle time.Duration
	// Free returns the memory that the host can still give, if that is known. With it, requests are
	// admitted by what sandboxes were seen to use; nil: by their limits only.
	Free func() (int64, bool)
	// Lost is told of each sandbox that could not be removed. May be nil. It must not block.
	Lost func(error)
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
	early   chan struct{} // and for each that is started ahead, so that requests are not behind them

	mu        sync.Mutex
	closed    bool
	used      size // leases, sandboxes made ahead, and those being removed
	waiting   []*request
	leases    map[*lease]bool
	wishes    []*wish  // first announced first
	stock     []*fresh // made ahead or being made, oldest first
	tasks     int      // goroutines in the background
	quiet     chan struct{}
	removing  int
	seen      map[string]*seen // what sandboxes used, by Reserve.Like
	measuring bool             // the sampler runs
	sampler   sync.WaitGroup
	lost      []error // what could not be removed since Close was called
	stats     Stats
}

// A size is an amount of the resources that admission counts.
type size struct {
	n   int
	cpu int64 // thousandths of a core
	mem int64 // as the sandbox says what it needs, or as it is guessed
	use int64 // memory by what such sandboxes were seen to use; mem where that is not known
}

func (s size) plus(t size) size {
	return size{s.n + t.n, add(s.cpu, t.cpu), add(s.mem, t.mem), add(s.use, t.use)}
}

func (s size) minus(t size) size { return size{s.n - t.n, s.cpu - t.cpu, s.mem - t.mem, s.use - t.use} }

// within reports whether s is within all limits of max.
func (s size) within(max size) bool {
	return s.fewer(max) && (max.mem == 0 || s.mem <= max.mem && s.use <= max.mem)
}

// fewer reports whether s is within the limits of max except for memory.
func (s size) fewer(max size) bool {
	return (max.n == 0 || s.n <= max.n) && (max.cpu == 0 || s.cpu <= max.cpu)
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
	if o.Idle <= 0 {
		o.Idle = 10 * time.Minute
	}
	p := &Pool{
		options: o,
		budget:  size{n: o.Sandboxes, cpu: milli(o.CPUs), mem: o.Memory},
		drivers: drivers,
		starts:  make(chan struct{}, o.Starts),
		early:   make(chan struct{}, max(1, o.Starts/2)),
		leases:  map[*lease]bool{},
		seen:    map[string]*seen{},
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
	if need := p.sum(specs, p.guess(specs)); !need.within(p.alone) { // estimates are never above it
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
	z.use = z.mem
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
		l.slots[i] = slot{need: p.size(s, l.guess), like: s.Reserve.Like, key: p.key(ctx, d, s)}
		if len(s.Services) > 0 { // only the main container is measured
			l.slots[i].like = ""
		}
	}
	l.ctx, l.cancel = context.WithCancelCause(p.ctx)

	begin := time.Now()
	p.mu.Lock()
	p.forget(specs)
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
	return nil, fmt.Errorf("waiting for room for %v: %w", l.need(), err)
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

// grant grants room to the first requests in the queue as long as they fit, and makes sandboxes
// ahead if no request waits. The caller holds mu and has changed something that matters for it.
func (p *Pool) grant() {
	for len(p.waiting) > 0 && !p.closed {
		l := p.waiting[0].lease
		p.estimate(l)
		// Sandboxes made ahead for this request already have room: it moves from the stock to the lease.
		mine := p.match(l)
		var have, need size
		for _, f := range mine {
			have = have.plus(f.size)
		}
		for i := range l.slots {
			need = need.plus(l.slots[i].size)
		}
		if !p.fit(have, need) {
			p.makeRoom(have, need, mine)
			break
		}
		for i, f := range mine {
			p.take(f)
			l.slots[i].ready = f
		}
		p.used = p.used.minus(have).plus(need)
		p.stats.peak(p.used)
		p.leases[l] = true
		p.stats.Acquired++
		close(p.waiting[0].granted)
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
	}
	p.makeAhead()
	p.measure()
}

// fit reports whether need fits in the place of have, which is a part of what is used. The caller
// holds mu.
func (p *Pool) fit(have, need size) bool {
	all := p.used.minus(have).plus(need)
	if p.used == have {
		return all.fewer(p.alone) && (p.alone.mem == 0 || all.mem <= p.alone.mem)
	}
	return all.within(p.budget) || p.fitsByUse(all, need)
}

// release releases room.
func (p *Pool) release(s size) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = p.used.minus(s)
	p.grant()
}

// background runs f in a goroutine that Wait and Close wait for. The caller holds mu.
func (p *Pool) background(f func()) {
	if p.tasks == 0 {
		p.quiet = make(chan struct{})
	}
	p.tasks++
	go func() {
		f()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.tasks--; p.tasks == 0 {
			close(p.quiet)
		}
	}()
}

// Wait waits until all sandboxes are removed whose Close was called. Those made ahead that nobody
// will use are removed first.
func (p *Pool) Wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wishes = nil
	for len(p.stock) > 0 {
		p.discard(p.stock[0])
	}
	for p.tasks > 0 {
		quiet := p.quiet
		p.mu.Unlock()
		<-quiet
		p.mu.Lock()
	}
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

// remove removes a sandbox.
func (p *Pool) remove(sb sandbox.Sandbox) {
	err := sb.Close()
	if err == nil {
		return
	}
	p.mu.Lock()
	p.stats.Lost++
	if p.closed {
		p.lost = append(p.lost, err)
	}
	p.mu.Unlock()
	if p.options.Lost != nil {
		p.options.Lost(err)
	}
}

// Close fails the requests that wait, and closes all leases with their sandboxes and those made
// ahead. It waits until all are removed. Its error says which could not be, since it was called. It
// may be called again.
func (p *Pool) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.waiting = nil // their Acquire sees the end of the context
		p.stats.Unreturned = len(p.leases)
	}
	var leases []*lease
	for l := range p.leases {
		leases = append(leases, l)
	}
	p.mu.Unlock()
	p.end(ErrClosed)

	var wg sync.WaitGroup
	for _, l := range leases {
		wg.Go(func() { l.Close() })
	}
	wg.Wait()
	p.sampler.Wait()
	p.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.lost...)
}
