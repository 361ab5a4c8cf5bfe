package journal

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/harness/record"
)

// A lazyDisk accepts every write and reports a full disk only on sync, like network file systems
// and those with delayed allocation. Data for which it then has no space is lost.
type lazyDisk struct {
	mu   sync.Mutex
	dir  string
	err  error // error of a full disk
	lost int
}

type lazyFile struct {
	file
	d     *lazyDisk
	dirty [][2]int64 // bytes written since the last sync
}

func (d *lazyDisk) open(name string) (file, error) {
	f, err := openFile(name)
	return &lazyFile{file: f, d: d}, err
}

func (f *lazyFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.dirty = append(f.dirty, [2]int64{off, int64(len(p))})
	return f.file.WriteAt(p, off)
}

func (f *lazyFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if _, err := os.Stat(filepath.Join(f.d.dir, ballastFile)); err == nil && f.d.err != nil && len(f.dirty) > 0 {
		for _, r := range f.dirty {
			f.d.lost++
			if _, err := f.file.WriteAt(make([]byte, r[1]), r[0]); err != nil {
				return err
			}
		}
		f.dirty = nil
		return f.d.err
	}
	f.dirty = nil
	return f.file.Sync()
}

// The ballast makes room for the entries in flight even if the disk or the quota reports only on
// sync that it is full.
func TestBallastPaysAtSync(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		for _, waits := range []bool{true, false} { // a Sync for each entry, or one for all
			dir := filepath.Join(t.TempDir(), "journal")
			disk := &lazyDisk{dir: dir}
			j, err := Open(dir, Options{open: disk.open, Ballast: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range []record.Entry{begin("t"), event("t", 0), event("t", 1), verdictOf("t")} {
				if i == 1 {
					if err := j.Sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					disk.mu.Lock()
					disk.err = full
					disk.mu.Unlock()
				}
				if err := j.Append(t.Context(), e); err != nil {
					t.Fatal(err)
				}
				if waits {
					if err := j.Sync(t.Context()); err != nil {
						t.Fatalf("%v: %v", full, err)
					}
				}
			}
			if err := j.Sync(t.Context()); err != nil {
				t.Fatalf("%v: %v", full, err)
			}
			if err := j.Room(); !errors.Is(err, record.ErrLowSpace) {
				t.Errorf("%v: room without ballast: %v", full, err)
			}
			if err := j.Close(); err != nil {
				t.Errorf("%v: %v", full, err)
			}
			n := 0
			for _, err := range Scan(dir) {
				if err != nil {
					t.Errorf("%v: %v", full, err)
				}
				n++
			}
			if n != 4 || disk.lost == 0 {
				t.Errorf("%v: %d entries, %d writes were lost", full, n, disk.lost)
			}
		}
	}
}

// An exceeded quota on a write counts as a full disk.
func TestBallastPaysQuota(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	disk := &shortDisk{err: syscall.EDQUOT}
	j, err := Open(dir, Options{open: disk.open, Ballast: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	disk.dir = dir
	for _, e := range []record.Entry{begin("t"), event("t", 0)} {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The low-water mark is a percentage of a small disk, and a fixed size on a large one.
func TestLowWater(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct{ total, want uint64 }{{10 * gib, 256 << 20}, {100 * gib, gib}, {2000 * gib, 5 * gib},
		{100_000 * gib, 5 * gib}} {
		if got := lowWater(0, c.total); got != c.want {
			t.Errorf("a disk of %d GiB: %d MiB, want %d", c.total/gib, got>>20, c.want>>20)
		}
	}
	if got := lowWater(7*gib, 10*gib); got != 7*gib {
		t.Errorf("as configured: %d", got)
	}
}
