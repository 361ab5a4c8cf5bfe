package webarena

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A live browser is the agent's, as evaluators see it.
type live struct {
	page  *cdp.Page // the active one
	sites Sites
	calm  func(context.Context, *cdp.Page) error
	there func(ctx context.Context, address string) error // asks a site whether it answers
	limit time.Duration
}

func (l *live) Active() Page { return livePage{l.page} }

// Visit opens an address beside the agent's pages. An address that will not open is nothing to be
// found at it, as long as its site answers: an agent has a hand in some addresses. A site that does
// not answer is an error.
func (l *live) Visit(ctx context.Context, address string, f func(Page) error) error {
	p, err := l.page.Context().NewPage(ctx)
	if err != nil {
		return own(err)
	}
	defer p.Close(context.WithoutCancel(ctx))
	p.Mute() // the agent is not told what is graded
	if err := visit(ctx, p, address, l.limit); err != nil {
		if !failed(err) || cdp.Timeout(err) {
			return own(fmt.Errorf("opening %s: %w", address, err))
		}
		if l.sites.hosts(address) {
			if e := l.there(ctx, address); e != nil {
				return fmt.Errorf("opening %s: the site does not answer: %w", address, e)
			}
		}
		return &Missing{fmt.Sprintf("%s does not open", address)}
	}
	if err := l.calm(ctx, p); err != nil {
		return own(err)
	}
	return own(f(livePage{p}))
}

// own keeps a page of the evaluators' from being taken for the agent's: that such a page is gone is
// not the end of the agent's.
func own(err error) error {
	if errors.Is(err, cdp.ErrGone) && !errors.Is(err, cdp.ErrClosed) {
		return errors.New(err.Error())
	}
	return err
}

type livePage struct{ p *cdp.Page }

func (p livePage) URL() string { return p.p.URL() }

// evalLimit is how long a page may take to answer: one whose own scripts never end answers nothing.
const evalLimit = 30 * time.Second

func (p livePage) Content(ctx context.Context) (string, error) {
	short, cancel := context.WithTimeout(ctx, evalLimit)
	defer cancel()
	text, err := p.p.HTML(short)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return "", &Missing{"the page does not answer"}
	}
	return text, err
}

func (p livePage) Eval(ctx context.Context, expression string) (json.RawMessage, error) {
	short, cancel := context.WithTimeout(ctx, evalLimit)
	defer cancel()
	var v json.RawMessage
	err := p.p.Evaluate(short, expression, &v)
	var t *cdp.Thrown
	var e *cdp.Error
	switch {
	case errors.As(err, &t):
		return nil, &ScriptError{t.Text}
	case errors.As(err, &e): // a value that cannot be copied out of the page, for one
		return nil, &ScriptError{e.Message}
	case err != nil && ctx.Err() == nil && short.Err() != nil:
		return nil, &ScriptError{"no answer within " + evalLimit.String()}
	}
	return v, err
}

// settled is how long a page that evaluators opened may go on after it is loaded: the published
// evaluation always waits so long.
const settled = 3 * time.Second

// calm waits as the published evaluation does.
func calm(ctx context.Context, _ *cdp.Page) error { return sleep(ctx, settled) }

// quick waits until a page has not changed, and asked for nothing, for half a second, and no longer
// than calm.
func quick(ctx context.Context, p *cdp.Page) error {
	short, cancel := context.WithTimeout(ctx, settled)
	defer cancel()
	err := p.Call(short, `(limit, quiet) => new Promise(done => {
		const end = performance.now() + limit;
		let last = performance.now(), seen = performance.getEntriesByType('resource').length;
		const watch = new MutationObserver(() => { last = performance.now() });
		watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
		const look = () => {
			const n = performance.getEntriesByType('resource').length, now = performance.now();
			if (n !== seen || document.readyState !== 'complete') { seen = n; last = now }
			if (now - last >= quiet || now >= end) { watch.disconnect(); done(); return }
			setTimeout(look, 50);
		};
		look();
	})`, nil, settled.Milliseconds(), 500)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, cdp.ErrClosed), errors.Is(err, cdp.ErrGone):
		return err
	}
	return nil // it went elsewhere, or does not answer: enough was waited
}
