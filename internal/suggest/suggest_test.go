package suggest

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	names := []string{"workers", "sandbox", "seed", "select", "repeats"}
	for word, want := range map[string]string{"worker": "workers", "sandobx": "sandbox", "Seed": "seed", "xyzzy": ""} {
		if got := strings.Join(Names(word, names), ","); got != want {
			t.Errorf("Names(%s) = %s", word, got)
		}
	}
}
