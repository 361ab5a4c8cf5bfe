package pool

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A warmSandbox is a sandbox that was made ahead and not used yet.
type warmSandbox struct {
	key   string
	size  size
	sb    sandbox.Sandbox
	timer *time.Timer
}

// key returns a key that is equal for the same driver and spec, except for the owner. It is "" if
// sandboxes are not made ahead, or specs cannot be compared.
func (p *Pool) key(d sandbox.Driver, s sandbox.Spec) string {
	if p.options.Warm.Each <= 0 || s.Image.Context != nil || len(s.Volumes) > 0 {
		return ""
	}
	for _, side := range s.Services {
		if side.Image.Context != nil || len(side.Volumes) > 0 {
			return ""
		}
	}
	s.Owner = sandbox.Owner{Run: s.Owner.Run, Role: d.Name()}
	b, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}

// match finds a warm sandbox for each slot of l. The caller holds mu.
func (p *Pool) match(l *lease) map[int]*warmSandbox {
	if len(p.stock) == 0 {
		return nil
	}
	found := map[int]*warmSandbox{}
	used := map[*warmSandbox]bool{}
	for i, s := range l.slots {
		for _, f := range p.stock {
			if f.key == s.key && f.size == s.size && !used[f] {
				found[i], used[f] = f, true
				break
			}
		}
	}
	return found
}

// take removes f from the stock, and reports whether it was there. The caller holds mu.
func (p *Pool) take(f *warmSandbox) bool {
	i := slices.Index(p.stock, f)
	if i < 0 {
		return false
	}
	p.stock = slices.Delete(p.stock, i, i+1)
	f.timer.Stop()
	return true
}

// makeRoom closes the oldest warm sandboxes, except those in keep, if that is needed for need to
// fit. Their room is released when they are closed. The caller holds mu.
func (p *Pool) makeRoom(need size, keep map[int]*warmSandbox) {
	left := p.used.plus(need)
	for _, f := range slices.Clone(p.stock) {
		if left.within(p.budget) {
			return
		}
		if !keeps(keep, f) && p.take(f) {
			left = left.minus(f.size)
			p.discard(f)
		}
	}
}

func keeps(keep map[int]*warmSandbox, f *warmSandbox) bool {
	for _, k := range keep {
		if k == f {
			return true
		}
	}
	return false
}

// discard closes a sandbox that was removed from the stock, in the background. The caller holds mu.
func (p *Pool) discard(f *warmSandbox) {
	p.making.Add(1)
	go func() {
		defer p.making.Done()
		p.countLost(f.sb.Close())
		p.release(f.size)
	}()
}

// refill makes sandboxes like spec ahead, up to the configured number, while there is room that no
// request waits for.
func (p *Pool) refill(d sandbox.Driver, key string, spec sandbox.Spec) {
	if key == "" {
		return
	}
	size := p.size(spec, p.options.Default.Memory)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		alike, all := p.coming[key], len(p.stock)
		for _, n := range p.coming {
			all += n
		}
		for _, f := range p.stock {
			if f.key == key {
				alike++
			}
		}
		if p.closed || len(p.waiting) > 0 || alike >= p.options.Warm.Each || all >= p.options.Warm.Total ||
			!p.used.plus(size).within(p.budget) {
			return
		}
		p.used = p.used.plus(size)
		p.stats.peak(p.used)
		p.coming[key]++
		p.making.Add(1)
		spec.Owner.Trial, spec.Owner.Attempt, spec.Owner.Role = "", 0, "ready"
		go p.makeAhead(d, key, size, spec)
	}
}

func (p *Pool) makeAhead(d sandbox.Driver, key string, size size, spec sandbox.Spec) {
	defer p.making.Done()
	sb, err := p.start(p.ctx, d, spec)
	p.mu.Lock()
	if p.coming[key]--; p.coming[key] == 0 {
		delete(p.coming, key)
	}
	if err != nil { // a request for such a sandbox will report the error
		p.mu.Unlock()
		p.release(size)
		return
	}
	f := &warmSandbox{key: key, size: size, sb: sb}
	if p.closed {
		p.mu.Unlock()
		p.countLost(sb.Close())
		p.release(size)
		return
	}
	p.stock = append(p.stock, f)
	f.timer = time.AfterFunc(p.options.Warm.Idle, func() { p.expire(f) })
	p.grant() // a request may wait for this sandbox, or for its room
	p.mu.Unlock()
}

// expire closes a sandbox that was not used.
func (p *Pool) expire(f *warmSandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && p.take(f) {
		p.discard(f)
	}
}

// clearStock is called when no goroutine makes warm sandboxes any more.
func (p *Pool) clearStock() error {
	p.mu.Lock()
	stock := p.stock
	p.stock = nil
	p.mu.Unlock()
	var errs []error
	for _, f := range stock {
		f.timer.Stop()
		errs = append(errs, p.countLost(f.sb.Close()))
		p.release(f.size)
	}
	return errors.Join(errs...)
}
