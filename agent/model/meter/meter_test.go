package meter_test

import (
	"context"
	"errors"
	"math"
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
	for _, tt := range []struct {
		f        model.Factory
		cost     float64 // negative: unknown
		counted  float64 // likewise
		unpriced string
	}{
		{name(reply(usage), "gpt-4o", nil), (600*2.5 + 400*1.25 + 100*10) / 1e6, -1, ""},
		{name(reply(usage), "gpt-4-turbo", nil), -1, (600*10 + 400*30 + 100*30) / 1e6, "cached"},
		{name(reply(event.Usage{In: 10, CacheWrite: 10}), "gpt-4o", nil), -1, 10 * 5 / 1e6, "cache_write"},
		{name(reply(usage), "mine", nil), -1, -1, "in,out,cached"},
		{name(reply(usage), "gpt-4o", &model.Price{In: &free, Out: &free}), 0, -1, ""},
		{name(reply(event.Usage{}), "gpt-4o", &model.Price{In: &free, Out: &free}), 0, -1, ""},
		{name(reply(event.Usage{}), "gpt-4o", &model.Price{In: &free}), -1, -1, "usage"},
		{name(reply(event.Usage{In: 1, Cost: &said}), "gpt-4o", nil), 0.5, -1, ""},
		{name(reply(event.Usage{}), "gpt-4o", nil), -1, -1, "usage"},
		{name(reply(event.Usage{}), "gpt-4o", &model.Price{}), -1, -1, "usage"},
	} {
		var told event.Usage
		c, err := meter.New(retry.New(tt.f, retry.Policy{}),
			table)(model.Binding{Try: func(x model.Try) { told = x.Response.Usage }})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Generate(t.Context(), &model.Request{})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range []event.Usage{r.Usage, told} {
			for _, x := range []struct {
				got  *float64
				want float64
			}{{u.Cost, tt.cost}, {u.Counted, tt.counted}} {
				if x.want < 0 != (x.got == nil) || x.got != nil && math.Abs(*x.got-x.want) > 1e-12 {
					t.Errorf("%+v: %v, want %v", tt, x.got, x.want)
				}
			}
			if u.Unpriced != tt.unpriced {
				t.Errorf("unpriced %q, want %q", u.Unpriced, tt.unpriced)
			}
		}
	}
}

// A call that waited for another try is not made when the money is used up meanwhile.
func TestGate(t *testing.T) {
	calls, asked := 0, 0
	gone := errors.New("the money is gone")
	vendor := modeltest.Func(func(context.Context, model.Binding, int, *model.Request) (*model.Response, error) {
		calls++
		return nil, &model.Error{Class: model.Overload, Err: errors.New("busy")}
	}).Factory(0)
	c, err := retry.New(meter.Gate(vendor), retry.Policy{First: 1})(model.Binding{May: func() error {
		if asked++; asked > 2 {
			return gone
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Generate(t.Context(), &model.Request{}); !errors.Is(err, gone) || calls != 2 {
		t.Errorf("%d calls, then %v", calls, err)
	}
}
