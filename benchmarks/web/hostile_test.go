package web_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
)

// What agents write is bounded in what is kept of it, is answered by an error they can read, and
// ends nothing.
func TestHostileActions(t *testing.T) {
	e, _, _, _ := begin(t, nil)
	act(t, e, event.Browse{})
	for name, code := range map[string]string{
		"a megabyte of a name":  strings.Repeat("x", 1<<20),
		"a megabyte of a value": "fill('b1', '" + strings.Repeat("y", 1<<20) + "')",
		"deep nesting":          "click(" + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + ")",
		"deep calls":            strings.Repeat("click(", 100_000),
		"zero bytes":            "click('a\x00b')\x00",
		"no UTF-8":              "click('\xff\xfe\xed\xa0\x80')",
		"half a surrogate":      `click('\ud800')`,
	} {
		o, turn := act(t, e, event.Browse{Code: code})
		if o.Error == "" || turn.Done || len(o.Error) > 65<<10 || len(o.Action) > 65<<10 {
			t.Errorf("%s: done %v, %d bytes of the action, %d of the error: %.200s", name, turn.Done, len(o.Action),
				len(o.Error), o.Error)
		}
	}
	if o, _ := act(t, e, event.BrowseURL{URL: "http://127.0.0.1/" + strings.Repeat("x", 3<<20)}); o.Error == "" ||
		len(o.Error) > 65<<10 {
		t.Errorf("a long address: %.200s", o.Error)
	}
	if o, _ := act(t, e, event.Browse{Code: "noop(1)"}); o.Error != "" {
		t.Errorf("afterwards: %s", o.Error)
	}
}
