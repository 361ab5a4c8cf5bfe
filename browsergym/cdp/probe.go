package cdp

import (
	"context"
	"slices"
	"time"
)

const (
	slowProbe  = time.Second      // shorter asks are forgotten at once
	keepProbes = 10 * time.Minute // the others after this time
)

// An probe is one call of [Browser.Ask].
type probe struct{ begun, ended time.Time } // ended is zero while it waits

// Probe asks the browser itself, rather than one of its pages, whether it is there. The error is that
// of the call. See [Browser.Waited].
func (b *Browser) Probe(ctx context.Context) error {
	a := &probe{begun: time.Now()}
	b.mu.Lock()
	b.probes = append(b.probes, a)
	b.mu.Unlock()
	_, err := b.Call(ctx, "", "Browser.getVersion", nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	a.ended = time.Now()
	b.probes = slices.DeleteFunc(b.probes, func(a *probe) bool {
		return !a.ended.IsZero() && (a.ended.Sub(a.begun) < slowProbe || time.Since(a.ended) > keepProbes)
	})
	return err
}

// ProbeDelay is the longest time after since that one [Browser.Ask] has waited. A page that did not
// answer meanwhile may have been waiting for the browser.
func (b *Browser) ProbeDelay(since time.Time) (longest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.probes {
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
