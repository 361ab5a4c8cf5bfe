package cdp_test

import (
	"slices"
	"testing"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A page that listens hears that a field's text was selected before it hears that another has taken
// its place; for others nobody waits.
func TestFillTellsOfSelection(t *testing.T) {
	b := launch(t)
	url := pages(t, map[string]string{"": `<div id=d><div id=host><template shadowrootmode=open><slot></slot></template><input bid=1 value=a></div></div><script>
		const field = document.querySelector('input'), heard = [], hear = e => heard.push(e.type);
		field.addEventListener('input', hear);
		const quiet = () => {
			for (const on of [field, d, host.shadowRoot, document, window]) for (const c of [true, false]) on.removeEventListener('select', hear, c);
			field.onselect = d.onselect = window.onselect = null;
			heard.length = 0;
		}</script>`})
	c, err := b.NewContext(t.Context(), cdp.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	p, err := c.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Goto(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	e, err := p.Find(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	for _, listen := range []string{
		"0", "field.addEventListener('select', hear)", "d.addEventListener('select', hear)",
		"document.addEventListener('select', hear, true)",
		"window.addEventListener('select', hear)", "window.addEventListener('select', hear, true)",
		"host.shadowRoot.addEventListener('select', hear, true)",
		"field.onselect = hear", "d.onselect = hear", "window.onselect = hear",
	} {
		for range 5 {
			if err := p.Evaluate(t.Context(), "quiet(), "+listen+", 0", nil); err != nil {
				t.Fatal(err)
			}
			if err := e.Fill(t.Context(), "b", false); err != nil {
				t.Fatal(err)
			}
			var heard []string
			if err := p.Evaluate(t.Context(),
				"new Promise(r => requestAnimationFrame(() => setTimeout(() => r(heard))))", &heard); err != nil {
				t.Fatal(err)
			}
			want := []string{"select", "input"}
			if listen == "0" {
				want = want[1:]
			}
			if !slices.Equal(heard, want) {
				t.Errorf("%s: %q", listen, heard)
			}
		}
	}
}
