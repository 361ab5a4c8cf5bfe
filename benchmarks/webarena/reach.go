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

// reachLimit is how long a site may take to respond to a probe.
const reachLimit = 10 * time.Second

// A census records which sites respond. Each site is probed once.
type census struct {
	client *http.Client
	mu     sync.Mutex
	asked  map[string]func() error // keyed by address
}

// reaches probes an address, at most once, and returns why it cannot be reached, or nil.
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

// known returns the result of an earlier probe, or nil if there was none.
func (c *census) known(address string) error {
	c.mu.Lock()
	ask := c.asked[address]
	c.mu.Unlock()
	if ask == nil {
		return nil
	}
	return ask()
}

// all probes all sites concurrently.
func (c *census) all(sites Sites) {
	var wg sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		if sites.There(name) {
			wg.Go(func() { c.reaches(sites[name]) })
		}
	}
	wg.Wait()
}

// probe sends one request to an address. Any response is accepted except that of a proxy whose
// backend is down.
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
	io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection can be reused
	switch res.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("it answers %s", res.Status)
	}
	return nil
}

// pauses are the waits between retries after a timeout, which is common on busy sites.
var pauses = []time.Duration{time.Second, 2 * time.Second}

// visit opens an address and retries after a timeout.
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

// failed reports whether an error means that a page did not load, as opposed to a failure of the
// browser.
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
