package server

import (
	"archive/tar"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A deep tree is not opened from its root for each of its entries.
func TestPutDeep(t *testing.T) {
	const depth = 500
	dir := t.TempDir()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	// With the closes between them, the kernel does not join opens to one event.
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_CLOSE); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	w := &putter{root: root}
	then := time.Unix(1e9, 0)
	for i := 1; i <= depth; i++ {
		if err := w.entry(&tar.Header{Typeflag: tar.TypeDir, Name: strings.Repeat("d/", i), Mode: 0o755, ModTime: then},
			nil); err != nil {
			t.Fatal(i, err)
		}
	}
	for _, name := range []string{strings.Repeat("d/", depth) + "file", "d/d/file"} {
		if err := w.entry(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: then},
			strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
	}
	w.times()
	w.leave(0)
	opens := 0
	buf := make([]byte, 1<<20)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			break
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			if binary.NativeEndian.Uint32(b[4:])&unix.IN_OPEN != 0 {
				opens++
			}
			b = b[unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])):]
		}
	}
	if opens == 0 || opens > 4 {
		t.Errorf("the uppermost folder was opened %d times for %d entries", opens, depth+2)
	}
	for _, name := range []string{"d", strings.Repeat("d/", depth-1), strings.Repeat("d/", depth) + "file",
		"d/d/file"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || !fi.ModTime().Equal(then) {
			t.Errorf("%.20s…: %v, %v", name, fi.ModTime(), err)
		}
	}
	if err := w.entry(&tar.Header{Typeflag: tar.TypeDir, Name: strings.Repeat("d/", maxDepth+2)}, nil); err == nil ||
		!strings.Contains(err.Error(), "nested too deep") {
		t.Errorf("folders nested too deep: %v", err)
	}
	w.leave(0)
}
