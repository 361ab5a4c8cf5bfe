package pool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/pool"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// of returns a spec of a trial.
func of(trial string, spec sandbox.Spec) sandbox.Spec {
	spec.Owner = sandbox.Owner{Run: "r", Trial: trial, Attempt: 1, Role: "agent"}
	return spec
}

// take acquires a sandbox, and returns how long that took and how old it was.
func take(t *testing.T, p *pool.Pool, spec sandbox.Spec) (l sandbox.Lease, took, ahead time.Duration) {
	t.Helper()
	begin := time.Now()
	l = acquire(t, p, spec)
	sb := create(t, l, spec)
	if e, ok := sandbox.As[sandbox.Early](sb); ok {
		ahead = e.Ahead()
	}
	return l, time.Since(begin), ahead
}

func wantStock(t *testing.T, p *pool.Pool, stock, sandboxes int) {
	t.Helper()
	synctest.Wait()
	if s := p.Stats(); s.Stock != stock || s.Sandboxes != sandboxes {
		t.Errorf("%d made ahead, %d in all; want %d, %d", s.Stock, s.Sandboxes, stock, sandboxes)
	}
}

func TestMadeAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{SlowCreate: 10 * time.Second})
		p := pool.New(pool.Options{Sandboxes: 4, Ahead: 2, Idle: time.Hour}, d)
		same, other := mem(10), mem(20)
		same.Env = map[string]string{"A": "1"}
		for i := range 4 {
			p.Expect(t.Context(), []sandbox.Spec{of(fmt.Sprint(i), same)})
		}
		wantStock(t, p, 2, 2) // not more than asked for
		time.Sleep(time.Minute)
		l0, took, ahead := take(t, p, of("0", same))
		if took != 0 || ahead != 50*time.Second {
			t.Errorf("took %v, made %v ahead", took, ahead)
		}
		if o := ownerOf(t, d, "fake-1", "fake-2"); o != "0" {
			t.Errorf("the sandbox belongs to trial %q", o)
		}
		wantStock(t, p, 2, 3) // one more was begun
		l1, took, ahead := take(t, p, of("1", same))
		if took != 0 || ahead != 50*time.Second {
			t.Errorf("took %v, made %v ahead", took, ahead)
		}
		time.Sleep(4 * time.Second)
		l2, took, _ := take(t, p, of("2", same)) // one that is being made is waited for
		if took != 6*time.Second {
			t.Errorf("took %v", took)
		}
		wantStock(t, p, 1, 4)
		time.Sleep(time.Minute)

		// Another kind needs the room.
		l3, took, ahead := take(t, p, of("x", other))
		if took != 10*time.Second || ahead != 0 {
			t.Errorf("another kind took %v, made %v ahead", took, ahead)
		}
		for _, l := range []sandbox.Lease{l0, l1, l2, l3} {
			l.Close()
		}
		wantStock(t, p, 0, 0) // what was removed for others is not made again
		if s := p.Stats(); s.Ahead != 3 || s.PeakSandboxes != 4 {
			t.Errorf("%+v", s)
		}
		closeAll(t, p, d)
	})
}

// ownerOf returns the trial of the one of these sandboxes that belongs to one.
func ownerOf(t *testing.T, d *fake.Driver, ids ...string) (trial string) {
	t.Helper()
	_, err := d.Reap(t.Context(), func(o sandbox.Owner) bool {
		if o.Role != pool.RoleAhead {
			trial += o.Trial
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
	return trial
}

func TestNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{SlowCreate: 10 * time.Second, FailCreate: 1})
		p := pool.New(pool.Options{Ahead: 3, Idle: time.Hour}, d)
		// One that fails is left to the request.
		p.Expect(t.Context(), []sandbox.Spec{of("0", mem(1))})
		time.Sleep(time.Minute)
		wantStock(t, p, 0, 0)
		// A forgotten session's is removed, also while it is being made.
		p.Expect(t.Context(), []sandbox.Spec{of("1", mem(1)), of("1", mem(2))})
		p.Expect(t.Context(), []sandbox.Spec{of("2", mem(2))})
		wantStock(t, p, 3, 3)
		p.Forget("1")
		wantStock(t, p, 1, 1)
		if d.Created() != 0 {
			t.Errorf("%d were made", d.Created())
		}
		// One that nobody takes is removed, and not made again.
		time.Sleep(2 * time.Hour)
		wantStock(t, p, 0, 0)
		// One that is gone when it is asked for is replaced.
		p.Expect(t.Context(), []sandbox.Spec{of("3", mem(3))})
		time.Sleep(time.Minute)
		if n, err := d.Reap(t.Context(), func(sandbox.Owner) bool { return false }); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		l, took, ahead := take(t, p, of("3", mem(3)))
		if took != 10*time.Second || ahead != 0 {
			t.Errorf("took %v, made %v ahead", took, ahead)
		}
		l.Close()
		// One of another spec than announced is not used.
		p.Expect(t.Context(), []sandbox.Spec{of("4", mem(4))})
		time.Sleep(time.Minute)
		l = acquire(t, p, of("4", mem(4)))
		differs := of("4", mem(4))
		differs.Dir = "/elsewhere"
		if e, _ := sandbox.As[sandbox.Early](create(t, l, differs)); e.Ahead() != 0 {
			t.Error("it was made ahead")
		}
		l.Close()
		p.Expect(t.Context(), []sandbox.Spec{of("5", mem(5))})
		p.Wait()
		wantStock(t, p, 0, 0)
		// A start that is canceled while it waits for one that is being made.
		p.Expect(t.Context(), []sandbox.Spec{of("6", mem(6))})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l = acquire(t, p, of("6", mem(6)))
		if _, err := l.Sandbox(ctx, of("6", mem(6))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		l.Close()
		closeAll(t, p, d)
	})
}

// digests is a driver with an image that is built from files.
type digests struct{ *fake.Driver }

func (digests) Prepare(_ context.Context, img sandbox.Image) (string, error) {
	if img.IsZero() {
		return "", nil
	}
	b, err := img.Context.Open("Dockerfile")
	if err != nil {
		return "", err
	}
	defer b.Close()
	text := make([]byte, 100)
	n, err := b.Read(text)
	return string(text[:n]), err
}

// Images are compared by their digests, wherever their files are.
func TestBuiltAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := digests{fake.New(fake.Options{SlowCreate: time.Second})}
		p := pool.New(pool.Options{Ahead: 4}, d)
		built := func(trial, text string) sandbox.Spec {
			return of(trial, sandbox.Spec{Image: sandbox.Image{Name: trial,
				Context: fstest.MapFS{"Dockerfile": {Data: []byte(text)}}}})
		}
		p.Expect(t.Context(), []sandbox.Spec{built("0", "FROM a")})
		p.Expect(t.Context(), []sandbox.Spec{built("1", "FROM b")})
		time.Sleep(time.Minute)
		for _, trial := range []string{"1", "0"} {
			if _, took, _ := take(t, p, built(trial, map[string]string{"0": "FROM a", "1": "FROM b"}[trial])); took != 0 {
				t.Errorf("trial %s took %v", trial, took)
			}
		}
		if _, took, _ := take(t, p, built("2", "FROM a")); took == 0 {
			t.Error("a sandbox was handed out twice")
		}
		closeAll(t, p, d.Driver)
	})
}

// More sessions than places, each with several sandboxes: all get through, each sandbox has one
// user, and none is made twice for one session.
func TestManySessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{SlowCreate: time.Second, SlowClose: time.Second})
		p := pool.New(pool.Options{Sandboxes: 3, Memory: 30, Ahead: 3}, d)
		var mu sync.Mutex
		users := map[string]string{}
		var wg sync.WaitGroup
		const sessions = 60
		for i := range sessions {
			trial := fmt.Sprint(i)
			specs := []sandbox.Spec{of(trial, mem(10)), of(trial, mem(int64(1+i%3)))}
			p.Expect(t.Context(), specs)
			wg.Go(func() {
				time.Sleep(time.Duration(i%7) * time.Second)
				l := acquire(t, p, specs...)
				defer l.Close()
				var starts sync.WaitGroup
				for _, s := range specs {
					starts.Go(func() {
						sb := create(t, l, s)
						mu.Lock()
						defer mu.Unlock()
						if by, ok := users[sb.ID()]; ok {
							t.Errorf("%s was given to %s and %s", sb.ID(), by, trial)
						}
						users[sb.ID()] = trial
					})
				}
				starts.Wait()
				time.Sleep(time.Second)
			})
		}
		wg.Wait()
		p.Wait()
		if len(users) != 2*sessions || d.Peak() > 3 {
			t.Errorf("%d sandboxes were used, %d at once; want %d, 3 at most", len(users), d.Peak(), 2*sessions)
		}
		closeAll(t, p, d)
	})
}
