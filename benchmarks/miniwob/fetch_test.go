package miniwob_test

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks/miniwob"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// entry is a file of an archive. A name with an arrow is a link.
type entry struct{ name, text string }

func zipped(t *testing.T, name string, entries []entry) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(0o644)
		if n, ok := strings.CutSuffix(e.name, " ->"); ok {
			h.Name = n
			h.SetMode(os.ModeSymlink | 0o777)
		}
		x, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	return file
}

// whole are all pages below a folder, with a wheel's list of digests.
func whole(below string) []entry {
	all := []entry{{below + "core/core.js", "core"}, {below + "common/ui_utils.js", "utils"},
		{below + "README", "not a page"}}
	for _, t := range miniwob.Tasks() {
		all = append(all, entry{below + "miniwob/" + t.Name + ".html", "<title>" + t.Name})
	}
	return all
}

func record(entries []entry) entry {
	var b strings.Builder
	for _, e := range entries {
		sum := sha256.Sum256([]byte(e.text))
		fmt.Fprintf(&b, "%s,sha256=%s,%d\n", e.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(e.text))
	}
	b.WriteString("miniwob-9.dist-info/RECORD,,\n")
	return entry{"miniwob-9.dist-info/RECORD", b.String()}
}

func TestFetch(t *testing.T) {
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	to := filepath.Join(data, "evalrun", "miniwob")
	good := whole("miniwob/html/")
	for _, from := range []string{zipped(t, "a.whl", append(good, record(good))),
		zipped(t, "b.zip", whole("miniwob-plusplus-1/miniwob/html/")), folder(t)} {
		f, err := miniwob.Fetch(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		if f.Dir != to || f.Files < 125 || f.Version != "" || len(f.Digest) != 64 {
			t.Errorf("%+v", f)
		}
		if _, err := os.Stat(filepath.Join(to, "README")); err == nil {
			t.Error("what is no page was taken, too")
		}
		b, err := miniwob.New("", nil, web.Browsers{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Source().Task(t.Context(), "click-test"); err != nil {
			t.Error(err)
		}
	}
	left, _ := os.ReadDir(filepath.Dir(to))
	if len(left) != 1 {
		t.Errorf("what is left: %v", left)
	}
}

func TestFetchHostile(t *testing.T) {
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	if _, err := miniwob.Fetch(t.Context(), folder(t)); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(data, "evalrun", "miniwob")
	before, err := os.ReadFile(filepath.Join(to, "evalrun.json"))
	if err != nil {
		t.Fatal(err)
	}
	good := whole("html/")
	wheel := append(whole("html/"), record(good))
	wheel[0].text = "changed"
	many := whole("html/")
	for i := range 6000 {
		many = append(many, entry{fmt.Sprintf("html/common/%d", i), ""})
	}
	linked := folder(t)
	os.Symlink("/etc/passwd", filepath.Join(linked, "core", "passwd"))
	text := filepath.Join(t.TempDir(), "a.zip")
	os.WriteFile(text, []byte("no archive"), 0o644)
	for want, from := range map[string]string{
		"no plain file": zipped(t, "link.zip",
			append(whole("html/"), entry{"html/core/passwd ->", "/etc/passwd"})),
		"no name for a file":     zipped(t, "slash.zip", append(whole("html/"), entry{`html/core/a\b`, ""})),
		"one name on some disks": zipped(t, "case.zip", append(whole("html/"), entry{"html/core/CORE.js", ""})),
		"is too large": zipped(t, "bomb.zip",
			append(whole("html/"), entry{"html/core/bomb.js", strings.Repeat("\x00", 17<<20)})),
		"not what the wheel's":    zipped(t, "bad.whl", wheel),
		"more than 5000 files":    zipped(t, "many.zip", many),
		"1 of 125 pages":          zipped(t, "less.zip", good[:len(good)-1]),
		"no miniwob/click-test":   zipped(t, "none.zip", []entry{{"a", "b"}}),
		"neither a folder":        text,
		"no such file":            filepath.Join(t.TempDir(), "no.whl"),
		`"core/passwd" is no pla`: linked,
	} {
		_, err := miniwob.Fetch(t.Context(), from)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	// Names that lead out of the archive do not.
	if _, err := miniwob.Fetch(t.Context(),
		zipped(t, "out.zip", append(whole("html/"), entry{"html/core/../../../../evil", "evil"},
			entry{"/html/core/evil", "evil"}))); err == nil {
		filepath.WalkDir(data, func(p string, _ os.DirEntry, _ error) error {
			if strings.HasSuffix(p, "evil") && !strings.HasPrefix(p, to) {
				t.Errorf("%s was written", p)
			}
			return nil
		})
		before, _ = os.ReadFile(filepath.Join(to, "evalrun.json"))
	}
	after, err := os.ReadFile(filepath.Join(to, "evalrun.json"))
	if err != nil || string(after) != string(before) {
		t.Errorf("what was there before has changed: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(to)); len(left) != 1 {
		t.Errorf("what is left: %v", left)
	}
}

// The published pages are known by their digest.
func TestFetchPublished(t *testing.T) {
	from := pages(t)
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	f, err := miniwob.Fetch(t.Context(), from)
	if err != nil || f.Version != "1.1.0" {
		t.Errorf("%+v, %v", f, err)
	}
}
