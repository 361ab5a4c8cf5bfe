package filetree

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"strings"
	"testing"
)

func TestTree(t *testing.T) {
	x := New()
	walk := func(want string) {
		t.Helper()
		var got []string
		err := fs.WalkDir(x, ".", func(name string, d fs.DirEntry, err error) error {
			text := ""
			if err == nil && d.Type().IsRegular() {
				raw, rerr := fs.ReadFile(x, name)
				text, err = "="+string(raw), rerr
			}
			got = append(got, d.Type().String()[:1]+name+text)
			return err
		})
		if s := strings.Join(got, " "); s != want || err != nil {
			t.Errorf("%s, %v; want %s", s, err, want)
		}
	}
	x.Text("a/b/c.txt", []byte("one"), 0o644)
	x.Text("d.txt", []byte("two"), 0o600)
	x.Add("a/empty", &Node{Mode: fs.ModeDir | 0o700})
	walk("d. da da/b -a/b/c.txt=one da/empty -d.txt=two")
	x.Text("a", []byte("no folder"), 0o644) // and nothing of what was in it
	walk("d. -a=no folder -d.txt=two")
}

// Nothing is written through a link, and no name leaves the tree.
func TestUntar(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "out/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "out/file", Typeflag: tar.TypeReg, Mode: 0o644, Size: 2},
		{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
		{Name: "link/deep/passwd", Typeflag: tar.TypeReg, Size: 2},
		{Name: "../up", Typeflag: tar.TypeReg, Size: 2},
		{Name: "dropped", Typeflag: tar.TypeReg, Size: 2},
		{Name: "fifo", Typeflag: tar.TypeFifo},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			w.Write([]byte("hi"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	x := New()
	if err := x.Untar(bytes.NewReader(b.Bytes()), int64(b.Len()),
		func(h *tar.Header) bool { return h.Name != "dropped" }); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range x.All() {
		names = append(names, name)
	}
	if len(names) != 3 || x.Get("out/file") == nil || x.Get("link").Link != "/etc" {
		t.Errorf("%q", names)
	}
	f, err := x.Open("out/file")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(f); string(text) != "hi" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if !x.Shadowed("link/x/y") || x.Shadowed("out/x/y") || x.Shadowed(strings.Repeat("new/", 100)+"x") {
		t.Error("what stands in the way")
	}
}
