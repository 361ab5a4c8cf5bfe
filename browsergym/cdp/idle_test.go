package cdp

import (
	"os"
	"testing"
)

// After a timeout of WaitIdle the caller may mark the page itself: the page, which gets to it
// later, marks nothing twice.
func TestIdleLate(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") == "" {
		t.Skip("needs a browser; set EVALRUN_TEST_BROWSER=1")
	}
	b, err := Launch(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c, err := b.NewContext(t.Context(), ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Goto(t.Context(), "data:text/html,<button>b</button>"); err != nil {
		t.Fatal(err)
	}
	main := p.mainFrame()
	if err := p.installMarkScript(t.Context(), []*frame{main}); err != nil {
		t.Fatal(err)
	}
	const look = `document.querySelector('button').getAttribute('aria-roledescription') || ''`
	for _, unmarked := range []bool{false, true} {
		var o batch
		idle := o.object(p, main, "waitIdle", true, 5000, false, false, 3)
		mark := o.object(p, main, "mark", false, "", false)
		want := "browsergym_id_3 "
		if unmarked {
			o.object(p, main, "unmark", false)
			want = ""
		}
		if o.err != nil {
			t.Fatal(o.err)
		}
		if err := mark.value(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		var was bool
		if err := idle.value(t.Context(), &was); err != nil || was {
			t.Errorf("a late look says idle: %t, %v", was, err)
		}
		var got string
		if err := p.Evaluate(t.Context(), look, &got); err != nil || got != want {
			t.Errorf("marked as %q, want %q, %v", got, want, err)
		}
		p.Unmark(t.Context())
	}
}
