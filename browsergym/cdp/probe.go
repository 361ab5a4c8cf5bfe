package cdp

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

const (
	slowProbe  = time.Second      // shorter probes are forgotten at once
	keepProbes = 10 * time.Minute // longer ones after this time
)

// A probe is one call of [Browser.Probe].
type probe struct{ begun, ended time.Time } // ended is zero while it waits

// Probe checks that the browser process answers and, with draw, that the browser can open and draw
// an empty page. Pages wait for each other there: they share the process that draws, and the CPU.
// See [Browser.ProbeDelay].
func (b *Browser) Probe(ctx context.Context, draw bool) error {
	a := &probe{begun: time.Now()}
	b.mu.Lock()
	b.probes = append(b.probes, a)
	b.mu.Unlock()
	_, err := b.Call(ctx, "", "Browser.getVersion", nil)
	if err == nil && draw {
		err = b.drawEmptyPage(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.ended = time.Now()
	b.probes = slices.DeleteFunc(b.probes, func(a *probe) bool {
		return !a.ended.IsZero() && (a.ended.Sub(a.begun) < slowProbe || time.Since(a.ended) > keepProbes)
	})
	return err
}

func (b *Browser) drawEmptyPage(ctx context.Context) error {
	k, err := b.Prewarm(ctx, "", "")
	if err != nil {
		return err
	}
	defer k.Close(ctx) // on error the context ends with the browser
	b.Send(k.session, "Runtime.runIfWaitingForDebugger", nil)
	_, err = b.Call(ctx, k.session, "Page.captureScreenshot",
		json.RawMessage(`{"format":"jpeg","clip":{"x":0,"y":0,"width":1,"height":1,"scale":1}}`))
	return err
}

// ProbeDelay returns the longest time after since that a [Browser.Probe] has waited for its answer.
// A page that did not answer meanwhile may have been waiting for the browser.
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
