package pool

import "time"

// Stats are counts of a pool.
type Stats struct {
	Leases, Waiting int // now
	Stock           int // sandboxes made ahead, or being made
	Removing        int // sandboxes being removed
	Sandboxes       int // room in use, in sandboxes, cores and bytes
	CPUs            float64
	Memory          int64
	PeakSandboxes   int // maximum
	PeakMemory      int64
	Queued          int // longest queue

	Acquired, Started, Failed int
	Ahead                     int // sandboxes handed out that were made ahead
	Lost                      int // Close failed, so they may still exist
	Unreturned                int // leases that were open when the pool was closed

	QueueWait Timing // for room
	StartWait Timing // for a turn to start
	StartTime Timing // of the driver's Create
}

// A Timing sums up durations.
type Timing struct {
	N          int
	Total, Max time.Duration
}

func (t *Timing) add(d time.Duration) {
	t.N++
	t.Total += d
	t.Max = max(t.Max, d)
}

// Mean returns the mean of the durations.
func (t Timing) Mean() time.Duration {
	if t.N == 0 {
		return 0
	}
	return t.Total / time.Duration(t.N)
}

func (s *Stats) peak(z size) {
	s.PeakSandboxes = max(s.PeakSandboxes, z.n)
	s.PeakMemory = max(s.PeakMemory, z.use)
}

// Stats may be called at any time, also after Close.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Leases, s.Waiting, s.Stock, s.Removing = len(p.leases), len(p.waiting), len(p.stock), p.removing
	s.Sandboxes, s.CPUs, s.Memory = p.used.n, float64(p.used.cpu)/1000, p.used.use
	return s
}
