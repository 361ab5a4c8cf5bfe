package pool

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// RoleAhead is the role of the owner of a sandbox that was made ahead, until it is handed out.
const RoleAhead = "ahead"

// A wish is a sandbox that an announced session will ask for.
type wish struct {
	trial  string
	driver sandbox.Driver
	spec   sandbox.Spec
	key    string
	size   size
}

// A fresh is a sandbox that is made ahead. Nobody has used it.
type fresh struct {
	key    string
	size   size
	cancel context.CancelFunc
	timer  *time.Timer
	done   chan struct{} // closed when sb and made, or err, are set
	sb     sandbox.Sandbox
	made   time.Time
	err    error
}

// Expect announces a session that will acquire specs of the first driver soon. Its Trial, which all
// owners name, identifies it. Up to Options.Ahead sandboxes of announced sessions are made ahead, the
// first announced first, in room that no request waits for. If a request needs their room, they are
// removed, the oldest first. The announcement ends with Acquire for that trial, or with [Pool.Forget].
// ctx is for finding out the digests of the images.
func (p *Pool) Expect(ctx context.Context, specs []sandbox.Spec) {
	if p.options.Ahead <= 0 {
		return
	}
	d := p.drivers[0]
	guess := p.guess(specs)
	var more []*wish
	for _, s := range specs {
		if key := p.key(ctx, d, s); key != "" {
			trial := s.Owner.Trial
			s.Owner.Trial, s.Owner.Attempt, s.Owner.Role = "", 0, RoleAhead
			more = append(more, &wish{trial, d, s, key, p.size(s, guess)})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wishes = append(p.wishes, more...)
	p.makeAhead()
}

// Forget withdraws the announcement of a session.
func (p *Pool) Forget(trial string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget([]sandbox.Spec{{Owner: sandbox.Owner{Trial: trial}}})
	p.makeAhead()
}

// forget removes the wishes of the trials that specs belong to. The caller holds mu.
func (p *Pool) forget(specs []sandbox.Spec) {
	if len(p.wishes) > 0 {
		p.wishes = slices.DeleteFunc(p.wishes, func(w *wish) bool {
			return slices.ContainsFunc(specs, func(s sandbox.Spec) bool { return s.Owner.Trial == w.trial })
		})
	}
}

// key returns a key that is equal for the same driver and spec, whatever the owner, where an image
// counts by its digest. It is "" if sandboxes are not made ahead, or specs cannot be compared.
func (p *Pool) key(ctx context.Context, d sandbox.Driver, s sandbox.Spec) string {
	if p.options.Ahead <= 0 {
		return ""
	}
	s, ok := plain(ctx, d, s)
	if !ok {
		return ""
	}
	s.Owner = sandbox.Owner{Role: d.Name()}
	b, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}

// plain replaces the images of a spec by their digests.
func plain(ctx context.Context, d sandbox.Driver, s sandbox.Spec) (_ sandbox.Spec, ok bool) {
	if !s.Image.IsZero() {
		img := s.Image
		if img.Platform == "" {
			img.Platform = s.Platform
		}
		digest, err := d.Prepare(ctx, img)
		if err != nil || digest == "" {
			return s, false
		}
		s.Image = sandbox.Image{Ref: digest, Platform: img.Platform}
	}
	s.Reserve, s.Orphan = sandbox.Reserve{}, 0 // what is made ahead has the longest Orphan that is asked for
	s.Services = maps.Clone(s.Services)
	for name, side := range s.Services {
		if s.Services[name], ok = plain(ctx, d, side); !ok {
			return s, false
		}
	}
	return s, true
}

// match finds a sandbox made ahead for each slot of l, if possible one that is ready. The caller
// holds mu.
func (p *Pool) match(l *lease) map[int]*fresh {
	if len(p.stock) == 0 {
		return nil
	}
	found := map[int]*fresh{}
	used := map[*fresh]bool{}
	for i := range l.slots {
		s := &l.slots[i]
		var best *fresh
		for _, f := range p.stock {
			if s.key == "" || f.key != s.key || used[f] {
				continue
			}
			if best == nil || !best.ready() && f.ready() {
				best = f
			}
		}
		if best != nil {
			found[i], used[best] = best, true
		}
	}
	return found
}

func (f *fresh) ready() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// take removes f from the stock, and reports whether it was there. The caller holds mu.
func (p *Pool) take(f *fresh) bool {
	i := slices.Index(p.stock, f)
	if i < 0 {
		return false
	}
	p.stock = slices.Delete(p.stock, i, i+1)
	f.timer.Stop()
	return true
}

// makeRoom removes sandboxes made ahead, the oldest first and except those in keep, if that is
// needed for need to fit in the place of have. Their room is released when they are removed. The
// caller holds mu.
func (p *Pool) makeRoom(have, need size, keep map[int]*fresh) {
	left := p.used.minus(have).plus(need)
	kept := slices.Collect(maps.Values(keep))
	for _, f := range slices.Clone(p.stock) {
		if left.within(p.budget) {
			return
		}
		if !slices.Contains(kept, f) {
			left = left.minus(f.size)
			p.unwish(f.key)
			p.discard(f)
		}
	}
}

// unwish removes the last wish for a sandbox of this kind, so that one that was removed is not made
// again at once. The caller holds mu.
func (p *Pool) unwish(key string) {
	for i := len(p.wishes) - 1; i >= 0; i-- {
		if p.wishes[i].key == key {
			p.wishes = slices.Delete(p.wishes, i, i+1)
			return
		}
	}
}

// discard removes a sandbox of the stock in the background. The caller holds mu.
func (p *Pool) discard(f *fresh) {
	if !p.take(f) {
		return
	}
	p.removing++
	p.background(func() {
		p.dispose(f)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.removing--
		p.used = p.used.minus(f.size)
		p.grant()
	})
}

// dispose removes a sandbox that was made ahead and is in no stock.
func (p *Pool) dispose(f *fresh) {
	f.cancel()
	<-f.done
	if f.err == nil {
		p.remove(f.sb)
	}
}

// makeAhead makes sandboxes of announced sessions, up to the configured number, while there is room
// that no request waits for, and removes those that nobody will ask for any more. The caller holds
// mu.
func (p *Pool) makeAhead() {
	if p.options.Ahead <= 0 || p.closed {
		return
	}
	wanted := map[string]int{}
	for _, w := range p.wishes {
		wanted[w.key]++
	}
	for _, f := range slices.Clone(p.stock) {
		if wanted[f.key]--; wanted[f.key] < 0 {
			p.discard(f)
		}
	}
	have := map[string]int{}
	for _, f := range p.stock {
		have[f.key]++
	}
	for _, w := range p.wishes {
		if have[w.key] > 0 {
			have[w.key]--
			continue
		}
		if len(p.waiting) > 0 || len(p.stock) >= p.options.Ahead || !p.used.plus(w.size).within(p.budget) {
			return
		}
		ctx, cancel := context.WithCancel(p.ctx)
		f := &fresh{key: w.key, size: w.size, cancel: cancel, done: make(chan struct{})}
		f.timer = time.AfterFunc(p.options.Idle, func() { p.expire(f) })
		p.used = p.used.plus(f.size)
		p.stats.peak(p.used)
		p.stock = append(p.stock, f)
		p.background(func() { p.make(ctx, f, w) })
	}
}

func (p *Pool) make(ctx context.Context, f *fresh, w *wish) {
	defer close(f.done)
	select {
	case p.early <- struct{}{}:
		defer func() { <-p.early }()
		f.sb, f.err = p.start(ctx, w.driver, w.spec)
	case <-ctx.Done():
		f.err = context.Cause(ctx)
	}
	if f.err == nil {
		f.made = time.Now()
		if _, ok := sandbox.As[sandbox.Adopter](f.sb); ok {
			return
		}
		p.remove(f.sb)
		f.err = errors.New("this driver's sandboxes cannot be handed over")
	}
	// The request for it makes one itself, and reports the error.
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.take(f) {
		p.used = p.used.minus(f.size)
		p.unwish(f.key)
		p.grant()
	}
}

// expire removes a sandbox that was not used.
func (p *Pool) expire(f *fresh) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && slices.Contains(p.stock, f) {
		p.unwish(f.key)
		p.discard(f)
	}
}

// give hands the sandbox over to its owner, when it is ready. It returns nil if it is not as key says,
// could not be made, or is gone; and for how long it was ready.
func (f *fresh) give(ctx context.Context, key string, o sandbox.Owner) (sandbox.Sandbox, time.Duration) {
	if f.key != key {
		return nil, 0
	}
	asked := time.Now()
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, 0
	}
	if f.err != nil {
		return nil, 0
	}
	a, _ := sandbox.As[sandbox.Adopter](f.sb)
	if a.Adopt(o) != nil {
		return nil, 0
	}
	return f.sb, max(asked.Sub(f.made), 0)
}
