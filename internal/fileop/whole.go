package fileop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// read returns the text of a file, or of some of its lines.
func (r request) read(f *file) sandbox.FileResult {
	text := strings.ReplaceAll(f.text, "\r\n", "\n")
	res := sandbox.FileResult{Change: sandbox.Change{Sum: sum(f.raw)}, LineCount: countLines(f.text)}
	if len(r.Lines) == 2 {
		first, last := max(r.Lines[0], 1), r.Lines[1]
		if last < 0 {
			last = res.LineCount
		}
		text = strings.TrimSuffix(text[after(text, first-1):after(text, max(last, first-1))], "\n")
	}
	res.Chars = utf8.RuneCountInString(text)
	res.Text = text[:firstChars(text, sandbox.MaxRead)]
	return res
}

// after returns where the text after n lines begins.
func after(text string, n int) int {
	at := 0
	for ; n > 0; n-- {
		i := strings.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	return at
}

// firstChars returns the length of the first n characters of a text.
func firstChars(text string, n int) int {
	for i := range text {
		if n--; n < 0 {
			return i
		}
	}
	return len(text)
}

func sum(b []byte) string { return content{b}.sum() }

// known returns an error if the operation depends on the content of the file, and it is another one.
func (r request) known(f *file) error {
	switch r.Known {
	case "", sum(f.raw):
		return nil
	case sandbox.Unread:
		return fmt.Errorf("%s was not read yet; read it before you change it", r.Path)
	}
	return fmt.Errorf("%s has changed since it was read; read it again before you change it", r.Path)
}

// write makes a file, puts a text in the place of its content, or adds to it.
func (r request) write() (res sandbox.FileResult, err error) {
	if info, err := os.Stat(r.Path); err == nil && info.IsDir() {
		return res, fmt.Errorf("%s is a folder", r.Path)
	}
	f, err := stat(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return r.make()
	}
	if err != nil {
		return res, err
	}
	if len(r.Text) > maxFile {
		return res, tooLarge(r.Path, int64(len(r.Text)))
	}
	if r.Known != "" {
		// What cannot be read as a text is not known to the agent anyway.
		if whole, err := load(r.Path); err == nil && whole.decode() == nil {
			if err := r.known(whole); err != nil {
				return res, err
			}
		}
	}
	switch {
	case r.Op == sandbox.FileWrite && len(r.Lines) > 0:
		return r.writeLines(f)
	case r.Op == sandbox.FileWrite:
		err = f.put(content{[]byte(r.Text)})
	default:
		err = add(f.name, []byte(r.Text))
	}
	return sandbox.FileResult{Text: "Changed " + r.Path + ".\n"}, err
}

// writeLines puts a text in the place of some lines.
func (r request) writeLines(f *file) (res sandbox.FileResult, err error) {
	if err := f.load(); err != nil {
		return res, err
	}
	if err := f.decode(); err != nil {
		return res, err
	}
	n := countLines(f.text)
	if len(r.Lines) != 2 {
		return res, errors.New("lines takes two line numbers, the first and the last")
	}
	first, last := r.Lines[0], r.Lines[1]
	if first < 1 || first > n+1 {
		return res, fmt.Errorf("lines [%d, %d]: the first line must be between 1 and %d, one more than the file has",
			first, last, n+1)
	}
	if last < 0 || last > n {
		last = n
	}
	end := "\n"
	if f.crlf() {
		end = "\r\n"
	}
	before, behind := f.text[:after(f.text, first-1)], f.text[after(f.text, max(last, first-1)):]
	text := strings.ReplaceAll(strings.ReplaceAll(r.Text, "\r\n", "\n"), "\n", end)
	if text != "" && behind != "" && !strings.HasSuffix(text, "\n") {
		text += end
	}
	more := strings.Count(strings.TrimSuffix(text, "\n"), "\n")
	if before != "" && !strings.HasSuffix(before, "\n") {
		text, more = end+text, more+1
	}
	return r.change(f, before, text, behind, snippet(before, text, behind, more))
}

// add puts b at the end of a file, whole or not at all.
func add(name string, b []byte) error {
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	info, err := to.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file any more", name)
	}
	if err == nil {
		if _, err = to.Write(b); err != nil { // the disk is full
			err = errors.Join(err, to.Truncate(info.Size()))
		}
	}
	return errors.Join(err, to.Close())
}
