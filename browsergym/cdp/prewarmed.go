package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// A Prewarmed is a context that was opened ahead of the episode that it will be for, with a page whose
// process runs and which waits, before its first document, to be told what it is like. Opening
// these two is most of what a context costs; all else of [ContextOptions] is told to a blank as it
// is to a new one, and nothing of the episode before can be in it.
type Prewarmed struct {
	b      *Browser
	id     string
	opened chan struct{} // closed when its page is there

	// Below belongs to the browser's lock.
	session, target string
	closed          bool
}

// Prewarm opens a blank and waits until its page's process runs. Proxy and bypass are those of
// [ContextOptions].
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
	k.b.Send(k.session, "Inspector.enable", nil)           // says when its process dies
	_, err := k.b.Call(ctx, k.session, "Page.enable", nil) // is answered by its process, once that is there
	return err
}

// Close forgets a blank that nobody has taken.
func (k *Prewarmed) Close(ctx context.Context) error {
	if session, _ := k.take(); session != "" {
		k.b.Send(session, "Runtime.runIfWaitingForDebugger", nil) // what waits does not close
		k.b.Handle(session, nil)
	}
	return k.b.dispose(ctx, k.id)
}

// take ends its being a blank, and returns its page; "": it has none, or none any more.
func (k *Prewarmed) take() (session, target string) {
	k.b.mu.Lock()
	defer k.b.mu.Unlock()
	k.b.prewarmed = slices.DeleteFunc(k.b.prewarmed, func(l *Prewarmed) bool { return l == k })
	if k.closed {
		return "", ""
	}
	k.closed = true // from here on it is somebody else's
	return k.session, k.target
}

// attachPrewarmed gives a blank its page, if it is one's.
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

// detachPrewarmed notes that a blank's page is gone.
func (b *Browser) detachPrewarmed(session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.prewarmed {
		k.closed = k.closed || k.session == session
	}
}

// newContext makes a profile and returns its name.
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

// dispose makes the browser forget a context.
func (b *Browser) dispose(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), disposeLimit,
		fmt.Errorf("no answer within %v", disposeLimit))
	defer cancel()
	_, err := b.Call(ctx, "", "Target.disposeBrowserContext", map[string]any{"browserContextId": id})
	if err != nil && !errors.Is(err, ErrClosed) { // else it has gone with its browser
		return fmt.Errorf("closing a browser context: %w", err)
	}
	return nil
}
