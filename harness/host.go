package harness

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A host gives an episode or a grading the resources that the benchmark's Needs asked for.
type host struct {
	a    *attempt
	role string // "agent" or "grader"

	left []record.Machine // of an interrupted session, not found yet

	timed atomic.Bool // the current phase is timed as a whole, so single operations are not timed
}

// within adds the duration of a phase to one of the attempt's times, until the returned function is
// called. Operations of h in that phase are not timed separately.
func (h *host) within(which func(*record.Times) *time.Duration) func() {
	h.timed.Store(true)
	stop := h.a.since(which)
	return func() {
		stop()
		h.timed.Store(false)
	}
}

func (h *host) Sandbox(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	h.a.mu.Lock()
	lease := h.a.lease // copied under the lock, because an abandoned agent may still call this
	h.a.mu.Unlock()
	if lease == nil {
		return nil, fmt.Errorf("the benchmark asks for a machine that its needs did not name")
	}
	// Creating a sandbox at the agent's first step does not count as the agent's time.
	defer h.a.waiting()()
	if !h.timed.Load() {
		defer h.a.since(func(t *record.Times) *time.Duration { return &t.Start })()
	}
	spec.Owner = h.a.owner(h.role)
	if h.role == "agent" {
		spec.Orphan = h.a.orphan
	}
	sb, err := lease.Sandbox(ctx, spec)
	if err != nil {
		return nil, err
	}
	return h.a.watch(h.role, spec, sb), nil
}

// Keep implements [benchmarks.Keeper].
func (h *host) Keep(ctx context.Context, sb sandbox.Sandbox, dir string) error {
	if _, ok := h.a.bench.Benchmark.(benchmarks.Resumer); !ok || h.role != "agent" {
		return nil
	}
	return h.a.write(context.WithoutCancel(ctx), record.KindMachine,
		record.Machine{ID: sb.ID(), Dir: dir, Ahead: h.a.early()})
}

// Find implements [benchmarks.Keeper].
func (h *host) Find(ctx context.Context, spec sandbox.Spec) (_ sandbox.Sandbox, dir string, err error) {
	if len(h.left) == 0 {
		return nil, "", nil
	}
	h.a.mu.Lock()
	lease, ok := h.a.lease.(sandbox.Finder)
	h.a.mu.Unlock()
	if !ok {
		return nil, "", fmt.Errorf("this provider cannot find a machine again")
	}
	left := h.left[0]
	spec.Owner = h.a.owner(h.role)
	sb, err := lease.Find(ctx, spec, left.ID)
	if err != nil {
		return nil, "", err
	}
	h.a.mu.Lock()
	h.a.ahead = left.Ahead
	h.a.mu.Unlock()
	h.left = h.left[1:]
	return h.a.watch(h.role, spec, sb), left.Dir, nil
}

func (h *host) Model(role string) (model.Client, error) {
	f := h.a.bench.Roles[role]
	if f == nil {
		return nil, fmt.Errorf("no model is configured for the role %q of benchmark %s", role, h.a.bench.Name())
	}
	return h.a.client(f, "", role, true)
}

func (h *host) Secret(name string) (string, error) {
	if h.a.Secret == nil {
		return "", fmt.Errorf("the run's configuration allows no secret named %q", name)
	}
	return h.a.Secret(name)
}

func (h *host) Log() event.Log { return h.a.log }
func (h *host) Seed() uint64   { return h.a.seed }

// Alone implements [benchmarks.Loner].
func (h *host) Alone() bool { return h.a.job.Alone }
