package cdp

import (
	"context"
	"slices"
	"time"
)

const (
	slowAsk  = time.Second      // asks that take less are not remembered
	keepAsks = 10 * time.Minute // how long the others are
)

// An ask is a time in which the browser owed its answer.
type ask struct{ begun, ended time.Time } // ended is zero: it still does

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

// Waited is the longest time after since in which the browser kept one [Browser.Ask] waiting. A
// page of it that did not answer meanwhile may be none the worse for it.
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
