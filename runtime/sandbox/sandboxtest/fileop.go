package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func fileOps(c Claims) bool { return c.FileOps }

// fileOp carries out an operation.
func (b *box) fileOp(m machine, op sandbox.FileOp) sandbox.FileResult {
	b.t.Helper()
	f, ok := sandbox.As[sandbox.Filer](m.Sandbox)
	if !ok {
		b.t.Fatal("claims FileOps, and is no Filer")
	}
	res, err := f.FileOp(b.ctx(), op)
	if err != nil {
		b.t.Fatalf("%s %s: %v", op.Op, short(op.Path), err)
	}
	return res
}

// What the operations do and say is tested with package fileop; here, where and as whom.
var fileOpTests = []test{
	{name: "fileop/edit", need: fileOps, run: func(t *testing.T, b *box) {
		m := b.open()
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileCreate, Path: "/tmp/new/f", Text: "one\ntwo\n"}); res.Error ||
			!res.Gone {
			t.Fatalf("create: %+v", res)
		}
		if got := m.ok("cat", m.host("/tmp/new/f")); got != "one\ntwo\n" {
			t.Errorf("created %q", got)
		}
		res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileReplace, Path: "/tmp/new/f", Old: "two", Text: "2\x00\xff"})
		if got := m.ok("cat", m.host("/tmp/new/f")); got != "one\n2\x00\ufffd\n" || res.Error { // JSON has no other bytes
			t.Errorf("replaced: %q, %+v", got, res)
		}
		b.fileOp(m, sandbox.FileOp{Op: sandbox.FileRestore, Path: "/tmp/new/f", Change: res.Change})
		if got := m.ok("cat", m.host("/tmp/new/f")); got != "one\ntwo\n" {
			t.Errorf("restored: %q", got)
		}
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/new"}); !strings.Contains(res.Text,
			"/tmp/new/f\n") {
			t.Errorf("a folder: %+v", res)
		}
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: "f", Dir: "/tmp/new"}); !res.Error ||
			!strings.Contains(res.Text, "/tmp/new/f") {
			t.Errorf("a relative path: %+v", res)
		}
		big := strings.Repeat("0123456789abcde\n", sandbox.MaxEdited/16)
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileCreate, Path: "/tmp/big", Text: big}); res.Error {
			t.Fatalf("%+v", res)
		}
		res = b.fileOp(m, sandbox.FileOp{Op: sandbox.FileReplace, Path: "/tmp/big", Old: big, Text: "small"})
		if res.Error || string(res.Before) != big {
			t.Errorf("a large change: %s, %d bytes before", short(res.Text), len(res.Before))
		}
	}},
	{name: "fileop/users", need: func(c Claims) bool { return c.FileOps && c.Users }, run: func(t *testing.T, b *box) {
		m := b.open()
		if err := m.Put(b.ctx(), "/data", fstest.MapFS{"secret": {Data: []byte("s"), Mode: 0o600},
			"shown": {Data: []byte("s\n"), Mode: 0o644}}); err != nil {
			t.Fatal(err)
		}
		for _, op := range []sandbox.FileOp{{Op: sandbox.FileView, Path: "/data/secret"},
			{Op: sandbox.FileReplace, Path: "/data/shown", Old: "s", Text: "x"},
			{Op: sandbox.FileCreate, Path: "/data/new", Text: "x"}, {Op: sandbox.FileView, Path: "/proc/1/environ"}} {
			op.User = "1234:2345"
			if res := b.fileOp(m, op); !res.Error || !strings.Contains(res.Text, "denied") {
				t.Errorf("%s %s as another user: %+v", op.Op, op.Path, res)
			}
		}
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: "/data/shown", User: "1234:2345"}); res.Error {
			t.Errorf("%+v", res)
		}
		if got := m.ok("cat", "/data/shown"); got != "s\n" {
			t.Errorf("%q", got)
		}
		b.fileOp(m, sandbox.FileOp{Op: sandbox.FileCreate, Path: "/tmp/mine", Text: "x", User: "1234:2345"})
		c := m.command("write", "/tmp/mine", "y") // it is theirs
		c.User = "1234:2345"
		if x := m.exec(c); x.Code != 0 {
			t.Errorf("the user's file: %+v", x)
		}
	}},
	{name: "fileop/search", need: func(c Claims) bool { return c.FileOps && c.Users }, run: func(t *testing.T, b *box) {
		m := b.open()
		if err := m.Put(b.ctx(), "/data/tree", fstest.MapFS{"a.go": {Data: []byte("one\ntwo\n"), Mode: 0o644},
			"d/b.go": {Data: []byte("two\n"), Mode: 0o644}, "d/.git": {Data: []byte("two\n"), Mode: 0o644},
			"secret/c.go": {Data: []byte("two\n"), Mode: 0o600}, "circle": {Data: []byte("."), Mode: 0o777 | fs.ModeSymlink}}); err != nil {
			t.Fatal(err)
		}
		find := func(op, root, pattern, user string) string {
			res := b.fileOp(m, sandbox.FileOp{Op: op, Path: root, User: user, Search: &sandbox.Search{Pattern: pattern}})
			var lines []string
			for _, h := range res.Hits {
				lines = append(lines, fmt.Sprintf("%s:%d:%s", h.Path, h.Line, h.Text))
			}
			return strings.Join(append(lines, res.Text), "\n")
		}
		for _, c := range []struct{ op, root, pattern, user, want string }{
			{sandbox.FileGlob, "/data/tree", "*.go", "", "/data/tree/a.go:0:\n/data/tree/d/b.go:0:\n/data/tree/secret/c.go:0:\n"},
			{sandbox.FileGrep, "/data/tree", "^t", "", "/data/tree/a.go:2:two\n/data/tree/d/b.go:1:two\n/data/tree/secret/c.go:1:two\n"},
			{sandbox.FileGrep, "/data/tree", "^t", "1234:2345", "/data/tree/a.go:2:two\n/data/tree/d/b.go:1:two\n" +
				"1 files or folders could not be read"},
			{sandbox.FileGrep, "/data/tree/secret/c.go", "^t", "1234:2345", "/data/tree/secret/c.go: permission denied"},
			{sandbox.FileGrep, "/proc/1", "^[A-Z_]+=", "", "/proc/1/*"},
		} {
			got := find(c.op, c.root, c.pattern, c.user)
			if c.want == "/proc/1/*" {
				for _, secret := range b.suite.Secrets {
					if strings.Contains(got, secret) {
						t.Errorf("a search of /proc shows %q of the host", secret)
					}
				}
			} else if got != c.want {
				t.Errorf("%s %s in %s as %q:\n%s", c.op, c.pattern, c.root, c.user, got)
			}
		}
	}},
	{name: "fileop/within", need: fileOps, run: within},
	// The executor and its descriptors are out of reach.
	{name: "fileop/hostile", need: fileOps, run: func(t *testing.T, b *box) {
		m := b.open()
		for _, name := range []string{"/proc/self/fd/0", "/proc/self/mem", "/dev/zero", "/proc/1/mem",
			"/proc/1/fd/0", "/proc/1/environ", "/proc/kcore"} {
			res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: name})
			for _, secret := range b.suite.Secrets {
				if strings.Contains(res.Text, secret) {
					t.Errorf("%s shows %q of the host", name, secret)
				}
			}
			if !res.Error && name != "/proc/1/environ" {
				t.Errorf("%s: %s", name, short(res.Text))
			}
		}
		m.ok("symlink", "loop", m.host("/tmp/loop"))
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileReplace, Path: "/tmp/loop", Old: "a"}); !res.Error {
			t.Errorf("a link to itself: %+v", res)
		}
	}},
	// Of changes at the same time, none leaves half of a file.
	{name: "fileop/together", need: fileOps, run: func(t *testing.T, b *box) {
		m := b.open()
		a, z := strings.Repeat("a", 100_000), strings.Repeat("z", 100_000)
		b.fileOp(m, sandbox.FileOp{Op: sandbox.FileCreate, Path: "/tmp/together/f", Text: a})
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				op := sandbox.FileOp{Op: sandbox.FileReplace, Path: "/tmp/together/f", Old: a, Text: z}
				if i%2 == 1 {
					op.Old, op.Text = z, a
				}
				b.fileOp(m, op)
			})
		}
		wg.Wait()
		if got := m.ok("cat", m.host("/tmp/together/f")); got != a && got != z {
			t.Errorf("%d bytes: %s", len(got), short(got))
		}
		// Names that are left behind would be hidden.
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/together"}); !strings.HasSuffix(res.Text,
			"\n/tmp/together/\n/tmp/together/f\n") {
			t.Errorf("left behind: %s", res.Text)
		}
	}},
	// No change is lost when several are made at the same time.
	{name: "fileop/parallel", need: fileOps, run: func(t *testing.T, b *box) {
		m := b.open()
		const n = 16
		was, want := "", ""
		for i := range n {
			was += fmt.Sprintf("actor %02d before\n", i)
			want += fmt.Sprintf("actor %02d after\n", i)
		}
		b.fileOp(m, sandbox.FileOp{Op: sandbox.FileCreate, Path: "/tmp/parallel/f", Text: was})
		m.ok("symlink", "f", m.host("/tmp/parallel/link"))
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				name := []string{"f", "link", "../parallel/f"}[i%3]
				res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileReplace, Path: "/tmp/parallel/" + name,
					Old: fmt.Sprintf("actor %02d before", i), Text: fmt.Sprintf("actor %02d after", i)})
				if res.Error {
					t.Errorf("actor %d: %s", i, res.Text)
				}
				b.fileOp(m, sandbox.FileOp{Op: sandbox.FileAppend, Path: "/tmp/parallel/list", Text: "x\n"})
			})
		}
		wg.Wait()
		if got := m.ok("cat", m.host("/tmp/parallel/f")); got != want {
			t.Errorf("changes were lost:\n%s", got)
		}
		if got := m.ok("cat", m.host("/tmp/parallel/list")); got != strings.Repeat("x\n", n) {
			t.Errorf("%q", got)
		}
	}},
	{name: "fileop/while-written", need: func(c Claims) bool { return c.FileOps && c.Shells }, run: func(t *testing.T, b *box) {
		// A process adds to the file that is edited: each change is made as a whole, or refused.
		m, sh := b.shells(b.suite.Bash)
		shell := func(text string) string {
			var out strings.Builder
			if _, err := sh.Shell(b.ctx(), sandbox.ShellCall{Text: text, Stdout: &out}); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		shell("echo first > /tmp/log; { while :; do echo the process adds this line >> /tmp/log; done & } 2>/dev/null")
		made := 0
		for i := range 20 {
			res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileInsert, Path: "/tmp/log", Line: 1, Text: fmt.Sprint("inserted ", i)})
			if !res.Error {
				made++
			} else if !strings.Contains(res.Text, "changed") {
				t.Errorf("%s", res.Text)
			}
		}
		shell("kill %1; wait 2>/dev/null")
		got := shell("sort /tmp/log | uniq -c | wc -l; grep -c '^inserted [0-9]*$' /tmp/log; " +
			"grep -vcx -e first -e 'inserted [0-9]*' -e 'the process adds this line' /tmp/log")
		if want := fmt.Sprintf("%d\n%d\n0\n", made+2, made); got != want {
			t.Errorf("after %d changes: %q, want %q", made, got, want)
		}
	}},
	{name: "fileop/large", need: func(c Claims) bool { return c.FileOps && c.Shells }, run: func(t *testing.T, b *box) {
		// A file of 5 GB, and a folder of very many files, are told to be too large, or cut.
		m, sh := b.shells(b.suite.Bash)
		files := 50_000
		if os.Getenv("EVALRUN_TEST_THOROUGH") != "" {
			files = 1_000_000
		}
		if x, err := sh.Shell(b.ctx(), sandbox.ShellCall{Text: fmt.Sprintf("mkdir -p /tmp/dir/many /tmp/dir/huge; cd /tmp/dir/many && "+
			"seq -f %%07g %d | xargs touch && truncate -s 5G ../huge/f", files)}); err != nil || x.Code != 0 {
			t.Fatal(x, err)
		}
		const huge = "/tmp/dir/huge/f"
		for _, op := range []sandbox.FileOp{{Op: sandbox.FileView}, {Op: sandbox.FileView, Lines: []int{1, 2}},
			{Op: sandbox.FileRead}, {Op: sandbox.FileReplace, Old: "a", Text: "b"}, {Op: sandbox.FileInsert, Text: "b"}} {
			op.Path = huge
			if res := b.fileOp(m, op); !res.Error || !strings.Contains(res.Text, "5120.0 MB, and the limit is 10 MB") {
				t.Errorf("%s of 5 GB: %s", op.Op, short(res.Text))
			}
		}
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileAppend, Path: huge, Text: "the end"}); res.Error {
			t.Errorf("append to 5 GB: %s", res.Text)
		}
		if got := m.ok("stat", huge); !strings.Contains(got, fmt.Sprint(5<<30+len("the end"))) {
			t.Errorf("%s", got)
		}
		search := func(op, path, pattern string) sandbox.FileResult {
			return b.fileOp(m, sandbox.FileOp{Op: op, Path: path, Search: &sandbox.Search{Pattern: pattern}})
		}
		if res := search(sandbox.FileGrep, "/tmp/dir/huge", "the end"); res.Error || len(res.Hits) > 0 {
			t.Errorf("grep in 5 GB that are binary: %+v", res)
		}
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/dir"}); res.Error ||
			len(res.Text) > sandbox.MaxView+500 || !strings.Contains(res.Text, "names are left out") {
			t.Errorf("view of %d files: %s", files, short(res.Text))
		}
		if res := search(sandbox.FileGlob, "/tmp/dir/many", "*"); res.Error || len(res.Hits) != sandbox.MaxHits || !res.More {
			t.Errorf("glob in %d files: %d hits, %s", files, len(res.Hits), short(res.Text))
		}
		last := fmt.Sprintf("%07d", files)
		if res := search(sandbox.FileGlob, "/tmp/dir", "*"+last[1:]); len(res.Hits) != 1 {
			t.Errorf("glob for %s: %+v", last, res)
		}
		if res := search(sandbox.FileGrep, "/tmp/dir/many", "x"); res.Error || len(res.Hits) > 0 {
			t.Errorf("grep in %d files: %+v", files, res)
		}
	}},
	{name: "fileop/full-disk", need: func(c Claims) bool { return c.FileOps && c.Users }, run: func(t *testing.T, b *box) {
		// Without room, a change is refused, and the old content stays.
		spec := b.spec
		if b.suite.Claims.Disk {
			spec.Disk = 32 << 20
		}
		m := b.openSpec(spec)
		const dir = "/dev/shm/full" // in a container, this has a limit anyway
		old := strings.Repeat("0123456789abcde\n", 1<<16)
		b.fileOp(m, sandbox.FileOp{Op: sandbox.FileCreate, Path: dir + "/f", Text: old})
		b.fileOp(m, sandbox.FileOp{Op: sandbox.FileCreate, Path: dir + "/g", Text: old})
		m.ok("link", dir+"/g", dir+"/other-name")
		if r := m.run("fill", dir+"/much", fmt.Sprint(1<<30)); r.Code == 0 {
			t.Fatal("a disk of more than 1 GB")
		}
		more := strings.Repeat("x", 4<<20)
		for _, op := range []sandbox.FileOp{{Op: sandbox.FileInsert, Path: dir + "/f", Text: more},
			{Op: sandbox.FileReplace, Path: dir + "/f", Old: old, Text: more},
			{Op: sandbox.FileWrite, Path: dir + "/g", Text: more}, // in place, as it has another name
			{Op: sandbox.FileAppend, Path: dir + "/f", Text: more},
			{Op: sandbox.FileCreate, Path: dir + "/new/h", Text: more}} {
			if res := b.fileOp(m, op); !res.Error || !strings.Contains(res.Text, "no space left") {
				t.Errorf("%s on a full disk: %s", op.Op, short(res.Text))
			}
		}
		for _, name := range []string{"f", "g", "other-name"} {
			if got := m.ok("cat", dir+"/"+name); got != old {
				t.Errorf("%s has %s", name, short(got))
			}
		}
		res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: dir})
		for _, left := range []string{"/new/h", "hidden"} {
			if strings.Contains(strings.TrimPrefix(res.Text, "Files and folders in "+dir+", two levels deep, without hidden ones"), left) {
				t.Errorf("left behind: %s", res.Text)
			}
		}
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: dir + "/f", Lines: []int{1, 1}}); res.Error {
			t.Errorf("a view on a full disk: %s", res.Text)
		}
	}},
	{name: "fileop/paths", need: fileOps, run: func(t *testing.T, b *box) {
		// Links in a circle, a working directory that is gone, names that are hard to print.
		m := b.open()
		m.ok("mkdir", m.host("/tmp/paths"))
		m.ok("symlink", ".", m.host("/tmp/paths/here"))
		m.ok("symlink", "two", m.host("/tmp/paths/one"))
		m.ok("symlink", "one", m.host("/tmp/paths/two"))
		m.ok("symlink", m.host("/tmp"), m.host("/tmp/paths/up"))
		m.ok("write", m.host("/tmp/paths/file"), "text")
		for _, c := range []struct {
			op   sandbox.FileOp
			want string // part of the text
			err  bool
		}{
			{sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/paths"}, "/tmp/paths/here/file\n", false},
			{sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/paths/here/here/here/up/paths/file"}, "     1\ttext\n", false},
			{sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/paths/one"}, "too many levels of symbolic links", true},
			{sandbox.FileOp{Op: sandbox.FileRead, Path: "/tmp/paths/one/x"}, "too many levels of symbolic links", true},
			{sandbox.FileOp{Op: sandbox.FileCreate, Path: "/tmp/paths/one"}, "/tmp/paths/one", true},
			{sandbox.FileOp{Op: sandbox.FileCreate, Path: "/tmp/paths/one/x"}, "/tmp/paths/one", true},
			{sandbox.FileOp{Op: sandbox.FileWrite, Path: "/tmp/paths/two"}, "too many", true},
			{sandbox.FileOp{Op: sandbox.FileInsert, Path: "/tmp/paths/two"}, "too many", true},
			{sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/" + strings.Repeat("n", 256)}, "name too long", true},
			{sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/" + strings.Repeat("n/", 2100)}, "name too long", true},
			{sandbox.FileOp{Op: sandbox.FileCreate, Path: "/tmp/new\nline \x1b[31m", Text: "x"}, "Created", false},
			{sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/new\nline \x1b[31m"}, "     1\tx\n", false},
			{sandbox.FileOp{Op: sandbox.FileGlob, Path: "/tmp/paths", Search: &sandbox.Search{Pattern: "**/file"}}, "", false},
			{sandbox.FileOp{Op: sandbox.FileGrep, Path: "/tmp/paths", Search: &sandbox.Search{Pattern: "text"}}, "", false},
		} {
			res := b.fileOp(m, c.op)
			if !strings.Contains(res.Text, c.want) || res.Error != c.err {
				t.Errorf("%s %s: %+v", c.op.Op, short(c.op.Path), res)
			}
			if c.op.Search != nil && len(res.Hits) != 1 {
				t.Errorf("%s through links: %+v", c.op.Op, res.Hits)
			}
		}
	}},
	{name: "fileop/directory-gone", need: func(c Claims) bool { return c.FileOps && c.Shells },
		spec: func(s *sandbox.Spec) { s.Dir = "/work/dir" }, run: func(t *testing.T, b *box) {
			// The working directory is gone, which file operations do not need.
			m, _ := b.shells(b.suite.Bash)
			c := sandbox.Command{Args: []string{"bash", "-c", "rm -r /work"}, Dir: "/"}
			if r := m.exec(c); r.Code != 0 {
				t.Fatalf("%+v %s", r, r.Err)
			}
			if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileCreate, Path: "/tmp/f", Text: "x"}); res.Error {
				t.Errorf("%s", res.Text)
			}
			if r := m.run("echo", "x"); r.Code != 126 || !strings.Contains(r.Err, "/work/dir") {
				t.Errorf("%+v %s", r, r.Err)
			}
		}},
	{name: "fileop/end", need: fileOps, run: func(t *testing.T, b *box) {
		m := b.open()
		f, _ := sandbox.As[sandbox.Filer](m.Sandbox)
		ctx, cancel := context.WithCancel(b.ctx())
		cancel()
		if _, err := f.FileOp(ctx, sandbox.FileOp{Op: sandbox.FileView, Path: "/"}); !errors.Is(err, context.Canceled) {
			t.Errorf("after its context's end: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		_, err := f.FileOp(b.ctx(), sandbox.FileOp{Op: sandbox.FileView, Path: "/"})
		wantIs(t, "FileOp after Close", err, sandbox.ErrGone)
	}},
	{name: "fileop/none", need: func(c Claims) bool { return !c.FileOps }, run: func(t *testing.T, b *box) {
		m := b.open()
		f, ok := sandbox.As[sandbox.Filer](m.Sandbox)
		if !ok {
			return
		}
		var no *sandbox.Unsupported
		if _, err := f.FileOp(b.ctx(), sandbox.FileOp{Op: sandbox.FileView, Path: "/"}); !errors.As(err, &no) {
			t.Errorf("claims no FileOps, and has them: %v", err)
		}
	}},
}

// within tests that operations stay in folders, and without isolation in that of the sandbox.
func within(t *testing.T, b *box) {
	m := b.open()
	root := sandbox.HostRootOf(m.Sandbox)
	if err := m.Put(b.ctx(), "/data", fstest.MapFS{
		"a/in/f":    {Data: []byte("text " + root + "/data/a\n"), Mode: 0o644},
		"a/near":    {Data: []byte("in"), Mode: 0o777 | fs.ModeSymlink},
		"a/beside":  {Data: []byte("../b"), Mode: 0o777 | fs.ModeSymlink},
		"a/etc":     {Data: []byte("/etc"), Mode: 0o777 | fs.ModeSymlink},
		"a/nowhere": {Data: []byte("/nowhere/f"), Mode: 0o777 | fs.ModeSymlink},
		"a/up":      {Data: []byte("../../../../../../etc"), Mode: 0o777 | fs.ModeSymlink},
		"b/f":       {Data: []byte("text\n"), Mode: 0o644},
	}); err != nil {
		t.Fatal(err)
	}
	text := &sandbox.Search{Pattern: "te.t"}
	for _, c := range []struct {
		op     sandbox.FileOp
		within string
		want   string // the text, or the paths; "!" before the beginning of an error
	}{
		{sandbox.FileOp{Op: sandbox.FileRead, Path: "/data/a/in/f"}, "/data/a", "text /data/a"},
		{sandbox.FileOp{Op: sandbox.FileRead, Path: "/data/a/near/f"}, "/data/a", "text /data/a"},
		{sandbox.FileOp{Op: sandbox.FileRead, Path: "/data/a/in/f"}, "/data/a/in/f", "text /data/a"},
		{sandbox.FileOp{Op: sandbox.FileRead, Path: "/data/a/in/f"}, "/data/a/i", "!/data/a/in/f: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileRead, Path: "/data/b/f"}, "/data/a", "!/data/b/f: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileRead, Path: "/data/a/beside/f"}, "/data/a", "!/data/a/beside/f: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileRead, Path: "/data/a/in/../../b/f"}, "/data/a", "!/data/"},
		{sandbox.FileOp{Op: sandbox.FileRead, Path: "/data/a/beside/f"}, "", "text"},
		{sandbox.FileOp{Op: sandbox.FileView, Path: "/data/a/etc"}, "/data/a", "!/data/a/etc: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileView, Path: "/data/a/up"}, "/data/a", "!/data/a/up: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileGlob, Path: "/data/a/etc", Search: &sandbox.Search{Pattern: "*"}}, "/data/a",
			"!/data/a/etc: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileWrite, Path: "/data/a/etc/new", Text: "x"}, "/data/a",
			"!/data/a/etc/new: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileWrite, Path: "/data/a/nowhere", Text: "x"}, "/data/a",
			"!/data/a/nowhere: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileAppend, Path: "/data/a/beside/f", Text: "x"}, "/data/a",
			"!/data/a/beside/f: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileReplace, Path: "/data/a/beside/f", Old: "x", Text: "y"}, "/data/a",
			"!/data/a/beside/f: permission denied"},
		{sandbox.FileOp{Op: sandbox.FileWrite, Path: "/data/a/new/f", Text: "x"}, "/data/a", "Created /data/a/new/f.\n"},
		{sandbox.FileOp{Op: sandbox.FileGrep, Path: "/data", Search: text}, "/data", "/data/a/in/f:text /data/a /data/b/f:text"},
		{sandbox.FileOp{Op: sandbox.FileGrep, Path: "/data/a/near/f", Search: text}, "/data", "/data/a/near/f:text /data/a"},
		{sandbox.FileOp{Op: sandbox.FileGlob, Path: "/data", Search: &sandbox.Search{Pattern: "/data/*/f"}}, "", "/data/b/f:"},
		{sandbox.FileOp{Op: sandbox.FileView, Path: "/nowhere"}, "", "!/nowhere does not exist"},
	} {
		if c.within != "" {
			c.op.Within = []string{"/elsewhere", c.within}
		}
		got := b.fileOp(m, c.op)
		var found []string
		for _, h := range got.Hits {
			found = append(found, h.Path+":"+h.Text)
		}
		say := got.Text + strings.Join(found, " ")
		want, fails := strings.CutPrefix(c.want, "!")
		if c.op.Op == sandbox.FileRead {
			say = strings.TrimSuffix(say, "\n")
		}
		if got.Error != fails || say != want && !(fails && strings.HasPrefix(say, want)) {
			t.Errorf("%s %s within %q: %q, want %q", c.op.Op, c.op.Path, c.within, say, c.want)
		}
	}
	view := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: "/data/a", Within: []string{"/data/a"}})
	if strings.Contains(view.Text, "passwd") || !strings.Contains(view.Text, "/data/a/near/f\n") {
		t.Errorf("a folder with links: %+v", view)
	}
	if root == "" {
		return
	}
	// Without isolation the folder of the sandbox is what everything is within.
	for _, name := range []string{"/data/a/etc/passwd", "/data/a/up/passwd", "/data/a/etc"} {
		for _, op := range []string{sandbox.FileView, sandbox.FileRead, sandbox.FileAppend} {
			if got := b.fileOp(m, sandbox.FileOp{Op: op, Path: name}); !got.Error || !strings.Contains(got.Text, "denied") ||
				strings.Contains(got.Text, root) {
				t.Errorf("%s %s: %+v", op, name, got)
			}
		}
	}
	for _, name := range []string{root + "/data/b/f", "/data/b/f", "/data/../../../data/b/f"} {
		if got := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileRead, Path: name}); got.Text != "text\n" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
