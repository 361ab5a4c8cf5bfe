// Package pool keeps browsers for episodes: many contexts share few browsers, and each context has its own storage, downloads and
// network policy.
package pool

import (
	"context"
	"net"
	"sync"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Options of a pool. Zero fields are the defaults.
type Options struct {
	Path     string // of the browser; "": see [cdp.Find]
	Contexts int    // alive at once, over all browsers; who asks for more waits. 0: no limit
}

// A Pool starts browsers when they are needed and replaces them when they are old, large or dead. Its methods may be called from several goroutines.
type Pool struct {
	o  Options
	mu sync.Mutex
	b  *cdp.Browser
}

// New makes a pool without a browser: the first context starts one.
func New(o Options) *Pool { return &Pool{o: o} }

// A Wish says what the pages of a context may reach.
type Wish struct {
	Network sandbox.Network // the zero value: nothing but Hosts
	// Hosts are sites of ours ("127.0.0.1:40123") that are reached whatever the policy says: those that the task is served from.
	Hosts []string
	// Dial, when set, is asked first for addresses of the loopback: a machine's own services, say. Nil: the loopback but Hosts is out of reach.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// For gives the way to contexts of one episode after another. It does nothing until a context is asked for.
func (p *Pool) For(w Wish) *Access { return &Access{p, w} }

// An Access opens contexts; it is a browsergym.Opener.
type Access struct {
	p *Pool
	w Wish
}

// NewContext waits for room and makes a context. Its Close gives the room back.
func (a *Access) NewContext(ctx context.Context, o cdp.ContextOptions) (*cdp.Context, error) {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	if a.p.b == nil {
		b, err := cdp.Launch(ctx, cdp.Options{Path: a.p.o.Path})
		if err != nil {
			return nil, err
		}
		a.p.b = b
	}
	return a.p.b.NewContext(ctx, o)
}

// Close ends all browsers and removes their folders.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.b == nil {
		return nil
	}
	return p.b.Close()
}
