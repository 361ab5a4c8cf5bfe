// Package queue holds the queues that hand out a plan's trials. [Memory] is the one of a single process.
package queue

import (
	"container/heap"
	"context"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/harness"
)

// Memory hands out jobs of one process: first retries that are ready, then the plan's next. It holds the jobs in flight and the retries, not the
// plan.
type Memory struct {
	mu      sync.Mutex
	next    func() (harness.Job, bool)
	stop    func()
	ended   bool // the plan has no more
	drained bool
	paused  map[int]bool
	flying  int
	retries retries
	held    map[string]bool // names of Job.Exclusive
	parked  []harness.Job   // wait for such names, or for trials before them, the first come first
	order   order
	wake    chan struct{} // closed and replaced at every change that may let a Take go on
}

var _ harness.Queue = (*Memory)(nil)

// maxParked bounds how many jobs wait for names or for others; the plan is not read any further then.
const maxParked = 1000

// New makes a queue of jobs. Close it at the end.
func New(jobs iter.Seq[harness.Job]) *Memory {
	m := &Memory{paused: map[int]bool{}, held: map[string]bool{}, order: newOrder(), wake: make(chan struct{})}
	m.next, m.stop = iter.Pull(jobs)
	return m
}

// Close gives back what the queue holds. No call may follow.
func (m *Memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop()
}

func (m *Memory) Take(ctx context.Context) (harness.Job, error) {
	for {
		m.mu.Lock()
		j, wait, err := m.pick()
		wake := m.wake
		m.mu.Unlock()
		if err != nil || wait == 0 {
			return j, err
		}
		var timer <-chan time.Time
		if wait > 0 {
			t := time.NewTimer(wait)
			defer t.Stop()
			timer = t.C
		}
		select {
		case <-wake:
		case <-timer:
		case <-ctx.Done():
			return harness.Job{}, context.Cause(ctx)
		}
	}
}

// pick returns a job (wait 0), how long to wait for the next retry, or a negative wait: until something changes.
func (m *Memory) pick() (harness.Job, time.Duration, error) {
	if m.drained {
		return harness.Job{}, 0, io.EOF
	}
	now := time.Now()
	if j, ok := m.unpark(); ok {
		return m.take(j), 0, nil
	}
	for len(m.retries) > 0 && !m.retries[0].Ready.After(now) {
		j := heap.Pop(&m.retries).(harness.Job)
		if m.may(j) {
			return m.take(j), 0, nil
		}
	}
	for !m.ended && len(m.parked) < maxParked {
		j, ok := m.next()
		if !ok {
			m.ended = true
			break
		}
		j.Ready = now
		if m.paused[j.Arm] {
			continue
		}
		m.order.read(j)
		if m.may(j) {
			return m.take(j), 0, nil
		}
	}
	for len(m.retries) > 0 && m.paused[m.retries[0].Arm] {
		m.order.decided(heap.Pop(&m.retries).(harness.Job), m.parked)
	}
	switch {
	case len(m.retries) > 0 && m.retries[0].Ready.After(now):
		return harness.Job{}, m.retries[0].Ready.Sub(now), nil
	case m.flying > 0: // one of them may come again, or holds what others wait for
		return harness.Job{}, -1, nil
	}
	return harness.Job{}, 0, io.EOF
}

// may reports whether a job can be handed out now. Of a paused arm it is forgotten; where a name that it needs is held, or wanted by one that
// came before it, or a trial before it is not decided, it is parked.
func (m *Memory) may(j harness.Job) bool {
	if m.paused[j.Arm] {
		m.order.decided(j, m.parked)
		return false
	}
	if m.order.waits(j) {
		m.parked = append(m.parked, j)
		return false
	}
	free := func(name string) bool {
		return !m.held[name] && !slices.ContainsFunc(m.parked, func(p harness.Job) bool { return slices.Contains(p.Exclusive, name) && !m.order.waits(p) })
	}
	for _, name := range j.Exclusive {
		if !free(name) {
			m.parked = append(m.parked, j)
			return false
		}
	}
	return true
}

// unpark takes out the first that no longer has to wait. One that waits for several names is not overtaken by those that want some of them.
func (m *Memory) unpark() (harness.Job, bool) {
	for i := 0; i < len(m.parked); {
		j := m.parked[i]
		if !m.paused[j.Arm] {
			i++
			continue
		}
		m.parked = slices.Delete(m.parked, i, i+1)
		m.order.decided(j, m.parked)
	}
	wanted := map[string]bool{}
	for i, j := range m.parked {
		if m.order.waits(j) { // and keeps nobody from a name meanwhile: perhaps the one that it waits for needs it
			continue
		}
		if !slices.ContainsFunc(j.Exclusive, func(name string) bool { return m.held[name] || wanted[name] }) {
			m.parked = slices.Delete(m.parked, i, i+1)
			return j, true
		}
		for _, name := range j.Exclusive {
			wanted[name] = true
		}
	}
	return harness.Job{}, false
}

func (m *Memory) take(j harness.Job) harness.Job {
	m.flying++
	for _, name := range j.Exclusive {
		m.held[name] = true
	}
	return j
}

// land takes back a job, and what it held.
func (m *Memory) land(j harness.Job) {
	m.flying--
	for _, name := range j.Exclusive {
		delete(m.held, name)
	}
}

// changed lets waiting Takes look again.
func (m *Memory) changed() {
	close(m.wake)
	m.wake = make(chan struct{})
}

// Keep does nothing: within one process nobody else can take a job.
func (m *Memory) Keep(context.Context, harness.Job) error { return nil }

func (m *Memory) Done(_ context.Context, j harness.Job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.land(j)
	m.order.decided(j, m.parked)
	if m.flying == 0 && m.ended || (len(j.Exclusive) > 0 || j.World != "") && len(m.parked) > 0 {
		m.changed()
	}
	return nil
}

func (m *Memory) Again(_ context.Context, j harness.Job, after time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.land(j)
	j.Fence++
	j.Ready = time.Now().Add(after)
	heap.Push(&m.retries, j)
	m.changed()
	return nil
}

func (m *Memory) Drain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.drained {
		m.drained = true
		m.changed()
	}
}

func (m *Memory) Pause(arm int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused[arm] = true
	m.changed()
}

// retries is a heap by the time at which they are ready.
type retries []harness.Job

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].Ready.Before(r[j].Ready) }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)        { *r = append(*r, x.(harness.Job)) }
func (r *retries) Pop() any {
	old := *r
	j := old[len(old)-1]
	*r = old[:len(old)-1]
	return j
}
