package webarena

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A door describes how to log in to a site: the page with the form, and the labels of its fields as
// a user would find them.
type door struct {
	path           string // path of the page with the form
	link           string // text of the link to the form; "" if no link has to be followed
	user, password string // labels, or CSS selectors that begin with #
	button         string
}

// doors are the logins of the published sites. Other sites are visited without a login.
var doors = map[string]door{
	"reddit":         {link: "Log in", user: "Username", password: "Password", button: "Log in"},
	"gitlab":         {path: "/users/sign_in", user: "Username or", password: "Password", button: "Sign in"},
	"shopping":       {path: "/customer/account/login/", user: "Email", password: "Password", button: "Sign In"},
	"shopping_admin": {user: "Username", password: "Password", button: "Sign in"},
	"classifieds":    {path: "/index.php?page=login", user: "#email", password: "#password", button: "Log in"},
}

// logins caches the cookies of successful logins, so that sessions of a run with the same sites and
// accounts log in only once. If a site no longer accepts them, a new login replaces them.
type logins struct {
	mu      sync.Mutex
	cookies map[string][]cdp.Cookie // keyed by sites and users
	again   int                     // number of logins so far, for tests
}

func (l *logins) get(key string) []cdp.Cookie {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cookies[key]
}

func (l *logins) put(key string, c []cdp.Cookie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cookies == nil {
		l.cookies = map[string][]cdp.Cookie{}
	}
	l.cookies[key] = c
	l.again++
}

// forget clears the cache after the sites were reset.
func (l *logins) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cookies = nil
}

// A visitor logs in at one site.
type visitor struct {
	name, address string
	account       Account // with its password resolved
	limit         time.Duration
}

// enter logs in to the sites, each in its own tab, which is closed afterwards. If keep is nil, no
// login is reused.
func enter(ctx context.Context, page *cdp.Page, list []visitor, keep *logins) error {
	var key strings.Builder
	for _, v := range list {
		fmt.Fprintf(&key, "%s %s %s\n", v.name, v.address, v.account.User)
	}
	c := page.Context()
	if keep != nil {
		if err := c.SetCookies(ctx, keep.get(key.String())); err != nil {
			return err
		}
	}
	did := false
	for _, v := range list {
		in, err := v.enter(ctx, c)
		if err != nil {
			return fmt.Errorf("logging in to %s (%s) as %s: %w", v.name, v.address, v.account.User, err)
		}
		did = did || in
	}
	if !did || keep == nil {
		return nil
	}
	cookies, err := c.Cookies(ctx)
	if err != nil {
		return err
	}
	keep.put(key.String(), cookies)
	return nil
}

// enter logs in to one site. did is false if the browser was already logged in.
func (v *visitor) enter(ctx context.Context, c *cdp.Context) (did bool, err error) {
	d, ok := doors[v.name]
	p, err := c.NewPage(ctx)
	if err != nil {
		return false, err
	}
	defer p.Close(context.WithoutCancel(ctx))
	p.Mute()
	if err := visit(ctx, p, v.address+d.path, v.limit); err != nil || !ok {
		return false, err
	}
	if d.link != "" {
		found, err := v.mark(ctx, p, "link", d.link)
		if err != nil || !found { // no login link means that the browser is logged in
			return false, err
		}
		if err := click(ctx, p, "link"); err != nil {
			return false, err
		}
		if err := v.until(ctx, p, func() (bool, error) { return v.mark(ctx, p, "password", d.password) }); err != nil {
			return false, err
		}
	} else if asked, err := asksPassword(ctx, p); err != nil || !asked {
		return false, err
	}
	for _, f := range []struct{ what, label, value string }{{"user", d.user, v.account.User},
		{"password", d.password, v.account.Password}} {
		found, err := v.mark(ctx, p, f.what, f.label)
		if err != nil {
			return false, err
		}
		if !found {
			return false, fmt.Errorf("its page %s has no field %q", p.URL(), f.label)
		}
		if err := v.until(ctx, p, func() (bool, error) {
			err := p.Select(marked(f.what)).Fill(ctx, f.value, false)
			return err == nil, err
		}); err != nil {
			return false, fmt.Errorf("filling in the field %q of %s: %w", f.label, p.URL(), err)
		}
	}
	switch found, err := v.mark(ctx, p, "button", d.button); {
	case err != nil:
		return false, err
	case !found:
		return false, fmt.Errorf("its page %s has no button %q", p.URL(), d.button)
	}
	if err := click(ctx, p, "button"); err != nil {
		return false, err
	}
	err = v.until(ctx, p, func() (bool, error) { asked, err := asksPassword(ctx, p); return !asked, err })
	if errors.Is(err, errStill) {
		var said string
		_ = p.Evaluate(ctx, complaint, &said) // the text is only used in the error message
		if said != "" {
			said = "; it says: " + said
		}
		return false, fmt.Errorf("the site still asks for a password after %v%s", v.limit, said)
	}
	return true, err
}

// click clicks the marked element. A timeout (a site that responds slowly to the click) is not an
// error, because the outcome is checked anyway.
func click(ctx context.Context, p *cdp.Page, what string) error {
	if err := p.Select(marked(what)).Click(ctx, cdp.Click{}); err != nil && !cdp.Timeout(err) {
		return err
	}
	return nil
}

// errStill means that the awaited state was not reached.
var errStill = errors.New("it did not come")

// until polls ok until it returns true or the limit is reached. Pages may load meanwhile.
func (v *visitor) until(ctx context.Context, p *cdp.Page, ok func() (bool, error)) error {
	end := time.Now().Add(v.limit)
	for {
		yes, err := ok() // errors are expected while a page unloads
		if yes && err == nil {
			return nil
		}
		if err != nil && (ctx.Err() != nil || errors.Is(err, cdp.ErrClosed)) {
			return err
		}
		if time.Now().After(end) {
			if err != nil {
				return fmt.Errorf("%w: %w", errStill, err)
			}
			return errStill
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// asksPassword reports whether a password field is visible. While the document is loading it
// returns an error, because nothing can be said yet.
func asksPassword(ctx context.Context, p *cdp.Page) (asks bool, err error) {
	err = p.Evaluate(ctx, `(() => {
		if (document.readyState !== 'complete') throw 'not loaded';
		return [...document.querySelectorAll('input[type=password]')].some(x => x.checkVisibility());
	})()`, &asks)
	return asks, err
}

// mark finds an element by its visible label or text, and marks it for a selector.
func (v *visitor) mark(ctx context.Context, p *cdp.Page, what, label string) (found bool, err error) {
	err = p.Call(ctx, finder, &found, what, label)
	return found, err
}

func marked(what string) string { return `[data-evalrun-door="` + what + `"]` }

// finder finds fields by label, and buttons and links by name. The shortest name that contains the
// text wins.
const finder = `(what, text) => {
	document.querySelectorAll('[data-evalrun-door="' + what + '"]').forEach(x => x.removeAttribute('data-evalrun-door'));
	const flat = s => (s || '').replace(/\s+/g, ' ').trim().toLowerCase();
	const wanted = flat(text);
	const byID = ids => (ids || '').split(/\s+/).map(id => document.getElementById(id)).filter(x => x).map(x => x.textContent);
	const names = {
		link: x => [x.getAttribute('aria-label'), x.textContent],
		button: x => [x.getAttribute('aria-label'), x.value, x.textContent],
	}[what] || (x => [...(x.labels || [])].map(l => l.textContent).concat(x.getAttribute('aria-label'), byID(x.getAttribute('aria-labelledby'))));
	const all = text[0] === '#' ? document.querySelectorAll(text) : document.querySelectorAll(
		{link: 'a[href]', button: 'button, input[type=submit], input[type=button], [role=button]', password: 'input[type=password]'}[what] || 'input:not([type=hidden]):not([type=password])');
	let best, length = Infinity;
	for (const x of all) {
		if (!x.checkVisibility({visibilityProperty: true})) continue;
		if (text[0] === '#') { best = x; break }
		for (const n of names(x)) {
			const f = flat(n);
			if (f.includes(wanted) && f.length < length) { best = x; length = f.length }
		}
	}
	if (best) best.setAttribute('data-evalrun-door', what);
	return !!best;
}`

// complaint returns the error message on the page of a failed login.
const complaint = `(() => {
	const x = [...document.querySelectorAll('[role=alert], .message-error, .flash-alert, .gl-alert-body, .form-error-list, .alert, .flashmessage, .messages .message')].find(x => x.checkVisibility() && x.innerText.trim());
	return x ? x.innerText.trim().replace(/\s+/g, ' ').slice(0, 200) : '';
})()`
