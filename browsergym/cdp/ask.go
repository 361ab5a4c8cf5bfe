package cdp

import (
	"context"
	"slices"
	"time"
)

const (
	slowAsk  = time.Second      // shorter asks are forgotten at once
	keepAsks = 10 * time.Minute // the others after this time
)

// An ask is one call of [Browser.Ask].
type ask struct{ begun, ended time.Time } // ended is zero while it waits

// Ask asks the browser itself, rather than one of its pages, whether it is there. The error is that
// of the call. See [Browser.Waited].
func (b *Browser) Ask(ctx context.Context) error {
	a := &ask{begun: time.Now()}
	b.mu.Lock()
	b.asks = append(b.asks, a)
	b.mu.Unlock()
	_, err := b.Call(ctx, "", "Browser.getVersion", nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	a.ended = time.Now()
	b.asks = slices.DeleteFunc(b.asks, func(a *ask) bool {
		return !a.ended.IsZero() && (a.ended.Sub(a.begun) < slowAsk || time.Since(a.ended) > keepAsks)
	})
	return err
}

// Waited is the longest time after since that one [Browser.Ask] has waited. A page that did not
// answer meanwhile may have been waiting for the browser.
func (b *Browser) Waited(since time.Time) (longest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.asks {
		begun, ended := a.begun, a.ended
		if ended.IsZero() {
			ended = time.Now()
		}
		if begun.Before(since) {
			begun = since
		}
		longest = max(longest, ended.Sub(begun))
	}
	return longest
}
