package browsers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A unit is one browser with all that belongs to it:
//
//	state     how it comes      gets contexts   ends
//	in use    start             yes             when it is dead or hangs
//	retired   old, used, large  no              with its last context
//	dead      died or hung      no              at once; its contexts are still to be closed by those who have them
type unit struct {
	p    *Pool
	b    *cdp.Browser
	dir  string // of the browser: profile, downloads, uploads, label
	cage *cage
	born time.Time
	once sync.Once
	err  error

	vital     []int // processes that it cannot do without, as they were at its start
	networked bool  // that which does its networking is among them
	asking    atomic.Bool

	// Below belongs to the pool's lock.
	taken   int // places, of contexts that are being opened too
	made    int
	retired bool
	hung    bool
	large   bool      // it had taken so much memory that its contexts could not be waited for
	broken  bool      // one of its own processes was killed, without which there are no pages
	idle    time.Time // without contexts since then
	memory  int64
	leases  map[*lease]struct{}
	spare   *spare // nil: none
	next    int
}

// errSlow: a browser did not make a context in time.
var errSlow = errors.New("the browser does not answer")

// openLimit is how long a browser may take to make a context.
const openLimit = 30 * time.Second

// start starts a browser. On error nothing is left behind.
func (p *Pool) start(ctx context.Context) (_ *unit, err error) {
	path, err := cdp.Find(p.o.Path)
	if err != nil {
		return nil, err
	}
	u := &unit{p: p, leases: map[*lease]struct{}{}, born: time.Now(), idle: time.Now()}
	if u.dir, err = makeFolder(p.o.Dir, p.o.Owner); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			u.cage.close()
			os.RemoveAll(u.dir)
		}
	}()
	o := cdp.Options{Path: path, Dir: filepath.Join(u.dir, "profile"), Args: append(p.o.flags(), p.o.Args...)}
	if u.cage, err = newCage(u.dir, path, &p.o); err != nil {
		return nil, err
	}
	u.cage.options(&o)
	if u.b, err = cdp.Launch(ctx, o); err != nil {
		return nil, err
	}
	if err := u.cage.enter(); err != nil {
		u.b.Close()
		return nil, err
	}
	u.waitVitals(ctx)
	return u, nil
}

// folder makes a folder below the unit's, for the browser to write to.
func (u *unit) folder(name string) error {
	path := filepath.Join(u.dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("making a browser's folder: %w", err)
	}
	return u.cage.own(path)
}

// attend waits for the end of the browser and clears up after it.
func (u *unit) attend() {
	<-u.b.Done()
	p := u.p
	p.mu.Lock()
	asked := p.closed || u.retired && u.taken == 0
	for i, v := range p.units {
		if v == u {
			p.units = append(p.units[:i:i], p.units[i+1:]...)
			break
		}
	}
	hung, large, broken := u.hung, u.large, u.broken
	if !asked {
		p.count.Lost++
	}
	n, memory := len(u.leases), u.memory
	p.mu.Unlock()
	if err := u.end(); err != nil {
		p.o.Say(err.Error())
	}
	switch {
	case asked:
	case hung:
		p.o.Say(fmt.Sprintf("a browser with %d contexts did not answer for %v and was ended", n, p.o.Hang))
	case large:
		p.o.Say(fmt.Sprintf("a browser with %d contexts had %d MiB and was ended", n, memory>>20))
	case broken:
		p.o.Say(fmt.Sprintf("a browser with %d contexts had lost one of its own processes and was ended", n))
	default:
		p.o.Say(fmt.Sprintf("a browser with %d contexts has ended: %.500s", n, u.b.Why()))
	}
}

// end ends the browser and removes what it has. It may be called again.
func (u *unit) end() error {
	u.once.Do(func() {
		var came []int
		if os.Getpid() == 1 && !u.cage.Namespaces {
			came = family(u.b.PID(), processes())[1:]
		}
		u.err = u.b.Close()
		reap(came)
		u.p.mu.Lock()
		var left []*lease
		for l := range u.leases {
			left = append(left, l)
		}
		s := u.takeSpare()
		u.p.mu.Unlock()
		s.drop()
		for _, l := range left { // the context's own Close finds it done
			l.cut()
		}
		u.cage.close()
		u.err = errors.Join(u.err, removeFolder(u.dir))
	})
	return u.err
}

// open makes a context in a place that was taken.
func (u *unit) open(ctx context.Context, a *Access, o cdp.ContextOptions) (_ *cdp.Context, err error) {
	l := &lease{u: u, a: a}
	u.p.mu.Lock()
	u.next++
	name := fmt.Sprint(u.next)
	u.leases[l] = struct{}{}
	s := u.takeSpare()
	u.p.mu.Unlock()
	if s != nil && o.NoViewport { // whose first window has a size of its own
		s.drop()
		s = nil
	}
	then := o.OnClose
	defer func() {
		if err != nil {
			l.end(err)
		}
	}()
	if err := l.prepare(name, &o, s); err != nil {
		return nil, err
	}
	made := false
	o.OnClose = func(err error) {
		if !made { // NewContext itself has given up, and says so
			return
		}
		l.end(err)
		u.p.leave()
		if then != nil {
			then(err)
		}
	}
	short, cancel := context.WithTimeoutCause(ctx, openLimit, errSlow)
	defer cancel()
	c, err := u.b.NewContext(short, o)
	if err != nil {
		return nil, err
	}
	made = true
	u.p.mu.Lock()
	u.p.count.Opened++
	u.p.mu.Unlock()
	return c, nil
}

// free gives a place back. err is what closing its context came to.
func (u *unit) free(l *lease, err error) {
	p := u.p
	p.mu.Lock()
	if _, ok := u.leases[l]; !ok {
		p.mu.Unlock()
		return
	}
	delete(u.leases, l)
	u.taken--
	u.idle = time.Now()
	if err != nil { // it may still hold what it should have forgotten
		p.retire(u)
	}
	last := u.retired && u.taken == 0
	p.mu.Unlock()
	if last {
		u.b.Conn.Close() // attend does the rest
	}
}

// listen opens the port of one context's proxy, and says where the browser finds it.
func (u *unit) listen() (net.Listener, string, error) {
	if u.cage.Namespaces {
		return u.cage.listen()
	}
	l, err := net.Listen("tcp4", loopback().String()+":0")
	if err != nil {
		return nil, "", fmt.Errorf("opening a port for a context's proxy: %w", err)
	}
	return l, l.Addr().String(), nil
}
