package meter_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/meter"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/price"
	"github.com/evalrun/evalrun/agent/model/retry"
)

type named struct {
	model.Client
	name  string
	price *model.Price
}

func (n named) Info() model.Info { return model.Info{Name: n.name, Price: n.price} }

func name(f model.Factory, name string, p *model.Price) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		c, err := f(b)
		return named{c, name, p}, err
	}
}

func TestCosts(t *testing.T) {
	usage := event.Usage{In: 1000, Out: 100, Cached: 400}
	said, free := 0.5, 0.0
	reply := func(u event.Usage) model.Factory {
		return modeltest.Func(func(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
			return &model.Response{Usage: u}, nil
		}).Factory(0)
	}
	table := price.Default()
	var m meter.Meter
	for _, tt := range []struct {
		f    model.Factory
		cost float64 // negative: unknown
	}{
		{name(reply(usage), "gpt-4o", nil), (600*2.5 + 400*1.25 + 100*10) / 1e6},
		{name(reply(usage), "mine", nil), -1},
		{name(reply(usage), "gpt-4o", &model.Price{In: &free, Out: &free, Cached: &free}), 0},
		{name(reply(event.Usage{In: 1, Cost: &said}), "gpt-4o", nil), 0.5},
		{name(reply(event.Usage{}), "gpt-4o", nil), -1},
	} {
		var told *float64
		c, err := m.New(retry.New(tt.f, retry.Policy{}), table)(model.Binding{Try: func(x model.Try) { told = x.Response.Usage.Cost }})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Generate(t.Context(), &model.Request{})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []*float64{r.Usage.Cost, told} {
			if tt.cost < 0 != (got == nil) || got != nil && math.Abs(*got-tt.cost) > 1e-12 {
				t.Errorf("cost %v, want %v", got, tt.cost)
			}
		}
	}
	got := m.Total()
	if got.Calls != 5 || got.Unpriced != 2 || got.Usage.In != 3001 || math.Abs(*got.Usage.Cost-(0.003+0.5)) > 1e-12 {
		t.Errorf("total %+v, cost %v", got, *got.Usage.Cost)
	}
}

func TestFailuresCountNothing(t *testing.T) {
	var m meter.Meter
	c, err := m.New(modeltest.Fail(model.Auth).Factory(0), nil)(model.Binding{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := c.Generate(t.Context(), &model.Request{}); !errors.As(err, new(*model.Error)) {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if got := m.Total(); got != (meter.Total{}) {
		t.Errorf("total %+v", got)
	}
}
