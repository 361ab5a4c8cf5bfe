package webarena

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// live is the agent's browser as evaluators see it.
type live struct {
	page  *cdp.Page // the active one
	sites Sites
	calm  func(context.Context, *cdp.Page) error
	there func(ctx context.Context, address string) error // probes a site
	limit time.Duration
}

func (l *live) Active() Page { return livePage{l.page} }

// Visit opens an address next to the agent's pages. An address that does not open counts as missing
// content if its site responds, because the agent can influence some addresses. If the site does
// not respond, that is an error.
func (l *live) Visit(ctx context.Context, address string, f func(Page) error) error {
	p, err := l.page.Context().NewPage(ctx)
	if err != nil {
		return own(err)
	}
	defer p.Close(context.WithoutCancel(ctx))
	p.Mute() // the agent must not see what is graded
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

// own hides cdp.ErrGone for a page opened by the evaluator, so that the loss of that page is not
// mistaken for the loss of the agent's page.
func own(err error) error {
	if errors.Is(err, cdp.ErrGone) && !errors.Is(err, cdp.ErrClosed) {
		return errors.New(err.Error())
	}
	return err
}

type livePage struct{ p *cdp.Page }

func (p livePage) URL() string { return p.p.URL() }

// evalLimit is how long a page may take to respond. A page whose own scripts never end does not
// respond at all.
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
	case errors.As(err, &e): // for example a value that cannot be copied out of the page
		return nil, &ScriptError{e.Message}
	case err != nil && ctx.Err() == nil && short.Err() != nil:
		return nil, &ScriptError{"no answer within " + evalLimit.String()}
	}
	return v, err
}

// settled is how long evaluators wait after a page has loaded. The published evaluation always
// waits this long.
const settled = 3 * time.Second

// calm waits for the fixed time, as the published evaluation does.
func calm(ctx context.Context, _ *cdp.Page) error { return sleep(ctx, settled) }

// quick waits until a page has neither changed nor sent a request for half a second, but no longer
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
	return nil // the page navigated away or does not respond: no need to wait longer
}
