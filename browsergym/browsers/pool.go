// Package browsers runs browsers for episodes. Many contexts share few browsers, and each context
// has its own storage, downloads and network policy.
//
// A browser is replaced when it is old, has opened many contexts or uses much memory: it gets no
// new contexts and ends with its last one. It is also replaced when it has died or no longer
// answers. Then the calls of its episodes fail with [cdp.ErrClosed], for which [Infra] reports
// true.
//
// This package decides what a page can reach, not the browser: see [AccessOptions].
package browsers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options of a pool. A zero field means its default.
type Options struct {
	Path string // of the browser; "" means the result of [cdp.Find]
	// Contexts is the maximum number of open contexts in all browsers, including prewarmed ones;
	// NewContext waits for a free one. 0 means no limit.
	Contexts int

	PerBrowser  int           // maximum contexts that share a browser; 0 means 32
	MaxContexts int           // contexts after which a browser is replaced; 0 means 400
	MaxAge      time.Duration // age at which a browser is replaced; 0 means 30 min
	// Memory is the memory of all processes of a browser above which it is replaced. Above twice
	// this value it is killed. 0 means 6 GiB.
	Memory int64
	// PageMemory is the memory of one renderer process above which it is killed, as the kernel
	// would do: its pages crash. 0 means 2 GiB.
	PageMemory int64
	Hang       time.Duration // time without an answer after which a browser is killed; 0 means 20 s
	// time without an answer after which a page is given up and its process killed; 0 means 30 s
	PageHang time.Duration
	Idle     time.Duration // time without contexts after which a browser is ended if there are others; 0 means 1 min

	Storage int64 // bytes that the pages of a context may store together; 0 means 512 MiB

	Resolver egress.Resolver // nil means this machine's resolver

	Plain bool           // without namespaces, for comparison
	Dir   string         // parent of the browsers' folders; "" means the system's folder for temporary files
	Files []string       // folders of the host that [AccessOptions] may allow pages to read
	Owner sandbox.Owner  // owner of the folders, for [Sweep]; the zero value means this process
	Args  []string       // additional flags of the browser
	Say   func(s string) // called with messages about failed browsers; may be nil
}

func (o *Options) defaults() {
	set := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	wait := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	bytes := func(n *int64, v int64) {
		if *n <= 0 {
			*n = v
		}
	}
	set(&o.PerBrowser, 32)
	set(&o.MaxContexts, 400)
	wait(&o.MaxAge, 30*time.Minute)
	bytes(&o.Memory, 6<<30)
	bytes(&o.PageMemory, 2<<30)
	bytes(&o.Storage, 512<<20)
	wait(&o.Hang, 20*time.Second)
	wait(&o.PageHang, 30*time.Second)
	wait(&o.Idle, time.Minute)
	if o.Dir == "" {
		o.Dir = os.TempDir()
	}
	if o.Owner == (sandbox.Owner{}) {
		o.Owner = sandbox.Self()
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
}

// ErrClosed reports that the pool is closed.
var ErrClosed = errors.New("the browser pool is closed")

// An Error is a failure of a browser, for example to start; never one of a page or an agent.
type Error struct {
	Op  string
	Err error
}

func (e *Error) Error() string { return e.Op + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Lost reports whether an error means that a browser has ended or no longer answers.
func Lost(err error) bool { return errors.Is(err, cdp.ErrClosed) || errors.Is(err, errOpenTimeout) }

// Infra reports whether an error is an infrastructure failure, so that the episode may be retried.
func Infra(err error) bool {
	return errors.As(err, new(*Error)) || errors.Is(err, cdp.ErrClosed) || errors.Is(err, ErrClosed)
}

// A Pool starts browsers when they are needed and replaces them when they are old, large or dead.
// It is safe for concurrent use.
type Pool struct {
	o     Options
	slots chan struct{} // nil means no limit
	done  chan struct{}

	mu         sync.Mutex
	instances  []*instance // running
	starting   *startup    // may be nil
	prewarming bool        // a prewarmed context exists, or is being opened
	watching   bool
	closed     bool
	stats      Stats
	wg         sync.WaitGroup // all goroutines
}

// A startup is a browser that is being started for all callers waiting for it.
type startup struct {
	done chan struct{}
	err  error // why it failed; nil also if only the context of the starting caller ended
}

// Stats are the counters of a pool.
type Stats struct {
	Browsers, Contexts int   // now
	Prewarmed          int   // prewarmed contexts now
	Started            int   // browsers, in all
	Opened             int   // contexts, in all
	Replaced           int   // browsers replaced for age, contexts or memory
	Lost               int   // browsers that died or hung
	Hung               int   // of these
	PagesEnded         int   // for their memory
	Memory             int64 // of all browsers' processes, at the last check
}

// New returns a pool. The first context starts a browser.
func New(o Options) *Pool {
	o.defaults()
	p := &Pool{o: o, done: make(chan struct{})}
	if o.Contexts > 0 {
		p.slots = make(chan struct{}, o.Contexts)
	}
	return p
}

// Stats returns the current counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Browsers = len(p.instances)
	for _, inst := range p.instances {
		s.Contexts += len(inst.leases)
		if inst.prewarmed != nil {
			s.Prewarmed++
		}
		s.Memory += inst.memory
	}
	return s
}

// For returns an opener of contexts with these options. It starts nothing yet.
func (p *Pool) For(o AccessOptions) *Access { return &Access{p: p, o: o} }

// An Access opens contexts; it is a browsergym.Opener.
type Access struct {
	p *Pool
	o AccessOptions

	mu      sync.Mutex
	open    []*lease
	refused []sandbox.Refusal // of contexts that are closed
}

// NewContext waits for a free slot and opens a context. Closing the context frees the slot. The
// pool sets Proxy, Bypass, Uploads and UploadFrom of o; Downloads, if set, is replaced by a folder
// that exists as long as the context.
//
// An error is an [*Error], that of ctx, or says what is wrong with the access options.
func (a *Access) NewContext(ctx context.Context, o cdp.ContextOptions) (*cdp.Context, error) {
	p := a.p
	if err := a.o.check(p.o.Files); err != nil {
		return nil, err
	}
	if err := p.acquireSlot(ctx); err != nil {
		return nil, fmt.Errorf("waiting for a free slot in the browser pool: %w", err)
	}
	var err error
	for range 3 { // a browser may die just after it was chosen
		var inst *instance
		if inst, err = p.acquire(ctx, a.o.Alone); err != nil {
			break
		}
		var c *cdp.Context
		if c, err = inst.open(ctx, a, o); err == nil {
			p.prewarm(inst)
			return c, nil
		}
		if ctx.Err() != nil || !errors.Is(err, cdp.ErrClosed) && !errors.Is(err, errOpenTimeout) {
			break
		}
	}
	p.releaseSlot()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, ErrClosed) {
		return nil, err
	}
	return nil, &Error{"opening a browser context", err}
}

// Alone returns an Access with the same options whose contexts each have their own browser.
func (a *Access) Alone() *Access {
	o := a.o
	o.Alone = true
	return a.p.For(o)
}

// Refused lists the requests that were refused so far, by network policy or because of a forbidden
// address: each host and port once for each context.
func (a *Access) Refused() []sandbox.Refusal {
	a.mu.Lock()
	all, open := slices.Clone(a.refused), slices.Clone(a.open)
	a.mu.Unlock()
	for _, l := range open {
		all = append(all, l.refusals()...)
	}
	return all
}

// acquireSlot waits until one more context may be opened.
func (p *Pool) acquireSlot(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p.slots == nil {
		return nil
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.done:
		return ErrClosed
	}
}

func (p *Pool) releaseSlot() {
	if p.slots != nil {
		<-p.slots
	}
}

// acquire finds a browser that can open one more context, or starts one, and counts the context in
// inUse. Browsers are started one at a time, so that callers that wait can share the new one. With
// alone it starts a browser that gets no other context.
func (p *Pool) acquire(ctx context.Context, alone bool) (*instance, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		var best *instance // the one with the prewarmed context, else the fullest, so that others can end
		for _, inst := range p.instances {
			if !alone && !inst.retired && inst.inUse < p.o.PerBrowser &&
				(best == nil || inst.prewarmed != nil || best.prewarmed == nil && inst.inUse > best.inUse) {
				best = inst
			}
		}
		if best != nil {
			best.inUse++
			if best.opened++; best.opened >= p.o.MaxContexts {
				p.retire(best)
			}
			p.mu.Unlock()
			return best, nil
		}
		if s := p.starting; s != nil {
			p.mu.Unlock()
			select {
			case <-s.done:
				if s.err != nil { // do not repeat a slow failure for each waiting caller
					return nil, s.err
				}
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		s := &startup{done: make(chan struct{})}
		p.starting = s
		p.wg.Add(1)
		p.mu.Unlock()
		inst, err := p.start(ctx)
		p.mu.Lock()
		p.starting = nil
		if ctx.Err() == nil {
			s.err = err
		}
		close(s.done)
		if err == nil && p.closed {
			p.mu.Unlock()
			inst.close()
			p.wg.Done()
			return nil, ErrClosed
		}
		if err == nil {
			if alone {
				inst.inUse, inst.opened, inst.retired = 1, 1, true
			}
			p.instances = append(p.instances, inst)
			p.stats.Started++
			p.wg.Go(inst.waitExit)
			if !p.watching {
				p.watching = true
				p.wg.Go(p.watch)
			}
		}
		p.mu.Unlock()
		p.wg.Done()
		if err != nil || alone {
			return inst, err
		}
	}
}

// retire excludes a browser from getting more contexts. p.mu is held.
func (p *Pool) retire(inst *instance) {
	if !inst.retired {
		inst.retired = true
		inst.dropPrewarmed()
		p.stats.Replaced++
	}
}

// Close ends all browsers and removes their folders. It may be called again.
func (p *Pool) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	units := slices.Clone(p.instances)
	p.mu.Unlock()
	if first {
		close(p.done)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(units))
	for i, inst := range units {
		wg.Go(func() { errs[i] = inst.close() })
	}
	wg.Wait()
	p.wg.Wait()
	return errors.Join(errs...)
}
