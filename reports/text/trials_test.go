package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

func TestFilters(t *testing.T) {
	for status, want := range map[string]string{
		"passed": "a", "failed": "b", "scored": "a b", "infra": "c", "pending": "d",
	} {
		one, half := 1.0, 0.5
		var got []string
		for _, row := range []TrialRow{
			{TrialRef: TrialRef{ID: "a"}, Status: "scored", Reward: &one, passed: true},
			{TrialRef: TrialRef{ID: "b"}, Status: "scored", Reward: &half},
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
	}{{"web-*", "web-form", true}, {"web", "web-form", false}, {"*/a", "b/c/a", true}, {"a.c", "abc", false},
		{"a*", "a\nb", true}, {"\xff*", "x", false}, {"", "x", false}} {
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
	const png = "\x89PNG\r\n\x1a\n"
	open := func(sum string) (io.ReadCloser, error) {
		if sum == "gone" {
			return nil, io.ErrUnexpectedEOF
		}
		if sum == "svg" {
			return io.NopCloser(strings.NewReader("<svg onload=alert(1)>")), nil
		}
		if sum == "endless" {
			return io.NopCloser(io.MultiReader(strings.NewReader(png), endless{})), nil
		}
		return io.NopCloser(strings.NewReader(png)), nil
	}
	for _, c := range []struct {
		blob         event.Blob
		source, gone string
	}{
		{event.Blob{SHA256: "a", Type: "image/png"}, "data:image/png;base64,iVBORw0KGgo=", ""},
		{event.Blob{SHA256: "a", Type: "image/jpeg"}, "", "not what was noted"},
		{event.Blob{SHA256: "svg", Type: "image/png"}, "", "not what was noted"},
		{event.Blob{SHA256: "endless", Type: "image/png"}, "", "not what was noted"},
		{event.Blob{SHA256: "gone", Type: "image/png"}, "", "unexpected EOF"},
		{event.Blob{SHA256: "a", Type: "image/svg+xml"}, "", "not shown"},
		{event.Blob{SHA256: "a", Type: "image/png", Size: 1 << 30}, "", "not shown"},
	} {
		p := (&album{open, 1}).picture("screenshot", &c.blob)
		if string(p.Source) != c.source || !strings.Contains(p.Gone, c.gone) {
			t.Errorf("%+v: %+v", c.blob, p)
		}
	}
	full := &album{open, 1}
	full.picture("screenshot", &event.Blob{SHA256: "a", Type: "image/png"})
	if p := full.picture("screenshot", &event.Blob{SHA256: "a", Type: "image/png"}); p.Source != "" ||
		!strings.Contains(p.Gone, "as many pictures") {
		t.Errorf("one picture too many: %+v", p)
	}
	blob := &event.Blob{SHA256: "a", Type: "image/png"}
	for _, b := range []event.Body{event.Browsed{Screenshot: blob}, event.ToolResult{Parts: []event.Part{{Blob: blob}}},
		event.CellResult{Parts: []event.Part{{Text: "x"}, {Blob: blob}}}} {
		if got := pictures(b); len(got) != 1 || got[0].blob != blob {
			t.Errorf("%T: %+v", b, got)
		}
	}
	if got := pictures(event.CellResult{Parts: make([]event.Part, 1e6)}); got != nil {
		t.Errorf("no picture: %+v", got)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A page is bounded, whatever the journal of a run from somebody else holds.
func TestStoryPageBounded(t *testing.T) {
	text, _ := json.Marshal(map[string]any{"text": strings.Repeat("\n<b>\x1b[2J"+strings.Repeat("x", 100), 12<<10)})
	entries := func(yield func(record.Entry, error) bool) {
		for i := range 80 {
			raw := fmt.Sprintf(`{"id":%d,"time":"2026-11-21T20:46:18Z","mono_us":1,"source":"agent","class":"note","kind":"info","body":%s}`, i, text)
			if !yield(record.Entry{Trial: "t", Kind: record.KindEvent, Data: []byte(raw)}, nil) {
				return
			}
		}
	}
	var b bytes.Buffer
	err := StoryPage(&b, &record.Plan{}, "t", entries,
		func(string) (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF })
	if err != nil || b.Len() > 4*maxParts || strings.Contains(b.String(), "<b>") ||
		strings.Contains(b.String(), "\x1b") || !strings.Contains(b.String(), "more than a page takes") {
		t.Errorf("%v, %d bytes", err, b.Len())
	}
}

// What pages and models say is text in the page.
func TestStoryPageEscapes(t *testing.T) {
	var b bytes.Buffer
	err := storyPage.Execute(&b, map[string]any{"Title": "<script>1</script>", "About": "",
		"Goal": "<img src=x onerror=1>", "Verdict": "", "Good": false,
		"Steps": []pageStep{{Action: "fill('a', '</code><script>')"}},
		"Parts": []pagePart{{Text: "</pre><script>alert(1)</script>", Kind: `"><script>`}}})
	if err != nil || strings.Contains(b.String(), "<script") || strings.Contains(b.String(), "<img src=x") {
		t.Errorf("%v: %s", err, b.String())
	}
}
