package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/runtime/image"
)

func TestMakingText(t *testing.T) {
	for _, c := range []struct {
		p    image.Progress
		want string
	}{
		{image.Progress{Doing: "build", Name: "web-1"}, "building image for web-1"},
		{image.Progress{Doing: "build", Name: "web-1", Step: "[3/7] RUN make"}, "building image for web-1: step 3/7"},
		{image.Progress{Doing: "build", Name: "web-1", Step: "[build  3/7] RUN make"},
			"building image for web-1: step 3/7"},
		{image.Progress{Doing: "build", Name: "web-1", Step: "Step 3/7 : RUN make"},
			"building image for web-1: step 3/7"},
		{image.Progress{Doing: "build", Name: "web-1", Step: "exporting to image"}, "building image for web-1"},
		{image.Progress{Doing: "build", Name: "a\x1b[2J\nb", Step: "[x 99999999/1]"}, "building image for a[2J b"},
		{image.Progress{Doing: "pull", Name: "debian"}, "pulling image debian"},
		{image.Progress{Doing: "pull", Name: "debian", Current: 3 << 20}, "pulling image debian: 3 MiB"},
		{image.Progress{Doing: "pull", Name: "debian", Current: 3 << 20, Total: 30 << 20},
			"pulling image debian: 3 MiB of 30 MiB"},
		{image.Progress{Doing: "pull", Name: strings.Repeat("x", 500) + ":1"},
			"pulling image …" + strings.Repeat("x", 29) + ":1"},
	} {
		if got := makingText(c.p); got != c.want {
			t.Errorf("%+v: %q", c.p, got)
		}
	}
}

// Before a run's progress is shown, an image on its way is told of once; then it belongs to the
// progress.
func TestMakingEarly(t *testing.T) {
	var out bytes.Buffer
	a := &app{System: System{Stderr: &out}}
	a.progress = &late{a: a}
	for n := range 3 {
		a.progress.making(image.Progress{Doing: "pull", Ref: "debian", Name: "debian", Current: int64(n)})
	}
	a.progress.making(image.Progress{Doing: "pull", Ref: "debian", Name: "debian", Done: true})
	if got := out.String(); got != "pulling image debian\n" {
		t.Errorf("told %q", got)
	}
	a.Stderr = io.Discard
	a.progress.shows(progress.None, "images", 1, 0)
	a.progress.making(image.Progress{Doing: "pull", Ref: "debian", Name: "debian"})
	a.progress.close()
}
