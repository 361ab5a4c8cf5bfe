package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A second writer is seen whenever it opens a file in which something was written, also when the
// kernel joins both close events to one.
func TestVigil(t *testing.T) {
	open := func(t *testing.T, name string, flags int) *os.File {
		f, err := os.OpenFile(name, flags, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	write := func(t *testing.T, f *os.File, text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	const create = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	for _, tt := range []struct {
		name  string
		do    func(t *testing.T, name string)
		again bool
	}{
		{"one writer", func(t *testing.T, name string) {
			f := open(t, name, create)
			write(t, f, "0")
			write(t, f, "1")
			f.Close()
			open(t, name, os.O_RDONLY).Close()
		}, false},
		{"moved here", func(t *testing.T, name string) {
			beside := filepath.Join(t.TempDir(), "x")
			f := open(t, beside, create)
			write(t, f, "0")
			f.Close()
			if err := os.Rename(beside, name); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"one after the other", func(t *testing.T, name string) {
			for _, text := range []string{"0", "1"} {
				f := open(t, name, create)
				write(t, f, text)
				f.Close()
			}
		}, true},
		{"closes that follow each other", func(t *testing.T, name string) {
			f := open(t, name, create)
			write(t, f, "0")
			g := open(t, name, create)
			write(t, g, "1")
			f.Close()
			g.Close()
		}, true},
		{"the first closes last", func(t *testing.T, name string) {
			f := open(t, name, create)
			write(t, f, "0")
			g := open(t, name, os.O_WRONLY)
			write(t, g, "1")
			g.Close()
			f.Close()
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if _, err := unix.InotifyAddWatch(fd, dir, dirWatchMask); err != nil {
				t.Fatal(err)
			}
			tt.do(t, filepath.Join(dir, "reward.txt"))
			v := readDirEvents(fd)
			if !slices.Equal(v.Written, []string{"reward.txt"}) || len(v.Linked) > 0 || v.Cut {
				t.Errorf("%+v", v)
			}
			if again := slices.Contains(v.Again, "reward.txt"); again != tt.again {
				t.Errorf("written again: %v", again)
			}
		})
	}
}
