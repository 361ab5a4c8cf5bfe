package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

func names(t *testing.T, fsys fs.FS) string {
	t.Helper()
	list, err := scanContext(t.Context(), fsys, 1<<30, 1000, &digestCache{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.name)
	}
	return strings.Join(out, " ")
}

func files(paths string) fstest.MapFS {
	m := fstest.MapFS{}
	for _, p := range strings.Fields(paths) {
		m[p] = &fstest.MapFile{Data: []byte(p), Mode: 0o644}
	}
	return m
}

func TestIgnore(t *testing.T) {
	for _, c := range []struct{ name, file, ignore, have, want string }{
		{"none", "", "", "b a/x a/y", "a a/x a/y b"},
		{"name", ".dockerignore", "a\n# comment\n", "a/x b", ".dockerignore b"},
		{"pattern", ".dockerignore", "*.o\n**/*.log\n", "x.o d/y.o d/e/z.log w", ".dockerignore d d/e d/y.o w"},
		{"negation", ".dockerignore", "*\n!d/keep\n", "a d/keep d/drop e/keep", "d d/keep"},
		{"last one wins", ".dockerignore", "d\n!d/a\nd/a\n", "d/a x", ".dockerignore x"},
		{"negated pattern", ".dockerignore", "**\n!**/*.md\n", "a.md d/b.md d/c e/f", "a.md d d/b.md"},
		{"of the Dockerfile", "Dockerfile.dockerignore", "b\n", "a b", "Dockerfile.dockerignore a"},
		{"itself", ".dockerignore", "Dockerfile\n.dockerignore\n", "Dockerfile a", "a"},
		{"leading slash and blanks", ".dockerignore", "  /a  \n./b\n", "a b c", ".dockerignore c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := files(c.have)
			if c.file != "" {
				m[c.file] = &fstest.MapFile{Data: []byte(c.ignore)}
			}
			if got := names(t, m); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	both := files("a b")
	both[".dockerignore"] = &fstest.MapFile{Data: []byte("a\n")}
	both["Dockerfile.dockerignore"] = &fstest.MapFile{Data: []byte("b\n")}
	if got := names(t, both); got != ".dockerignore Dockerfile.dockerignore a" {
		t.Errorf("with both: %s", got)
	}
	bad := files("a")
	bad[".dockerignore"] = &fstest.MapFile{Data: []byte("[\n")}
	if _, err := scanContext(t.Context(), bad, 1<<30, 1000, &digestCache{}); err == nil ||
		!strings.Contains(err.Error(), ".dockerignore") {
		t.Errorf("a bad pattern: %v", err)
	}
}

// A context of files that no image should be made of.
func TestHostileContext(t *testing.T) {
	scan := func(fsys fs.FS, bytes int64, files int) error {
		_, err := scanContext(t.Context(), fsys, bytes, files, &digestCache{})
		return err
	}
	root := func(make func(dir string)) fs.FS {
		dir := t.TempDir()
		make(dir)
		r, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r.FS()
	}
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"bytes", "larger than it may be: its limit is passed at \"b\"",
			scan(fstest.MapFS{"a": {Data: make([]byte, 600)}, "b": {Data: make([]byte, 600)}}, 1000, 10)},
		{"files", "more than 2 files", scan(files("a b c"), 1000, 2)},
		{"entries that are left out", "more than 20 entries, .dockerignore not applied", scan(func() fs.FS {
			m := files(".dockerignore")
			m[".dockerignore"].Data = []byte("*\n")
			for i := range 30 {
				m[fmt.Sprint("x", i)] = &fstest.MapFile{}
			}
			return m
		}(), 1000, 2)},
		{"pipe", `"p", which is neither file nor folder nor link`,
			scan(root(func(dir string) { syscall.Mkfifo(filepath.Join(dir, "p"), 0o600) }), 1000, 10)},
		{"bytes that are no UTF-8", `"\xff"`,
			scan(root(func(dir string) { os.WriteFile(filepath.Join(dir, "\xff"), nil, 0o600) }), 1000, 10)},
		{"a link for .dockerignore", "reading .dockerignore: it is not a regular file",
			scan(root(func(dir string) { os.Symlink("/etc/passwd", filepath.Join(dir, ".dockerignore")) }), 1000, 10)},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := scanContext(ctx, files("a"), 1000, 10, &digestCache{}); err == nil {
		t.Error("a canceled scan goes on")
	}
}

// A folder that is left out is not looked into: whatever lies there costs nothing.
func TestIgnoredFolder(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte("big\n"), 0o600)
	os.Mkdir(filepath.Join(dir, "big"), 0o700)
	for i := range 100 {
		os.WriteFile(filepath.Join(dir, "big", fmt.Sprint(i)), nil, 0o600)
	}
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	list, err := scanContext(t.Context(), r.FS(), 1000, 3, &digestCache{})
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// Links go as links, modes are kept, times and owners are everybody's.
func TestStream(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		name = filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(name), 0o755)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chmod(name, mode)
	}
	put("run.sh", "#!/bin/sh\r\n", 0o750)
	put("d/with\nnewline", "x", 0o644)
	put("d/é", "y", 0o600|os.ModeSetuid)
	os.Symlink("/etc/shadow", filepath.Join(dir, "out"))
	os.Symlink("../../..", filepath.Join(dir, "d", "up"))
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stream := func() []byte {
		list, err := scanContext(t.Context(), r.FS(), 1000, 100, &digestCache{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := (&recipe{fsys: r.FS(), entries: list,
			hidden: []hidden{{".evalrun/Dockerfile", "FROM x\n", 0o644}}}).stream(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	one := stream()
	os.Chtimes(filepath.Join(dir, "run.sh"), time.Now(), time.Now().Add(time.Hour))
	if !bytes.Equal(one, stream()) {
		t.Error("the archive depends on times")
	}
	var got []string
	tr := tar.NewReader(bytes.NewReader(one))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(contextTime) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s: %+v", h.Name, h)
		}
		got = append(got, fmt.Sprintf("%c %o %q%s", h.Typeflag, h.Mode, h.Name, h.Linkname))
	}
	want := []string{`5 755 "d/"`, `2 777 "d/up"../../..`, `0 644 "d/with\nnewline"`, `0 4600 "d/é"`,
		`2 777 "out"/etc/shadow`, `0 750 "run.sh"`, `5 755 ".evalrun/"`, `0 644 ".evalrun/Dockerfile"`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestChangedWhileSent(t *testing.T) {
	m := files("a")
	list, err := scanContext(t.Context(), m, 1000, 10, &digestCache{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"b", "", "longer"} {
		m["a"].Data = []byte(text)
		err = (&recipe{fsys: m, entries: list}).stream(t.Context(), io.Discard)
		if len(text) == 6 { // as long as was said is sent, and it is not the same
			text = "l"
		}
		if err == nil || !strings.Contains(err.Error(), `"a" changed while it was read`) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A file that has not changed for a while is not read again.
func TestRemembered(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	made := time.Now()
	os.WriteFile(name, []byte("1"), 0o600)
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	known := &digestCache{}
	scan := func() entry {
		list, err := scanContext(t.Context(), r.FS(), 1000, 10, known)
		if err != nil {
			t.Fatal(err)
		}
		return list[0]
	}
	first := scan()
	if len(known.m) != 0 && time.Since(made) < 2*time.Second { // which a busy machine may have taken for it
		t.Error("a file that was just made is believed to stay as it is")
	}
	time.Sleep(2100 * time.Millisecond) // the time of change cannot be set
	if scan(); len(known.m) != 1 {
		t.Error("a file that stays is read again and again")
	}
	if scan() != first {
		t.Error("another digest")
	}
	os.WriteFile(name, []byte("2"), 0o600)
	if scan() == first {
		t.Error("a change was not seen")
	}
}

// Where the build's own files lie, and what COPY gets to see of them.
func TestPlace(t *testing.T) {
	df := "FROM x\nCOPY . /app\n"
	for _, c := range []struct {
		name, text string
		files      fstest.MapFS
		file, want string
		moved      bool
	}{
		{"the context's own", df, fstest.MapFS{"Dockerfile": {Data: []byte(df)}, "a": {}}, "Dockerfile", "", false},
		{"beside", "FROM x\nCOPY a /a\n", files("a"), ".evalrun/Dockerfile", "FROM x\nCOPY a /a\n", false},
		{"left out", df, fstest.MapFS{"Dockerfile": {Data: []byte(df)}, ".dockerignore": {Data: []byte("Dockerfile")}},
			".evalrun/Dockerfile", "FROM x\nCOPY context/. /app\n", true},
		{"another", df, fstest.MapFS{"Dockerfile": {Data: []byte("FROM y\n")}}, ".evalrun/Dockerfile",
			"FROM x\nCOPY context/. /app\n", true},
		{"wildcard", "FROM x\nCOPY --chown=1 ./* sub/x ../y /app/\n", files("a"), ".evalrun/Dockerfile",
			"FROM x\nCOPY --chown=1 context/./* context/sub/x context/y /app/\n", true},
		{"json", "FROM x\nCOPY [\".\", \"/app dir\"]\n", files("a"), ".evalrun/Dockerfile",
			"FROM x\nCOPY [\"context/.\",\"/app dir\"]\n", true},
		{"bind", "FROM x\nRUN --mount=type=bind,target=/c --mount=source=a,target=/a,ro id\n", files("a"),
			".evalrun/Dockerfile", "FROM x\nRUN --mount=type=bind,target=/c,source=context/ " +
				"--mount=target=/a,ro,source=context/a id\n", true},
		{"other stages stay", "FROM x AS b\nFROM x\nCOPY --from=b / /\nCOPY . .\nADD https://h.example/x /x\n",
			files("a"), ".evalrun/Dockerfile",
			"FROM x AS b\nFROM x\nCOPY --from=b / /\nCOPY context/. .\nADD https://h.example/x /x\n", true},
		{"heredoc", "FROM x\nCOPY <<E /e\n1\nE\nCOPY . .\n", files("a"), ".evalrun/Dockerfile",
			"FROM x\nCOPY .evalrun/1/E /e\n#\n#\nCOPY context/. .\n", true},
		{"name taken", "FROM x\nCOPY .evalrun/a /a\n", files(".evalrun/a"), ".evalrun/Dockerfile",
			"FROM x\nCOPY context/.evalrun/a /a\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := scanContext(t.Context(), c.files, 1000, 10, &digestCache{})
			if err != nil {
				t.Fatal(err)
			}
			out, err := old().read(c.text)
			if err != nil {
				t.Fatal(err)
			}
			r := &recipe{entries: list, hidden: out.files}
			r.place(out.d)
			if r.file != c.file || r.moved != c.moved {
				t.Errorf("Dockerfile at %s, moved %v", r.file, r.moved)
			}
			if c.want != "" && r.hidden[len(r.hidden)-1].text != c.want {
				t.Errorf("got\n%s\nwant\n%s", r.hidden[len(r.hidden)-1].text, c.want)
			}
		})
	}
}
