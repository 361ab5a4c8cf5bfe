package fileop

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A file is a regular file, with its text if it was opened.
type file struct {
	name string // without links
	info fs.FileInfo
	raw  []byte
	text string
	encoding
}

// stat finds the regular file that a name leads to.
func stat(name string) (*file, error) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(real)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	return &file{name: real, info: info}, nil
}

// load reads a file.
func load(name string) (*file, error) {
	f, err := stat(name)
	if err != nil {
		return nil, err
	}
	return f, f.load()
}

// decode makes the text of the content.
func (f *file) decode() (err error) {
	if f.text, f.encoding, err = decode(f.raw); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// load reads the content.
func (f *file) load() error {
	if f.info.Size() > maxFile {
		return tooLarge(f.name, f.info.Size())
	}
	// A pipe in its place must not block, and a terminal not become ours.
	in, err := os.OpenFile(f.name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if f.info, err = in.Stat(); err != nil {
		return err
	}
	if !f.info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", f.name)
	}
	var b bytes.Buffer
	b.Grow(int(f.info.Size()) + bytes.MinRead) // which ReadFrom needs to find the end
	if _, err = b.ReadFrom(io.LimitReader(in, maxFile+1)); err != nil {
		return err
	}
	f.raw = b.Bytes()
	if len(f.raw) > maxFile { // it grew, or it is one of /proc
		return tooLarge(f.name, max(f.info.Size(), int64(len(f.raw))))
	}
	return nil
}

// makeFile makes a file, which does not exist, whole or not at all.
func makeFile(name string, c content) error {
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if err := fill(to, c); err != nil {
		os.Remove(name)
		return err
	}
	return nil
}

func tooLarge(name string, size int64) error {
	return fmt.Errorf("%s is too large: it has %.1f MB, and the limit is %d MB; use the shell", name,
		float64(size)/(1<<20), maxFile>>20)
}

// countLines returns the number of lines of a text.
func countLines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

// crlf reports whether all lines end with a carriage return, too.
func (f *file) crlf() bool {
	n := strings.Count(f.text, "\n")
	return n > 0 && strings.Count(f.text, "\r\n") == n
}

// put changes the content of the file. Where nothing of it is lost (its owner, other names, what
// belongs to it besides the content), another file takes its place at once. Otherwise the content is
// written over.
func (f *file) put(c content) error {
	if err := unix.Faccessat(unix.AT_FDCWD, f.name, unix.W_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "write", Path: f.name, Err: err}
	}
	if done, err := f.swap(c); done || err != nil {
		return err
	}
	if f.raw == nil {
		if err := f.load(); err != nil {
			return err
		}
	}
	to, err := os.OpenFile(f.name, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	if info, err := to.Stat(); err != nil || !info.Mode().IsRegular() {
		to.Close()
		return errors.Join(err, fmt.Errorf("%s is no regular file any more", f.name))
	}
	// What is there is written over, and cut at last: there is room for it, also to put it back.
	err = c.write(to)
	if err == nil {
		err = to.Truncate(int64(c.size()))
	}
	if err != nil {
		_, back := to.WriteAt(f.raw, 0)
		back = errors.Join(back, to.Truncate(int64(len(f.raw))))
		to.Close()
		if back != nil {
			return fmt.Errorf("%w; the old content could not be put back: %w", err, back)
		}
		return err
	}
	return to.Close()
}

// swap puts another file with the content in the place of f, if that loses nothing.
func (f *file) swap(c content) (done bool, err error) {
	st, ok := f.info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink > 1 {
		return false, nil
	}
	if n, err := unix.Llistxattr(f.name, nil); n > 0 || err != nil && err != unix.ENOTSUP {
		return false, nil
	}
	to, err := os.CreateTemp(path.Dir(f.name), ".edit-*")
	if err != nil { // the folder cannot be written
		return false, nil
	}
	defer func() {
		if !done {
			os.Remove(to.Name())
		}
	}()
	made, err := to.Stat()
	if err != nil {
		to.Close()
		return false, err
	}
	own, _ := made.Sys().(*syscall.Stat_t)
	if own.Uid != st.Uid || own.Gid != st.Gid {
		if to.Chown(int(st.Uid), int(st.Gid)) != nil {
			to.Close()
			return false, nil
		}
	}
	if to.Chmod(f.info.Mode()) != nil { // after Chown, which clears set-ID bits
		to.Close()
		return false, nil
	}
	if err := fill(to, c); err != nil {
		return false, err
	}
	// Some process may have written to it meanwhile. What comes after this look is lost.
	if now, err := os.Lstat(f.name); err != nil || !os.SameFile(now, f.info) || now.Size() != f.info.Size() ||
		!now.ModTime().Equal(f.info.ModTime()) {
		return false, fmt.Errorf("%s has changed while it was edited, and was left alone; try again", f.name)
	}
	if err := os.Rename(to.Name(), f.name); err != nil {
		return false, nil // such as a file that is a mount
	}
	return true, nil
}

// fill writes the content of a file and closes it.
func fill(f *os.File, c content) error {
	return errors.Join(c.write(f), f.Close())
}

// A content is what a file has, in parts, so that a small change of a large file needs no copy.
type content [][]byte

func (c content) size() (n int) {
	for _, b := range c {
		n += len(b)
	}
	return n
}

func (c content) sum() string {
	h := sha256.New()
	for _, b := range c {
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (c content) write(w io.Writer) error {
	for _, b := range c {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// An encoding is how a text is written in a file. The zero value is UTF-8.
type encoding struct {
	mark  string // the byte order mark
	order interface {
		binary.ByteOrder
		binary.AppendByteOrder
	} // UTF-16
	latin1 bool // bytes that are no UTF-8
}

const (
	markUTF8 = "\xef\xbb\xbf"
	markLE   = "\xff\xfe"
	markBE   = "\xfe\xff"
)

// decode returns the text of a file. Without a byte order mark it is UTF-8, or if it is not, Latin-1,
// so that no byte is lost.
func decode(b []byte) (string, encoding, error) {
	s := unsafe.String(unsafe.SliceData(b), len(b)) // nobody changes b
	switch {
	case strings.HasPrefix(s, markUTF8) && utf8.ValidString(s):
		return s[len(markUTF8):], encoding{mark: markUTF8}, nil
	case strings.HasPrefix(s, markLE), strings.HasPrefix(s, markBE):
		e := encoding{mark: s[:2], order: binary.LittleEndian}
		if s[:2] == markBE {
			e.order = binary.BigEndian
		}
		units := make([]uint16, 0, len(b)/2)
		for i := 2; i+1 < len(b); i += 2 {
			units = append(units, e.order.Uint16(b[i:]))
		}
		text := string(utf16.Decode(units))
		if len(b)%2 == 0 && !strings.ContainsRune(text, 0) && !strings.ContainsRune(text, utf8.RuneError) {
			return text, e, nil
		}
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return "", encoding{}, errors.New("this is a binary file, which cannot be viewed or edited as text")
	}
	if utf8.Valid(b) {
		return s, encoding{}, nil
	}
	var text strings.Builder
	for _, c := range b {
		text.WriteRune(rune(c))
	}
	return text.String(), encoding{latin1: true}, nil
}

// encode is the reverse of decode, for a part of the text.
func (e encoding) encode(text string) ([]byte, error) {
	switch {
	case e.order != nil:
		b := make([]byte, 0, 2*len(text))
		for _, u := range utf16.Encode([]rune(text)) {
			b = e.order.AppendUint16(b, u)
		}
		return b, nil
	case e.latin1:
		b := make([]byte, 0, len(text))
		for _, r := range text {
			if r > 0xff {
				return nil, fmt.Errorf("this file is not UTF-8 but Latin-1, which has no %q", r)
			}
			b = append(b, byte(r))
		}
		return b, nil
	}
	return unsafe.Slice(unsafe.StringData(text), len(text)), nil // nobody changes it
}
