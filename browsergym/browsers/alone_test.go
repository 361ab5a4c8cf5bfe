package browsers_test

import (
	"testing"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// Who wants to be alone has a browser that was nobody's, and that is nobody's afterwards.
func TestAlone(t *testing.T) {
	p := newPool(t, browsers.Options{})
	pid := func(a *browsers.Access) int {
		t.Helper()
		c, err := a.NewContext(t.Context(), cdp.ContextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(t.Context()) })
		return c.Browser().PID()
	}
	shared := p.For(browsers.AccessOptions{})
	first := pid(shared)
	alone, other := pid(shared.Alone()), pid(shared.Alone())
	if last := pid(shared); last != first || alone == first || other == first || alone == other {
		t.Errorf("browsers %d, %d, then alone %d and %d", first, last, alone, other)
	}
}
