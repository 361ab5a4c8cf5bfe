package sandbox_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"path"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// archive writes headers; a regular file holds its own name as often as Size says.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatalf("%q: %v", h.Name, err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, (h.Name + strings.Repeat("x", int(h.Size)))[:h.Size])
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFiles(t *testing.T) {
	b := archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o1777},
		tar.Header{Typeflag: tar.TypeReg, Name: "d/file", Mode: 0o6755},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "d/link", Linkname: "../../etc/passwd"},
		tar.Header{Typeflag: tar.TypeReg, Name: "./dotted"},
		tar.Header{Typeflag: tar.TypeReg, Name: "not\xffutf8"},
		tar.Header{Typeflag: tar.TypeReg, Name: "../up"},
		tar.Header{Typeflag: tar.TypeReg, Name: "d/../../up"},
		tar.Header{Typeflag: tar.TypeReg, Name: "/etc/passwd"},
		tar.Header{Typeflag: tar.TypeReg, Name: "d//twice"},
		tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "d/file"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"},
		tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3},
		tar.Header{Typeflag: tar.TypeBlock, Name: "disk"},
		tar.Header{Typeflag: tar.TypeReg, Name: "last"},
	)
	var got []string
	for f, err := range sandbox.Files(bytes.NewReader(b), sandbox.Limits{}) {
		if err != nil {
			if !errors.As(err, new(*sandbox.FileError)) {
				t.Fatal(err)
			}
			got = append(got, "refused "+f.Name)
			continue
		}
		content, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if f.Mode.IsRegular() && !strings.HasSuffix(string(content), f.Name) {
			t.Errorf("%s holds %q", f.Name, content)
		}
		got = append(got, strings.TrimSpace(f.Mode.String()+" "+f.Name+" "+f.Link))
	}
	want := `drwxrwxrwx d
-rwxr-xr-x d/file
Lrwxrwxrwx d/link ../../etc/passwd
---------- dotted
---------- not` + "\xff" + `utf8
refused ../up
refused d/../../up
refused /etc/passwd
refused d//twice
refused hard
refused pipe
refused null
refused disk
---------- last`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
}

func TestFilesLimits(t *testing.T) {
	b := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 600},
		tar.Header{Typeflag: tar.TypeReg, Name: "b", Size: 600})
	read := func(l sandbox.Limits) (n int, err error) {
		for _, e := range sandbox.Files(bytes.NewReader(b), l) {
			if e != nil {
				return n, e
			}
			n++
		}
		return n, nil
	}
	for _, tt := range []struct {
		limits sandbox.Limits
		n      int
		err    error
	}{
		{sandbox.Limits{}, 2, nil},
		{sandbox.Limits{Bytes: 1200, Files: 2}, 2, nil},
		{sandbox.Limits{Bytes: 1199}, 1, sandbox.ErrTooLarge},
		{sandbox.Limits{Files: 1}, 1, sandbox.ErrTooLarge},
	} {
		if n, err := read(tt.limits); n != tt.n || !errors.Is(err, tt.err) {
			t.Errorf("%+v: %d files, error %v", tt.limits, n, err)
		}
	}
	// A header that claims far more than there is.
	var lie bytes.Buffer
	w := tar.NewWriter(&lie)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bomb", Size: math.MaxInt64 / 2})
	for _, err := range sandbox.Files(&lie, sandbox.Limits{}) {
		if !errors.Is(err, sandbox.ErrTooLarge) {
			t.Errorf("a bomb: error %v", err)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeDir, Name: "d/"}, tar.Header{Typeflag: tar.TypeReg, Name: "d/file"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/etc"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "p"}))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeReg, Name: "../x", Size: 5000},
		tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("n", 300)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		limits := sandbox.Limits{Files: 20, Bytes: 1 << 20, Name: 100}
		files, total := 0, int64(0)
		for file, err := range sandbox.Files(bytes.NewReader(b), limits) {
			files++
			if err != nil {
				continue
			}
			if !fs.ValidPath(strings.ToValidUTF8(file.Name, "?")) || path.IsAbs(file.Name) ||
				len(file.Name) > limits.Name {
				t.Fatalf("name %q", file.Name)
			}
			switch file.Mode.Type() {
			case 0, fs.ModeDir, fs.ModeSymlink:
			default:
				t.Fatalf("mode %v", file.Mode)
			}
			n, _ := io.Copy(io.Discard, file)
			total += n
		}
		if files > limits.Files+1 || total > limits.Bytes {
			t.Fatalf("%d files, %d bytes", files, total)
		}
	})
}
