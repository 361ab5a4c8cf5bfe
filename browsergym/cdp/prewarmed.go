package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// A Prewarmed context was opened before the episode that will use it, with a page whose process
// runs but has not loaded a document. This is the slow part of opening a context. The other
// [ContextOptions] are applied as to a new context, and it holds no data of an earlier episode.
type Prewarmed struct {
	b      *Browser
	id     string
	opened chan struct{} // closed when the page is attached

	// The fields below are protected by the browser's lock.
	session, target string
	closed          bool
}

// Prewarm opens a context and a page and waits until the page's process runs. Proxy and bypass are
// those of [ContextOptions].
func (b *Browser) Prewarm(ctx context.Context, proxy, bypass string) (*Prewarmed, error) {
	id, err := b.newContext(ctx, proxy, bypass)
	if err != nil {
		return nil, err
	}
	k := &Prewarmed{b: b, id: id, opened: make(chan struct{})}
	b.mu.Lock()
	b.prewarmed = append(b.prewarmed, k)
	b.mu.Unlock()
	if err := k.open(ctx); err != nil {
		k.Close(ctx)
		return nil, fmt.Errorf("opening a page ahead: %w", err)
	}
	return k, nil
}

func (k *Prewarmed) open(ctx context.Context) error {
	if _, err := k.b.Call(ctx, "", "Target.createTarget",
		map[string]any{"url": "about:blank", "browserContextId": k.id}); err != nil {
		return err
	}
	select {
	case <-k.opened:
	case <-k.b.Done():
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	k.b.Send(k.session, "Inspector.enable", nil)           // reports when the page's process dies
	_, err := k.b.Call(ctx, k.session, "Page.enable", nil) // answered by the page's process
	return err
}

// Close closes a context that was not used.
func (k *Prewarmed) Close(ctx context.Context) error {
	if session, _ := k.take(); session != "" {
		k.b.Send(session, "Runtime.runIfWaitingForDebugger", nil) // a waiting page does not close
		k.b.Handle(session, nil)
	}
	return k.b.dispose(ctx, k.id)
}

// take marks the context as used and returns its page, "" if it has none any more.
func (k *Prewarmed) take() (session, target string) {
	k.b.mu.Lock()
	defer k.b.mu.Unlock()
	k.b.prewarmed = slices.DeleteFunc(k.b.prewarmed, func(l *Prewarmed) bool { return l == k })
	if k.closed {
		return "", ""
	}
	k.closed = true // the caller owns the page now
	return k.session, k.target
}

// attachPrewarmed assigns a new page to the prewarmed context id, and reports whether it is one.
func (b *Browser) attachPrewarmed(id, session, target string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.prewarmed {
		if k.id == id && k.session == "" {
			b.Handle(session, func(method string, _ []byte) {
				if method == "Inspector.targetCrashed" {
					b.Send("", "Target.closeTarget", map[string]any{"targetId": target})
					b.detachPrewarmed(session)
				}
			})
			k.session, k.target = session, target
			close(k.opened)
			return true
		}
	}
	return false
}

// detachPrewarmed records that the page of a prewarmed context is closed.
func (b *Browser) detachPrewarmed(session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.prewarmed {
		k.closed = k.closed || k.session == session
	}
}

// newContext creates a browser context and returns its ID.
func (b *Browser) newContext(ctx context.Context, proxy, bypass string) (string, error) {
	params := map[string]any{"disposeOnDetach": true}
	if proxy != "" {
		params["proxyServer"], params["proxyBypassList"] = proxy, bypass
	}
	raw, err := b.Call(ctx, "", "Target.createBrowserContext", params)
	var made struct {
		ID string `json:"browserContextId"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &made)
	}
	if err != nil {
		return "", fmt.Errorf("making a browser context: %w", err)
	}
	return made.ID, nil
}

// dispose closes a browser context.
func (b *Browser) dispose(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), disposeLimit,
		fmt.Errorf("no answer within %v", disposeLimit))
	defer cancel()
	_, err := b.Call(ctx, "", "Target.disposeBrowserContext", map[string]any{"browserContextId": id})
	if err != nil && !errors.Is(err, ErrClosed) { // otherwise it ended with the browser
		return fmt.Errorf("closing a browser context: %w", err)
	}
	return nil
}
