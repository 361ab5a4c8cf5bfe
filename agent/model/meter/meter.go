// Package meter computes the cost of replies and stops calls that the budget no longer allows. See
// [New] and [Gate].
package meter

import (
	"context"
	"errors"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/price"
)

// New wraps next so that the Usage.Cost of each reply is set: to the cost reported by the provider,
// else by the price in the client's Info, else by table (which may be nil). If none of them has a
// price, Cost stays nil, Usage.Unpriced says what is missing, and Usage.Counted holds the amount
// that limits and budgets count. All of this is set before Binding.Try is called. A failed try
// costs what its [model.Charge] says; without a Charge it is not billed.
func New(next model.Factory, table *price.Table) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		c := new(client)
		if told := b.Try; told != nil {
			b.Try = func(t model.Try) {
				if t.Response != nil {
					c.price(t.Response)
				}
				c.charge(t.Err)
				told(t)
			}
		}
		var err error
		c.next, err = next(b)
		if err != nil {
			return nil, err
		}
		c.info = c.next.Info()
		if c.info.Price == nil && table != nil {
			c.info.Price = table.Lookup(c.info.Name)
		}
		if p := c.info.Price; p != nil && p.In != nil && p.Out != nil {
			c.free = *price.Dearest(p) == 0
		}
		return c, nil
	}
}

type client struct {
	next model.Client
	info model.Info
	free bool // all replies are free
}

// Info returns the client's Info with the price that is used.
func (c *client) Info() model.Info { return c.info }

func (c *client) price(r *model.Response) {
	u := &r.Usage
	if u.Cost != nil && *u.Cost > 0 || r.From != "" {
		return
	}
	if r.Silent() && !c.free && (u.Cost == nil || c.info.Price != nil) {
		u.Cost, u.Counted, u.Unpriced = nil, nil, price.Usage
		return
	}
	c.cost(u)
}

func (c *client) cost(u *event.Usage) {
	if u.Cost != nil { // a router that does not bill reports 0; in that case the known price counts
		if cost, _ := price.Cost(c.info.Price, *u); cost != nil {
			u.Cost = cost
		}
		return
	}
	if c.free {
		u.Cost = new(float64)
		return
	}
	cost, missing := price.Cost(c.info.Price, *u)
	if u.Cost = cost; cost == nil {
		u.Counted, _ = price.Cost(price.Counted(c.info.Price), *u)
		u.Unpriced = strings.Join(missing, ",")
	}
}

// charge sets the cost of a failed try. A usage that is only an upper bound never becomes a cost.
func (c *client) charge(err error) {
	var x *model.Charge
	switch {
	case !errors.As(err, &x):
	case x.Bound:
		x.Usage.Counted = price.Most(c.info.Price, x.Usage)
	case x.Usage.Cost == nil || *x.Usage.Cost == 0:
		c.cost(&x.Usage)
	}
}

func (c *client) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	r, err := c.next.Generate(ctx, req)
	if err != nil {
		c.charge(err)
		return nil, err
	}
	c.price(r)
	return r, nil
}

// Gate wraps a vendor's factory so that each request is made only if Binding.May allows it. A call
// that waited in a queue or for another try is thus not made if the budget was used up meanwhile.
func Gate(next model.Factory) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		c, err := next(b)
		if err != nil || b.May == nil {
			return c, err
		}
		return &gated{c, b.May}, nil
	}
}

type gated struct {
	model.Client
	may func() error
}

func (g *gated) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	if err := g.may(); err != nil {
		return nil, err
	}
	return g.Client.Generate(ctx, req)
}
