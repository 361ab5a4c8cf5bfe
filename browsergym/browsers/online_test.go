package browsers_test

import (
	"testing"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// Pages that believe to be offline say so, or send no requests at all. That there is nothing but a
// loopback around a browser, and proxies on it, must not show.
func TestOnline(t *testing.T) {
	modes(t, func(t *testing.T, o browsers.Options) {
		p := newPool(t, o)
		url, host := hostile(t)
		_, page := open(t, p.For(browsers.AccessOptions{Hosts: []string{host}}), cdp.ContextOptions{})
		if err := page.Goto(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		if got := text(t, page, "String(navigator.onLine)"); got != "true" {
			t.Errorf("navigator.onLine is %s", got)
		}
	})
}
