package fileop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

type op = sandbox.FileOp

const (
	view, create, restore = sandbox.FileView, sandbox.FileCreate, sandbox.FileRestore
	replace, insert       = sandbox.FileReplace, sandbox.FileInsert
)

// tree makes files in a new folder: "NAME" with a content, or "NAME/".
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			text = ""
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The rules of the editor, with what it says. In requests and texts DIR is the folder.
func TestDo(t *testing.T) {
	ten := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
	for _, c := range []struct {
		name string
		file string // content of DIR/f
		req  op
		want string // the text, if it ends with a line break, else a part of it; an error begins with "error: "
		now  string // content of DIR/f afterwards; "-": the same
	}{
		{"view", "a\nb\n", op{Op: view}, "Lines of DIR/f:\n     1\ta\n     2\tb\n", "-"},
		{"view without a last line break", "a\nb", op{Op: view}, "Lines of DIR/f:\n     1\ta\n     2\tb\n", "-"},
		{"view an empty line at the end", "a\n\n", op{Op: view}, "Lines of DIR/f:\n     1\ta\n     2\t\n", "-"},
		{"view an empty file", "", op{Op: view}, "DIR/f is empty.\n", "-"},
		{"view a range", ten, op{Op: view, Lines: []int{9, 10}}, "Lines of DIR/f:\n     9\t9\n    10\t10\n", "-"},
		{"view to the end", ten, op{Op: view, Lines: []int{10, -1}}, "Lines of DIR/f:\n    10\t10\n", "-"},
		{"view beyond the end", "a\nb\n", op{Op: view, Lines: []int{2, 5}},
			"NOTE: there is no line 5; the file ends with line 2.\nLines of DIR/f:\n     2\tb\n", "-"},
		{"view from 0", ten, op{Op: view, Lines: []int{0, 5}}, "error: the first line must be between 1 and 10", "-"},
		{"view from beyond", ten, op{Op: view, Lines: []int{11, -1}}, "error: the first line must be between 1 and 10", "-"},
		{"view backwards", ten, op{Op: view, Lines: []int{5, 4}}, "error: the last line is before the first", "-"},
		{"view to -2", ten, op{Op: view, Lines: []int{5, -2}}, "error: the last line is before the first", "-"},
		{"view three numbers", ten, op{Op: view, Lines: []int{1, 2, 3}}, "error: view_range takes two", "-"},
		{"view one number", ten, op{Op: view, Lines: []int{1}}, "error: view_range takes two", "-"},
		{"a relative path", "", op{Op: view, Path: "f", Dir: "DIR"}, "error: do you mean DIR/f?", "-"},
		{"a relative path to nothing", "", op{Op: view, Path: "g", Dir: "DIR"}, "error: must begin with /\n", "-"},
		{"no path", "", op{Op: view, Path: "", Dir: "DIR"}, "", "-"},
		{"NUL", "", op{Op: view, Path: "/a\x00b"}, "error: a path has no NUL byte\n", "-"},
		{"nothing there", "", op{Op: view, Path: "DIR/g"}, "error: DIR/g does not exist\n", "-"},
		{"below a file", "", op{Op: view, Path: "DIR/f/g"}, "error: DIR/f/g does not exist\n", "-"},
		{"change nothing there", "", op{Op: replace, Path: "DIR/g", Old: "a"}, "error: DIR/g does not exist\n", "-"},
		{"insert into a folder", "", op{Op: insert, Path: "DIR"}, "error: DIR is a folder; only view", "-"},
		{"a range of a folder", "", op{Op: view, Path: "DIR", Lines: []int{1, 2}}, "error: view_range is for files", "-"},
		{"another operation", "", op{Op: "delete"}, "error: there is no operation \"delete\"\n", "-"},
		{"a binary file", "a\x00b", op{Op: view}, "error: DIR/f: this is a binary file", "-"},
		{"change a binary file", "a\x00b", op{Op: replace, Old: "a", Text: "b"}, "error: DIR/f: this is a binary file", "-"},
		{"a device", "", op{Op: view, Path: "/dev/null"}, "error: /dev/null is no regular file\n", "-"},

		{"create over a file", "x", op{Op: create, Text: "y"}, "error: DIR/f exists already", "-"},
		{"create over a folder", "x", op{Op: create, Path: "DIR", Text: "y"}, "error: DIR is a folder\n", "-"},
		{"create below a file", "x", op{Op: create, Path: "DIR/f/g", Text: "y"}, "error: ", "-"},

		{"replace", ten, op{Op: replace, Old: "6\n", Text: "six\nand\n"}, "Changed DIR/f. Lines 2 to 11 are now:\n" +
			"     2\t2\n     3\t3\n     4\t4\n     5\t5\n     6\tsix\n     7\tand\n" +
			"     8\t7\n     9\t8\n    10\t9\n    11\t10\n" +
			"Check that", "1\n2\n3\n4\n5\nsix\nand\n7\n8\n9\n10\n"},
		{"replace with nothing", "abc\n", op{Op: replace, Old: "b"}, "     1\tac\n", "ac\n"},
		{"replace all", "a", op{Op: replace, Old: "a"}, "It is empty now.\n", ""},
		{"replace what is not there", "abc\n", op{Op: replace, Old: "d"}, "error: old_str does not occur in DIR/f", "-"},
		{"replace nothing", "abc\n", op{Op: replace, Text: "d"}, "error: old_str is empty", "-"},
		{"replace with the same", "abc\n", op{Op: replace, Old: "a", Text: "a"}, "error: are the same", "-"},
		{"replace two", "a\nb\na\n", op{Op: replace, Old: "a"}, "error: old_str occurs 2 times, in lines 1, 3", "-"},
		{"replace overlapping", "aaa\n", op{Op: replace, Old: "aa"}, "error: old_str occurs 2 times, in lines 1, 1", "-"},
		{"replace many", strings.Repeat("a\n", 20_000), op{Op: replace, Old: "a"},
			"error: more than 9,999 times, in lines 1, 2", "-"},
		{"replace with other white space around", "  a b\nc\n", op{Op: replace, Old: "\n a b \n", Text: " x \n"},
			"     1\t  x\n",
			"  x\nc\n"},
		{"white space that occurs twice", "a\na\n", op{Op: replace, Old: " a ", Text: "b"}, "error: occurs 2 times", "-"},
		{"only white space", "a\n", op{Op: replace, Old: "   ", Text: "b"}, "error: does not occur", "-"},
		{"replace in lines with carriage returns", "a\r\nb\r\nc\r\n", op{Op: replace, Old: "a\nb", Text: "x\ny\nz"},
			"     1\tx\n     2\ty\n", "x\r\ny\r\nz\r\nc\r\n"},
		{"line breaks of both kinds stay", "a\r\nb\n", op{Op: replace, Old: "b", Text: "c"}, "Changed", "a\r\nc\n"},

		{"insert first", "a\nb\n", op{Op: insert, Text: "x"},
			"Lines 1 to 3 are now:\n     1\tx\n     2\ta\n     3\tb\n", "x\na\nb\n"},
		{"insert between", "a\nb\n", op{Op: insert, Line: 1, Text: "x\ny\n"},
			"     2\tx\n     3\ty\n     4\tb\n", "a\nx\ny\nb\n"},
		{"insert last", "a\nb\n", op{Op: insert, Line: 2, Text: "x"}, "     3\tx\n", "a\nb\nx\n"},
		{"insert after a line without an end", "a\nb", op{Op: insert, Line: 2, Text: "x"}, "     3\tx\n", "a\nb\nx\n"},
		{"insert into an empty file", "", op{Op: insert, Text: "x"}, "Lines 1 to 1 are now:\n     1\tx\n", "x\n"},
		{"insert an empty line", "a\n", op{Op: insert, Line: 1, Text: ""}, "     2\t\n", "a\n\n"},
		{"insert beyond", "a\nb\n", op{Op: insert, Line: 3, Text: "x"},
			"error: insert_line 3: it must be between 0, for the " +
				"beginning of the file, and 2", "-"},
		{"insert before the beginning", "a\n", op{Op: insert, Line: -1, Text: "x"}, "error: insert_line -1", "-"},
		{"insert lines with carriage returns", "a\r\nb\r\n", op{Op: insert, Line: 1, Text: "x\ny"},
			"Changed", "a\r\nx\r\ny\r\nb\r\n"},

		{"a byte order mark", "\xef\xbb\xbfa\nb\n", op{Op: replace, Old: "a", Text: "ä"},
			"     1\tä\n", "\xef\xbb\xbfä\nb\n"},
		{"UTF-16", "\xff\xfea\x00\n\x00", op{Op: replace, Old: "a", Text: "ä"}, "     1\tä\n", "\xff\xfe\xe4\x00\n\x00"},
		{"UTF-16, big end first", "\xfe\xff\x00a\x00\n", op{Op: insert, Line: 1, Text: "b"},
			"     2\tb\n", "\xfe\xff\x00a\x00\n\x00b\x00\n"},
		{"Latin-1", "caf\xe9 \x96\n", op{Op: replace, Old: "café", Text: "thé"}, "     1\tthé", "th\xe9 \x96\n"},
		{"Latin-1 has no euro", "caf\xe9\n", op{Op: replace, Old: "café", Text: "€"},
			"error: Latin-1, which has no '€'", "-"},
	} {
		dir := tree(t, map[string]string{"f": c.file})
		named := func(s string) string { return strings.ReplaceAll(s, "DIR", dir) }
		req := c.req
		if req.Path == "" && c.name != "no path" {
			req.Path = "DIR/f"
		}
		req.Path, req.Dir = named(req.Path), named(req.Dir)
		res := Do(req)
		want, isError := strings.CutPrefix(named(c.want), "error: ")
		if c.name == "no path" {
			want, isError = "path \"\" is not absolute; it must begin with /", true
		}
		fits := strings.Contains(res.Text, strings.TrimSuffix(want, "\n"))
		if strings.HasPrefix(c.want, "Lines of") || strings.HasPrefix(c.want, "NOTE") {
			fits = res.Text == want
		}
		if !fits || res.Error != isError {
			t.Errorf("%s: %q, an error: %v; want %q", c.name, res.Text, res.Error, c.want)
		}
		now := c.now
		if now == "-" {
			now = c.file
		}
		if got := read(t, dir+"/f"); got != now {
			t.Errorf("%s: the file has %q, want %q", c.name, got, now)
		}
		changed := !res.Error && req.Op != sandbox.FileView
		if changed != (res.Before != nil || res.Gone || c.file == "" && changed) {
			t.Errorf("%s: %+v", c.name, res)
		}
		if changed { // and back
			back := Do(op{Op: restore, Path: req.Path, Change: res.Change, Gone: res.Gone})
			if got := read(t, dir+"/f"); got != c.file || back.Error {
				t.Errorf("%s: restored to %q, %+v", c.name, got, back)
			}
		}
		if left, _ := filepath.Glob(dir + "/.edit-*"); left != nil {
			t.Errorf("%s: left behind: %q", c.name, left)
		}
	}
}

func TestCreate(t *testing.T) {
	dir := tree(t, nil)
	name := dir + "/a/b/c.txt"
	res := Do(op{Op: create, Path: name, Text: "no line break"})
	if res.Error || read(t, name) != "no line break" || !res.Gone {
		t.Fatalf("%+v", res)
	}
	if res = Do(op{Op: restore, Path: name, Change: res.Change, Gone: true}); res.Error || exists(name) {
		t.Errorf("restored: %+v", res)
	}
	os.Symlink("nowhere", dir+"/link")
	if res := Do(op{Op: create, Path: dir + "/link", Text: "x"}); !res.Error || exists(dir+"/nowhere") {
		t.Errorf("a link to nothing: %+v", res)
	}
	res = Do(op{Op: create, Path: dir + "/big", Text: strings.Repeat("x", maxFile+1)})
	if !res.Error || exists(dir+"/big") {
		t.Errorf("%.60s", res.Text)
	}
}

func TestViewFolder(t *testing.T) {
	dir := tree(t, map[string]string{"b": "", ".h": "", ".hidden/x": "", "a/c": "", "a/.h": "", "a/d/deep": "",
		"empty/": "", "new\nline": ""})
	os.Symlink("a", dir+"/link")
	os.Symlink("link2", dir+"/link2")
	want := strings.ReplaceAll("Files and folders in DIR, two levels deep, without hidden ones:\nDIR/\n"+
		"\"DIR/new\\nline\"\nDIR/a/\n"+
		"DIR/a/c\nDIR/a/d/\nDIR/b\nDIR/empty/\nDIR/link/\nDIR/link/c\nDIR/link/d/\nDIR/link2\n\n"+
		"2 hidden files and folders in DIR are not shown; ls -la DIR shows them.\n", "DIR", dir)
	if res := Do(op{Op: view, Path: dir + "/"}); res.Text != want || res.Error {
		t.Errorf("%s\nwant\n%s", res.Text, want)
	}
	many := t.TempDir()
	for i := range maxNames + 500 {
		os.WriteFile(fmt.Sprintf("%s/%06d", many, i), nil, 0o600)
	}
	res := Do(op{Op: view, Path: many})
	if len(res.Text) > maxView+500 || !strings.Contains(res.Text, "names are left out") ||
		!strings.Contains(res.Text, "more than") {
		t.Errorf("%d bytes: %s", len(res.Text), res.Text[max(0, len(res.Text)-200):])
	}
}

// A view has a limit, also of one line.
func TestLongView(t *testing.T) {
	for name, text := range map[string]string{
		"lines": strings.Repeat("0123456789\n", 5000), "one line": strings.Repeat("é", 50_000),
		"empty lines": strings.Repeat("\n", 100_000),
	} {
		dir := tree(t, map[string]string{"f": text})
		res := Do(op{Op: view, Path: dir + "/f"})
		if n := utf8.RuneCountInString(res.Text); n > maxView+300 || n < maxView-100 ||
			!strings.Contains(res.Text, "[the view is cut in line ") {
			t.Errorf("%s: %d characters, ending with %q", name, n, res.Text[len(res.Text)-100:])
		}
	}
	dir := tree(t, map[string]string{"f": strings.Repeat("x", maxFile+1)})
	if res := Do(op{Op: view, Path: dir + "/f"}); !res.Error ||
		!strings.Contains(res.Text, "it has 10.0 MB, and the limit is 10 MB") {
		t.Errorf("%.200s", res.Text)
	}
	os.Truncate(dir+"/f", 5<<30)
	if res := Do(op{Op: view, Path: dir + "/f"}); !res.Error || !strings.Contains(res.Text, "it has 5120.0 MB") {
		t.Errorf("%.200s", res.Text)
	}
}

// A changed file keeps its mode, its links and its other names.
func TestKept(t *testing.T) {
	dir := tree(t, map[string]string{"f": "a\n", "g": "a\n", "ro": "a\n"})
	os.Chmod(dir+"/f", os.ModeSetuid|0o750)
	os.Symlink("f", dir+"/link")
	os.Symlink("loop", dir+"/loop")
	os.Link(dir+"/g", dir+"/other")
	edit := func(name string) sandbox.FileResult {
		return Do(op{Op: replace, Path: dir + "/" + name, Old: "a", Text: "b"})
	}
	if res := edit("link"); res.Error || read(t, dir+"/f") != "b\n" {
		t.Errorf("%+v", res)
	}
	if info, _ := os.Lstat(dir + "/link"); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link is gone")
	}
	if info, _ := os.Stat(dir + "/f"); info.Mode() != 0o750|os.ModeSetuid {
		t.Errorf("mode %v", info.Mode())
	}
	if res := edit("g"); res.Error || read(t, dir+"/other") != "b\n" {
		t.Errorf("another name of the file: %q, %+v", read(t, dir+"/other"), res)
	}
	if res := edit("loop"); !res.Error {
		t.Errorf("%+v", res)
	}
	os.Chmod(dir+"/ro", 0o444)
	if res := edit("ro"); os.Getuid() != 0 && (!res.Error || read(t, dir+"/ro") != "a\n") {
		t.Errorf("a file that may not be written: %+v", res)
	}
	if err := syscall.Mkfifo(dir+"/pipe", 0o666); err != nil {
		t.Fatal(err)
	}
	if res := edit("pipe"); !res.Error || !strings.Contains(res.Text, "is no regular file") {
		t.Errorf("%+v", res)
	}
	if res := Do(op{Op: view, Path: "/proc/self/status"}); res.Error || !strings.Contains(res.Text, "Name:") {
		t.Errorf("a file whose size is said to be 0: %+v", res)
	}
}

// Readers see the old content or the new, and nothing else.
func TestAtOnce(t *testing.T) {
	a, b := strings.Repeat("a", 1<<20)+"\n", strings.Repeat("b", 1<<20)+"\n"
	dir := tree(t, map[string]string{"f": a})
	stop, done := make(chan struct{}), make(chan struct{})
	var reads atomic.Int64
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			got, err := os.ReadFile(dir + "/f")
			if err != nil || string(got) != a && string(got) != b {
				t.Errorf("%v, %d bytes", err, len(got))
				return
			}
			reads.Add(1)
		}
	}()
	for i := 0; i < 20 || reads.Load() == 0; i++ {
		before, after := a, b
		if i%2 == 1 {
			before, after = b, a
		}
		if res := Do(op{Op: replace, Path: dir + "/f", Old: before, Text: after}); res.Error {
			t.Fatal(res.Text)
		}
		if i > 10_000 {
			t.Fatal("nobody could read")
		}
	}
	close(stop)
	<-done
}

func TestServe(t *testing.T) {
	dir := tree(t, map[string]string{"f": "a\n"})
	req, _ := json.Marshal(op{Op: view, Path: dir + "/f"})
	var out bytes.Buffer
	var res sandbox.FileResult
	err := Serve(bytes.NewReader(req), &out)
	if err != nil || json.Unmarshal(out.Bytes(), &res) != nil || !strings.Contains(res.Text, "1\ta") {
		t.Errorf("%v, %s", err, out.String())
	}
	for _, bad := range []string{"", "{", `{"op": 1}`, "[]"} {
		if err := Serve(strings.NewReader(bad), &out); err == nil {
			t.Errorf("%q is served", bad)
		}
	}
}

// Any text that is not binary can be changed and restored without the loss of a byte.
func FuzzEdit(f *testing.F) {
	for _, s := range []string{"a\nb", "\xff\xfea\x00", "caf\xe9\r\n", "\xef\xbb\xbfx", "\r\r\n\n"} {
		f.Add([]byte(s), "b", 1)
	}
	f.Fuzz(func(t *testing.T, content []byte, text string, line int) {
		name := t.TempDir() + "/f"
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		Do(op{Op: view, Path: name})
		for _, r := range []op{{Op: insert, Path: name, Text: text, Line: line},
			{Op: replace, Path: name, Old: text, Text: "x"}} {
			res := Do(r)
			if res.Error {
				if got := read(t, name); got != string(content) {
					t.Fatalf("%+v changed %q to %q", res, content, got)
				}
				continue
			}
			if back := Do(op{Op: restore, Path: name, Change: res.Change}); back.Error || read(t, name) != string(content) {
				t.Fatalf("%q was not restored: %+v", content, back)
			}
		}
	})
}

// What a process writes to a file between the editor's look and its change is not lost.
func TestChangedMeanwhile(t *testing.T) {
	dir := tree(t, map[string]string{"f": "a\n"})
	f, err := load(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	if err := add(dir+"/f", []byte("of a process\n")); err != nil {
		t.Fatal(err)
	}
	if err := f.put(content{[]byte("b\n")}); err == nil || !strings.Contains(err.Error(), "has changed while it was edited") {
		t.Errorf("error %v", err)
	}
	if got := read(t, dir+"/f"); got != "a\nof a process\n" {
		t.Errorf("%q", got)
	}
	if left, _ := filepath.Glob(dir + "/.edit-*"); left != nil {
		t.Errorf("left behind: %q", left)
	}
}

// What is no text but a picture or a PDF is viewed as data, and only viewed.
func TestData(t *testing.T) {
	const png = "\x89PNG\r\n\x1a\n\x00\x00"
	for _, c := range []struct {
		content string
		req     op
		kind    string // "": an error with want
		want    string
	}{
		{png, op{Op: view}, "image/png", "DIR/f is an image (image/png, 10 bytes).\n"},
		{"\xff\xd8\xff\xe0\x00", op{Op: view}, "image/jpeg", "is an image (image/jpeg, 5 bytes)"},
		{"GIF89a\x00", op{Op: view}, "image/gif", "is an image (image/gif"},
		{"RIFF\x00\x00\x00\x00WEBPVP8 ", op{Op: view}, "image/webp", "is an image (image/webp"},
		{"%PDF-1.7\nall of it is text\n", op{Op: view}, "application/pdf", "is a PDF of 27 bytes. It is not shown as text"},
		{png, op{Op: view, Lines: []int{1, 2}}, "", "view_range is for texts, and DIR/f is no text"},
		{png, op{Op: sandbox.FileRead}, "", "DIR/f: this is a binary file"},
		{png, op{Op: replace, Old: "PNG", Text: "x"}, "", "DIR/f: this is a binary file"},
		{png, op{Op: insert, Text: "x"}, "", "DIR/f: this is a binary file"},
		{"RIFF\x00\x00\x00\x00WAVE", op{Op: view}, "", "DIR/f: this is a binary file"},
		{"PK\x03\x04\x00 (an office document)", op{Op: view}, "", "DIR/f: this is a binary file"},
		{png + strings.Repeat("x", sandbox.MaxImage), op{Op: view}, "", "DIR/f is an image of 3750010 bytes, and at most 3750000"},
		{png + strings.Repeat("x", maxFile), op{Op: view}, "", "DIR/f is too large: it has 10.0 MB"},
	} {
		dir := tree(t, map[string]string{"f": c.content})
		c.req.Path = dir + "/f"
		req, _ := json.Marshal(c.req)
		var out bytes.Buffer
		if err := Serve(bytes.NewReader(req), &out); err != nil {
			t.Fatal(err)
		}
		res, err := Decode(out.Bytes())
		if err != nil || res.Type != c.kind || res.Error != (c.kind == "") ||
			!strings.Contains(res.Text, strings.ReplaceAll(c.want, "DIR", dir)) ||
			string(res.Data) != c.content[:len(c.content)*min(len(c.kind), 1)] {
			t.Errorf("%.20q %s: %.200q %q, %d bytes, %v", c.content, c.req.Op, res.Text, res.Type, len(res.Data), err)
		}
	}
}

// The whole text, or lines of it, is read and written.
func TestReadWrite(t *testing.T) {
	const rd, write, add = sandbox.FileRead, sandbox.FileWrite, sandbox.FileAppend
	three := "a\nb\nc\n"
	for _, c := range []struct {
		name string
		file string // "-": there is none
		req  op
		want string // the text; an error begins with "error: "
		now  string // content afterwards; "": the same
	}{
		{"read", three, op{Op: rd}, three, ""},
		{"read without a last line break", "a\nb", op{Op: rd}, "a\nb", ""},
		{"read an empty file", "", op{Op: rd}, "", ""},
		{"read lines", three, op{Op: rd, Lines: []int{2, 3}}, "b\nc", ""},
		{"read to the end", three, op{Op: rd, Lines: []int{2, -1}}, "b\nc", ""},
		{"read beyond the end", three, op{Op: rd, Lines: []int{3, 100}}, "c", ""},
		{"read from beyond the end", three, op{Op: rd, Lines: []int{100, 200}}, "", ""},
		{"read from before the beginning", three, op{Op: rd, Lines: []int{-5, 1}}, "a", ""},
		{"read backwards", three, op{Op: rd, Lines: []int{3, 1}}, "", ""},
		{"read lines with carriage returns", "a\r\nb\r\n", op{Op: rd, Lines: []int{1, 1}}, "a", ""},
		{"read Latin-1", "caf\xe9\n", op{Op: rd}, "café\n", ""},
		{"read a binary file", "\x00", op{Op: rd}, "error: this is a binary file", ""},
		{"read what is not there", "-", op{Op: rd}, "error: does not exist", ""},
		{"read a folder", "", op{Op: rd, Path: "DIR"}, "error: is a folder", ""},

		{"write", three, op{Op: write, Text: "x"}, "Changed", "x"},
		{"write a text that ends with a line break", three, op{Op: write, Text: "x\n"}, "Changed", "x\n"},
		{"write a new file", "-", op{Op: write, Text: "x\n"}, "Created", "x\n"},
		{"write lines of a new file", "-", op{Op: write, Lines: []int{5, 9}, Text: "x\n"}, "Created", "x\n"},
		{"write a folder", "", op{Op: write, Path: "DIR"}, "error: is a folder", ""},
		{"write below a file", "x", op{Op: write, Path: "DIR/f/g"}, "error: ", ""},
		{"write over a binary file", "\x00", op{Op: write, Text: "x"}, "Changed", "x"},
		{"write the first line", three, op{Op: write, Lines: []int{1, 1}, Text: "x"}, "     1\tx\n     2\tb\n", "x\nb\nc\n"},
		{"write the last line", three, op{Op: write, Lines: []int{3, -1}, Text: "x\n"}, "     3\tx\n", "a\nb\nx\n"},
		{"write two for one", three, op{Op: write, Lines: []int{2, 2}, Text: "x\ny"}, "     2\tx\n     3\ty\n", "a\nx\ny\nc\n"},
		{"write nothing for two", three, op{Op: write, Lines: []int{1, 2}}, "     1\tc\n", "c\n"},
		{"write nothing for all", three, op{Op: write, Lines: []int{1, -1}}, "It is empty now.", "\x00"},
		{"write beyond the end", three, op{Op: write, Lines: []int{2, 100}, Text: "x\n"}, "     2\tx\n", "a\nx\n"},
		{"write before a line", three, op{Op: write, Lines: []int{2, 1}, Text: "x"}, "     2\tx\n", "a\nx\nb\nc\n"},
		{"write after the last line", three, op{Op: write, Lines: []int{4, -1}, Text: "x"}, "     4\tx\n", "a\nb\nc\nx"},
		{"write after a line without an end", "a\nb", op{Op: write, Lines: []int{3, -1}, Text: "x\n"}, "     3\tx\n", "a\nb\nx\n"},
		{"write into an empty file", "", op{Op: write, Lines: []int{1, -1}, Text: "x\n"}, "     1\tx\n", "x\n"},
		{"write lines with carriage returns", "a\r\nb\r\n", op{Op: write, Lines: []int{1, 1}, Text: "x\ny"}, "Changed",
			"x\r\ny\r\nb\r\n"},
		{"write from 0", three, op{Op: write, Lines: []int{0, 1}}, "error: the first line must be between 1 and 4", ""},
		{"write from beyond", three, op{Op: write, Lines: []int{5, 6}}, "error: the first line must be between 1 and 4", ""},
		{"write one number", three, op{Op: write, Lines: []int{1}}, "error: lines takes two", ""},
		{"write lines of a binary file", "\x00", op{Op: write, Lines: []int{1, 1}}, "error: this is a binary file", ""},
		{"write what Latin-1 has not", "caf\xe9\n", op{Op: write, Lines: []int{1, 1}, Text: "€"}, "error: Latin-1", ""},
		{"write unread", three, op{Op: write, Text: "x", Known: sandbox.Unread}, "error: was not read yet", ""},
		{"write what has changed", three, op{Op: write, Text: "x", Known: sum([]byte("b"))}, "error: has changed since", ""},
		{"write what is known", three, op{Op: write, Text: "x", Known: sum([]byte(three))}, "Changed", "x"},

		{"append", "a", op{Op: add, Text: "b\n"}, "Changed", "ab\n"},
		{"append to nothing", "-", op{Op: add, Text: "b\n"}, "Created", "b\n"},
		{"append to a folder", "", op{Op: add, Path: "DIR"}, "error: is a folder", ""},
		{"append to a binary file", "\x00", op{Op: add, Text: "b"}, "Changed", "\x00b"},

		{"replace all", "aXbX", op{Op: replace, Old: "X", Text: "yy", All: true}, "2 places", "ayybyy"},
		{"replace all of none", "ab", op{Op: replace, Old: "X", All: true}, "error: does not occur", ""},
		{"replace unread", "ab", op{Op: replace, Old: "a", Known: sandbox.Unread}, "error: was not read yet", ""},
	} {
		files := map[string]string{"f": c.file}
		if c.file == "-" {
			files = nil
		}
		dir := tree(t, files)
		if c.req.Path == "" {
			c.req.Path = "DIR/f"
		}
		c.req.Path = strings.ReplaceAll(c.req.Path, "DIR", dir)
		res := Do(c.req)
		want, isError := strings.CutPrefix(c.want, "error: ")
		if res.Error != isError || !strings.Contains(res.Text, want) || c.req.Op == rd && !isError && res.Text != want {
			t.Errorf("%s: %+v", c.name, res)
		}
		now := c.now
		switch now {
		case "":
			now = c.file
		case "\x00": // empty
			now = ""
		}
		if got, err := os.ReadFile(dir + "/f"); now != "-" && string(got) != now || now == "-" && err == nil {
			t.Errorf("%s: the file has %q, want %q", c.name, got, now)
		}
	}
}
