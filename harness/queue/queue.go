// Package queue implements the queues that hand out a plan's trials. [Memory] is the queue of a
// single process. The package keeps no files.
package queue

import (
	"cmp"
	"container/heap"
	"context"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/harness"
)

// A Stream is a part of a plan. Its jobs are read in order, independently of other streams. Jobs
// that wait for each other (Job.World) must be in the same stream.
type Stream struct {
	// Account names the provider that the stream's sessions wait for; "" if there is none.
	Account string
	Jobs    iter.Seq[harness.Job]
}

// Memory hands out the jobs of one process and shares its workers among the streams that have work.
//
// The next job comes from the account with the fewest jobs in flight, and within it from the stream
// with the fewest, so that a stream with long trials leaves the others their share. Within a
// stream, jobs that waited for others come first, then retries that are ready, then the next job of
// the plan.
//
// A job whose session waits for a model provider ([Memory.Waits]) needs no worker. Another job is
// handed out in its place, until twice as many jobs are in flight as there are workers. It comes
// from an account without waiting jobs, since more jobs of a waiting account would only wait too,
// or from an account that has less than its share. When the waiting jobs continue, more jobs are
// busy than there are workers. Until that is over, an account with less than its share is still
// given jobs, so that no account is left without any.
//
// A Memory holds the jobs in flight and the retries, not the plan.
type Memory struct {
	mu       sync.Mutex
	workers  int
	streams  []*stream
	accounts map[string]*account
	drained  bool
	paused   map[int]bool
	flying   map[string]*flight // keyed by trial
	waiting  int                // number of jobs in flight that wait
	lent     int                // jobs in flight that were handed out beyond the number of workers
	held     map[string]bool    // held names of Job.Exclusive
	parked   []parked           // jobs waiting for such names or for other trials, oldest first
	order    order
	wake     chan struct{} // closed and replaced at each change that may unblock a Take
}

type stream struct {
	*account
	next    func() (harness.Job, bool)
	stop    func()
	ended   bool // the plan has no more jobs
	begun   int  // number of the plan's jobs handed out
	flying  int
	parked  int
	retries retries
}

// An account holds the counters shared by streams with the same account name.
type account struct{ flying, waiting int }

// A flight is a job that was handed out.
type flight struct {
	*stream
	waits int // open Waits calls
	lent  bool
}

// A parked job cannot be handed out yet.
type parked struct {
	harness.Job
	stream *stream
}

var _ harness.Queue = (*Memory)(nil)

// maxParked limits how many jobs wait for names or other trials. A stream that has used its share
// of it is not read further.
const maxParked = 1000

// New returns a queue. The caller must call Close.
func New(workers int, streams ...Stream) *Memory {
	m := &Memory{workers: workers, accounts: map[string]*account{}, paused: map[int]bool{},
		flying: map[string]*flight{}, held: map[string]bool{},
		order: newOrder(), wake: make(chan struct{})}
	for _, s := range streams {
		a := m.accounts[s.Account]
		if a == nil {
			a = &account{}
			m.accounts[s.Account] = a
		}
		q := &stream{account: a}
		q.next, q.stop = iter.Pull(s.Jobs)
		m.streams = append(m.streams, q)
	}
	return m
}

// Close releases the queue's resources. No other method may be called afterwards.
func (m *Memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.streams {
		s.stop()
	}
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
		if err := until(ctx, wake, wait); err != nil {
			return harness.Job{}, err
		}
	}
}

// until waits for wake, for ctx or, if wait is not negative, for that time.
func until(ctx context.Context, wake <-chan struct{}, wait time.Duration) error {
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
		return context.Cause(ctx)
	}
	return nil
}

// pick returns a job, or how long to wait for the next retry. A negative wait means until something
// changes.
func (m *Memory) pick() (harness.Job, time.Duration, error) {
	if m.drained {
		return harness.Job{}, 0, io.EOF
	}
	may := m.open()
	if may == nil {
		return harness.Job{}, -1, nil
	}
	now := time.Now()
	var tried []*stream
	for {
		s := m.turn(may, tried)
		if s == nil {
			break
		}
		if j, ok := m.from(s, now); ok {
			return m.take(j, s), 0, nil
		}
		// Rarely reached, but then many streams tend to be blocked.
		if tried = append(tried, s); len(tried) == 2 {
			rest := slices.DeleteFunc(slices.Clone(m.streams),
				func(s *stream) bool { return s.over() || slices.Contains(tried, s) || !may(s) })
			slices.SortStableFunc(rest, before)
			for _, s := range rest {
				if j, ok := m.from(s, now); ok {
					return m.take(j, s), 0, nil
				}
			}
			break
		}
	}
	wait := time.Duration(-1)
	for _, s := range m.streams {
		if len(s.retries) > 0 && s.retries[0].Ready.After(now) {
			if d := s.retries[0].Ready.Sub(now); wait < 0 || d < wait {
				wait = d
			}
		}
	}
	if wait < 0 && len(m.flying) == 0 {
		return harness.Job{}, 0, io.EOF
	}
	return harness.Job{}, wait, nil // a job in flight may be retried or hold what others wait for
}

// open returns a function that reports which streams may have another job in flight. It returns nil
// if none may.
func (m *Memory) open() func(*stream) bool {
	n := len(m.flying)
	free := n-m.waiting < m.workers
	switch {
	case n < m.workers:
		return func(*stream) bool { return true }
	case n >= 2*m.workers, !free && m.lent == 0:
		return nil
	}
	with := map[*account]bool{}
	for _, s := range m.streams {
		if s.flying > 0 || !s.over() {
			with[s.account] = true
		}
	}
	return func(s *stream) bool {
		return free && s.account.waiting == 0 || (s.account.flying+1)*len(with) <= m.workers
	}
}

// over reports whether the stream has nothing left to hand out. Jobs may still be in flight.
func (s *stream) over() bool { return s.ended && s.parked == 0 && len(s.retries) == 0 }

// turn returns the stream whose turn it is.
func (m *Memory) turn(may func(*stream) bool, but []*stream) (first *stream) {
	for _, s := range m.streams {
		if !s.over() && (first == nil || before(s, first) < 0) && may(s) && !slices.Contains(but, s) {
			first = s
		}
	}
	return first
}

// before orders streams by whose turn is next. On a tie, the plan's order decides.
func before(a, b *stream) int {
	return cmp.Or(cmp.Compare(a.account.flying, b.account.flying), cmp.Compare(a.flying, b.flying),
		cmp.Compare(a.begun, b.begun))
}

// from takes the next job out of a stream.
func (m *Memory) from(s *stream, now time.Time) (harness.Job, bool) {
	if s.parked > 0 {
		if j, ok := m.unpark(s); ok {
			return j, true
		}
	}
	for len(s.retries) > 0 && !s.retries[0].Ready.After(now) {
		if j := heap.Pop(&s.retries).(harness.Job); m.may(j, s) {
			return j, true
		}
	}
	for !s.ended && s.parked < max(1, maxParked/len(m.streams)) {
		j, ok := s.next()
		if !ok {
			s.ended = true
			break
		}
		j.Ready = now
		if m.paused[j.Arm] {
			continue
		}
		m.order.read(j)
		if m.may(j, s) {
			s.begun++
			return j, true
		}
	}
	return harness.Job{}, false
}

// may reports whether a job can be handed out now. If not, it parks the job: a name it needs is
// held or wanted by an earlier job, or it waits for an undecided trial.
func (m *Memory) may(j harness.Job, s *stream) bool {
	free := func(name string) bool {
		return !m.held[name] && !slices.ContainsFunc(m.parked,
			func(p parked) bool { return slices.Contains(p.Exclusive, name) && !m.order.waits(p.Job) })
	}
	if !m.order.waits(j) && !slices.ContainsFunc(j.Exclusive, func(name string) bool { return !free(name) }) {
		return true
	}
	m.parked = append(m.parked, parked{j, s})
	s.parked++
	return false
}

// unpark removes and returns the first parked job of a stream that can run now. A job that waits
// for several names is not overtaken by jobs that need some of them.
func (m *Memory) unpark(s *stream) (harness.Job, bool) {
	wanted := map[string]bool{}
	for i, p := range m.parked {
		if m.order.waits(p.Job) { // it blocks no names meanwhile, because the trial it waits for may need one
			continue
		}
		if p.stream == s && !slices.ContainsFunc(p.Exclusive,
			func(name string) bool { return m.held[name] || wanted[name] }) {
			m.parked = slices.Delete(m.parked, i, i+1)
			s.parked--
			return p.Job, true
		}
		for _, name := range p.Exclusive {
			wanted[name] = true
		}
	}
	return harness.Job{}, false
}

func (m *Memory) take(j harness.Job, s *stream) harness.Job {
	f := &flight{stream: s, lent: len(m.flying) >= m.workers}
	m.flying[j.Trial] = f
	s.flying++
	s.account.flying++
	if f.lent {
		m.lent++
	}
	for _, name := range j.Exclusive {
		m.held[name] = true
	}
	return j
}

// land removes a job from those in flight and releases what it held.
func (m *Memory) land(j harness.Job) *stream {
	f := m.flying[j.Trial]
	delete(m.flying, j.Trial)
	f.stream.flying--
	f.account.flying--
	if f.lent {
		m.lent--
	}
	if f.waits > 0 {
		m.waiting--
		f.account.waiting--
	}
	for _, name := range j.Exclusive {
		delete(m.held, name)
	}
	return f.stream
}

// changed wakes up waiting Take calls.
func (m *Memory) changed() {
	close(m.wake)
	m.wake = make(chan struct{})
}

func (m *Memory) Waits(j harness.Job) (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.flying[j.Trial]
	if f == nil { // a late call from an abandoned session
		return func() {}
	}
	if f.waits++; f.waits == 1 {
		m.waiting++
		f.account.waiting++
		m.changed()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if f.waits--; f.waits == 0 && m.flying[j.Trial] == f {
			m.waiting--
			f.account.waiting--
			m.changed()
		}
	}
}

// Keep does nothing, because no other process can take a job.
func (m *Memory) Keep(context.Context, harness.Job) error { return nil }

func (m *Memory) Done(_ context.Context, j harness.Job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.land(j)
	m.order.decided(j, m.parked)
	m.changed()
	return nil
}

func (m *Memory) Again(_ context.Context, j harness.Job, after time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.land(j)
	if m.paused[j.Arm] {
		m.order.decided(j, m.parked)
	} else {
		j.Fence++
		j.Ready = time.Now().Add(after)
		heap.Push(&s.retries, j)
	}
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
	var dropped []harness.Job
	m.parked = slices.DeleteFunc(m.parked, func(p parked) bool {
		if p.Arm != arm {
			return false
		}
		p.stream.parked--
		dropped = append(dropped, p.Job)
		return true
	})
	for _, s := range m.streams {
		s.retries = slices.DeleteFunc(s.retries, func(j harness.Job) bool {
			if j.Arm == arm {
				dropped = append(dropped, j)
			}
			return j.Arm == arm
		})
		heap.Init(&s.retries)
	}
	for _, j := range dropped {
		m.order.decided(j, m.parked)
	}
	m.changed()
}

// retries is a heap ordered by the time at which jobs are ready.
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
