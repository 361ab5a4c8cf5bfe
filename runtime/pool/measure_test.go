package pool_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

const mib = 1 << 20

// hold uses MiB of memory for some seconds, after a second without.
func hold(_ context.Context, p *fake.Proc) int {
	n, _ := strconv.ParseInt(p.Args[1], 10, 64)
	seconds, _ := strconv.Atoi(p.Args[2])
	p.Sleep(time.Second)
	p.Alloc(n * mib)
	p.Sleep(time.Duration(seconds) * time.Second)
	return 0
}

func newMeasured(free *atomic.Int64) (*fake.Driver, *pool.Pool) {
	d := fake.New(fake.Options{Commands: map[string]fake.Func{"hold": hold}})
	return d, pool.New(pool.Options{Memory: 4096 * mib,
		Free: func() (int64, bool) { return free.Load() * mib, true }}, d)
}

// use plays sessions, all at once, whose sandboxes may use 1 GiB each and use n MiB.
func use(t *testing.T, p *pool.Pool, like string, sessions, n, seconds int) *sync.WaitGroup {
	t.Helper()
	spec := mem(1024 * mib)
	spec.Reserve.Like = like
	wg := new(sync.WaitGroup)
	for range sessions {
		wg.Go(func() {
			l := acquire(t, p, spec)
			defer l.Close()
			sb := create(t, l, spec)
			args := []string{"hold", strconv.Itoa(n), strconv.Itoa(seconds)}
			if x, err := sb.Exec(t.Context(), sandbox.Command{Args: args}); err != nil || x.Code != 0 {
				t.Errorf("%+v, %v", x, err)
			}
		})
	}
	return wg
}

func TestAdmissionByUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		free.Store(5120)
		d, p := newMeasured(&free)
		use(t, p, "a", 7, 100, 10).Wait()
		if d.Peak() != 4 {
			t.Errorf("%d at once, want the 4 that fit by their limits", d.Peak())
		}
		use(t, p, "a", 1, 100, 10).Wait()
		p.Wait()

		// After eight, 100 MiB and a margin count.
		wg := use(t, p, "a", 40, 100, 60)
		synctest.Wait()
		if s := p.Stats(); d.Live() != 16 || s.Memory != 16*214*mib {
			t.Errorf("%d at once with %d MiB, want 16: four times the budget by limits", d.Live(), s.Memory/mib)
		}
		wg.Wait()
		// Others are counted by their limits.
		wg = use(t, p, "b", 6, 100, 60)
		synctest.Wait()
		if d.Live() != 4 {
			t.Errorf("%d of another kind at once, want 4", d.Live())
		}
		wg.Wait()

		// The host's memory is somebody else's.
		free.Store(1000) // of which 512 stay
		wg = use(t, p, "a", 8, 100, 60)
		synctest.Wait()
		if d.Live() != 4 {
			t.Errorf("%d at once without free memory, want 4", d.Live())
		}
		free.Store(5120)
		time.Sleep(5 * time.Second) // that is noticed
		synctest.Wait()
		if d.Live() != 8 {
			t.Errorf("%d at once when there is memory again, want 8", d.Live())
		}
		wg.Wait()

		// Those that use more than others did are counted at that, and change what is believed.
		wg = use(t, p, "a", 16, 600, 60)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := p.Stats(); d.Live() != 16 || s.Memory != 16*600*mib {
			t.Errorf("%d at once with %d MiB, want 16 with 9600", d.Live(), s.Memory/mib)
		}
		more := use(t, p, "a", 1, 100, 1)
		synctest.Wait()
		if n := p.Stats().Waiting; n != 1 {
			t.Errorf("%d wait for memory that is used, want 1", n)
		}
		wg.Wait()
		more.Wait()
		wg = use(t, p, "a", 8, 100, 60)
		synctest.Wait()
		if d.Live() != 4 {
			t.Errorf("%d at once after a large one, want 4", d.Live())
		}
		wg.Wait()
		closeAll(t, p, d)
	})
}
