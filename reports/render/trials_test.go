package render

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
)

func TestFilters(t *testing.T) {
	for status, want := range map[string]string{
		"passed": "a", "failed": "b", "scored": "a b", "infra": "c", "pending": "d",
	} {
		one, half := 1.0, 0.5
		var got []string
		for _, row := range []TrialRow{
			{TrialRef: TrialRef{ID: "a"}, Status: "scored", Reward: &one}, {TrialRef: TrialRef{ID: "b"}, Status: "scored", Reward: &half},
			{TrialRef: TrialRef{ID: "c"}, Status: "infra"}, {TrialRef: TrialRef{ID: "d"}, Status: "pending"},
		} {
			if row.is(status) {
				got = append(got, row.ID)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, not %s", status, got, want)
		}
	}
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{{"web-*", "web-form", true}, {"web", "web-form", false}, {"*/a", "b/c/a", true}, {"a.c", "abc", false}, {"", "x", false}} {
		if got := fits(patterns([]string{c.pattern}), c.name); got != c.want {
			t.Errorf("%q fits %q: %v", c.pattern, c.name, got)
		}
	}
	if !fits(nil, "x") {
		t.Error("no pattern lets nothing through")
	}
}

// What cannot be shown is told in the picture's place.
func TestPicture(t *testing.T) {
	open := func(sum string) (io.ReadCloser, error) {
		if sum == "gone" {
			return nil, io.ErrUnexpectedEOF
		}
		return io.NopCloser(strings.NewReader("png")), nil
	}
	for _, c := range []struct {
		blob         event.Blob
		source, gone string
	}{
		{event.Blob{SHA256: "a", Type: "image/png"}, "data:image/png;base64,cG5n", ""},
		{event.Blob{SHA256: "gone", Type: "image/png"}, "", "unexpected EOF"},
		{event.Blob{SHA256: "a", Type: "image/svg+xml"}, "", "not shown"},
		{event.Blob{SHA256: "a", Type: "image/png", Size: 1 << 30}, "", "not shown"},
	} {
		p := picture("screenshot", &c.blob, open)
		if len(p) != 1 || string(p[0].Source) != c.source || !strings.Contains(p[0].Gone, c.gone) {
			t.Errorf("%+v: %+v", c.blob, p)
		}
	}
	if picture("marks", nil, open) != nil {
		t.Error("a picture that was never taken")
	}
}

// What pages and models say is text in the page.
func TestStoryPageEscapes(t *testing.T) {
	var b bytes.Buffer
	err := storyPage.Execute(&b, map[string]any{"Title": "<script>1</script>", "About": "", "Goal": "<img src=x onerror=1>", "Verdict": "", "Good": false,
		"Steps": []pageStep{{Action: "fill('a', '</code><script>')"}}, "Parts": []pagePart{{Text: "</pre><script>alert(1)</script>", Kind: `"><script>`}}})
	if err != nil || strings.Contains(b.String(), "<script") || strings.Contains(b.String(), "<img src=x") {
		t.Errorf("%v: %s", err, b.String())
	}
}
