package workspace_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/workspace"
)

// Images and PDFs are kept as blobs, if a model can take them.
func TestViewImages(t *testing.T) {
	pic := image.NewRGBA(image.Rect(0, 0, 30, 20))
	pic.Set(3, 4, color.White)
	encode := func(f func(*bytes.Buffer) error) []byte {
		var b bytes.Buffer
		if err := f(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	p := encode(func(b *bytes.Buffer) error { return png.Encode(b, pic) })
	huge := bytes.Clone(p) // says that it has very many pixels
	copy(huge[16:], "\x00\x00\xff\xff\x00\x00\xff\xff")
	sum := crc32.ChecksumIEEE(huge[12:29])
	copy(huge[29:], []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	files := fstest.MapFS{
		"p.png":    {Data: p},
		"named.py": {Data: p},
		"j.jpg":    {Data: encode(func(b *bytes.Buffer) error { return jpeg.Encode(b, pic, nil) })},
		"g.gif":    {Data: encode(func(b *bytes.Buffer) error { return gif.Encode(b, pic, nil) })},
		"d.pdf":    {Data: []byte("%PDF-1.7\n%%EOF\n")},
		"cut.png":  {Data: p[:len(p)-20]},
		"huge.png": {Data: huge},
		"text.png": {Data: []byte("no image\n")},
	}
	kept := map[string][]byte{}
	var sb sandbox.Sandbox
	make := func(keep bool) *workspace.Workspace {
		var o workspace.Options
		if keep {
			o.Keep = func(_ context.Context, kind string, data []byte) (event.Blob, error) {
				sum := sha256.Sum256(data)
				b := event.Blob{SHA256: hex.EncodeToString(sum[:]), Type: kind, Size: int64(len(data))}
				kept[b.SHA256] = data
				return b, nil
			}
		}
		return workspace.New(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, o)
	}
	sb, err := isolated(t).Create(t.Context(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	if err := sb.Put(t.Context(), "/tmp/files", files); err != nil {
		t.Fatal(err)
	}
	view := func(w *workspace.Workspace, name string) event.Viewed {
		t.Helper()
		got, err := w.Step(t.Context(), event.New(event.FromAgent, event.Read{Path: "/tmp/files/" + name}))
		v, ok := got.(event.Viewed)
		if err != nil || !ok {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		return v
	}
	w := make(true)
	for name, kind := range map[string]string{"p.png": "image/png", "named.py": "image/png", "j.jpg": "image/jpeg",
		"g.gif": "image/gif", "d.pdf": "application/pdf"} {
		v := view(w, name)
		if v.Error || v.Blob == nil || v.Blob.Type != kind || !bytes.Equal(kept[v.Blob.SHA256], files[name].Data) {
			t.Errorf("%s: %+v", name, v)
		}
	}
	for name, want := range map[string]string{"cut.png": "it is no valid image",
		"huge.png": "it has 65535 × 65535 pixels, and a side may have 8000"} {
		if v := view(w, name); !v.Error || v.Blob != nil || !strings.Contains(v.Text, want) {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v := view(w, "text.png"); v.Error || v.Blob != nil || !strings.Contains(v.Text, "     1\tno image\n") {
		t.Errorf("a text with the name of an image: %+v", v)
	}
	if v := view(make(false), "p.png"); v.Error || v.Blob != nil || !strings.HasSuffix(v.Text, "It cannot be shown here.\n") {
		t.Errorf("nobody keeps images: %+v", v)
	}
}

// Programs read and write files, or lines of them, below the actor's directory.
func TestReadAndWrite(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{}, workspace.Options{Dir: "/tmp"})
	for _, c := range []struct {
		do   event.Body
		want string
	}{
		{event.Write{Path: "sub/f", Text: "a\nb\nc\n"}, "Created /tmp/sub/f.\n"},
		{event.Read{Path: "sub/f", Plain: true}, "a\nb\nc\n"},
		{event.Read{Path: "/tmp/sub/f", Plain: true, Lines: []int{2, 99}}, "b\nc"},
		{event.Write{Path: "sub/../sub/f", Text: "x\n", Lines: []int{2, 2}}, "Changed /tmp/sub/f. "},
		{event.Read{Path: "sub/f", Plain: true}, "a\nx\nc\n"},
		{event.Write{Path: "sub/f", Text: "x", Lines: []int{9, 9}}, "error: lines [9, 9]: the first line must be between 1 and 4"},
		{event.Read{Path: "nowhere", Plain: true}, "error: /tmp/nowhere does not exist"},
		{event.Write{Path: "a\x00b"}, "invalid_call: a path has at most 4096 bytes, and no NUL byte"},
	} {
		if got := did(t, w, c.do); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.do, got, c.want)
		}
	}
	step(t, w, run("cd sub; seq 60000 > long"))
	got, err := w.Step(t.Context(), event.New(event.FromAgent, event.Read{Path: "long", Plain: true}))
	if v, ok := got.(event.Viewed); err != nil || !ok || !v.Truncated || v.LineCount != 60000 || len(v.Text) != sandbox.MaxRead ||
		v.Path != "/tmp/sub/long" {
		t.Errorf("%.300v, %v", got, err)
	}
}
