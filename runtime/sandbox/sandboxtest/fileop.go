package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
		if got := m.ok("cat", "/tmp/new/f"); got != "one\ntwo\n" {
			t.Errorf("created %q", got)
		}
		res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileReplace, Path: "/tmp/new/f", Old: "two", Text: "2\x00\xff"})
		if got := m.ok("cat", "/tmp/new/f"); got != "one\n2\x00\ufffd\n" || res.Error { // JSON has no other bytes
			t.Errorf("replaced: %q, %+v", got, res)
		}
		b.fileOp(m, sandbox.FileOp{Op: sandbox.FileRestore, Path: "/tmp/new/f", Before: res.Before})
		if got := m.ok("cat", "/tmp/new/f"); got != "one\ntwo\n" {
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
		m.ok("symlink", "loop", "/tmp/loop")
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
		if got := m.ok("cat", "/tmp/together/f"); got != a && got != z {
			t.Errorf("%d bytes: %s", len(got), short(got))
		}
		// Names that are left behind would be hidden.
		if res := b.fileOp(m, sandbox.FileOp{Op: sandbox.FileView, Path: "/tmp/together"}); !strings.HasSuffix(res.Text,
			"\n/tmp/together/\n/tmp/together/f\n") {
			t.Errorf("left behind: %s", res.Text)
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
