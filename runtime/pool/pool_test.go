package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A scale is a driver that weighs what lives, from before Create to after Close.
type scale struct {
	*fake.Driver
	mu                 sync.Mutex
	n, starting, mostN int
	mem, mostMem       int64
	mostStarting       int
}

type weighed struct {
	sandbox.Sandbox
	once  sync.Once
	after func()
}

func (s *scale) weigh(n, starting int, mem int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.starting, s.mem = s.n+n, s.starting+starting, s.mem+mem
	s.mostN, s.mostMem, s.mostStarting = max(s.mostN, s.n), max(s.mostMem, s.mem), max(s.mostStarting, s.starting)
}

func (s *scale) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s.weigh(1, 1, spec.Memory)
	sb, err := s.Driver.Create(ctx, spec)
	s.weigh(0, -1, 0)
	if err != nil {
		s.weigh(-1, 0, -spec.Memory)
		return nil, err
	}
	return &weighed{Sandbox: sb, after: func() { s.weigh(-1, 0, -spec.Memory) }}, nil
}

func (w *weighed) Close() error {
	err := w.Sandbox.Close()
	w.once.Do(w.after)
	return err
}

func (w *weighed) Unwrap() sandbox.Sandbox { return w.Sandbox }

func mem(n int64) sandbox.Spec { return sandbox.Spec{Memory: n} }

func acquire(t *testing.T, p sandbox.Provider, specs ...sandbox.Spec) sandbox.Lease {
	t.Helper()
	l, err := p.Acquire(t.Context(), specs)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func create(t *testing.T, l sandbox.Lease, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	sb, err := l.Sandbox(t.Context(), spec)
	if err != nil {
		t.Fatalf("Sandbox: %v", err)
	}
	return sb
}

func closeAll(t *testing.T, p *pool.Pool, drivers ...*fake.Driver) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	s := p.Stats()
	if s.Leases != 0 || s.Waiting != 0 || s.Stock != 0 || s.Removing != 0 || s.Sandboxes != 0 || s.Memory != 0 || s.CPUs != 0 {
		t.Errorf("after Close: %+v", s)
	}
	for _, d := range drivers {
		d.CheckAllClosed(t)
	}
}

// Whatever happens in whatever order, no more lives than the budget allows, everything ends, and
// nothing is left.
func TestStorm(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var (
			seed    = rapid.Uint64().Draw(r, "seed")
			maxN    = rapid.IntRange(0, 6).Draw(r, "max sandboxes")
			maxMem  = rapid.Int64Range(0, 40).Draw(r, "max memory")
			alone   = rapid.Int64Range(0, 40).Draw(r, "alone")
			starts  = rapid.IntRange(1, 5).Draw(r, "starts")
			ahead   = rapid.IntRange(0, 3).Draw(r, "ahead")
			fails   = rapid.IntRange(0, 5).Draw(r, "failures")
			workers = rapid.IntRange(1, 12).Draw(r, "workers")
			early   = rapid.Bool().Draw(r, "close early")
			slow    = rapid.IntRange(0, 3).Draw(r, "slow")
		)
		synctest.Test(t, func(t *testing.T) {
			d := &scale{Driver: fake.New(
				fake.Options{FailCreate: fails, SlowCreate: time.Duration(slow) * time.Second,
					SlowClose: time.Duration(slow) * time.Second, Commands: map[string]fake.Func{"sleep": sleep}})}
			p := pool.New(pool.Options{Sandboxes: maxN, Memory: maxMem, Alone: alone, Starts: starts,
				Ahead: ahead, Idle: 20 * time.Second}, d)
			var wg sync.WaitGroup
			for w := range workers {
				rnd := rand.New(rand.NewPCG(seed, uint64(w)))
				wg.Go(func() {
					for range 8 {
						session(t, p, rnd)
						if rnd.IntN(5) == 0 {
							p.Wait()
						}
					}
				})
			}
			if early {
				time.Sleep(time.Duration(seed%40) * time.Second)
				p.Close()
			}
			wg.Wait()
			closeAll(t, p, d.Driver)
			if d.n != 0 || d.mem != 0 {
				t.Errorf("%d sandboxes, %d bytes are left", d.n, d.mem)
			}
			if maxN > 0 && d.mostN > maxN || maxMem > 0 && d.mostMem > max(maxMem, alone) || d.mostStarting > starts {
				t.Errorf("at most %d sandboxes, %d bytes, %d starting; the budget was %d, %d, %d", d.mostN, d.mostMem,
					d.mostStarting, maxN, maxMem, starts)
			}
		})
	})
}

// sleep is the program of the sandboxes of TestStorm.
func sleep(_ context.Context, p *fake.Proc) int {
	seconds, err := strconv.Atoi(p.Args[1])
	if err != nil {
		return 1
	}
	p.Sleep(time.Duration(seconds) * time.Second)
	return 0
}

// session is what a trial does, cut short at any moment.
func session(t *testing.T, p *pool.Pool, rnd *rand.Rand) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	gone := errors.New("the trial was canceled")
	if rnd.IntN(2) == 0 {
		defer time.AfterFunc(time.Duration(rnd.IntN(12000))*time.Millisecond, func() { cancel(gone) }).Stop()
	}
	specs := make([]sandbox.Spec, rnd.IntN(4))
	trial := fmt.Sprint(rnd.Uint64())
	for i := range specs {
		specs[i] = mem(int64(rnd.IntN(3)) * 5)
		specs[i].Owner.Trial = trial
	}
	if rnd.IntN(2) == 0 {
		p.Expect(ctx, specs)
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		if rnd.IntN(4) == 0 {
			p.Forget(trial)
		}
	}
	l, err := p.Acquire(ctx, specs)
	switch {
	case err == nil:
	case errors.Is(err, sandbox.ErrNeverFits), errors.Is(err, gone), errors.Is(err, pool.ErrClosed):
		return
	default:
		t.Errorf("Acquire: %v", err)
		return
	}
	if rnd.IntN(10) > 0 {
		defer l.Close()
	} else {
		// from elsewhere, perhaps in the middle
		time.AfterFunc(time.Duration(rnd.IntN(5))*time.Second, func() { l.Close() })
	}
	for _, i := range rnd.Perm(len(specs)) {
		spec := specs[i]
		if rnd.IntN(4) == 0 {
			spec.Env = map[string]string{"DETAIL": "differs"}
		}
		sb, err := l.Sandbox(ctx, spec)
		if err != nil {
			continue
		}
		if _, err := sb.Exec(ctx, sandbox.Command{Args: []string{"sleep", fmt.Sprint(rnd.IntN(4))}}); err != nil {
			continue
		}
		if rnd.IntN(3) == 0 {
			sb.Close()
		}
	}
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{})
		p := pool.New(pool.Options{Memory: 10}, d)
		first := acquire(t, p, mem(6))
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		for _, who := range []struct {
			name string
			mem  int64
		}{{"large", 10}, {"small", 1}, {"small too", 4}} {
			wg.Go(func() {
				l := acquire(t, p, mem(who.mem))
				mu.Lock()
				order = append(order, who.name)
				mu.Unlock()
				time.Sleep(time.Second)
				l.Close()
			})
			synctest.Wait() // they ask one after the other
		}
		if len(order) > 0 {
			t.Errorf("%v was given room before the one who asked first", order)
		}
		if s := p.Stats(); s.Waiting != 3 || s.Memory != 6 {
			t.Errorf("%+v", s)
		}
		first.Close()
		wg.Wait()
		if order[0] != "large" {
			t.Errorf("order %v", order)
		}
		closeAll(t, p, d)
	})
}

// One that is larger than the budget is granted when nothing else is out, in its turn, and what is
// ready for others gives way.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{})
		p := pool.New(pool.Options{Memory: 10, Alone: 30, Ahead: 1}, d)
		first := acquire(t, p, mem(4))
		create(t, first, mem(4))
		p.Expect(t.Context(), []sandbox.Spec{mem(4)})
		synctest.Wait()
		if s := p.Stats(); s.Memory != 8 {
			t.Fatalf("%d bytes are taken, want 8", s.Memory)
		}
		large, small := make(chan sandbox.Lease, 1), make(chan sandbox.Lease, 1)
		go func() { large <- acquire(t, p, mem(25)) }()
		synctest.Wait()
		go func() { small <- acquire(t, p, mem(1)) }()
		synctest.Wait()
		if len(large)+len(small) > 0 {
			t.Fatal("somebody was granted room beside the one who has it, or before the one who asked first")
		}
		first.Close()
		synctest.Wait()
		if s := p.Stats(); len(large) != 1 || len(small) != 0 || s.Memory != 25 {
			t.Fatalf("the large one is not alone: %+v", s)
		}
		(<-large).Close()
		synctest.Wait()
		(<-small).Close()
		p.Wait()
		if _, err := p.Acquire(t.Context(), []sandbox.Spec{mem(31)}); !errors.Is(err, sandbox.ErrNeverFits) {
			t.Errorf("more than there is at all: %v", err)
		}
		closeAll(t, p, d)
	})
}

// One who gives up lets those behind him pass.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{})
		p := pool.New(pool.Options{Sandboxes: 2}, d)
		l := acquire(t, p, sandbox.Spec{})
		why := errors.New("not any more")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, why)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := p.Acquire(ctx, []sandbox.Spec{{}, {}})
			done <- err
		}()
		synctest.Wait()
		begin := time.Now()
		behind := acquire(t, p, sandbox.Spec{})
		if err := <-done; !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(begin); waited != time.Minute {
			t.Errorf("the one behind waited for %v", waited)
		}
		if s := p.Stats(); s.QueueWait.N != 2 || s.QueueWait.Max != time.Minute {
			t.Errorf("%+v", s.QueueWait)
		}
		behind.Close()
		l.Close()
		closeAll(t, p, d)
	})
}

// A machine of which nobody says what it needs is counted at a guess, and on a small host the guess
// gives way.
func TestGuess(t *testing.T) {
	p := pool.New(pool.Options{Memory: 100, Default: sandbox.Reserve{Memory: 60}}, fake.New(fake.Options{}))
	defer p.Close()
	specs := []sandbox.Spec{{}, {}, mem(40)}
	l := acquire(t, p, specs...)
	for _, s := range specs {
		create(t, l, s)
	}
	if n := p.Stats().Memory; n != 100 {
		t.Errorf("%d of 100 bytes are taken, want all", n)
	}
	l.Close()
	p.Wait()
	l = acquire(t, p, sandbox.Spec{Services: map[string]sandbox.Spec{"db": {}}}) // two, too
	if n := p.Stats().Memory; n != 100 {
		t.Errorf("with a service %d of 100 bytes are taken, want all", n)
	}
	l.Close()
	acquire(t, p, sandbox.Spec{}) // where there is room, a guess counts whole
	if n := p.Stats().Memory; n != 60 {
		t.Errorf("%d bytes are taken, want 60", n)
	}
}

func TestNeverFits(t *testing.T) {
	p := pool.New(pool.Options{Memory: 100, CPUs: 2, Sandboxes: 3, Default: sandbox.Reserve{Memory: 10}},
		fake.New(fake.Options{}))
	defer p.Close()
	for name, specs := range map[string][]sandbox.Spec{
		"memory":        {mem(60), mem(50)},
		"processors":    {{CPUs: 1.5}, {CPUs: 0.6}},
		"sandboxes":     {{}, {}, {}, {}},
		"service":       {{Memory: 60, Services: map[string]sandbox.Spec{"db": {Memory: 50}}}},
		"absurd":        {mem(1 << 62), mem(1 << 62), mem(1 << 62)},
		"known":         {mem(101), {}},
		"tiny fraction": {{CPUs: 2.0001}},
	} {
		_, err := p.Acquire(t.Context(), specs)
		if !errors.Is(err, sandbox.ErrNeverFits) {
			t.Errorf("%s: error %v", name, err)
		} else if !strings.Contains(err.Error(), "the budget is 3 sandboxes") {
			t.Errorf("%s: the message lacks the budget: %v", name, err)
		}
	}
	if err := pool.New(pool.Options{Memory: 1 << 30},
		fake.New(fake.Options{})).Fits([]sandbox.Spec{mem(2 << 30)}); !strings.Contains(err.Error(),
		": 1 sandbox, 2.0 GiB; the budget is 1.0 GiB (") {
		t.Errorf("what is not limited is told: %v", err)
	}
	// What is reserved counts, not the limit; exactly the budget fits; nothing always fits.
	acquire(t, p, sandbox.Spec{Memory: 1000, CPUs: 8, Reserve: sandbox.Reserve{Memory: 100, CPUs: 2}})
	acquire(t, p)
	if _, err := p.Of("docker"); err == nil {
		t.Error("a provider of a driver that is not there")
	}
	if _, err := p.Of("fake"); err != nil {
		t.Error(err)
	}
}

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{SlowClose: time.Second})
		p := pool.New(pool.Options{Memory: 100}, d)
		l := acquire(t, p, mem(30), mem(50))
		big := create(t, l, mem(50))
		small := create(t, l, sandbox.Spec{Memory: 20, Dir: "/x"})
		if _, ok := sandbox.As[sandbox.Dialer](big); !ok {
			t.Error("As does not see through the lease")
		}
		if _, err := l.Sandbox(t.Context(), mem(1)); err == nil {
			t.Error("a third sandbox of a lease for two")
		}
		if err := small.Close(); err != nil {
			t.Error(err)
		}
		again := create(t, l, mem(30)) // the slot is empty
		if _, err := l.Sandbox(t.Context(), mem(1)); err == nil {
			t.Error("a third sandbox of a lease for two")
		}

		// A start that is under way when the lease is closed is cut short.
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				begin := time.Now()
				l.Close()
				if took := time.Since(begin); took != 0 {
					t.Errorf("Close waited for %v", took)
				}
			})
		}
		wg.Wait()
		if s := p.Stats(); d.Live() == 0 || s.Removing != d.Live() || s.Memory != 80 {
			t.Errorf("while they are removed: %d live, %+v", d.Live(), s)
		}
		p.Wait()
		if n := d.Live(); n != 0 {
			t.Errorf("%d live after Wait", n)
		}
		if _, err := l.Sandbox(t.Context(), mem(1)); err == nil {
			t.Error("a sandbox of a closed lease")
		}
		if _, err := big.Exec(t.Context(), sandbox.Command{Args: []string{"true"}}); !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("Exec after the lease was closed: %v", err)
		}
		closeAll(t, p, d)
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{FailCreate: 1, FailClose: 1})
		var lost []error
		p := pool.New(pool.Options{Sandboxes: 1, Lost: func(err error) { lost = append(lost, err) }}, d)
		l := acquire(t, p, sandbox.Spec{})
		var infra *sandbox.Error
		if _, err := l.Sandbox(t.Context(), sandbox.Spec{}); !errors.As(err, &infra) ||
			!errors.Is(err, fake.ErrInjected) {
			t.Errorf("error %v", err)
		}
		if s := p.Stats(); s.Failed != 1 || s.Started != 0 {
			t.Errorf("tried %d times, want once", s.Failed+s.Started)
		}
		create(t, l, sandbox.Spec{})
		var cannot *sandbox.Unsupported
		acquired := acquire(t, p)
		if _, err := acquired.Sandbox(t.Context(), sandbox.Spec{}); !errors.As(err, &infra) {
			t.Errorf("no room: error %v", err)
		}
		l.Close()
		p.Wait()
		if s := p.Stats(); s.Lost != 1 || len(lost) != 1 || !errors.Is(lost[0], fake.ErrInjected) {
			t.Errorf("%d lost, want 1: %v", s.Lost, lost)
		}
		l = acquire(t, p, sandbox.Spec{Platform: "plan9/mips"})
		if _, err := l.Sandbox(t.Context(), sandbox.Spec{Platform: "plan9/mips"}); !errors.As(err, &cannot) ||
			errors.As(err, &infra) {
			t.Errorf("unsupported: error %v", err)
		}
		l.Close()
		acquired.Close()
		closeAll(t, p, d)
	})
}

func TestClosingThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{SlowCreate: time.Hour})
		p := pool.New(pool.Options{Sandboxes: 2}, d)
		l := acquire(t, p, sandbox.Spec{}, sandbox.Spec{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := p.Acquire(t.Context(), []sandbox.Spec{{}}); !errors.Is(err, pool.ErrClosed) {
				t.Errorf("Acquire that waits: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := l.Sandbox(t.Context(), sandbox.Spec{}); err == nil {
				t.Error("a sandbox of a closed pool")
			}
		})
		synctest.Wait()
		begin := time.Now()
		closeAll(t, p, d)
		wg.Wait()
		if time.Since(begin) > time.Minute {
			t.Errorf("took %v", time.Since(begin))
		}
		if s := p.Stats(); s.Unreturned != 1 {
			t.Errorf("%d leases unreturned, want 1", s.Unreturned)
		}
		if _, err := p.Acquire(t.Context(), nil); !errors.Is(err, pool.ErrClosed) {
			t.Errorf("Acquire of a closed pool: %v", err)
		}
		closeAll(t, p, d)
	})
}

func BenchmarkLease(b *testing.B) {
	p := pool.New(pool.Options{Sandboxes: 100}, fake.New(fake.Options{}))
	specs := []sandbox.Spec{{Memory: 1}}
	b.ReportAllocs()
	for b.Loop() {
		l, err := p.Acquire(context.Background(), specs)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.Sandbox(context.Background(), specs[0]); err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}
