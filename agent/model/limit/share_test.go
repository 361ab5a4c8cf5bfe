package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/retry"
)

// A service that refuses a constant share of the calls, whatever their rate, is used about as if
// each refused call had waited for what the service asks, and the others had not. After an outage
// it takes a few minutes more.
func TestConstantShare(t *testing.T) {
	const learn = 6 * time.Minute // after an outage
	for _, down := range []time.Duration{0, 5 * time.Minute} {
		for _, share := range []float64{0.02, 0.08, 0.2} {
			for _, workers := range []int{1, 3, 16, 64} {
				t.Run(fmt.Sprintf("down %v/%v/%d", down, share, workers), func(t *testing.T) {
					for seed := range uint64(3) {
						s := &shareService{share: share, hint: time.Second}
						best := s.play(t, seed, workers, patient)
						s.down = down
						took := s.play(t, seed, workers, func(f model.Factory) model.Factory {
							l := limit.New(limit.Config{})
							return retry.New(l.Wrap(f), retry.Policy{Answered: l.Answered, Held: limit.MaxPause})
						})
						t.Logf("%v, %d refused; %v where each refused call just waits", took, s.refused, best)
						most := 2 * best
						if down > 0 {
							most += down + learn
						}
						if took > most {
							t.Errorf("took %v, more than %v; %v where each refused call just waits", took, most, best)
						}
					}
				})
			}
		}
	}
}

// patient makes each refused call wait for what the service asks.
func patient(f model.Factory) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		c, err := f(b)
		if err != nil {
			return nil, err
		}
		return modeltest.Func(func(ctx context.Context, _ model.Binding, _ int,
			req *model.Request) (*model.Response, error) {
			for {
				resp, err := c.Generate(ctx, req)
				var e *model.Error
				if !errors.As(err, &e) {
					return resp, err
				}
				time.Sleep(e.After)
			}
		}).Factory(0)(b)
	}
}

// shareService refuses a share of the calls at random, and all while it is down at first.
type shareService struct {
	share float64
	hint  time.Duration
	down  time.Duration

	mu      sync.Mutex
	random  *rand.Rand
	refused int
}

// play lets each worker make 200 calls, one after the other, and returns how long that took.
func (s *shareService) play(t *testing.T, seed uint64, workers int,
	wrap func(model.Factory) model.Factory) (took time.Duration) {
	s.random, s.refused = rand.New(rand.NewPCG(seed, 0)), 0
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		f := wrap(modeltest.Func(func(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
			s.mu.Lock()
			r := s.random.Float64()
			no := r < s.share || time.Since(begun) < s.down
			if no {
				s.refused++
			}
			s.mu.Unlock()
			switch {
			case no:
				time.Sleep(20 * time.Millisecond)
				return nil, &model.Error{Class: model.Rate, HTTP: 429, After: s.hint, Err: errors.New("too many")}
			case r > 0.97:
				time.Sleep(3 * time.Second)
			default:
				time.Sleep(50 * time.Millisecond)
			}
			resp := modeltest.Text("hello")
			return &resp, nil
		}).Factory(0))
		var all sync.WaitGroup
		for range workers {
			c, err := f(model.Binding{})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				for range 200 {
					if _, err := c.Generate(t.Context(), &model.Request{}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		took = time.Since(begun)
	})
	return took
}
