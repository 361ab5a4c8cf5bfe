package sandboxtest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// hostile names, all of them valid for Linux and for fs.FS.
var hostile = []string{"-rf", " lead", "trail ", "a\nb", "a\tb", "'q'", `"d"`, "$HOME", "*", "`id`", "ü\u202e", "a\\b",
	".hidden", "...", "..x",
	strings.Repeat("n", 255), "deep/" + strings.Repeat("d/", 60) + "file"}

var fileTests = []test{
	{name: "files/round-trip", run: func(t *testing.T, b *box) {
		m := b.open()
		big := pattern(3<<20 + 11)
		in := fstest.MapFS{
			"text":            {Data: []byte("hello\n"), Mode: 0o644},
			"empty":           {Data: nil, Mode: 0o600},
			"bin/prog":        {Data: []byte("#!x"), Mode: 0o755},
			"big":             {Data: []byte(big), Mode: 0o644},
			"none":            {Mode: fs.ModeDir | 0o755},
			"deep/er/none":    {Mode: fs.ModeDir | 0o700},
			"link":            {Data: []byte("text"), Mode: fs.ModeSymlink | 0o777},
			"bin/up":          {Data: []byte("../text"), Mode: fs.ModeSymlink | 0o777},
			"dangling":        {Data: []byte("no/where"), Mode: fs.ModeSymlink | 0o777},
			"absolute":        {Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink | 0o777},
			"out":             {Data: []byte("../../../../etc/passwd"), Mode: fs.ModeSymlink | 0o777},
			"dirlink":         {Data: []byte("deep"), Mode: fs.ModeSymlink | 0o777},
			"readonly/locked": {Data: []byte("x"), Mode: 0o400},
		}
		for _, name := range hostile {
			in[path.Join("names", name)] = &fstest.MapFile{Data: []byte(name), Mode: 0o644}
		}
		if err := m.Put(b.ctx(), "/data/in", in); err != nil {
			t.Fatalf("Put: %v", err)
		}

		out := b.get(m, "/data/in")
		for name, f := range in {
			got, ok := out["in/"+name]
			switch {
			case !ok:
				t.Errorf("%s did not come back", short(name))
			case got.Mode.Type() != f.Mode.Type(), f.Mode.Type() == 0 && got.Mode.Perm() != f.Mode.Perm():
				t.Errorf("%s: mode %v, want %v", short(name), got.Mode, f.Mode)
			case got.Data != string(f.Data):
				t.Errorf("%s: holds %s, want %s", short(name), short(got.Data), short(string(f.Data)))
			}
		}
		for name, got := range out {
			// Parents are there without having been named.
			if _, ok := in[strings.TrimPrefix(name, "in/")]; !ok && !got.Mode.IsDir() {
				t.Errorf("%s came back and never went in", short(name))
			}
		}

		// Inside it looks the same.
		if got := m.ok("cat", "/data/in/bin/up"); got != "hello\n" {
			t.Errorf("through a link: %q", got)
		}
		if got := m.ok("stat", "/data/in/out",
			"/data/in/bin/prog"); got != "Lrwxrwxrwx 0 ../../../../etc/passwd\n-rwxr-xr-x 3 \n" {
			t.Errorf("stat: %q", got)
		}

		// One file, one link, one empty folder.
		if f := b.get(m, "/data/in/big"); len(f) != 1 || f["big"].Data != big {
			t.Errorf("one file: got %v", slices.Collect(maps.Keys(f)))
		}
		if f := b.get(m, "/data/in/out"); len(f) != 1 || f["out"].Data != "../../../../etc/passwd" {
			t.Errorf("one link: got %v", f)
		}
		if f := b.get(m, "/data/in/none"); len(f) != 1 || !f["none"].Mode.IsDir() {
			t.Errorf("one folder: got %v", f)
		}
	}},
	{name: "files/bytes", run: func(t *testing.T, b *box) {
		// Names need not be UTF-8; they come out and go in as they are.
		m := b.open()
		const odd = "caf\xe9\n\xff"
		m.ok("mkdir", "/odd", ",", "write", "/odd/"+odd, "evil", ",", "symlink", odd, "/odd/l")
		if f := b.get(m, "/odd"); f["odd/"+odd].Data != "evil" || f["odd/l"].Data != odd {
			t.Errorf("got %q", f)
		}
		if err := m.Put(b.ctx(), "/again", oddFS{odd}); err != nil {
			t.Fatalf("Put: %v", err)
		}
		if f := b.get(m, "/again"); f["again/"+odd].Data != "evil" {
			t.Errorf("put, got %q", f)
		}
	}},
	{name: "files/deep", run: func(t *testing.T, b *box) {
		// However deep folders are nested: what lies beside them comes, and what does not is said
		// to be left out.
		m := b.open()
		m.ok("mkdir", "/deep", ",", "write", "/deep/beside", "x")
		dir := "/deep"
		for range 11 {
			args := []string{}
			for range 100 {
				dir += "/d"
				args = append(args, "mkdir", dir, ",")
			}
			m.ok(args[:len(args)-1]...)
		}
		m.ok("write", dir+"/bottom", "x")
		r, err := m.Get(b.ctx(), "/deep")
		if err != nil {
			t.Fatalf("Get: %v", err)
		}
		defer r.Close()
		bottom, beside, out := false, false, 0
		for f, err := range sandbox.Files(r, sandbox.Limits{}) {
			switch {
			case errors.As(err, new(*sandbox.FileError)):
				out++
			case err != nil:
				t.Fatalf("reading: %v", err)
			}
			bottom = bottom || strings.HasSuffix(f.Name, "/bottom")
			beside = beside || f.Name == "deep/beside"
		}
		if !beside || bottom == (out > 0) {
			t.Errorf("beside %v, bottom %v, %d left out", beside, bottom, out)
		}
		// A name below a file is missing, as any other.
		_, err = m.Get(b.ctx(), "/deep/beside/below")
		wantIs(t, "Get of a name below a file", err, fs.ErrNotExist)
	}},
	{name: "files/in-the-way", run: func(t *testing.T, b *box) {
		// What is in a machine may prevent an operation, and then it is not the machine's failure.
		m := b.open()
		m.ok("mkdir", "/way", ",", "mkdir", "/way/x")
		m.ok("mkdir", "/way/x/y")
		err := m.Put(b.ctx(), "/way", fstest.MapFS{"x": {Data: []byte("x"), Mode: 0o644}})
		var e *sandbox.Error
		if !errors.As(err, &e) || !e.Inside {
			t.Errorf("a file where a folder is: %v, want an error that is of the inside", err)
		}
		if got := m.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("afterwards: %q", got)
		}
	}},
	{name: "files/again", run: func(t *testing.T, b *box) {
		// A second Put replaces files, keeps what it does not name, and makes parents.
		m := b.open()
		put := func(fsys fs.FS) {
			t.Helper()
			if err := m.Put(b.ctx(), "/data", fsys); err != nil {
				t.Fatalf("Put: %v", err)
			}
		}
		put(fstest.MapFS{"a": {Data: []byte("long content"), Mode: 0o755}, "b": {Data: []byte("b"), Mode: 0o644},
			"d/x": {Data: []byte("x"), Mode: 0o644}})
		put(fstest.MapFS{"a": {Data: []byte("new"), Mode: 0o600}, "d/y": {Data: []byte("y"), Mode: 0o644}})
		got := b.get(m, "/data")
		if f := got["data/a"]; f.Data != "new" || f.Mode.Perm() != 0o600 {
			t.Errorf("replaced: %+v", f)
		}
		if got["data/b"].Data != "b" || got["data/d/x"].Data != "x" || got["data/d/y"].Data != "y" {
			t.Errorf("kept and added: %v", got)
		}
		put(fstest.MapFS{})
		if err := m.Put(b.ctx(), "relative", fstest.MapFS{}); err == nil {
			t.Error("Put to a relative folder: no error")
		}
		if err := m.Put(b.ctx(), "/very/new/folder", fstest.MapFS{}); err != nil {
			t.Errorf("Put of nothing: %v", err)
		}
		if f := b.get(m, "/very/new/folder"); !f["folder"].Mode.IsDir() {
			t.Errorf("Put of nothing did not make its folder: %v", f)
		}
		// A running program may be replaced.
		m.ok("start", "setsid", "drop", "/tmp/held")
		if b.binary != nil {
			if err := m.Put(b.ctx(), helperDir, fstest.MapFS{"helper": {Data: b.binary, Mode: 0o755}}); err != nil {
				t.Errorf("Put over a running program: %v", err)
			}
		}
	}},
	{name: "files/implied-folders", run: func(t *testing.T, b *box) {
		m := b.open()
		put := func(src fstest.MapFS) {
			if err := m.Put(b.ctx(), "/work", src); err != nil {
				t.Fatal(err)
			}
		}
		put(fstest.MapFS{"old": {Mode: fs.ModeDir | 0o711}})
		before := m.ok("stat", "/work/old")
		put(fstest.MapFS{"old": {Mode: fs.ModeDir | 0o755, Sys: sandbox.Implied{}},
			"old/a": {Data: []byte("1")}, "new": {Mode: fs.ModeDir | 0o755, Sys: sandbox.Implied{}},
			"new/a": {Data: []byte("2")}})
		if got := m.ok("stat", "/work/old"); got != before {
			t.Errorf("the folder was %q and became %q", before, got)
		}
		if got := m.ok("cat", "/work/old/a", "/work/new/a"); got != "12" {
			t.Errorf("%q", got)
		}
	}},
	{name: "files/through-links", run: func(t *testing.T, b *box) {
		// The agent prepares links where the grader's files will go. None is followed.
		m := b.open()
		m.ok("mkdir", "/tests", ",", "mkdir", "/target", ",", "write", "/target/victim", "before")
		m.ok("symlink", "/target", "/tests/dir", ",", "symlink", "/target/victim", "/tests/file", ",", "symlink",
			"../target/new", "/tests/new")
		err := m.Put(b.ctx(), "/tests", fstest.MapFS{"file": {Data: []byte("graded"), Mode: 0o644},
			"new": {Data: []byte("graded"), Mode: 0o644}})
		if err == nil { // refusing is fine too; writing through is not
			if got := m.ok("stat", "/tests/file", "/tests/new"); strings.Contains(got, "L") {
				t.Errorf("the links are still there: %q", got)
			}
		}
		if err := m.Put(b.ctx(), "/tests",
			fstest.MapFS{"dir/planted": {Data: []byte("graded"), Mode: 0o644}}); err == nil {
			if got := m.ok("cat", "/tests/dir/planted"); got != "graded" {
				t.Errorf("no error, but the file holds %q", got)
			}
		}
		if got := m.ok("cat", "/target/victim"); got != "before" {
			t.Errorf("Put wrote through a link: the victim holds %q", got)
		}
		for _, name := range []string{"/target/new", "/target/planted"} {
			if r := m.run("stat", name); r.Code == 0 {
				t.Errorf("Put wrote %s through a link", name)
			}
		}
		// Links of src are not followed either, wherever they point.
		secret := fstest.MapFS{"l": {Data: []byte("/proc/self/environ"), Mode: fs.ModeSymlink | 0o777}}
		if err := m.Put(b.ctx(), "/src", secret); err != nil {
			t.Fatal(err)
		}
		if f := b.get(m, "/src/l"); f["l"].Mode.Type() != fs.ModeSymlink {
			t.Errorf("a link of src became %v", f["l"].Mode)
		}
		// What Get reads: a link below is a link.
		m.ok("symlink", "/proc/self/environ", "/src/leak")
		if f := b.get(m, "/src"); f["src/leak"].Mode.Type() != fs.ModeSymlink {
			t.Errorf("Get followed a link: %v", f["src/leak"].Mode)
		}
	}},
	{name: "files/refused", run: func(t *testing.T, b *box) {
		m := b.open()
		for _, mode := range []fs.FileMode{fs.ModeDevice | 0o666, fs.ModeDevice | fs.ModeCharDevice | 0o666,
			fs.ModeNamedPipe | 0o666, fs.ModeSocket | 0o666} {
			src := fstest.MapFS{"ok": {Data: []byte("x"), Mode: 0o644}, "special": {Mode: mode}}
			if err := m.Put(b.ctx(), "/refused", src); err == nil {
				t.Errorf("Put of %v: no error", mode)
			}
		}
		// Names that no file system should have: refused, or made harmless.
		for _, name := range []string{"../escaped", "a/../../escaped", "/escaped"} {
			if err := m.Put(b.ctx(), "/refused/deep", oddFS{name}); err == nil && strings.Contains(name, "..") {
				t.Errorf("Put of a file called %q: no error", name)
			}
		}
		for _, name := range []string{"/refused/escaped", "/escaped"} {
			if r := m.run("stat", name); r.Code == 0 {
				t.Errorf("%s: a file escaped its folder", name)
			}
		}
		broken := errors.New("the disk of the source is broken")
		wantIs(t, "Put of a source that fails", m.Put(b.ctx(), "/refused", failFS{broken}), broken)
		if got := m.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("afterwards: %q", got)
		}
	}},
	{name: "files/missing", run: func(t *testing.T, b *box) {
		m := b.open()
		for _, name := range []string{"/no/such/file", "/tmp/missing"} {
			r, err := m.Get(b.ctx(), name)
			if err == nil {
				r.Close()
			}
			wantIs(t, "Get of a missing name", err, fs.ErrNotExist)
		}
		if r, err := m.Get(b.ctx(), "relative"); err == nil {
			r.Close()
			t.Error("Get of a relative name: no error")
		}
		_, err := sandbox.ReadFile(b.ctx(), m, "/tmp/missing", 100)
		wantIs(t, "ReadFile of a missing name", err, fs.ErrNotExist)
		m.ok("write", "/tmp/there", "content")
		if got, err := sandbox.ReadFile(b.ctx(), m, "/tmp/there", 100); err != nil || string(got) != "content" {
			t.Errorf("ReadFile: %q, %v", got, err)
		}
		_, err = sandbox.ReadFile(b.ctx(), m, "/tmp/there", 3)
		wantIs(t, "ReadFile of a large file", err, sandbox.ErrTooLarge)
		_, err = sandbox.ReadFile(b.ctx(), m, "/tmp", 100)
		wantIs(t, "ReadFile of a folder", err, sandbox.ErrNotRegular)
	}},
	{name: "files/hard-links", run: func(t *testing.T, b *box) {
		// Two names of one file are two files outside, each with the content.
		m := b.open()
		if r := m.run("mkdir", "/two", ",", "write", "/two/a", "same", ",", "link", "/two/a", "/two/b"); r.Code != 0 {
			t.Skipf("cannot make a hard link here: %s", r.Err)
		}
		if f := b.get(m, "/two"); f["two/a"].Data != "same" || f["two/b"].Data != "same" {
			t.Errorf("got %v", f)
		}
	}},
	{name: "files/canceled", run: func(t *testing.T, b *box) {
		m := b.open()
		cause := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(b.ctx())
		cancel(cause)
		wantIs(t, "Put with an ended context", m.Put(ctx, "/x", fstest.MapFS{"f": {Data: []byte("x"), Mode: 0o644}}),
			cause)
		r, err := m.Get(ctx, "/tmp")
		if err == nil {
			r.Close()
		}
		wantIs(t, "Get with an ended context", err, cause)
		wantIs(t, "KillAll with an ended context", m.KillAll(ctx), cause)
		if r := m.run("stat", "/x/f"); r.Code == 0 {
			t.Error("Put with an ended context wrote")
		}
	}},
	{name: "files/get-early-close", run: func(t *testing.T, b *box) {
		// Who has seen enough closes, and nothing hangs: not the sandbox, not the next Get.
		m := b.open()
		m.ok("mkdir", "/big", ",", "pattern", "/big/a", "20000000", ",", "pattern", "/big/b", "20000000")
		for range 3 {
			r, err := m.Get(b.ctx(), "/big")
			if err != nil {
				t.Fatal(err)
			}
			io.ReadFull(r, make([]byte, 1000))
			done := make(chan struct{})
			go func() { r.Close(); close(done) }()
			select {
			case <-done:
			case <-time.After(patience):
				t.Fatal("Close of a stream that was not read to its end hangs")
			}
			r.Close()
		}
		if got := m.ok("echo", "fine"); got != "fine\n" {
			t.Errorf("afterwards: %q", got)
		}
	}},
	{name: "files/pipes", run: func(t *testing.T, b *box) {
		// A named pipe without a writer would hold up whoever opens it.
		m := b.open()
		if r := m.run("mkdir", "/odd", ",", "mkfifo", "/odd/pipe", ",", "write", "/odd/z", "z"); r.Code != 0 {
			t.Skipf("cannot make a pipe here: %s", r.Err)
		}
		if f := b.get(m, "/odd"); f["odd/z"].Data != "z" {
			t.Errorf("got %v", f)
		}
	}},
}

// A got is one entry of a Get: its Data is the target, for a link.
type got struct {
	Mode fs.FileMode
	Data string
}

// get reads name with the reader that Get's comment asks for. Special files are left out, as Files
// does.
func (b *box) get(m machine, name string) map[string]got {
	b.t.Helper()
	r, err := m.Get(b.ctx(), name)
	if err != nil {
		b.t.Fatalf("Get %s: %v", short(name), err)
	}
	defer r.Close()
	var raw bytes.Buffer
	files := map[string]got{}
	for f, err := range sandbox.Files(io.TeeReader(r, &raw), sandbox.Limits{}) {
		if errors.As(err, new(*sandbox.FileError)) {
			continue
		}
		if err != nil {
			b.t.Fatalf("Get %s: reading: %v", short(name), err)
		}
		g := got{Mode: f.Mode, Data: f.Link}
		if f.Mode.IsRegular() {
			data, err := io.ReadAll(f)
			if err != nil {
				b.t.Fatalf("Get %s: reading %s: %v", short(name), short(f.Name), err)
			}
			g.Data = string(data)
		}
		files[f.Name] = g
	}
	// The stream is tar for everybody, not only for us.
	tr := tar.NewReader(&raw)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			b.t.Fatalf("Get %s: archive/tar: %v", short(name), err)
		}
		// Names are bytes, which fs.ValidPath is not content with.
		if clean := path.Clean(h.Name); !fs.ValidPath(strings.ToValidUTF8(clean, "?")) || clean != path.Base(name) &&
			!strings.HasPrefix(clean, path.Base(name)+"/") {
			b.t.Errorf("Get %s: an entry is called %q, want it below %q", short(name), h.Name, path.Base(name))
		}
	}
	return files
}

// oddFS is a file system with one file that has a name no file system should have.
type oddFS struct{ name string }

func (o oddFS) Open(name string) (fs.File, error) {
	if name == "." {
		return &oddDir{name: o.name}, nil
	}
	return fstest.MapFS{"x": {Data: []byte("evil"), Mode: 0o644}}.Open("x")
}

type oddDir struct {
	name string
	done bool
}

func (d *oddDir) Stat() (fs.FileInfo, error) { return fstest.MapFS{"x/y": {}}.Stat("x") }
func (d *oddDir) Read([]byte) (int, error)   { return 0, errors.New("is a folder") }
func (d *oddDir) Close() error               { return nil }
func (d *oddDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.done {
		if n > 0 {
			return nil, io.EOF
		}
		return nil, nil
	}
	d.done = true
	fi, err := fstest.MapFS{"x": {Data: []byte("evil"), Mode: 0o644}}.Stat("x")
	if err != nil {
		return nil, err
	}
	return []fs.DirEntry{oddEntry{fs.FileInfoToDirEntry(fi), d.name}}, nil
}

type oddEntry struct {
	fs.DirEntry
	name string
}

func (e oddEntry) Name() string { return e.name }

// failFS has a file that cannot be read.
type failFS struct{ err error }

func (f failFS) Open(name string) (fs.File, error) {
	file, err := fstest.MapFS{"x": {Data: []byte("never"), Mode: 0o644}}.Open(name)
	if err != nil || name == "." {
		return file, err
	}
	return failFile{file, f.err}, nil
}

type failFile struct {
	fs.File
	err error
}

func (f failFile) Read([]byte) (int, error) { return 0, f.err }
