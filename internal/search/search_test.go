package search

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// tree writes files, given as in a txtar archive, into a new folder.
func tree(t testing.TB, archive string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range txtar.Parse([]byte(archive)).Files {
		write(t, dir, f.Name, string(f.Data))
	}
	return dir
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// paths returns the hits of a glob, below dir.
func paths(t testing.TB, dir string, s sandbox.Search) []string {
	t.Helper()
	res, err := Glob(t.Context(), dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return below(dir, res.Hits)
}

func below(dir string, hits []sandbox.Hit) (out []string) {
	for _, h := range hits {
		s := strings.TrimPrefix(h.Path, dir+"/")
		if h.Line > 0 {
			s += fmt.Sprintf(":%d:%s", h.Line, h.Text)
		}
		out = append(out, s)
	}
	return out
}

func grep(t testing.TB, dir string, s sandbox.Search) []string {
	t.Helper()
	res, err := Grep(t.Context(), dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return below(dir, res.Hits)
}

func same(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

const files = `
-- a.py --
import os
-- b.txt --
one
-- d/c.py --
x = 1
-- d/e/f.py --
y = 2
-- d/e/g.PY --
-- .hidden/h.py --
-- .dot.py --
-- node_modules/n.py --
-- build/b.py --
-- x.log --
-- {b}/[c].py --
`

func TestGlob(t *testing.T) {
	dir := tree(t, files)
	for _, c := range []struct {
		pattern string
		want    string
	}{
		{"*.py", ".dot.py a.py build/b.py d/c.py d/e/f.py node_modules/n.py {b}/[c].py"},
		{"**/*.py", ".dot.py a.py build/b.py d/c.py d/e/f.py node_modules/n.py {b}/[c].py"},
		{"/*.py", ".dot.py a.py"},
		{"./*.py", ".dot.py a.py build/b.py d/c.py d/e/f.py node_modules/n.py {b}/[c].py"},
		{"d/*.py", "d/c.py"},
		{"e/*.py", ""},
		{"d/**", "d/c.py d/e/f.py d/e/g.PY"},
		{"d/", "d/c.py d/e/f.py d/e/g.PY"},
		{"d/**/f.py", "d/e/f.py"},
		{"*.{txt,log}", "b.txt x.log"},
		{"[ab].*", "a.py b.txt build/b.py"},
		{"?.py", "a.py build/b.py d/c.py d/e/f.py node_modules/n.py"},
		{`\{b\}/*`, "{b}/[c].py"},
		{".*", ".dot.py"}, // hidden files are found if they are asked for; hidden folders are not entered
		{"nothing", ""},
		{dir + "/d/*.py", "d/c.py"},
	} {
		same(t, c.pattern, paths(t, dir, sandbox.Search{Pattern: c.pattern}), strings.Fields(c.want)...)
	}
	same(t, "folders", paths(t, dir, sandbox.Search{Pattern: "d/**", Dirs: true}),
		"d/c.py", "d/e/", "d/e/f.py", "d/e/g.PY")
	same(t, "from a folder that is hidden", paths(t, dir+"/.hidden", sandbox.Search{Pattern: "*"}), "h.py")

	for pattern, want := range map[string]string{"": "empty", "/": "empty", "[a": "not valid", "{a": "not valid",
		"../*": "leads out", "a/../b": "leads out"} {
		if _, err := Glob(t.Context(), dir, sandbox.Search{Pattern: pattern}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", pattern, err, want)
		}
	}
	for name, want := range map[string]string{"/nowhere": "does not exist", "/a.py": "no folder", "/a.py/x": "does not exist"} {
		if _, err := Glob(t.Context(), dir+name, sandbox.Search{Pattern: "*"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestLimit(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		write(t, dir, fmt.Sprintf("%02d", i), strings.Repeat("x\n", 10))
	}
	for _, c := range []struct {
		max, hits int
		more      bool
	}{{29, 29, true}, {30, 30, false}, {31, 30, false}, {0, 30, false}, {-1, 30, false}} {
		res, err := Glob(t.Context(), dir, sandbox.Search{Pattern: "*", Max: c.max})
		if err != nil || len(res.Hits) != c.hits || res.More != c.more {
			t.Errorf("glob, %d at most: %d hits, more %v, %v", c.max, len(res.Hits), res.More, err)
		}
	}
	for _, c := range []struct {
		max, hits int
		more      bool
	}{{1, 1, true}, {10, 10, true}, {299, 299, true}, {300, 300, false}, {301, 300, false}} {
		res, err := Grep(t.Context(), dir, sandbox.Search{Pattern: "x", Max: c.max})
		if err != nil || len(res.Hits) != c.hits || res.More != c.more {
			t.Errorf("grep, %d at most: %d hits, more %v, %v", c.max, len(res.Hits), res.More, err)
		}
		if h := res.Hits[len(res.Hits)-1]; h.Path != fmt.Sprintf("%s/%02d", dir, (c.hits-1)/10) || h.Line != (c.hits-1)%10+1 {
			t.Errorf("grep, %d at most: the last hit is %v", c.max, h)
		}
	}
}

func TestGrep(t *testing.T) {
	dir := tree(t, `
-- a.txt --
one two
Two three
-- b/c.txt --
two
-- b/d.py --
two
`)
	write(t, dir, "crlf", "two\r\nthree two\r\n")
	write(t, dir, "end", "two") // without a line break at the end
	write(t, dir, "binary", "two\n\x00\n")
	write(t, dir, "late", "two\n"+strings.Repeat("x", 8200)+"\n\x00two\n")
	write(t, dir, "latin", "tw\xf6 two\n")
	write(t, dir, "empty", "")
	for _, c := range []struct {
		s    sandbox.Search
		want []string
	}{
		{sandbox.Search{Pattern: "two"}, []string{"a.txt:1:one two", "b/c.txt:1:two", "b/d.py:1:two", "crlf:1:two",
			"crlf:2:three two", "end:1:two", "late:1:two", "latin:1:tw\ufffd two"}},
		{sandbox.Search{Pattern: "^two$"}, []string{"b/c.txt:1:two", "b/d.py:1:two", "crlf:1:two", "end:1:two", "late:1:two"}},
		{sandbox.Search{Pattern: "TWO T", IgnoreCase: true}, []string{"a.txt:2:Two three"}},
		{sandbox.Search{Pattern: "T.REE|NE T", IgnoreCase: true}, []string{"a.txt:1:one two", "a.txt:2:Two three", "crlf:2:three two"}},
		{sandbox.Search{Pattern: "t.o$", Files: "*.txt"}, []string{"a.txt:1:one two", "b/c.txt:1:two"}},
		{sandbox.Search{Pattern: "two", Files: "b/*"}, []string{"b/c.txt:1:two", "b/d.py:1:two"}},
		{sandbox.Search{Pattern: "t.o", Literal: true}, nil},
		{sandbox.Search{Pattern: "", Files: "a.txt"}, []string{"a.txt:1:one two", "a.txt:2:Two three"}},
		{sandbox.Search{Pattern: "a*", Files: "a.txt"}, []string{"a.txt:1:one two", "a.txt:2:Two three"}},
		{sandbox.Search{Pattern: `\S+\s\S+e$`, Files: "a.txt"}, []string{"a.txt:2:Two three"}},
		{sandbox.Search{Pattern: `e\s+T`}, nil}, // not beyond a line
	} {
		same(t, fmt.Sprintf("%+v", c.s), grep(t, dir, c.s), c.want...)
	}
	same(t, "a file", grep(t, dir+"/b/c.txt", sandbox.Search{Pattern: "two"}), dir+"/b/c.txt:1:two")
	if err := os.Symlink("b/c.txt", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	same(t, "a link that is named", grep(t, dir+"/link", sandbox.Search{Pattern: "two"}), dir+"/link:1:two")
	for pattern, want := range map[string]string{"a\nb": "line break", `a\nb`: "line break", "(": "missing closing )",
		"a{1001}": "invalid repeat count", `(?=a)`: "looking ahead"} {
		if _, err := Grep(t.Context(), dir, sandbox.Search{Pattern: pattern}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", pattern, err, want)
		}
	}
}

// The literals by which lines are passed over must not change what is found.
func TestLiterals(t *testing.T) {
	lines := []string{"", "a", "A", "ab", "aB", "abc", "xabcx", "ak", "a\u212a", "AS", "a\u017f", "äb", "ÄB", "foo bar",
		"FOO", "fooo", "f", "bar", "b\xffr", "\xff", "a b", "a.b", "kelvin", "\u212aelvin"}
	dir := t.TempDir()
	write(t, dir, "f", strings.Join(lines, "\n"))
	for _, pattern := range []string{"a", "abc", "a|b", "foo|bar", "(foo|bar) ", "fo+", "(ab)+", "(ab)?c", "x*abcx*", "ak", "as",
		"kelvin", "äb", "a.b", `a\.b`, "(?i)foo", "(?i:a)b", "b.r", "\ufffd", "[a-b]c", "(a|)b", "", "^", "$", "a$", "^b",
		`\bfoo`, "(a){2}", "(a){0}b", "f(o|oo)", "(?:kel|f)", `\x41`} {
		for _, fold := range []bool{false, true} {
			m, err := newMatcher(pattern, false, fold)
			if err != nil {
				t.Fatal(err)
			}
			re := m.re
			if re == nil {
				re = regexp.MustCompile(pattern)
			}
			var want []string
			for i, line := range lines {
				if re.MatchString(line) {
					want = append(want, fmt.Sprintf("f:%d:%s", i+1, strings.ToValidUTF8(line, "\ufffd")))
				}
			}
			same(t, fmt.Sprintf("%q, fold %v", pattern, fold), grep(t, dir, sandbox.Search{Pattern: pattern, IgnoreCase: fold}),
				want...)
		}
	}
}

func TestChunks(t *testing.T) {
	dir := t.TempDir()
	var want []string
	var b bytes.Buffer
	for i := range 300_000 {
		if i%50_000 == 7 {
			want = append(want, fmt.Sprintf("big:%d:needle %d", i+1, i))
			fmt.Fprintf(&b, "needle %d\n", i)
			continue
		}
		b.WriteString("hay hay hay hay hay hay\n")
	}
	write(t, dir, "big", b.String())
	same(t, "a large file", grep(t, dir, sandbox.Search{Pattern: "needle"}), want...)
	same(t, "without case", grep(t, dir, sandbox.Search{Pattern: "NEEDLE", IgnoreCase: true}), want...)

	long := strings.Repeat("x", 3*chunk)
	write(t, dir, "long", "a\n"+long+"needle\nneedle\n")
	got := grep(t, dir, sandbox.Search{Pattern: "needle$", Files: "long", Width: 10})
	same(t, "a long line", got, "long:2:xxxxxxxxxx...", "long:3:needle")
}

func TestShown(t *testing.T) {
	for _, c := range []struct {
		line  string
		width int
		want  string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc..."}, {"äöü", 3, "äöü"}, {"äöüx", 3, "äöü..."}, {"a\xffb", 0, "a\ufffdb"},
		{"\xff\xff\xff\xff", 3, "\ufffd\ufffd\ufffd..."}, {"", 3, ""}} {
		if got := shown([]byte(c.line), c.width); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.line, c.width, got, c.want)
		}
	}
}

// The vectors are those of DeerFlow's search rules.
func TestDeerFlow(t *testing.T) {
	dir := tree(t, files)
	write(t, dir, "1/2/3.py", "")
	write(t, dir, ".git/config", "two")
	write(t, dir, "pkg.egg-info/x.py", "")
	write(t, dir, ".upload-1.part", "")
	glob := func(pattern string) []string {
		return paths(t, dir, sandbox.Search{Pattern: pattern, DeerFlow: true})
	}
	same(t, "*.py", glob("*.py"), ".dot.py", ".hidden/h.py", "1/2/3.py", "a.py", "d/c.py", "d/e/f.py", "{b}/[c].py")
	same(t, "**/*.py", glob("**/*.py"), ".dot.py", ".hidden/h.py", "1/2/3.py", "a.py", "d/c.py", "d/e/f.py", "{b}/[c].py")
	same(t, "right end", glob("e/*.py"), "d/e/f.py")
	same(t, "left out", glob("config"))
	same(t, "left out", glob("*.part"))

	write(t, dir, "size/1000000", strings.Repeat("x\n", 500_000))
	write(t, dir, "size/1000001", strings.Repeat("x\n", 500_000)+"x")
	write(t, dir, "nul/8191", strings.Repeat("y", 8191)+"\x00")
	write(t, dir, "nul/8192", strings.Repeat("y", 8192)+"\x00")
	res, err := Grep(t.Context(), dir, sandbox.Search{Pattern: "^[xy]", DeerFlow: true, Max: 3})
	if err != nil {
		t.Fatal(err)
	}
	var where []string
	for _, h := range res.Hits {
		where = append(where, fmt.Sprintf("%s:%d", strings.TrimPrefix(h.Path, dir+"/"), h.Line))
	}
	same(t, "files", where, "d/c.py:1", "d/e/f.py:1", "nul/8192:1")
	res, err = Grep(t.Context(), dir+"/size", sandbox.Search{Pattern: "x", DeerFlow: true, Max: 1})
	if err != nil || len(res.Hits) != 1 || res.Hits[0].Path != dir+"/size/1000000" {
		t.Errorf("%+v %v", res, err)
	}
	if res, err = Grep(t.Context(), dir+"/size/1000001", sandbox.Search{Pattern: "x", DeerFlow: true}); len(res.Hits) > 0 || err != nil {
		t.Errorf("a large file that is named: %+v %v", res, err)
	}
}

// What must not be entered, opened or waited for.
func TestHostile(t *testing.T) {
	dir := tree(t, files)
	if err := syscall.Mkfifo(dir+"/pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	for to, name := range map[string]string{".": "circle", "circle2": "circle3", "circle3": "circle2", "/etc/passwd": "out",
		"/": "rootlink", "pipe": "pipelink"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "a\nb\xff/\x1b[31mname.py", "two")
	deep := dir
	for range 60 {
		deep += "/" + strings.Repeat("d", 60)
	}
	write(t, "", deep+"/deep.py", "two")
	write(t, dir, ".gitignore", strings.Repeat("[", 100)+"\n"+strings.Repeat("a*", 5000)+"\n"+strings.Repeat("*.q\n", 50_000))
	got := paths(t, dir, sandbox.Search{Pattern: "*.py"})
	if len(got) != 9 {
		t.Errorf("%d files: %q", len(got), got)
	}
	if got := grep(t, dir, sandbox.Search{Pattern: "root:|two"}); len(got) != 2 {
		t.Errorf("lines: %q", got)
	}
	if _, err := Grep(t.Context(), dir+"/pipe", sandbox.Search{Pattern: "x"}); err == nil {
		t.Error("a pipe was opened")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if res, err := Grep(ctx, dir, sandbox.Search{Pattern: "two"}); err != why || len(res.Hits) > 0 {
		t.Errorf("canceled: %+v %v", res, err)
	}
	res, err := Grep(t.Context(), "/proc/self", sandbox.Search{Pattern: "^Name:", Files: "/status"})
	if err != nil || len(res.Hits) != 1 {
		t.Errorf("in /proc when asked: %+v %v", res, err)
	}
	for _, name := range []string{"/proc", "/sys"} {
		if _, _, ok := newWalk(t.Context(), "/", false).read(name, 0); ok {
			t.Error("entered", name)
		}
	}
}

func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads all files; the suite of the drivers has this as another user")
	}
	dir := tree(t, files)
	if err := os.Chmod(dir+"/d", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir+"/d", 0o755) })
	res, err := Glob(t.Context(), dir, sandbox.Search{Pattern: "*.py"})
	if err != nil || res.Unreadable != 1 || len(res.Hits) == 0 {
		t.Errorf("%+v %v", res, err)
	}
}

// ripgrep returns the lines that rg prints, run in dir.
func ripgrep(t testing.TB, dir string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "rg", append([]string{"--no-config", "--sort", "path", "--no-messages"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME=/nowhere", "XDG_CONFIG_HOME=/nowhere", "LC_ALL=C.UTF-8")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || len(exit.Stderr) > 0) {
		t.Fatalf("rg %q: %v %s", args, err, exit.Stderr)
	}
	text := strings.TrimSuffix(string(out), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func needRipgrep(t testing.TB) {
	if _, err := exec.LookPath("rg"); err != nil {
		t.Skip("there is no rg")
	}
}

// Random trees with random ignore files, beside ripgrep.
func TestBesideRipgrep(t *testing.T) {
	needRipgrep(t)
	names := []string{"a", "b", "ab", "c.x", "a.x", ".h", "d", "a b", "e.y", "{a}", "x"}
	rules := []string{"a", "*.x", "/a", "b/", "!a", "!*.x", "a/b", "**/a", "a/**", "a/**/b", "# a", `\!a`, "!.h", "*", "!*/", "[ab]",
		"?b", "/d/*", "!/d/a", "{a}", "{a,b}", "a ", `a\ b`, "a b", "", "/", "*b*", "d/a/", "**", "/*", "!x", "[!a]", "/**/x",
		"***", "a**", "*/a", "a//b", "[", "!d/", "c.x\r"}
	n := 100
	if testing.Short() {
		n = 30
	}
	if os.Getenv("EVALRUN_TEST_THOROUGH") != "" {
		n = 1000
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		dir := t.TempDir()
		var fill func(at string, depth int)
		var said []string
		fill = func(at string, depth int) {
			for _, f := range []string{".gitignore", ".ignore", ".rgignore"} {
				if r.IntN(4) > 0 {
					continue
				}
				var text []string
				for range 1 + r.IntN(4) {
					text = append(text, rules[r.IntN(len(rules))])
				}
				write(t, dir, at+f, strings.Join(text, "\n"))
				said = append(said, fmt.Sprintf("%s%s: %q", at, f, text))
			}
			if r.IntN(8) == 0 {
				write(t, dir, at+".git/info/exclude", rules[r.IntN(len(rules))]+"\n")
				said = append(said, at+".git")
			}
			for _, k := range r.Perm(len(names))[:4] {
				name := names[k]
				if depth < 3 && r.IntN(2) == 0 {
					os.MkdirAll(filepath.Join(dir, at, name), 0o755)
					fill(at+name+"/", depth+1)
				} else {
					write(t, dir, at+name, name+" text\nA line\n")
				}
			}
		}
		if r.IntN(3) > 0 {
			os.MkdirAll(dir+"/.git", 0o755)
		}
		fill("", 0)
		from := ""
		if subs, _ := filepath.Glob(dir + "/*/"); len(subs) > 0 && r.IntN(3) == 0 {
			from = strings.TrimPrefix(subs[r.IntN(len(subs))], dir)
			from = strings.TrimSuffix(from, "/")
		}
		w := newWalk(t.Context(), dir+from, false)
		var all []string
		w.each(func(f found) bool {
			all = append(all, strings.TrimPrefix(f.path, dir+from+"/"))
			return true
		})
		same(t, fmt.Sprintf("seed %d in %q, files\n%s", seed, from, strings.Join(said, "\n")), all,
			ripgrep(t, dir+from, "--files")...)
		for _, glob := range []string{"*.x", "a", "**/a*", "d/**", "{a,b}", "/a"} {
			same(t, fmt.Sprintf("seed %d in %q, glob %s\n%s", seed, from, glob, strings.Join(said, "\n")),
				paths(t, dir+from, sandbox.Search{Pattern: glob}), ripgrep(t, dir+from, "--files", "-g", glob)...)
		}
		same(t, fmt.Sprintf("seed %d in %q, lines", seed, from), grep(t, dir+from, sandbox.Search{Pattern: "^a.*t$|line"}),
			ripgrep(t, dir+from, "-n", "--no-heading", "^a.*t$|line")...)
		if t.Failed() {
			break
		}
	}
}

// goSource returns the folder with the source of Go's standard library.
func goSource(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "src")
}

// The source of Go's standard library, beside ripgrep.
func TestRealTree(t *testing.T) {
	needRipgrep(t)
	dir := goSource(t)
	for _, c := range []sandbox.Search{{Pattern: "func Parse"}, {Pattern: "errUnexpectedEOF|ErrShortWrite"},
		{Pattern: `^func \(.*\) WriteTo\(`}, {Pattern: "HTTP2Settings", IgnoreCase: true}, {Pattern: `\bgoto [a-z]+$`},
		{Pattern: "x509.Certificate", Literal: true, Files: "*_test.go"}} {
		args := []string{"-n", "--no-heading", "--crlf"}
		if c.IgnoreCase {
			args = append(args, "-i")
		}
		if c.Literal {
			args = append(args, "-F")
		}
		if c.Files != "" {
			args = append(args, "-g", c.Files)
		}
		want := ripgrep(t, dir, append(args, "--", c.Pattern)...)
		want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, "WARNING: stopped searching binary") })
		c.Width = 10_000
		got := grep(t, dir, c)
		if len(want) > sandbox.MaxHits {
			want = want[:sandbox.MaxHits]
		}
		for i := range want {
			want[i] = strings.TrimSuffix(strings.ToValidUTF8(want[i], "\ufffd"), "\r")
		}
		if len(want) < 5 {
			t.Errorf("%+v: rg finds %d lines", c, len(want))
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("%+v: %d lines, want %d; line %d differs:\n%s\n%s", c, len(got), len(want), i,
					got[min(i, len(got)-1)], want[min(i, len(want)-1)])
				break
			}
		}
	}
	w := newWalk(t.Context(), dir, false)
	var all []string
	w.each(func(f found) bool {
		all = append(all, strings.TrimPrefix(f.path, dir+"/"))
		return true
	})
	if want := ripgrep(t, dir, "--files"); !slices.Equal(all, want) {
		t.Errorf("%d files, want %d", len(all), len(want))
	}
}
