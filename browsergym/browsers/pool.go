// Package browsers keeps browsers for episodes: many contexts share few browsers, and each context
// has its own storage, downloads and network policy.
//
// A browser is replaced when it is old, has made many contexts, has grown large, no longer answers
// or has died. The first three hurt nobody: it gets no new contexts, and ends with its last. The
// last two cost the episodes that it had: their calls fail with [cdp.ErrClosed], which [Infra]
// knows, and their Close works as ever.
//
// What a page can reach is decided here, not in the browser: see [Wish].
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

// Options of a pool. Zero fields are the defaults.
type Options struct {
	Path string // of the browser; "": see [cdp.Find]
	// alive at once, over all browsers, what is opened ahead included; who asks for more waits. 0:
	// no limit
	Contexts int

	PerBrowser  int           // contexts that share a browser; 0: 32
	MaxContexts int           // that a browser makes before it is replaced; 0: 400
	MaxAge      time.Duration // after which a browser is replaced; 0: 30 min
	// of all processes of a browser, above which it is replaced, and above twice which it is ended;
	// 0: 6 GiB
	Memory int64
	// of one process of pages, above which that process is ended, as the kernel would: its pages
	// crash; 0: 2 GiB
	PageMemory int64
	Hang       time.Duration // without an answer, after which a browser is ended; 0: 20 s
	PageHang   time.Duration // without an answer, after which a page is given up and its process ended; 0: 30 s
	Idle       time.Duration // without contexts, after which a browser beside others is ended; 0: 1 min

	Storage int64 // bytes that the pages of a context may store together; 0: 512 MiB

	Resolver egress.Resolver // of names; nil: this machine's

	Plain bool           // in this machine's namespaces, for comparison
	Dir   string         // where the browsers' folders are made; "": the system's folder for temporary files
	Files []string       // folders of this machine that pages may be given files of, where their [Wish] says so, too
	Owner sandbox.Owner  // whose the folders are, for [Sweep]; the zero value: this process
	Args  []string       // more flags of the browser
	Say   func(s string) // is told, for people, what becomes of browsers that fail; nil: nobody
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

// ErrClosed: the pool is closed.
var ErrClosed = errors.New("the browser pool is closed")

// An Error is the trouble of browsers, never that of a page or of an agent: none could be started,
// say.
type Error struct {
	Op  string
	Err error
}

func (e *Error) Error() string { return e.Op + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Lost reports whether an error means that a browser has ended or no longer answers.
func Lost(err error) bool { return errors.Is(err, cdp.ErrClosed) || errors.Is(err, errSlow) }

// Infra reports whether an error means that a browser has failed its episode, which may be tried
// again.
func Infra(err error) bool {
	return errors.As(err, new(*Error)) || errors.Is(err, cdp.ErrClosed) || errors.Is(err, ErrClosed)
}

// A Pool starts browsers when they are needed and replaces them when they are old, large or dead.
// Its methods may be called from several goroutines.
type Pool struct {
	o    Options
	room chan struct{} // nil: without limit
	done chan struct{}

	mu       sync.Mutex
	units    []*unit   // that are alive
	starting *starting // nil: none
	ahead    bool      // a spare is to come, or there is one: see spare
	watching bool
	closed   bool
	count    Stats
	wg       sync.WaitGroup // all goroutines
}

// A starting is a browser that is being started, for all who wait for one.
type starting struct {
	done chan struct{}
	err  error // why it has failed; nil also where only who has started it gave up
}

// Stats counts what has become of a pool so far.
type Stats struct {
	Browsers, Contexts int   // now
	Ahead              int   // contexts that are opened ahead now
	Started            int   // browsers, in all
	Opened             int   // contexts, in all
	Replaced           int   // browsers that were old, used or large
	Lost               int   // browsers that died, or hung
	Hung               int   // of these
	PagesEnded         int   // for their memory
	Memory             int64 // of all browsers' processes when it was last looked
}

// New makes a pool without a browser: the first context starts one.
func New(o Options) *Pool {
	o.defaults()
	p := &Pool{o: o, done: make(chan struct{})}
	if o.Contexts > 0 {
		p.room = make(chan struct{}, o.Contexts)
	}
	return p
}

// Stats says what is there, and what was.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.count
	s.Browsers = len(p.units)
	for _, u := range p.units {
		s.Contexts += len(u.leases)
		if u.spare != nil {
			s.Ahead++
		}
		s.Memory += u.memory
	}
	return s
}

// For gives the way to contexts of one episode after another. It does nothing until a context is
// asked for.
func (p *Pool) For(w Wish) *Access { return &Access{p: p, w: w} }

// An Access opens contexts; it is a browsergym.Opener.
type Access struct {
	p *Pool
	w Wish

	mu      sync.Mutex
	open    []*lease
	refused []sandbox.Refusal // of contexts that are closed
}

// NewContext waits for room and makes a context. Its Close gives the room back. Proxy, Bypass,
// Uploads and UploadFrom of o are the pool's business; Downloads, if it is set, becomes a folder of
// the pool's, which is there as long as the context is.
//
// An error is an [*Error], that of ctx, or says that the wish is wrong.
func (a *Access) NewContext(ctx context.Context, o cdp.ContextOptions) (*cdp.Context, error) {
	p := a.p
	if err := a.w.check(p.o.Files); err != nil {
		return nil, err
	}
	if err := p.enter(ctx); err != nil {
		return nil, fmt.Errorf("waiting for room in the browser pool: %w", err)
	}
	var err error
	for range 3 { // a browser may die just as it is chosen
		var u *unit
		if u, err = p.take(ctx, a.w.Alone); err != nil {
			break
		}
		var c *cdp.Context
		if c, err = u.open(ctx, a, o); err == nil {
			p.prepare(u)
			return c, nil
		}
		if ctx.Err() != nil || !errors.Is(err, cdp.ErrClosed) && !errors.Is(err, errSlow) {
			break
		}
	}
	p.leave()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, ErrClosed) {
		return nil, err
	}
	return nil, &Error{"opening a browser context", err}
}

// Alone is the same way to contexts that each have a browser of their own.
func (a *Access) Alone() *Access {
	w := a.w
	w.Alone = true
	return a.p.For(w)
}

// Refused lists what the contexts' network policies and forbidden addresses have refused so far,
// each host and port once for each context.
func (a *Access) Refused() []sandbox.Refusal {
	a.mu.Lock()
	all, open := slices.Clone(a.refused), slices.Clone(a.open)
	a.mu.Unlock()
	for _, l := range open {
		all = append(all, l.refusals()...)
	}
	return all
}

// enter waits for room for one more context.
func (p *Pool) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p.room == nil {
		return nil
	}
	select {
	case p.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.done:
		return ErrClosed
	}
}

func (p *Pool) leave() {
	if p.room != nil {
		<-p.room
	}
}

// take finds a browser with a free place, which is then taken, or starts one. Browsers are started
// one after another: who waits for one may find room in it. Who wants to be alone gets one that was
// not there before, and will have no other.
func (p *Pool) take(ctx context.Context, alone bool) (*unit, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		var best *unit // that with the spare, or the fullest, so that others can end
		for _, u := range p.units {
			if !alone && !u.retired && u.taken < p.o.PerBrowser &&
				(best == nil || u.spare != nil || best.spare == nil && u.taken > best.taken) {
				best = u
			}
		}
		if best != nil {
			best.taken++
			if best.made++; best.made >= p.o.MaxContexts {
				p.retire(best)
			}
			p.mu.Unlock()
			return best, nil
		}
		if s := p.starting; s != nil {
			p.mu.Unlock()
			select {
			case <-s.done:
				if s.err != nil { // each trying for itself would take its time again and again
					return nil, s.err
				}
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		s := &starting{done: make(chan struct{})}
		p.starting = s
		p.wg.Add(1)
		p.mu.Unlock()
		u, err := p.start(ctx)
		p.mu.Lock()
		p.starting = nil
		if ctx.Err() == nil {
			s.err = err
		}
		close(s.done)
		if err == nil && p.closed {
			p.mu.Unlock()
			u.end()
			p.wg.Done()
			return nil, ErrClosed
		}
		if err == nil {
			if alone {
				u.taken, u.made, u.retired = 1, 1, true
			}
			p.units = append(p.units, u)
			p.count.Started++
			p.wg.Go(u.attend)
			if !p.watching {
				p.watching = true
				p.wg.Go(p.watch)
			}
		}
		p.mu.Unlock()
		p.wg.Done()
		if err != nil || alone {
			return u, err
		}
	}
}

// retire lets a browser have no more contexts. p.mu is held.
func (p *Pool) retire(u *unit) {
	if !u.retired {
		u.retired = true
		u.dropSpare()
		p.count.Replaced++
	}
}

// Close ends all browsers and removes their folders. It may be called again.
func (p *Pool) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	units := slices.Clone(p.units)
	p.mu.Unlock()
	if first {
		close(p.done)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(units))
	for i, u := range units {
		wg.Go(func() { errs[i] = u.end() })
	}
	wg.Wait()
	p.wg.Wait()
	return errors.Join(errs...)
}
