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

// An instance is a browser process with its folder, confinement and contexts:
//
//	state     how it comes      gets contexts   ends
//	in use    start             yes             when it is dead or hangs
//	retired   old, used, large  no              with its last context
//	dead      died or hung      no              at once; the owners of its contexts still close them
type instance struct {
	p           *Pool
	b           *cdp.Browser
	dir         string // profile, downloads, uploads, label
	confinement *confinement
	started     time.Time
	once        sync.Once
	err         error

	essential         []int // PIDs of the processes that the browser needs to work
	hasNetworkService bool  // essential includes the network service
	probing           atomic.Bool

	// The fields below are protected by the pool's lock.
	inUse      int // contexts, including those that are being opened
	opened     int
	retired    bool
	hung       time.Duration // without an answer, after which it was killed
	overMemory bool          // killed because of its memory, with its contexts
	broken     bool          // an essential process has died
	idleSince  time.Time     // when the last context was closed
	memory     int64
	leases     map[*lease]struct{}
	prewarmed  *prewarmed // may be nil
	lastName   int
}

// errOpenTimeout: a browser did not open a context within openLimit.
var errOpenTimeout = errors.New("the browser does not answer")

// openLimit bounds the time in which a browser opens a context.
const openLimit = 30 * time.Second

// start starts a browser. On error it leaves nothing behind.
func (p *Pool) start(ctx context.Context) (_ *instance, err error) {
	path, err := cdp.Find(p.o.Path)
	if err != nil {
		return nil, err
	}
	inst := &instance{p: p, leases: map[*lease]struct{}{}, started: time.Now(), idleSince: time.Now()}
	if inst.dir, err = makeFolder(p.o.Dir, p.o.Owner); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			inst.confinement.close()
			os.RemoveAll(inst.dir)
		}
	}()
	o := cdp.Options{Path: path, Dir: filepath.Join(inst.dir, "profile"), Args: append(p.o.flags(), p.o.Args...)}
	if inst.confinement, err = newConfinement(inst.dir, path, &p.o); err != nil {
		return nil, err
	}
	inst.confinement.apply(&o)
	if inst.b, err = cdp.Launch(ctx, o); err != nil {
		return nil, err
	}
	if err := inst.confinement.acceptProxyConns(); err != nil {
		inst.b.Close()
		return nil, err
	}
	inst.waitEssential(ctx)
	return inst, nil
}

// folder makes a subfolder that the browser can write to.
func (inst *instance) folder(name string) error {
	path := filepath.Join(inst.dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("making a browser's folder: %w", err)
	}
	return inst.confinement.chown(path)
}

// waitExit waits until the browser ends, cleans up, and reports unexpected ends.
func (inst *instance) waitExit() {
	<-inst.b.Done()
	p := inst.p
	p.mu.Lock()
	asked := p.closed || inst.retired && inst.inUse == 0
	for i, v := range p.instances {
		if v == inst {
			p.instances = append(p.instances[:i:i], p.instances[i+1:]...)
			break
		}
	}
	hung, large, broken := inst.hung, inst.overMemory, inst.broken
	if !asked {
		p.stats.Lost++
	}
	n, memory := len(inst.leases), inst.memory
	p.mu.Unlock()
	if err := inst.close(); err != nil {
		p.o.Say(err.Error())
	}
	switch {
	case asked:
	case hung > 0:
		p.o.Say(fmt.Sprintf("a browser with %d contexts did not answer for %v and was ended", n, hung))
	case large:
		p.o.Say(fmt.Sprintf("a browser with %d contexts had %d MiB and was ended", n, memory>>20))
	case broken:
		p.o.Say(fmt.Sprintf("a browser with %d contexts had lost one of its own processes and was ended", n))
	default:
		p.o.Say(fmt.Sprintf("a browser with %d contexts has ended: %.500s", n, inst.b.ExitReason()))
	}
}

// close ends the browser and removes its folder. It may be called again.
func (inst *instance) close() error {
	inst.once.Do(func() {
		var came []int
		if os.Getpid() == 1 && !inst.confinement.Namespaces {
			came = processTree(inst.b.PID(), processes())[1:]
		}
		inst.err = inst.b.Close()
		if !inst.confinement.Namespaces { // with namespaces, the kernel has waited
			waitGroup(inst.b.PID())
		}
		reap(came)
		inst.p.mu.Lock()
		var left []*lease
		for l := range inst.leases {
			left = append(left, l)
		}
		s := inst.takePrewarmed()
		inst.p.mu.Unlock()
		s.close()
		for _, l := range left { // the context's own Close does nothing then
			l.closeProxy()
		}
		inst.confinement.close()
		inst.err = errors.Join(inst.err, removeFolder(inst.dir))
	})
	return inst.err
}

// open opens a context. The caller has counted it in inUse.
func (inst *instance) open(ctx context.Context, a *Access, o cdp.ContextOptions) (_ *cdp.Context, err error) {
	l := &lease{inst: inst, access: a}
	inst.p.mu.Lock()
	inst.lastName++
	name := fmt.Sprint(inst.lastName)
	inst.leases[l] = struct{}{}
	s := inst.takePrewarmed()
	inst.p.mu.Unlock()
	if s != nil && o.NoViewport { // the first window of a prewarmed context has another size
		s.close()
		s = nil
	}
	then := o.OnClose
	defer func() {
		if err != nil {
			l.close(err)
		}
	}()
	if err := l.setUp(name, &o, s); err != nil {
		return nil, err
	}
	made := false
	o.OnClose = func(err error) {
		if !made { // NewContext failed and returns the error
			return
		}
		l.close(err)
		inst.p.releaseSlot()
		if then != nil {
			then(err)
		}
	}
	short, cancel := context.WithTimeoutCause(ctx, openLimit, errOpenTimeout)
	defer cancel()
	c, err := inst.b.NewContext(short, o)
	if err != nil {
		return nil, err
	}
	made = true
	inst.p.mu.Lock()
	inst.p.stats.Opened++
	inst.p.mu.Unlock()
	return c, nil
}

// release removes a lease from the instance. err is the error of closing its context.
func (inst *instance) release(l *lease, err error) {
	p := inst.p
	p.mu.Lock()
	if _, ok := inst.leases[l]; !ok {
		p.mu.Unlock()
		return
	}
	delete(inst.leases, l)
	inst.inUse--
	inst.idleSince = time.Now()
	if err != nil { // the context's data may still be in the browser
		p.retire(inst)
	}
	last := inst.retired && inst.inUse == 0
	p.mu.Unlock()
	if last {
		inst.b.Conn.Close() // waitExit does the rest
	}
}

// listen opens the listener of one context's proxy. It also returns the proxy's address as the
// browser sees it.
func (inst *instance) listen() (net.Listener, string, error) {
	if inst.confinement.Namespaces {
		return inst.confinement.listen()
	}
	l, err := net.Listen("tcp4", randomLoopback().String()+":0")
	if err != nil {
		return nil, "", fmt.Errorf("opening a port for a context's proxy: %w", err)
	}
	return l, l.Addr().String(), nil
}
