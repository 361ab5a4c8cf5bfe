// Package meter counts tokens and money. See [New].
package meter

import (
	"context"
	"sync"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/price"
)

// A Meter adds up what all clients of a run have used. It is safe for several goroutines.
type Meter struct {
	mu    sync.Mutex
	total Total
}

// A Total of calls. Usage.Cost is the sum of what is known.
type Total struct {
	Calls    int64
	Unpriced int64 // calls whose cost is not known
	Usage    event.Usage
}

// Total so far.
func (m *Meter) Total() Total {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.total
	if t.Usage.Cost != nil {
		c := *t.Usage.Cost
		t.Usage.Cost = &c
	}
	return t
}

func (m *Meter) add(u event.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.total
	t.Calls++
	t.Usage.In += u.In
	t.Usage.Out += u.Out
	t.Usage.Cached += u.Cached
	t.Usage.CacheWrite += u.CacheWrite
	t.Usage.Reasoning += u.Reasoning
	if u.Cost == nil {
		t.Unpriced++
		return
	}
	sum := *u.Cost
	if t.Usage.Cost != nil {
		sum += *t.Usage.Cost
	}
	t.Usage.Cost = &sum
}

// New wraps next. Each reply's Usage.Cost is set: as the provider said, else by the price of the client's Info, else by table (which may be
// nil); where none knows, it stays nil. The price goes in before Binding.Try is told. Total counts replies; tries that failed are not billed
// by providers and count nothing.
func (m *Meter) New(next model.Factory, table *price.Table) model.Factory {
	return func(b model.Binding) (model.Client, error) {
		c := &client{meter: m}
		if told := b.Try; told != nil {
			b.Try = func(t model.Try) {
				if t.Response != nil {
					c.price(t.Response)
				}
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
		return c, nil
	}
}

type client struct {
	meter *Meter
	next  model.Client
	info  model.Info
}

// Info has the price that is reckoned with.
func (c *client) Info() model.Info { return c.info }

func (c *client) price(r *model.Response) {
	if u := &r.Usage; u.Cost == nil && r.From == "" {
		u.Cost = price.Cost(c.info.Price, u.In, u.Out, u.Cached, u.CacheWrite)
	}
}

func (c *client) Generate(ctx context.Context, req *model.Request) (*model.Response, error) {
	r, err := c.next.Generate(ctx, req)
	if err != nil {
		return nil, err
	}
	c.price(r)
	c.meter.add(r.Usage)
	return r, nil
}
