package memory

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent/event"
)

func TestCell(t *testing.T) {
	blob := event.Part{Blob: &event.Blob{Type: "image/png"}}
	words := func(s string) event.Part { return event.Part{Text: s} }
	for _, c := range []struct {
		res  event.CellResult
		want []event.Part
	}{
		{event.CellResult{}, event.Text("[The cell was executed. It printed nothing.]")},
		{event.CellResult{Error: true, Suffix: "\n[s]"}, event.Text("[s]")},
		{event.CellResult{Prefix: "[p]\n", Suffix: "\n[s]", OOM: true}, event.Text(
			"[p]\n[s]\n[The kernel used more memory than it may, and was killed.]")},
		{event.CellResult{Parts: []event.Part{words("a\n\n")}}, event.Text("a\n\n")},
		{event.CellResult{Parts: []event.Part{words("a\n"), blob, words("b\n\n")}, Prefix: "[p]\n", Dir: "/d", Python: "/p"},
			[]event.Part{words("[p]\na\n"), blob,
				words("b\n[Jupyter current working directory: /d]\n[Jupyter Python interpreter: /p]")}},
		{event.CellResult{Parts: []event.Part{blob}, Dir: "/d"}, []event.Part{blob,
			words("[Jupyter current working directory: /d]")}},
		{event.CellResult{Parts: []event.Part{words(strings.Repeat("x", 300)), blob, words("y")}, Truncated: true, OutBytes: 9},
			[]event.Part{words(strings.Repeat("x", 50) + "\n[… 200 characters left out …]\n" + strings.Repeat("x", 50)), blob,
				words("\n[… 1 characters left out …]\n[The output had 9 bytes; its middle was left out.]")}},
	} {
		if d := cmp.Diff(c.want, Parts(c.res, 100)); d != "" {
			t.Errorf("%+v (-want +got):\n%s", c.res, d)
		}
	}
}
