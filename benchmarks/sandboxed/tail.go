package sandboxed

import (
	"strings"

	"github.com/evalrun/evalrun/benchmarks/score"
)

// A Tail is a writer that keeps the last bytes of an output, for a record.
type Tail struct{ b []byte }

func (t *Tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 16<<10 {
		t.b = append(t.b[:0], t.b[len(t.b)-4<<10:]...)
	}
	return len(p), nil
}

// String returns the last 2,000 bytes or so, as valid text.
func (t *Tail) String() string {
	s := score.Clean(string(t.b))
	if len(s) > 2000 {
		s = "…" + strings.ToValidUTF8(s[len(s)-2000:], "")
	}
	return strings.TrimSpace(s)
}
