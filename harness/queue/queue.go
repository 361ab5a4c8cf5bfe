// Package queue holds the queues that hand out a plan's trials. [Memory] is the one of a single process.
package queue

import (
	"container/heap"
	"context"
	"io"
	"iter"
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
	wake    chan struct{} // closed and replaced at every change that may let a Take go on
}

var _ harness.Queue = (*Memory)(nil)

// New makes a queue of jobs. Close it at the end.
func New(jobs iter.Seq[harness.Job]) *Memory {
	m := &Memory{paused: map[int]bool{}, wake: make(chan struct{})}
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
	for len(m.retries) > 0 && !m.retries[0].Ready.After(now) {
		j := heap.Pop(&m.retries).(harness.Job)
		if m.paused[j.Arm] {
			continue
		}
		return m.take(j), 0, nil
	}
	for !m.ended {
		j, ok := m.next()
		if !ok {
			m.ended = true
			break
		}
		if m.paused[j.Arm] {
			continue
		}
		j.Ready = now
		return m.take(j), 0, nil
	}
	for len(m.retries) > 0 && m.paused[m.retries[0].Arm] {
		heap.Pop(&m.retries)
	}
	if len(m.retries) > 0 {
		return harness.Job{}, m.retries[0].Ready.Sub(now), nil
	}
	if m.flying > 0 { // one of them may come again
		return harness.Job{}, -1, nil
	}
	return harness.Job{}, 0, io.EOF
}

func (m *Memory) take(j harness.Job) harness.Job {
	m.flying++
	return j
}

// changed lets waiting Takes look again.
func (m *Memory) changed() {
	close(m.wake)
	m.wake = make(chan struct{})
}

// Keep does nothing: within one process nobody else can take a job.
func (m *Memory) Keep(context.Context, harness.Job) error { return nil }

func (m *Memory) Done(context.Context, harness.Job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flying--
	if m.flying == 0 && m.ended {
		m.changed()
	}
	return nil
}

func (m *Memory) Again(_ context.Context, j harness.Job, after time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flying--
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
