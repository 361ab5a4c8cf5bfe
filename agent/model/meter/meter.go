// Package meter says what replies cost, and keeps calls from being made that nobody wants to pay
// for. See [New] and [Gate].
package meter

import (
	"context"
	"errors"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/price"
)

// New wraps next. Each reply's Usage.Cost is set: as the provider said, else by the price of the
// client's Info, else by table (which may be nil). Where none knows, it stays nil, Usage.Unpriced
// says what is missing, and Usage.Counted is what limits and budgets count. All of it is set before
// Binding.Try is told. A try that failed costs what its [model.Charge] says; without one it is not
// billed.
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
	free bool // whatever a reply takes
}

// Info has the price that is reckoned with.
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
	if u.Cost != nil { // a router that does not bill by itself says 0: the price that is known counts
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

// charge says what a try cost that failed. What is only bounded is never a cost.
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

// Gate wraps a vendor's factory: each of its requests is made only if Binding.May allows it. So a
// call that waited for its turn, or for another try, is not made when the money is used up
// meanwhile.
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
