package limit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/retry"
)

// Binding.Waiting brackets each wait of a call, in the queue and between tries, and no request is
// out meanwhile.
func TestWaitingIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{Start: 1, Max: 1})
		refused := map[string]bool{}
		var waiting, out sync.Map // by trial
		var waits atomic.Int64
		service := modeltest.Func(func(_ context.Context, b model.Binding, _ int,
			_ *model.Request) (*model.Response, error) {
			if _, ok := waiting.Load(b.Trial); ok {
				t.Errorf("%s: a request went out while the call was said to wait", b.Trial)
			}
			out.Store(b.Trial, true)
			defer out.Delete(b.Trial)
			time.Sleep(time.Second)
			if !refused[b.Trial] {
				refused[b.Trial] = true
				return nil, &model.Error{Class: model.Overload, HTTP: 500, Err: errors.New("broken")}
			}
			r := modeltest.Text("hello")
			return &r, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for _, trial := range []string{"a", "b", "c", "stopped"} {
			use := t.Context()
			if trial == "stopped" {
				use = ctx
			}
			b := model.Binding{Trial: trial, Waiting: func() func() {
				waits.Add(1)
				if _, twice := waiting.LoadOrStore(trial, true); twice {
					t.Errorf("%s: two waits at once", trial)
				}
				if _, ok := out.Load(trial); ok {
					t.Errorf("%s: waits while a request is out", trial)
				}
				return func() {
					if _, ok := waiting.LoadAndDelete(trial); !ok {
						t.Errorf("%s: a wait ended twice", trial)
					}
				}
			}}
			c, err := retry.New(l.Wrap(service.Factory(0)), retry.Policy{})(b)
			if err != nil {
				t.Fatal(err)
			}
			calls.Go(func() { _, _ = c.Generate(use, &model.Request{}) })
		}
		time.AfterFunc(500*time.Millisecond, cancel)
		calls.Wait()
		waiting.Range(func(k, _ any) bool { t.Errorf("%s: a wait never ended", k); return true })
		if n := waits.Load(); n < 5 { // three in the queue at least, three back-offs
			t.Errorf("%d waits were announced", n)
		}
	})
}
