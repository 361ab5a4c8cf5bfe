// Package fileop views and edits text files and searches folders (package search), as the tool of an
// agent. It is the part that runs inside the sandbox, as a process of the agent's user (see package
// executor): it has that user's rights and no others, and what it answers is worth as much as the
// output of any command.
//
// The operations and their rules are those of the file editor of OpenHands, without its defects: a
// changed file keeps its mode, owner and links, and nobody sees half of a change.
package fileop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

const (
	maxFile = sandbox.MaxEdited
	maxView = sandbox.MaxView
	// MaxRequest limits the JSON of a request, in bytes; MaxResult that of a result.
	MaxRequest = 64 << 20
	MaxResult  = 32 << 20

	around = 4 // lines of a snippet before and after what has changed
)

// A request is carried out by its methods.
type request sandbox.FileOp

// Serve reads a request as JSON and writes its result. An error is not the request's.
func Serve(r io.Reader, w io.Writer) error {
	var req sandbox.FileOp
	if err := json.NewDecoder(io.LimitReader(r, MaxRequest)).Decode(&req); err != nil {
		return fmt.Errorf("reading a file operation: %w", err)
	}
	res := Do(req)
	before, data := res.Before, res.Data
	res.Before, res.Data = nil, nil
	if err := json.NewEncoder(w).Encode(wire{res, len(before), len(data)}); err != nil {
		return err
	}
	_, err := w.Write(before)
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// A wire is what Serve writes: a line of JSON, and then the content before the change and the data,
// for which JSON is slow.
type wire struct {
	sandbox.FileResult
	Size     int `json:"before_size,omitempty"`
	DataSize int `json:"data_size,omitempty"`
}

// Decode returns the result that Serve has written.
func Decode(b []byte) (sandbox.FileResult, error) {
	line, rest, ok := bytes.Cut(b, []byte{'\n'})
	var w wire
	if err := json.Unmarshal(line, &w); err != nil {
		return sandbox.FileResult{}, err
	}
	if !ok || w.Size < 0 || w.Size > len(rest) || w.DataSize != len(rest)-w.Size {
		return sandbox.FileResult{}, fmt.Errorf("%d bytes follow, and not %d and %d", len(rest), w.Size, w.DataSize)
	}
	w.Before, w.Data = nil, nil
	if w.Size > 0 {
		w.Before = rest[:w.Size:w.Size]
	}
	if w.DataSize > 0 {
		w.Data = rest[w.Size:]
	}
	return w.FileResult, nil
}

// Do carries out an operation.
func Do(op sandbox.FileOp) sandbox.FileResult {
	res, err := request(op).do()
	if err != nil {
		return sandbox.FileResult{Text: because(err), Error: true}
	}
	return res
}

// because returns the text of an error. Errors of the system name the path already.
func because(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Sprintf("%s: %v", p.Path, p.Err)
	}
	return err.Error()
}

func (r request) do() (res sandbox.FileResult, err error) {
	if !path.IsAbs(r.Path) {
		hint := ""
		if abs := path.Join("/", r.Dir, r.Path); r.Path != "" && exists(abs) {
			hint = fmt.Sprintf(": do you mean %s?", abs)
		}
		return res, fmt.Errorf("path %q is not absolute; it must begin with /%s", r.Path, hint)
	}
	if strings.ContainsRune(r.Path, 0) {
		return res, errors.New("a path has no NUL byte")
	}
	if len(r.Within) > 0 {
		r.Path = path.Clean(r.Path) // what is checked is what is opened, also if .. follows a link
	}
	if !r.inside(r.Path) {
		if _, err := os.Stat(r.Path); errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENAMETOOLONG) {
			return res, err // it leads nowhere
		}
		return res, fmt.Errorf("%s: %w: it must lead into %s", r.Path, syscall.EACCES, strings.Join(r.Within, ", "))
	}
	switch r.Op {
	case sandbox.FileCreate:
		return r.create()
	case sandbox.FileRestore:
		res.Text, err = r.restore()
		return res, err
	case sandbox.FileGlob, sandbox.FileGrep:
		return r.search()
	case sandbox.FileWrite, sandbox.FileAppend:
		return r.write()
	case sandbox.FileView, sandbox.FileRead, sandbox.FileReplace, sandbox.FileInsert:
	default:
		return res, fmt.Errorf("there is no operation %q", r.Op)
	}
	info, err := os.Stat(r.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return res, fmt.Errorf("%s does not exist", r.Path)
	case err != nil:
		return res, err
	case info.IsDir() && r.Op != sandbox.FileView:
		return res, fmt.Errorf("%s is a folder; only view works on folders", r.Path)
	case info.IsDir() && len(r.Lines) > 0:
		return res, errors.New("view_range is for files, and this is a folder: " + r.Path)
	case info.IsDir():
		res.Text, err = r.viewFolder()
		return res, err
	}
	f, err := load(r.Path)
	if err != nil {
		return res, err
	}
	if r.Op == sandbox.FileView && kindOf(f.raw) != "" {
		return r.data(f)
	}
	if err := f.decode(); err != nil {
		return res, err
	}
	switch r.Op {
	case sandbox.FileView:
		res.Text, err = r.view(f)
		return res, err
	case sandbox.FileRead:
		return r.read(f), nil
	}
	if err := r.known(f); err != nil {
		return res, err
	}
	if r.Op == sandbox.FileInsert {
		return r.insert(f)
	}
	return r.replace(f)
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// view returns numbered lines.
func (r request) view(f *file) (string, error) {
	n := countLines(f.text)
	first, last, note := 1, n, ""
	if len(r.Lines) > 0 {
		if len(r.Lines) != 2 {
			return "", errors.New("view_range takes two line numbers, the first and the last")
		}
		first, last = r.Lines[0], r.Lines[1]
		switch {
		case first < 1 || first > max(1, n):
			return "", fmt.Errorf("view_range [%d, %d]: the first line must be between 1 and %d, the last line of the file",
				first, last, max(1, n))
		case last == -1:
			last = n
		case last < first:
			return "", fmt.Errorf("view_range [%d, %d]: the last line is before the first; -1 is the end of the file",
				first, last)
		case last > n:
			note = fmt.Sprintf("NOTE: there is no line %d; the file ends with line %d.\n", last, n)
			last = n
		}
	}
	if n == 0 {
		return note + r.Path + " is empty.\n", nil
	}
	return note + "Lines of " + r.Path + ":\n" + number(f.text[after(f.text, first-1):], first, last,
		"view the rest with view_range"), nil
}

// number returns the lines from first to last of a text, which begins with the first, with their
// numbers, as cat -n does. What is longer than a view is cut, with a line that says so and ends with
// hint.
func number(text string, first, last int, hint string) string {
	var b strings.Builder
	left := maxView
	for i := first; i <= last; i++ {
		line, rest, _ := strings.Cut(text, "\n")
		line, text = strings.TrimSuffix(line, "\r"), rest
		n := fmt.Sprintf("%6d\t", i)
		if left -= len(n) + 1; left <= 0 || len(line) > left && utf8.RuneCountInString(line) > left {
			if left > 0 {
				b.WriteString(n + line[:firstChars(line, left)] + "\n")
			}
			fmt.Fprintf(&b, "[the view is cut in line %d of %d: %s]\n", i, last, hint)
			break
		}
		left -= utf8.RuneCountInString(line)
		b.WriteString(n)
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// viewFolder returns the names in a folder, two levels deep.
func (r request) viewFolder() (string, error) {
	dir := path.Clean(r.Path)
	names, hidden, err := r.list(dir, 1, nil)
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	var b strings.Builder
	fmt.Fprintf(&b, "Files and folders in %s, two levels deep, without hidden ones:\n%s/\n", dir,
		strings.TrimSuffix(dir, "/"))
	for i, name := range names {
		if b.Len()+len(name) > maxView || i == maxNames {
			fmt.Fprintf(&b, "[%s names are left out: view a folder in it]\n", count(len(names)-i, len(names) > maxNames))
			break
		}
		b.WriteString(name + "\n")
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "\n%d hidden files and folders in %s are not shown; ls -la %s shows them.\n", hidden, dir, dir)
	}
	return b.String(), nil
}

func count(n int, more bool) string {
	if more {
		return "more than " + strconv.Itoa(n-1)
	}
	return strconv.Itoa(n)
}

// maxNames limits the names that are read of a folder and what is below it.
const maxNames = 10_000

// list adds the names in dir, and on level 1 those in its folders. Links to folders are followed
// unless they lead out of Within.
func (r request) list(dir string, level int, names []string) (_ []string, hidden int, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return names, 0, err
	}
	defer d.Close()
	for len(names) <= maxNames {
		entries, err := d.ReadDir(1000)
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			if strings.HasPrefix(e.Name(), ".") {
				hidden++
				continue
			}
			if len(names) > maxNames {
				break
			}
			info, err := os.Stat(name)
			if err != nil || !info.IsDir() || e.Type()&fs.ModeSymlink != 0 && !r.inside(name) {
				names = append(names, clean(name))
				continue
			}
			names = append(names, clean(name)+"/")
			if level == 1 { // a folder that cannot be read is shown without what is in it
				names, _, _ = r.list(name, 2, names)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return names, hidden, err
		}
	}
	return names, hidden, nil
}

// clean returns a name on one line.
func clean(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }) {
		return strconv.Quote(name)
	}
	return name
}

func (r request) create() (res sandbox.FileResult, err error) {
	if info, err := os.Lstat(r.Path); err == nil {
		if info.IsDir() {
			return res, fmt.Errorf("%s is a folder", r.Path)
		}
		return res, fmt.Errorf("%s exists already, and create does not overwrite; change it with str_replace or "+
			"insert", r.Path)
	}
	return r.make()
}

// make makes the file, which does not exist, with its folders.
func (r request) make() (res sandbox.FileResult, err error) {
	if len(r.Text) > maxFile {
		return res, tooLarge(r.Path, int64(len(r.Text)))
	}
	if err := os.MkdirAll(path.Dir(r.Path), 0o777); err != nil {
		return res, err
	}
	if err := makeFile(r.Path, content{[]byte(r.Text)}); err != nil {
		return res, err
	}
	return sandbox.FileResult{Text: "Created " + r.Path + ".\n", Gone: true, Real: real(r.Path),
		Change: sandbox.Change{Sum: sum([]byte(r.Text))}}, nil
}

func (r request) replace(f *file) (res sandbox.FileResult, err error) {
	if r.Old == r.Text {
		return res, errors.New("old_str and new_str are the same, so nothing would change")
	}
	if r.Old == "" {
		return res, errors.New("old_str is empty; name the text to be replaced, or use insert")
	}
	was, with := r.Old, r.Text
	at := index(f.text, was)
	if crlf := strings.ReplaceAll(was, "\n", "\r\n"); at < 0 && f.crlf() && !strings.Contains(was, "\r") {
		was, with = crlf, strings.ReplaceAll(with, "\n", "\r\n")
		at = index(f.text, was)
	}
	if trimmed := strings.TrimSpace(r.Old); at < 0 && trimmed != "" {
		was, with = trimmed, strings.TrimSpace(r.Text)
		at = index(f.text, was)
	}
	if at < 0 {
		return res, fmt.Errorf("old_str does not occur in %s, with this white space; nothing was replaced", r.Path)
	}
	if r.All {
		return r.change(f, "", strings.ReplaceAll(f.text, was, with), "", strconv.Itoa(strings.Count(f.text, was))+" places.\n")
	}
	if index(f.text[at+1:], was) >= 0 {
		return res, fmt.Errorf("old_str occurs %s, in lines %s; nothing was replaced. Add lines around it, so that it "+
			"occurs once", times(f.text, was), strings.Join(occurrences(f.text, was), ", "))
	}
	before, behind := f.text[:at], f.text[at+len(was):]
	return r.change(f, before, with, behind, snippet(before, with, behind, strings.Count(with, "\n")))
}

// index is strings.Index, which is slow for long texts to find: this one looks for their beginning.
func index(text, s string) int {
	const short = 32
	if len(s) <= short {
		return strings.Index(text, s)
	}
	at := 0
	for range 1000 { // many places begin alike, and may take a time with the square of the length
		i := strings.Index(text[at:], s[:short])
		if i < 0 {
			return -1
		}
		if strings.HasPrefix(text[at+i:], s) {
			return at + i
		}
		at += i + 1
	}
	if i := strings.Index(text[at:], s); i >= 0 {
		return at + i
	}
	return -1
}

// times says how often s occurs in text; overlapping ones count.
func times(text, s string) string {
	n := 0
	for i := 0; ; {
		j := strings.Index(text[i:], s)
		if j < 0 {
			return strconv.Itoa(n) + " times"
		}
		n++
		if i += j + 1; n >= 10_000 {
			return "more than 9,999 times"
		}
	}
}

// occurrences returns the numbers of the lines in which s begins, some at most.
func occurrences(text, s string) (lines []string) {
	line := 1
	for i := 0; len(lines) < 100; {
		j := strings.Index(text[i:], s)
		if j < 0 {
			return lines
		}
		line += strings.Count(text[i:i+j], "\n")
		lines = append(lines, strconv.Itoa(line))
		if text[i+j] == '\n' {
			line++
		}
		i += j + 1
	}
	return append(lines, "…")
}

func (r request) insert(f *file) (res sandbox.FileResult, err error) {
	if n := countLines(f.text); r.Line < 0 || r.Line > n {
		return res, fmt.Errorf("insert_line %d: it must be between 0, for the beginning of the file, and %d, its "+
			"last line", r.Line, n)
	}
	end := "\n"
	if f.crlf() {
		end = "\r\n"
	}
	at := after(f.text, r.Line) // where the text goes
	before, behind := f.text[:at], f.text[at:]
	text := strings.TrimSuffix(strings.ReplaceAll(r.Text, "\r\n", "\n"), "\n")
	more := strings.Count(text, "\n")
	text = strings.ReplaceAll(text, "\n", end) + end
	if before != "" && !strings.HasSuffix(before, "\n") {
		text, more = end+text, more+1
	}
	return r.change(f, before, text, behind, snippet(before, text, behind, more))
}

// change makes the text of a file that of three parts, of which the first and the last are there
// already.
func (r request) change(f *file, before, with, behind, snippet string) (res sandbox.FileResult, err error) {
	c := content{[]byte(f.mark)}
	for _, part := range []string{before, with, behind} {
		b, err := f.encode(part)
		if err != nil {
			return res, err
		}
		c = append(c, b)
	}
	if c.size() > maxFile {
		return res, tooLarge(f.name, int64(c.size()))
	}
	if err := f.put(c); err != nil {
		return res, err
	}
	at := len(c[0]) + len(c[1])
	return sandbox.FileResult{Text: "Changed " + r.Path + ". " + snippet, Real: f.name, Change: sandbox.Change{At: at,
		Now: len(c[2]), Before: f.raw[at : len(f.raw)-len(c[3]) : len(f.raw)], Sum: c.sum()}}, nil
}

// snippet returns the changed lines, and some around them. More is the number of lines that are changed
// besides the first.
func snippet(before, with, behind string, more int) string {
	from := 1 + strings.Count(before, "\n")
	to := from + more + around
	begin := strings.LastIndexByte(before, '\n') + 1
	for i := 0; i < around && begin > 0; i++ {
		begin = strings.LastIndexByte(before[:begin-1], '\n') + 1
		from--
	}
	part := before[begin:] + with
	part += behind[:after(behind, to-from+1-strings.Count(part, "\n"))]
	if part == "" {
		return "It is empty now.\n"
	}
	part = part[:after(part, to-from+1)]
	to = from + countLines(part) - 1
	return fmt.Sprintf("Lines %d to %d are now:\n", from, to) + number(part, from, to, "see the rest with view") +
		"Check that this is what you mean, such as the indentation and that no line is there twice.\n"
}

// real returns a path without links.
func real(name string) string {
	if s, err := filepath.EvalSymlinks(name); err == nil {
		return s
	}
	return name
}

// restore takes a change back, unless the file has changed since.
func (r request) restore() (string, error) {
	f, err := stat(r.Path)
	if err == nil {
		err = f.load()
	}
	if err == nil && (sum(f.raw) != r.Sum || r.At < 0 || r.Now < 0 || r.At > len(f.raw) || r.Now > len(f.raw)-r.At) {
		return "", fmt.Errorf("%s has changed since, so the change cannot be undone; view the file, and change it "+
			"back", r.Path)
	}
	if r.Gone {
		if err != nil {
			return "", err
		}
		if err := os.Remove(r.Path); err != nil {
			return "", err
		}
		return "Removed " + r.Path + ", which did not exist before.\n", nil
	}
	if err != nil {
		return "", err
	}
	before := slices.Concat(f.raw[:r.At], r.Before, f.raw[r.At+r.Now:])
	if err := f.put(content{before}); err != nil {
		return "", err
	}
	if bytes.IndexByte(before, 0) >= 0 {
		return "Restored " + r.Path + ".\n", nil
	}
	return "Restored " + r.Path + ":\n" + number(string(before), 1, countLines(string(before)), "see the rest with view"), nil
}
