package webarena

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// reachLimit is how long a site may take to answer at all.
const reachLimit = 10 * time.Second

// A census knows which sites answer. Each is asked once, whoever asks first.
type census struct {
	client *http.Client
	mu     sync.Mutex
	asked  map[string]func() error // by address
}

// reaches says why an address is out of reach, or nil.
func (c *census) reaches(address string) error {
	c.mu.Lock()
	ask := c.asked[address]
	if ask == nil {
		if c.asked == nil {
			c.asked = map[string]func() error{}
		}
		ask = sync.OnceValue(func() error { return probe(context.Background(), c.client, address) })
		c.asked[address] = ask
	}
	c.mu.Unlock()
	return ask()
}

// known is what is known without asking: why the address is out of reach, or nil.
func (c *census) known(address string) error {
	c.mu.Lock()
	ask := c.asked[address]
	c.mu.Unlock()
	if ask == nil {
		return nil
	}
	return ask()
}

// all asks all of these sites at once.
func (c *census) all(sites Sites) {
	var wg sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		if sites.There(name) {
			wg.Go(func() { c.reaches(sites[name]) })
		}
	}
	wg.Wait()
}

// probe asks an address once. Any answer will do but that of a proxy whose server is away.
func probe(ctx context.Context, client *http.Client, address string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reachLimit, fmt.Errorf("no answer within %v", reachLimit))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	defer res.Body.Close()
	io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection can be used again
	switch res.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("it answers %s", res.Status)
	}
	return nil
}

// pauses lie between tries of what took too long, as busy sites do.
var pauses = []time.Duration{time.Second, 2 * time.Second}

// visit shows an address; what took too long is tried again.
func visit(ctx context.Context, p *cdp.Page, address string, limit time.Duration) error {
	for try := 0; ; try++ {
		err := p.GotoWithin(ctx, address, limit)
		if err == nil || !cdp.Timeout(err) || try == len(pauses) {
			return err
		}
		if err := sleep(ctx, pauses[try]); err != nil {
			return err
		}
	}
}

// failed reports whether an error is of a page that would not come, and not of the browser.
func failed(err error) bool { return errors.As(err, new(*cdp.Failure)) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
